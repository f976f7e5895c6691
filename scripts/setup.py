#!/usr/bin/env python3
"""Lay out a libtorch for palimpsest and link it into the project as `.libtorch`.

    python3 scripts/setup.py            fetch what is missing, then link it      (`make setup`)
    python3 scripts/setup.py --check    change nothing, say what was found; exit code 1 if not ready

The libtorch lies once per machine in the user's cache folder: $XDG_CACHE_HOME/palimpsest, else
~/.cache/palimpsest (~/Library/Caches/palimpsest on macOS). pip brings the wheels from whatever index pip
is set up for; a wheel is a zip file, and of the large one only what a CPU needs is kept.

Environment:
    LIBTORCH, LIBTORCH_USE_PYTORCH      set: respected, nothing is fetched
    PALIMPSEST_CUDA=1                   the CUDA build with all it needs (a download of about 2.5 GB)
    PALIMPSEST_CUDA=0                   back to the CPU build
    none of them                        keep what `.libtorch` points at; if there is nothing, the CPU build

Everything is unpacked beside its final place and renamed when complete, under a lock: it may be
interrupted at any moment and run twice at once. Standard library only, Python 3.8 or newer.
"""

import argparse
import contextlib
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

try:
    import fcntl
except ImportError:  # Windows: `this_machine` refuses it with a message before the lock is needed
    fcntl = None

VERSION = "2.11.0"  # the one the `tch` of Cargo.toml is written for
PROJECT = Path(__file__).resolve().parent.parent
LINK = PROJECT / ".libtorch"
# Any CPython's wheel carries the same libraries, so one is named, whatever Python runs this script.
WHEEL_PYTHON = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]
REPORT_EVERY_S = 10.0
ATTEMPTS = 3


class Trouble(Exception):
    """Something a person has to mend: what failed, the value, the rule, the remedy."""


def say(text: str) -> None:
    print("setup: " + text, flush=True)


# --- What there is to fetch ---------------------------------------------------------------------------------


class Wheel(NamedTuple):
    """One wheel, and which of its files go where."""

    name: str
    version: str
    sha256: str
    megabytes: int
    keep: Tuple[Tuple[str, str], ...]  # pattern of a path in the wheel, and its path in the libtorch folder


class Machine(NamedTuple):
    """What one kind of machine needs."""

    tags: Tuple[str, ...]
    wheels: Tuple[Wheel, ...]
    megabytes_laid: int
    has_cuda: bool
    tested: bool


COMMON = (
    (r"torch/(include/.+)", r"\1"),
    (r"torch-[^/]+\.dist-info/licenses/([^/]+)", r"licenses/torch-\1"),
)
# The wheel for Linux is a CUDA build. Its CPU library needs of CUDA only two small libraries (below), once
# libtorch.so itself, which would pull in the rest, is replaced: see `unpack`.
LINUX_LIBS = r"torch/(lib/lib(?!torch\.|torch_cuda|torch_python|torch_global_deps|torch_nvshmem|c10_cuda|caffe2|shm)[^/]+\.so[.0-9]*)"
MAC_LIBS = r"torch/(lib/lib(?!torch_python|torch_global_deps|shm)[^/]+\.dylib)"


def linux(arch: str, torch: Tuple[str, int], cupti: str, cudart: str, laid: int, tested: bool) -> Machine:
    return Machine(
        # Every glibc the libraries may have been built for; pip does not infer the older ones.
        tags=tuple("manylinux_2_%d_%s" % (minor, arch) for minor in range(28, 16, -1)) + ("manylinux2014_" + arch,),
        wheels=(
            Wheel("nvidia-cuda-cupti", "13.0.85", cupti, 11, ((r"nvidia/.+/(lib/libcupti\.so\.13)", r"\1"),)),
            Wheel("nvidia-cuda-runtime", "13.0.96", cudart, 2, ((r"nvidia/.+/(lib/libcudart\.so\.13)", r"\1"),)),
            Wheel("torch", VERSION, torch[0], torch[1], ((LINUX_LIBS, r"\1"),) + COMMON),
        ),
        megabytes_laid=laid,
        has_cuda=True,
        tested=tested,
    )


