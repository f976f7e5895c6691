#!/usr/bin/env python3
"""Lets transformers do the work of `benches/engine.rs`, in turn with it: same weights, same prompts,
same lengths, same number of threads. Prints one JSON object a case with medians and the ratio.

    cargo bench --bench engine --no-run
    python3 benches/peer.py --size tiny --threads 1 --rounds 5

Needs torch and transformers. What a round is:

decode-N     N prompts of 128 ids, sampled for so many new ids.
multi-turn   groups of 8 rollouts on one prompt, 4 turns, tool texts of 64 to 256 ids. transformers calls
             `generate` once a turn for all trajectories, padded on the left, until the longest turn is done.
score-8      the answer after every note of 8 turns, with history and alone, 8 trajectories. The engine
             computes one pass a trajectory; transformers one forward pass a context.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria


class Enough(StoppingCriteria):
    """Every row is done when it has written as much as it should."""

    def __init__(self, start, new):
        self.start, self.new = start, torch.tensor(new)

    def __call__(self, input_ids, scores, **kwargs):
        return input_ids.shape[1] - self.start >= self.new


def generate(model, contexts, new):
    """One padded call; gives what each row wrote."""
    width = max(map(len, contexts))
    ids = torch.zeros(len(contexts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, context in enumerate(contexts):
        ids[row, width - len(context):] = torch.tensor(context)
        mask[row, width - len(context):] = 1
    out = model.generate(
        ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        max_new_tokens=max(new), pad_token_id=0, eos_token_id=None,
        stopping_criteria=[Enough(width, new)],
    )
    return [out[row, width:width + n].tolist() for row, n in enumerate(new)]


def decode(model, work, batch):
    new = [work["decode_new"]] * batch
    return sum(map(len, generate(model, work["decode_prompts"][:batch], new)))


def multi_turn(model, work):
    contexts = [list(work["group_prompts"][n // 8]) for n in range(work["trajectories"])]
    tokens = 0
    for turn, new in enumerate(work["new_ids"]):
        written = generate(model, contexts, new)
        for n, ids in enumerate(written):
            tokens += len(ids)
            contexts[n] += ids
            if turn < len(work["tools"]):
                contexts[n] += work["tools"][turn][n]
    return tokens


def score(model, work):
    count = 0
    for trajectory in work["scored_8"]:
        answer = torch.tensor(trajectory["answer"])
        for context in trajectory["contexts"]:
            ids = torch.cat([torch.tensor(context), answer]).unsqueeze(0)
            logits = model(ids, logits_to_keep=len(answer) + 1).logits[0, :-1]
            logits.log_softmax(-1).gather(1, answer.unsqueeze(1))
            count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="tiny", choices=["tiny", "smollm2"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trajectories", type=int, default=64)
    parser.add_argument("--cases", default="decode-1,decode-16,decode-64,multi-turn,score-8")
    parser.add_argument("--bench", help="the built bench; by default the newest one")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    built = [path for path in glob.glob("target/release/deps/engine-*") if os.access(path, os.X_OK) and "." not in os.path.basename(path)]
    bench = options.bench or max(built, key=os.path.getmtime, default=None)
    if bench is None:
        sys.exit("no built bench: cargo bench --bench engine --no-run")
    with tempfile.TemporaryDirectory() as folder:
        ours = subprocess.Popen(
            [bench, "--serve", folder, "--size", options.size, "--threads", str(options.threads),
             "--trajectories", str(options.trajectories)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert ours.stdout.readline().strip() == "ready"
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with open(os.path.join(folder, "workload.json")) as file:
            work = json.load(file)
        for case in options.cases.split(","):
            compare(case, options, ours, model, work)
        ours.stdin.close()
        ours.wait()


def compare(case, options, ours, model, work):
    name, _, number = case.rpartition("-")

    def peer():
        started = time.perf_counter()
        if name == "decode":
            count = decode(model, work, int(number))
        elif case == "multi-turn":
            count = multi_turn(model, work)
        else:
            count = score(model, work)
        return count, time.perf_counter() - started

    def own():
        ours.stdin.write(("one-pass-8" if name == "score" else case) + "\n")
        ours.stdin.flush()
        return json.loads(ours.stdout.readline())

    if options.rounds > 1 and case != "multi-turn":  # warm-up, where a round is short
        own(), peer()
    rounds = [(own(), peer()) for _ in range(options.rounds)]
    counts = {(a.get("tokens", a.get("contexts")), b[0]) for a, b in rounds}
    assert all(a == b for a, b in counts), f"different work: {counts}"
    count = rounds[0][1][0]
    ratios = [theirs[1] / mine["seconds"] for mine, theirs in rounds]
    mine = statistics.median(mine["seconds"] for mine, _ in rounds)
    theirs = statistics.median(theirs[1] for _, theirs in rounds)
    print(json.dumps({
        "case": case, "size": options.size, "threads": options.threads, "rounds": options.rounds,
        "unit": "contexts" if name == "score" else "tokens", "count": count,
        "palimpsest_per_s": round(count / mine, 1), "transformers_per_s": round(count / theirs, 1),
        "ratio": round(statistics.median(ratios), 2), "ratios": [round(r, 2) for r in ratios],
        "own": {k: v for k, v in rounds[-1][0].items() if k in ("steps", "scheduling_share", "longest")},
    }), flush=True)


if __name__ == "__main__":
    main()
