#!/usr/bin/env python3
"""Takes the pictures of docs/window.md and README.md from a run.

    python3 scripts/window_pictures.py target/release/palimpsest runs/quickstart-0001

Without a display it starts a virtual one (Xvfb).
"""

import argparse
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "images"
PICTURES = {
    "watch": ("watch", "light"),
    "tokens": ("tokens", "light"),
    "memory": ("memory", "light"),
    "curves": ("curves", "dark"),
    "lesson": ("lesson", "dark"),
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program")
    arguments.add_argument("run")
    arguments.add_argument("--at", default="4/2/2", help="the rollout, as STEP/GROUP/ROLLOUT")
    given = arguments.parse_args()
    environment = dict(os.environ)
    screen = None
    if not environment.get("DISPLAY"):
        command = ["Xvfb", "-displayfd", "1", "-screen", "0", "1600x1000x24", "-nolisten", "tcp"]
        screen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        environment["DISPLAY"] = ":" + screen.stdout.readline().strip()
    try:
        for name, (panel, theme) in PICTURES.items():
            command = [given.program, "watch", given.run, "--panel", panel, "--theme", theme, "--at", given.at]
            command += ["--size", "1400x900", "--screenshot", str(OUT / f"{name}.png")]
            subprocess.run(command, check=True, env=environment)
            print(OUT / f"{name}.png")
    finally:
        if screen:
            screen.terminate()


if __name__ == "__main__":
    main()