MACHINES: Dict[Tuple[str, str], Machine] = {
    ("Linux", "x86_64"): linux(
        "x86_64",
        torch=("7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a", 531),
        cupti="4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        cudart="7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        laid=500,
        tested=True,
    ),
    # The two below: wheels downloaded, checksums and file lists read, never built or run.
    ("Linux", "aarch64"): linux(
        "aarch64",
        torch=("d91aac77f24082809d2c5a93f52a5f085032740a1ebc9252a7b052ef5a4fddc6", 420),
        cupti="796bd679890ee55fb14a94629b698b6db54bcfd833d391d5e94017dd9d7d3151",
        cudart="ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55",
        laid=350,
        tested=False,
    ),
    ("Darwin", "arm64"): Machine(
        tags=("macosx_11_0_arm64",),
        wheels=(Wheel("torch", VERSION, "7b6a60d48062809f58595509c524b88e6ddec3ebe25833d6462eeab81e5f2ce4", 81, ((MAC_LIBS, r"\1"),) + COMMON),),
        megabytes_laid=270,
        has_cuda=False,
        tested=False,
    ),
}
OWN_LIBTORCH = "lay out a libtorch %s yourself and set LIBTORCH to its folder, or build without it: cargo build --no-default-features" % VERSION


def this_machine() -> Machine:
    kind = (platform.system(), platform.machine())
    if kind not in MACHINES:
        raise Trouble('no libtorch is known for this machine, "%s %s" (known: %s); %s' % (*kind, ", ".join(" ".join(k) for k in sorted(MACHINES)), OWN_LIBTORCH))
    if kind[0] == "Linux":
        name, version = platform.libc_ver()
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if name != "glibc" or numbers < (2, 28):
            raise Trouble('the C library here is "%s %s", the libtorch of the wheels needs glibc 2.28 or newer; %s' % (name or "not glibc", version, OWN_LIBTORCH))
    return MACHINES[kind]


# --- What is there already ----------------------------------------------------------------------------------


def version_of(folder: Path) -> Optional[str]:
    """The version a libtorch folder states, without a "+cu130" behind it."""
    try:
        return (folder / "build-version").read_text().strip().split("+")[0]
    except OSError:
        return None


def fault_of(libs: Path, include: Path, version: Optional[str]) -> Optional[str]:
    """Why these folders are no libtorch to build with, or None."""
    if not any((libs / name).exists() for name in ("libtorch.so", "libtorch.dylib", "libtorch.a")):
        return 'there is no libtorch.so in "%s"' % libs
    if not any((libs / name).exists() for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "libtorch_cpu.a")):
        return 'there is no libtorch_cpu.so in "%s"' % libs
    if not (include / "torch/csrc/api/include/torch/torch.h").exists():
        return 'the header torch/csrc/api/include/torch/torch.h is not in "%s"' % include
    if version is not None and version != VERSION and "LIBTORCH_BYPASS_VERSION_CHECK" not in os.environ:
        return 'its build-version is "%s", palimpsest wants %s' % (version, VERSION)
    return None


def fault_of_folder(folder: Path) -> Optional[str]:
    if not folder.is_dir():
        return '"%s" is no folder' % folder
    return fault_of(folder / "lib", folder / "include", version_of(folder))


def is_complete(folder: Path) -> bool:
    """Whether a folder of ours was laid out to its end: build-version is written last."""
    return version_of(folder) == VERSION and fault_of_folder(folder) is None


def kind_of(folder: Path) -> str:
    return "CUDA build" if (folder / "lib" / "libtorch_cuda.so").exists() else "CPU build"


