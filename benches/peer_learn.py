#!/usr/bin/env python3
"""Lets PyTorch make the learn step of `benches/learn.rs` in turn with it: same weights, same rows, same loss, same
number of threads. Prints one JSON object with medians and the ratio.

    cargo bench --bench learn --no-run
    python3 benches/peer_learn.py --size tiny --threads 2 --rounds 5
    python3 benches/peer_learn.py --size smollm2 --model DIR --threads 2 --rounds 3
    python3 benches/peer_learn.py --size smollm2 --model DIR --memory

The peer is a transformers model in eager PyTorch with padding: micro-batches of `--micro` rows in the order they come,
each padded to its longest row. `--logits all` takes the head of every position and masks the loss, as trainers with
padding do; `--logits trained` takes the head of the trained tokens alone. AdamW is PyTorch's fused one.
"""
import argparse
import glob
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from transformers import AutoModelForCausalLM


def micro_batches(rows, micro):
    """Padded tensors: ids, attention mask, trained, old log-probs, advantages; the last three begin at id 1."""
    for first in range(0, len(rows), micro):
        part = rows[first:first + micro]
        width = max(len(row["ids"]) for row in part)
        def padded(name, kind):
            return torch.tensor([row[name] + [0] * (width - len(row[name])) for row in part], dtype=kind)
        attention = torch.tensor([[1] * len(row["ids"]) + [0] * (width - len(row["ids"])) for row in part])
        yield (padded("ids", torch.long), attention, padded("mask", torch.bool)[:, 1:],
               padded("old", torch.float)[:, 1:], padded("advantages", torch.float)[:, 1:])


def step(model, optimizer, rows, micro, which):
    """One PPO step as a token mean; gives loss and gradient norm."""
    total = sum(sum(row["mask"]) for row in rows)
    optimizer.zero_grad(set_to_none=True)
    loss_sum = 0.0
    for ids, attention, mask, old, advantages in micro_batches(rows, micro):
        targets = ids[:, 1:]
        if which == "all":
            logits = model(ids, attention_mask=attention, use_cache=False).logits[:, :-1]
        else:
            hidden = model.model(ids, attention_mask=attention, use_cache=False).last_hidden_state[:, :-1]
            logits, targets = model.lm_head(hidden[mask]), targets[mask]
            old, advantages = old[mask], advantages[mask]
        new = logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        ratio = (new - old).exp()
        losses = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        if which == "all":
            losses = losses * mask
        loss = losses.sum() / total
        loss.backward()
        loss_sum += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss_sum, norm.item()


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="tiny", choices=["tiny", "smollm2"])
    parser.add_argument("--model", help="a Hugging Face folder; by default new weights of the size")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--micro", type=int)
    parser.add_argument("--micro-tokens", type=int, default=0, help="the token budget of palimpsest's micro-batches")
    parser.add_argument("--logits", default="all", choices=["all", "trained"])
    parser.add_argument("--memory", action="store_true", help="peak memory of one step, each in a process of its own")
    parser.add_argument("--peer-memory", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--bench", help="the built bench; by default the newest one")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = options.rows or (64 if options.size == "tiny" else 8)
    micro = options.micro or (8 if options.size == "tiny" else 4)
    built = [path for path in glob.glob("target/release/deps/learn-*") if os.access(path, os.X_OK) and "." not in os.path.basename(path)]
    bench = options.bench or max(built, key=os.path.getmtime, default=None)
    if bench is None:
        sys.exit("no built bench: cargo bench --bench learn --no-run")
    arguments = [bench, "--size", options.size, "--threads", str(options.threads), "--rows", str(rows),
                 "--micro-tokens", str(options.micro_tokens)]
    if options.model:
        arguments += ["--model", options.model]

    def peer(folder):
        model = AutoModelForCausalLM.from_pretrained(options.model or folder, dtype=torch.float32).train()
        with open(os.path.join(folder, "rows.json")) as file:
            work = json.load(file)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), weight_decay=0.0, fused=True), work

    if options.peer_memory:
        model, optimizer, work = peer(options.peer_memory)
        loaded = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
        started = time.perf_counter()
        step(model, optimizer, work, micro, options.logits)
        print(json.dumps({"step": f"pytorch-{options.logits}", "seconds": round(time.perf_counter() - started, 2),
                          "loaded_mib": loaded, "peak_mib": peak()}))
        return
    with tempfile.TemporaryDirectory() as folder:
        ours = subprocess.Popen(arguments + ["--serve", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert ours.stdout.readline().strip() == "ready"
        if options.memory:
            ours.stdin.close()
            ours.wait()
            for which in ["plain", "recompute", "lora", "lora-recompute"]:
                out = subprocess.run(arguments + ["--step", which], capture_output=True, text=True, check=True).stdout
                said = json.loads(out.splitlines()[-1])
                print(json.dumps({k: said[k] for k in ("step", "seconds", "loaded_mib", "peak_mib")}), flush=True)
            for which in ["all", "trained"]:
                again = [sys.executable, *sys.argv, "--peer-memory", folder, "--logits", which]
                print(subprocess.run(again, capture_output=True, text=True, check=True).stdout.splitlines()[-1], flush=True)
            return
        model, optimizer, work = peer(folder)

        def own():
            ours.stdin.write("step\n")
            ours.stdin.flush()
            return json.loads(ours.stdout.readline())

        def theirs():
            started = time.perf_counter()
            loss, norm = step(model, optimizer, work, micro, options.logits)
            return loss, norm, time.perf_counter() - started

        first = own(), theirs()  # warm-up, and the same loss and gradient
        assert abs(first[0]["loss"] - first[1][0]) < 1e-3, first
        assert abs(first[0]["grad_norm"] / first[1][1] - 1) < 1e-2, first
        rounds = [(own(), theirs()) for _ in range(options.rounds)]
        ours.stdin.close()
        ours.wait()
    ratios = [b[2] / a["seconds"] for a, b in rounds]
    print(json.dumps({
        "case": "learn-step", "size": options.size, "threads": options.threads, "rounds": options.rounds, "rows": rows,
        "tokens": first[0]["tokens"], "trained": first[0]["trained"], "peer_logits": options.logits, "peer_micro": micro, "micro_tokens": options.micro_tokens,
        "palimpsest_s": round(statistics.median(a["seconds"] for a, _ in rounds), 3),
        "pytorch_s": round(statistics.median(b[2] for _, b in rounds), 3),
        "ratio": round(statistics.median(ratios), 2), "ratios": [round(r, 2) for r in ratios],
        "loss": first[0]["loss"], "pytorch_loss": first[1][0],
        "grad_norm": first[0]["grad_norm"], "pytorch_grad_norm": first[1][1],
    }), flush=True)


if __name__ == "__main__":
    main()
