# Two commands do everything on a fresh machine with Rust, a C++ compiler and Python 3 with pip:
#     make demo      make test
# They fetch a libtorch first when there is none (see scripts/setup.py). Afterwards plain cargo works too.

CARGO  ?= cargo
PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help setup encoder demo test lint doctor ci clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z]+):[^#]*## /  make \1	/' | expand -t 16
	@echo
	@echo '  PALIMPSEST_CUDA=1 make setup    takes the CUDA build of libtorch (2.5 GB), PALIMPSEST_CUDA=0 goes back'
	@echo '  LIBTORCH or LIBTORCH_USE_PYTORCH, when set, are respected: nothing is fetched'

setup: ## fetch libtorch if it is missing, once per machine, and link it as .libtorch
	@$(PYTHON) scripts/setup.py

encoder: ## fetch a small encoder for dense retrieval (84 MB) and link it as .encoder
	@$(PYTHON) scripts/encoder.py

demo: setup ## train the small model for a few steps on this machine and show what came of it
	$(CARGO) run -- --experiment experiments/quickstart.ron $(ARGS)

test: setup ## all tests
	$(CARGO) test $(ARGS)

lint: setup ## formatting, clippy, documentation: warnings are errors
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps

doctor: ## what this machine has, what palimpsest wants, how to mend the difference
	@if $(PYTHON) scripts/setup.py --check; then $(CARGO) run --quiet -- doctor; else exit 1; fi

ci: ## what the CI runs: lint, the build without libtorch, licences, tests
	@.ci/run

clean: ## remove what was built; libtorch, its link and runs/ stay
	$(CARGO) clean