def respected() -> Optional[str]:
    """What the environment already says about libtorch, checked; None when it says nothing."""
    env = os.environ
    if "LIBTORCH_USE_PYTORCH" in env:  # torch-sys asks for this first, and any value counts as yes
        python = "python" if "VIRTUAL_ENV" in env else "python3"
        code = "import torch; print(torch.__version__)"
        try:
            found = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        except OSError as error:
            raise Trouble('LIBTORCH_USE_PYTORCH is set to "%s", but %s does not start (%s); install it or unset the variable' % (env["LIBTORCH_USE_PYTORCH"], python, error))
        if found.returncode != 0:
            last = (found.stderr.strip().splitlines() or ["no message"])[-1]
            raise Trouble('LIBTORCH_USE_PYTORCH is set to "%s" (any value counts, also 0), but `%s -c "import torch"` fails: %s; install torch %s there or unset the variable' % (env["LIBTORCH_USE_PYTORCH"], python, last, VERSION))
        version = found.stdout.strip()
        if version.split("+")[0] != VERSION and "LIBTORCH_BYPASS_VERSION_CHECK" not in env:
            raise Trouble('LIBTORCH_USE_PYTORCH is set and %s has torch "%s", palimpsest wants %s; install that version, unset the variable, or set LIBTORCH_BYPASS_VERSION_CHECK=1 at your own risk' % (python, version, VERSION))
        return "LIBTORCH_USE_PYTORCH is set: the torch %s of %s is used" % (version, python)
    if "LIBTORCH_INCLUDE" in env and "LIBTORCH_LIB" in env:
        libs, include = Path(env["LIBTORCH_LIB"]) / "lib", Path(env["LIBTORCH_INCLUDE"]) / "include"
        fault = fault_of(libs, include, None)
        if fault is not None:
            raise Trouble("LIBTORCH_LIB and LIBTORCH_INCLUDE are set, but %s; correct them, or unset them and a libtorch is fetched" % fault)
        return 'LIBTORCH_LIB and LIBTORCH_INCLUDE are set: "%s" is used' % libs
    if "LIBTORCH" in env:
        folder = Path(env["LIBTORCH"])
        if folder.absolute() == LINK.absolute():  # what .cargo/config.toml says anyway
            return None
        if not folder.is_absolute():
            raise Trouble('LIBTORCH is set to "%s", a relative path, and cargo runs its parts in different folders; set it to "%s", or unset it and a libtorch is fetched' % (folder, folder.absolute()))
        fault = fault_of_folder(folder)
        if fault is not None:
            raise Trouble('LIBTORCH is set to "%s", but %s; correct it, or unset it and a libtorch is fetched' % (folder, fault))
        return 'LIBTORCH is set: "%s" is used (%s)' % (folder, kind_of(folder))
    return None


def cache_folder() -> Path:
    stated = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(stated):
        return Path(stated) / "palimpsest"
    if platform.system() == "Darwin":
        return Path.home() / "Library/Caches/palimpsest"
    return Path.home() / ".cache/palimpsest"


# --- Fetching -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One run at a time; the lock goes with the process, however it ends."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another setup is at work on this machine; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def workplace(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, gone afterwards; those of killed runs go first."""
    for leftover in sorted(target.parent.glob(target.name + ".part-*")):
        say('removing "%s", left by an interrupted run' % leftover)
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=target.name + ".part-", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def need_room(folder: Path, megabytes: int) -> None:
    free = shutil.disk_usage(folder).free // 1_000_000
    if free < megabytes:
        raise Trouble('"%s" has %d MB free, %d MB are needed while libtorch is laid out; make room, or set XDG_CACHE_HOME to a folder on a larger disk' % (folder, free, megabytes))


def need_pip() -> None:
    found = subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if found.returncode != 0:
        raise Trouble('`%s -m pip` does not run, and pip brings libtorch; install it (Debian: apt-get install python3-pip; elsewhere: %s -m ensurepip), or set LIBTORCH to a libtorch %s you have' % (sys.executable, sys.executable, VERSION))


