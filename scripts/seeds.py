#!/usr/bin/env python3
"""Runs experiments with several seeds and prints a table with intervals, as the README shows it.

    python3 scripts/seeds.py --seeds 0 1 2 --jobs 2 --out runs/seeds \\
        experiments/quickstart.ron experiments/grpo.ron experiments/mempo.ron

A run that is there already is not repeated; one that was cut off goes on. Only the standard library.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys

# Two-sided 95 % points of Student's t for 1 to 9 degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def run(program, experiment, seed, out, overrides):
    folder = out / f"{pathlib.Path(experiment).stem}-seed{seed}"
    summary = folder / "summary.json"
    if summary.exists() and json.loads(summary.read_text())["status"] == "finished":
        return folder
    if (folder / "events.jsonl").exists():
        command = [program, "--resume", str(folder)]
    else:
        command = [program, "--experiment", experiment, "--run-dir", str(folder), "--set", f"seed={seed}"]
        for override in overrides:
            command += ["--set", override]
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    log = open(out / f"{folder.name}.log", "w")
    done = subprocess.run(command, stdout=log, stderr=log, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed with {done.returncode}; see {log.name}")
    return folder


def interval(values):
    """Mean and half of the 95 % interval over seeds."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, float("nan")
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, STUDENT[min(len(values) - 2, 8)] * deviation / math.sqrt(len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/seeds"))
    parser.add_argument("--program", default="target/debug/palimpsest")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    overrides = ["engine.threads=1", *arguments.overrides]
    jobs = [(experiment, seed) for seed in arguments.seeds for experiment in arguments.experiments]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        folders = list(pool.map(lambda job: run(arguments.program, *job, arguments.out, overrides), jobs))
    results = {}
    for (experiment, _), folder in zip(jobs, folders):
        summary = json.loads((folder / "summary.json").read_text())
        last = summary["steps"]
        for line in summary["evaluations"]:
            when = "after the cold start" if line["step"] == 0 else pathlib.Path(experiment).stem
            if line["step"] in (0, last):
                key = (when, line["context"], line["objectives"])
                results.setdefault(key, []).append(line)
    objectives = sorted({key[2] for key in results})
    names = ["after the cold start", *(pathlib.Path(experiment).stem for experiment in arguments.experiments)]
    for measure in ("em", "f1", "notes_recall", "notes_tokens", "peak_tokens", "total_tokens"):
        print(f"\n{measure}, mean ± half of the 95 % interval over {len(arguments.seeds)} seeds\n")
        print("| | context | " + " | ".join(f"{n} objectives" for n in objectives) + " |")
        print("| --- | --- |" + " --- |" * len(objectives))
        for name in names:
            for context in ("deployed", "full"):
                cells = []
                for n in objectives:
                    lines = results.get((name, context, n))
                    if not lines:
                        cells.append("-")
                        continue
                    mean, half = interval([line[measure] for line in lines])
                    cells.append(f"{mean:.2f} ± {half:.2f}" if mean < 10 else f"{mean:.0f} ± {half:.0f}")
                print(f"| {name} | {context} | " + " | ".join(cells) + " |")
    print("\nby seed, deployed EM at 2 and 3 objectives\n")
    for (experiment, seed), folder in zip(jobs, folders):
        summary = json.loads((folder / "summary.json").read_text())
        lines = [line for line in summary["evaluations"] if line["context"] == "deployed" and line["step"] == summary["steps"]]
        em = {line["objectives"]: line["em"] for line in lines}
        print(f"{pathlib.Path(experiment).stem} seed {seed}: {em.get(2)} {em.get(3)}; wall seconds {summary['wall_seconds']}")


if __name__ == "__main__":
    main()
