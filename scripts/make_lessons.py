#!/usr/bin/env python3
"""Records the lessons in assets/lessons: trains the small model for a few steps, with few rollouts a
question, and cuts steps out of the record.

    python3 scripts/make_lessons.py target/release/palimpsest          # trains, then cuts
    python3 scripts/make_lessons.py target/release/palimpsest --run R  # cuts the run folder R

A lesson is a run folder of one step: the events of its trajectories, their token blocks with the
offsets that then hold, and the credit settings. Nothing in it is made up or changed.
"""

import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "assets" / "lessons"
# Which step becomes which lesson.
LESSONS = {"two-notes": 3, "late": 15}
# Groups kept of a step: those whose rollouts differ most.
GROUPS = 3
SETTINGS = [
    "rollout.group_size=6",
    "rollout.groups=16",
    "learner.steps=18",
    "evaluation.every=0",
    "evaluation.questions=2",
    "evaluation.objectives=[2]",
    # The first notes are scored too, so that every context stands in the record.
    "credit=mempo(threshold: none, first: minus_empty)",
]


def train(program, folder):
    command = [program, "--experiment", ROOT / "experiments" / "quickstart.ron", "--run-dir", folder]
    for setting in SETTINGS:
        command += ["--set", setting]
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT)


def of_step(event, step):
    """The id of an event's trajectory or question, if it is one of the step's training rollouts."""
    of = event.get("id") or event
    if of.get("purpose") == "train" and of.get("step") == step and "group" in of:
        return of
    return None


def telling(events, step):
    """The groups whose outcomes and memory advantages differ most."""
    score = {}
    for event in events:
        of = of_step(event, step)
        if of is None or event["kind"] != "credit_assigned":
            continue
        notes = [round["advantage"] for round in event["memory"]] or [0.0]
        outcomes, within = score.setdefault(of["group"], ([], []))
        outcomes.append(event["outcome"])
        within.append(max(notes) - min(notes))
    def worth(group):
        outcomes, within = score[group]
        return min(max(outcomes) - min(outcomes), 2.0) + min(max(within), 3.0)
    return sorted(sorted(score, key=worth, reverse=True)[:GROUPS])


def block(text, name):
    """A setting of the outermost level with all inside it, as it was recorded."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"    {name}:"))
    end = next(at for at in range(start, len(lines)) if lines[at] == "    ),")
    return "\n".join(lines[start : end + 1])


def needed(experiment):
    """What working the credit out again needs: the grammar of credit, and the size of a group. Settings that it does
    not need would only tie the lesson to the version that recorded it."""
    size = next(line.strip() for line in experiment.splitlines() if line.strip().startswith("group_size:"))
    credit = block(experiment, "credit")
    return f"// Recorded by scripts/make_lessons.py.\n(\n    rollout: ({size.rstrip(',')}),\n{credit}\n)\n"


def cut(run, step, out):
    out.mkdir(parents=True, exist_ok=True)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    groups = telling(events, step)
    source = (run / "tokens.bin").read_bytes()
    tokens = bytearray(source[:12])
    kept = [event for event in events if event["kind"] == "run_started"]
    for event in events:
        of = of_step(event, step)
        if of is None or of["group"] not in groups:
            continue
        for at in event.get("tokens", []) if event["kind"] == "credit_assigned" else []:
            block = source[at["offset"] : at["offset"] + at["bytes"]]
            assert struct.unpack_from("<I", block)[0] == len(block) - 8, "a block is cut off"
            at["offset"] = len(tokens)
            tokens += block
        kept.append(event)
    lines = (json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in kept)
    (out / "events.jsonl").write_text("".join(line + "\n" for line in lines))
    (out / "tokens.bin").write_bytes(tokens)
    shutil.copy(run / "vocab.json", OUT / "vocab.json")
    (out / "experiment.ron").write_text(needed((run / "experiment.ron").read_text()))
    print(f"{out.relative_to(ROOT)}: step {step + 1}, groups {groups}, {len(tokens)} bytes of tokens")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program", help="the palimpsest to record with")
    arguments.add_argument("--run", type=pathlib.Path, help="cut this run folder instead of training")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = given.run or pathlib.Path(scratch) / "run"
        if given.run is None:
            train(given.program, run)
        for name, step in LESSONS.items():
            cut(run, step, OUT / name)


if __name__ == "__main__":
    main()
