#!/usr/bin/env python3
"""Lay out a libtorch for palimpsest and link it into the project as `.libtorch`.

    python3 scripts/setup.py            fetch what is missing, then link it      (`make setup`)
    python3 scripts/setup.py --check    change nothing, say what was found; exit code 1 if not ready

The libtorch lies once per machine in the user's cache folder ($XDG_CACHE_HOME/palimpsest, else
~/.cache/palimpsest; ~/Library/Caches/palimpsest on macOS). pip brings the wheels, from whatever index
pip is set up for; a wheel is a zip file, and of the large one only the libraries a CPU needs are kept.

Environment:
    LIBTORCH, LIBTORCH_USE_PYTORCH      already there: they are respected, nothing is fetched
    PALIMPSEST_CUDA=1                   the CUDA build with all it needs (a download of about 2.5 GB)
    PALIMPSEST_CUDA=0                   back to the CPU build
    unset                               keep what `.libtorch` points at; if there is nothing, the CPU build

Everything is unpacked beside its final place and renamed when complete, under a lock: it may be
interrupted at any moment, and run twice at once. Standard library only, Python 3.8 or newer.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

VERSION = "2.11.0"  # the version the tch crate in Cargo.toml is written for
PROJECT = Path(__file__).resolve().parent.parent
LINK = PROJECT / ".libtorch"
# Any CPython build of the wheel carries the same libraries, so one is asked for, whatever Python runs this.
WHEEL_PYTHON = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]
REPORT_EVERY_S = 10.0


class Trouble(Exception):
    """Something a person has to mend: what failed, the value, the rule, the remedy."""


class Wheel(NamedTuple):
    """One wheel, and which of its files go where."""

    name: str
    version: str
    sha256: str
    megabytes: int
    # (pattern of a path in the wheel, what it becomes in the libtorch folder)
    keep: Tuple[Tuple[str, str], ...]


class Platform(NamedTuple):
    """What to fetch on one kind of machine."""

    tags: Tuple[str, ...]
    wheels: Tuple[Wheel, ...]
    tested: bool
    cuda: bool


HEADERS = (r"torch/(include/.+)", r"\1")
NOTICES = (r"torch-[^/]+\.dist-info/licenses/([^/]+)", r"licenses/torch-\1")


def manylinux(machine: str) -> Tuple[str, ...]:
    return tuple("%s_%s" % (tag, machine) for tag in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_25", "manylinux_2_17", "manylinux2014"))


def linux_wheels(torch: Tuple[str, int], cupti: Tuple[str, int], cudart: Tuple[str, int]) -> Tuple[Wheel, ...]:
    """The wheel of torch is a CUDA build; its CPU library needs of CUDA only the two small ones."""
    return (
        Wheel("nvidia-cuda-runtime", "13.0.96", *cudart, keep=((r"nvidia/.+/lib/(libcudart\.so\.13)", r"lib/\1"),)),
        Wheel("nvidia-cuda-cupti", "13.0.85", *cupti, keep=((r"nvidia/.+/lib/(libcupti\.so\.13)", r"lib/\1"),)),
        Wheel("torch", VERSION, *torch, keep=((r"torch/(lib/(libtorch_cpu\.so|libc10\.so|libgomp[^/]*\.so[^/]*|libarm_compute[^/]*\.so|libopenblas[^/]*\.so[^/]*))", r"\1"), HEADERS, NOTICES)),
    )


PLATFORMS: Dict[Tuple[str, str], Platform] = {
    ("Linux", "x86_64"): Platform(
        manylinux("x86_64"),
        linux_wheels(
            torch=("7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a", 531),
            cupti=("4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8", 11),
            cudart=("7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548", 2),
        ),
        tested=True,
        cuda=True,
    ),
}