def bytes_under(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def pip(arguments: List[str], part: Path, what: str, megabytes: int) -> None:
    """Runs pip: its own bar on a terminal, otherwise a plain line now and then."""
    terminal = sys.stdout.isatty()
    # pip's scratch files go into the part folder: /tmp is often small, and an interrupted run is cleaned up.
    scratch = part / "scratch"
    scratch.mkdir(exist_ok=True)
    env = {key: value for key, value in os.environ.items() if key not in ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PIP_QUIET", "PIP_PROGRESS_BAR")}
    env.update(TMPDIR=str(scratch), PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
    command = [sys.executable, "-m", "pip", *arguments, "--no-cache-dir", "--only-binary=:all:"]
    if not terminal:
        command += ["--progress-bar", "off"]
    log = part / "pip.log"
    for attempt in range(1, ATTEMPTS + 1):
        before = bytes_under(part)
        with open(log, "wb") as file:
            sink = None if terminal else file
            child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT if sink else None)
            try:
                while True:
                    try:
                        status = child.wait(timeout=REPORT_EVERY_S)
                        break
                    except subprocess.TimeoutExpired:
                        if not terminal:
                            so_far = max(0, bytes_under(part) - before) // 1_000_000
                            say("  %s: %d of %d MB" % (what, min(so_far, megabytes), megabytes))
            except BaseException:
                child.terminate()
                child.wait()
                raise
        if status == 0:
            return
        if not terminal:
            sys.stderr.write("".join("pip: " + line + "\n" for line in log.read_text(errors="replace").splitlines()[-15:]))
        if attempt < ATTEMPTS:
            say("pip could not fetch %s (exit code %d); attempt %d of %d in 3 s" % (what, status, attempt + 1, ATTEMPTS))
            time.sleep(3)
    raise Trouble("pip could not fetch %s (see its message above); check the network and the index pip is set up for (`python3 -m pip config list`), run this again, or %s" % (what, OWN_LIBTORCH))


def sha256_of(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def platform_flags(machine: Machine) -> List[str]:
    return WHEEL_PYTHON + [flag for tag in machine.tags for flag in ("--platform", tag)]


def fetch(wheel: Wheel, machine: Machine, part: Path) -> Path:
    """Downloads one wheel and verifies it; pip is told the checksum too, so that it picks this very file."""
    folder = part / wheel.name
    folder.mkdir()
    what = "%s %s" % (wheel.name, wheel.version)
    say("fetching %s (%d MB)" % (what, wheel.megabytes))
    request = part / "request.txt"
    request.write_text("%s==%s --hash=sha256:%s\n" % (wheel.name, wheel.version, wheel.sha256))
    pip(["download", "--no-deps", "--require-hashes", "--dest", str(folder), *platform_flags(machine), "-r", str(request)], part, what, wheel.megabytes)
    files = sorted(folder.glob("*.whl"))
    if len(files) != 1:
        raise Trouble('pip brought %d wheels for %s into "%s", it should bring one; run this again' % (len(files), what, folder))
    found = sha256_of(files[0])
    if found != wheel.sha256:
        raise Trouble('the checksum of "%s" is %s, it should be %s; the index pip uses offers another build: use another index, or %s' % (files[0].name, found, wheel.sha256, OWN_LIBTORCH))
    return files[0]


def unpack(file: Path, wheel: Wheel, tree: Path) -> None:
    patterns = [(re.compile(pattern), place) for pattern, place in wheel.keep]
    kept = [0] * len(patterns)
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            for number, (pattern, place) in enumerate(patterns):
                match = pattern.fullmatch(entry.filename)
                if match is None or entry.is_dir():
                    continue
                target = tree / match.expand(place)
                if ".." in target.parts:
                    raise Trouble('"%s" holds the path "%s", which leads out of its folder; use another index' % (file.name, entry.filename))
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, open(target, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                kept[number] += 1
                break
    if 0 in kept:
        raise Trouble('"%s" holds nothing like "%s"; the layout of this wheel is unknown here, %s' % (file.name, wheel.keep[kept.index(0)][0], OWN_LIBTORCH))


def lay_cpu(machine: Machine, part: Path) -> Path:
    tree = part / "tree"
    (tree / "lib").mkdir(parents=True)
    for wheel in machine.wheels:
        file = fetch(wheel, machine, part)
        say("  checksum verified; unpacking")
        unpack(file, wheel, tree)
        file.unlink()
    if not (tree / "lib/libtorch.dylib").exists():
        # torch-sys links -ltorch. The wheel's own would pull in libtorch_cuda; this is a linker script.
        (tree / "lib/libtorch.so").write_text("INPUT ( -ltorch_cpu )\n")
    return tree


def lay_cuda(machine: Machine, part: Path) -> Path:
    """The whole wheel with all it depends on, as pip installs it; lib and include lead into it."""
    tree = part / "tree"
    tree.mkdir()
    wheel = machine.wheels[-1]
    file = fetch(wheel, machine, part)
    say("  checksum verified; fetching what CUDA needs besides (about 2 GB, checked by pip against its index)")
    site = tree / "site"
    pip(["install", "--target", str(site), *platform_flags(machine), str(file)], part, "the CUDA libraries", 5000)
    # The libraries find each other by $ORIGIN/../../nvidia/..., which the kernel follows through these links.
    os.symlink("site/torch/lib", tree / "lib")
    os.symlink("site/torch/include", tree / "include")
    return tree


def lay_out(target: Path, cuda: bool) -> None:
    """Makes sure that the target folder is a complete libtorch."""
    machine = this_machine()
    if cuda and not machine.has_cuda:
        raise Trouble("PALIMPSEST_CUDA=1 is set, but there is no CUDA build for %s; unset it" % platform.system())
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / (target.name + ".lock")):
        if is_complete(target):
            return
        need_pip()
        need_room(target.parent, 11_000 if cuda else 2 * sum(w.megabytes for w in machine.wheels) + machine.megabytes_laid)
        if not machine.tested:
            say("this kind of machine is untested: the checksums are known, the build has not been tried")
        with workplace(target) as part:
            tree = lay_cuda(machine, part) if cuda else lay_cpu(machine, part)
            (tree / "build-version").write_text(VERSION + "\n")
            fault = fault_of_folder(tree)
            if fault is not None:
                raise Trouble("the libtorch just unpacked is not whole: %s; run this again, or %s" % (fault, OWN_LIBTORCH))
            if target.is_symlink() or target.exists():
                say('replacing "%s", which is incomplete' % target)
                os.rename(target, part / "incomplete")
            os.rename(tree, target)
    say('laid out "%s"' % target)


def link_to(target: Path) -> None:
    """Points `.libtorch` at the target, in one step."""
    if LINK.is_symlink() and os.readlink(LINK) == str(target):
        return
    before = kind_of(LINK) if LINK.exists() else None
    fresh = LINK.with_name(".libtorch.%d" % os.getpid())
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    os.symlink(target, fresh)
    os.replace(fresh, LINK)
    say('linked "%s" to "%s"' % (LINK, target))
    if before not in (None, kind_of(LINK)):
        # torch-sys notes which libraries to link and looks again only when the path changes: make it forget.
        for profile in ("dev", "release"):
            with contextlib.suppress(OSError):
                subprocess.run(["cargo", "clean", "--quiet", "--offline", "-p", "torch-sys", "--profile", profile], cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wanted_cuda() -> Optional[bool]:
    value = os.environ.get("PALIMPSEST_CUDA", "")
    if value not in ("", "0", "1"):
        raise Trouble('PALIMPSEST_CUDA is "%s"; it is 1 (CUDA build), 0 (CPU build) or unset' % value)
    return None if value == "" else value == "1"


def main() -> int:
    parser = argparse.ArgumentParser(description="Lay out a libtorch %s and link it into the project as .libtorch." % VERSION)
    parser.add_argument("--check", action="store_true", help="change nothing, say what was found; exit code 1 if not ready")
    arguments = parser.parse_args()

    stated = respected()
    if stated is not None:
        say(stated + "; nothing to fetch")
        return 0
    cuda = wanted_cuda()
    fits = is_complete(LINK) and (cuda is None or cuda == (kind_of(LINK) == "CUDA build"))
    if fits:
        say("libtorch %s is ready (%s, %s)" % (VERSION, kind_of(LINK), os.path.realpath(LINK)))
        return 0
    if arguments.check:
        say('not ready: %s; run `make setup`' % (fault_of_folder(LINK) or ("it is the " + kind_of(LINK))))
        return 1
    if LINK.exists() and not LINK.is_symlink():
        raise Trouble('"%s" is in the way: it is no link and no complete libtorch; move it elsewhere' % LINK)
    target = cache_folder() / ("libtorch-%s-%s" % (VERSION, "cuda" if cuda else "cpu"))
    lay_out(target, bool(cuda))
    link_to(target)
    say("libtorch %s is ready (%s); cargo run, cargo test and rust-analyzer need no variables" % (VERSION, kind_of(LINK)))
    return 0


def stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    if sys.version_info < (3, 8):
        sys.exit("setup: this is Python %s; 3.8 or newer is needed" % platform.python_version())
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit("setup: " + str(trouble))
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; nothing half-done is kept, run it again")
    except OSError as error:
        sys.exit("setup: %s; make room or correct the permissions, or set XDG_CACHE_HOME to another folder, and run it again" % error)
