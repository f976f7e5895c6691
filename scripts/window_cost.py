#!/usr/bin/env python3
"""What an open window costs: the time of training with and without one, and what the viewer takes.

    python3 scripts/window_cost.py target/release/palimpsest              # training, headless and with --gui
    python3 scripts/window_cost.py target/release/palimpsest --watch RUN  # memory and CPU of a viewer

Without a display it starts a virtual one (Xvfb), which draws with the processor: there a window costs more than on a
machine with a graphics card.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETTINGS = ["learner.steps=12", "evaluation.every=0", "evaluation.questions=2", "evaluation.objectives=[2]"]
TICKS = os.sysconf("SC_CLK_TCK")


def train(program, folder, environment, window):
    command = [program, "--experiment", str(ROOT / "experiments" / "quickstart.ron"), "--run-dir", str(folder)]
    for setting in SETTINGS:
        command += ["--set", setting]
    process = subprocess.Popen(
        command + (["--gui"] if window else []), env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    summary = folder / "summary.json"
    while not summary.exists() and process.poll() is None:
        time.sleep(0.2)
    time.sleep(0.5)
    # The window stays open when the run is over.
    process.send_signal(signal.SIGKILL)
    process.wait()
    seconds = json.loads(summary.read_text())["wall_seconds"]
    return seconds["rollout"] + seconds["memory_scores"] + seconds["update"]


def usage(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return cpu, memory / 1024


def watch(program, run, environment):
    process = subprocess.Popen([program, "watch", run], env=environment, stderr=subprocess.DEVNULL)
    time.sleep(20)
    before, _ = usage(process.pid)
    time.sleep(30)
    after, memory = usage(process.pid)
    process.kill()
    process.wait()
    print(f"opened and shown for 20 s: {before:.1f} s of CPU; then idle: {(after - before) / 30 * 100:.1f} % of a core, {memory:.0f} MiB")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program")
    arguments.add_argument("--watch")
    arguments.add_argument("--pairs", type=int, default=3)
    given = arguments.parse_args()
    environment = dict(os.environ)
    screen = None
    if not environment.get("DISPLAY"):
        command = ["Xvfb", "-displayfd", "1", "-screen", "0", "1600x1000x24", "-nolisten", "tcp"]
        screen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        environment["DISPLAY"] = ":" + screen.stdout.readline().strip()
    try:
        if given.watch:
            watch(given.program, given.watch, environment)
            return
        ratios = []
        with tempfile.TemporaryDirectory() as scratch:
            for pair in range(given.pairs):
                # In turns, so that a machine that slows down slows both.
                plain = train(given.program, pathlib.Path(scratch) / f"plain-{pair}", environment, False)
                window = train(given.program, pathlib.Path(scratch) / f"window-{pair}", environment, True)
                ratios.append(window / plain)
                print(f"headless {plain:.2f} s, with a window {window:.2f} s: {100 * (window / plain - 1):+.1f} %")
        print(f"median {100 * (statistics.median(ratios) - 1):+.1f} %")
    finally:
        if screen:
            screen.terminate()


if __name__ == "__main__":
    main()
