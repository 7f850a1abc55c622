"""The library of kernels: found in the package, else in the cache, else compiled; or the reason why there is none.

Used by the installer too (`hatch_build.py`), where neither torch nor longwave can be imported.

    LONGWAVE_NATIVE_ISA=x86-64-v2 ...       an instruction set other than the best of this CPU
    CXX=clang++ ...                         a compiler other than the first found
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ISAS = {  # lanes of float, and flags
    "x86-64-v4": (16, "-march=x86-64-v4 -mprefer-vector-width=512"),
    "x86-64-v3": (8, "-march=x86-64-v3"),
    "x86-64-v2": (4, "-march=x86-64-v2"),
    "aarch64": (4, ""),
}
FLAGS = (
    "-std=c++17 -O3 -fPIC -fvisibility=hidden -ffp-contract=fast -fno-math-errno -fno-trapping-math"
    " -fno-signed-zeros -freciprocal-math -Wno-psabi"  # not -ffinite-math-only: NaN must stay NaN
)
OPENMP = "-fopenmp" if sys.platform == "linux" else ""  # elsewhere one thread: Apple's compiler has none

_lock = threading.Lock()
_found: tuple[ctypes.CDLL | None, str] | None = None


class NoLibraryError(Exception):
    """Says why, in words for a person."""


def library() -> ctypes.CDLL:
    """The library for this machine."""
    found = _find()[0]
    if found is None:
        raise NoLibraryError(_find()[1])
    return found


def reason() -> str:
    """Why there is no library here; empty where there is one."""
    return _find()[1]


def describe() -> str:
    """Which library runs here, or why none does."""
    found, why = _find()
    return found._name if found else f"none: {why}"


def _find() -> tuple[ctypes.CDLL | None, str]:
    global _found
    with _lock:
        if _found is None:
            try:
                _found = (load(best_isa()), "")
            except NoLibraryError as why:
                _found = (None, str(why))
                sys.stderr.write(f"longwave: no native kernels, slower forms in torch are used: {why}\n")
    return _found


def isas() -> list[str]:
    """The instruction sets for which a package of this machine carries libraries."""
    machine = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    if sys.platform not in ("linux", "darwin"):
        raise NoLibraryError(f"there are kernels for Linux and macOS, not for {sys.platform}")
    if machine not in ("x86_64", "aarch64"):
        raise NoLibraryError(f"there are kernels for x86-64 and ARM processors, not for {machine}")
    return [isa for isa in ISAS if (isa == "aarch64") == (machine == "aarch64")]


def best_isa() -> str:
    """What this CPU can do, as torch found it."""
    here = isas()
    asked = os.environ.get("LONGWAVE_NATIVE_ISA")
    if asked and asked not in here:
        raise NoLibraryError(f"LONGWAVE_NATIVE_ISA={asked}: there is {', '.join(here)}")
    if asked or here == ["aarch64"]:
        return asked or "aarch64"
    import torch

    able = torch.backends.cpu.get_cpu_capability()
    return "x86-64-v4" if able.startswith("AVX512") else "x86-64-v3" if able == "AVX2" else "x86-64-v2"


def load(isa: str) -> ctypes.CDLL:
    """From the package or the cache; compiled into the cache where it is in neither."""
    name = file_name(isa)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longwave"
    path = next((folder / name for folder in (HERE / "lib", home) if (folder / name).exists()), None)
    try:
        if path is None:
            home.mkdir(parents=True, exist_ok=True)
            path = compile_into(home, isa)
        import torch  # noqa: F401 - first, so that our OpenMP is torch's: one pool of threads

        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NoLibraryError(f"{error} (XDG_CACHE_HOME names a folder for the compiled library)") from None


def file_name(isa: str, extra: str = "") -> str:
    """Named by what it is made of: a library is never older than its sources."""
    made_of = hashlib.sha256(f"{FLAGS} {OPENMP} {ISAS[isa]} {extra}".encode())
    for source in sorted([*HERE.glob("*.cpp"), *HERE.glob("*.h")]):
        made_of.update(source.name.encode() + b"\0" + source.read_bytes())
    return f"longwave-{isa}-{made_of.hexdigest()[:16]}.so"


def compiler() -> list[str]:
    """The command of a C++ compiler."""
    asked = shlex.split(os.environ.get("CXX", ""))
    for command in [asked] if asked else [["g++"], ["clang++"], ["c++"]]:
        if shutil.which(command[0]):
            return command
    raise NoLibraryError(f"CXX={asked[0]} is no command here" if asked else
                         "no C++ compiler: install g++ or clang++ (Debian, Ubuntu: apt install g++), or a wheel "
                         "of longwave, which carries the kernels")  # fmt: skip


def compile_into(folder: Path, isa: str, extra: str = "") -> Path:
    """Compile all sources, side by side, and link them; another process may be doing the same."""
    cxx = compiler()
    lanes, march = ISAS[isa]
    flags = shlex.split(f"{FLAGS} {OPENMP} {march} -DVW={lanes} {extra}")
    name = file_name(isa, extra)
    if sys.stderr.isatty():
        sys.stderr.write(f"longwave: compiling the CPU kernels with {cxx[0]}, once for this machine\n")
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as temporary:
        sources = sorted(HERE.glob("*.cpp"))
        objects = [f"{temporary}/{source.stem}.o" for source in sources]
        _run_all([[*cxx, *flags, "-c", str(s), "-o", o] for s, o in zip(sources, objects, strict=True)])
        _run_all([[*cxx, *flags, "-shared", *objects, "-o", f"{temporary}/{name}"]])
        os.replace(f"{temporary}/{name}", folder / name)
    return folder / name


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    """At most one a core at a time."""
    waiting, failed = list(commands), ""
    running: list[subprocess.Popen[str]] = []
    while waiting or running:
        while waiting and not failed and len(running) < (os.cpu_count() or 1):
            running.append(
                subprocess.Popen(waiting.pop(0), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        if not running:
            break
        process = running.pop(0)
        said, _ = process.communicate()
        if process.returncode:
            failed = failed or next((line for line in said.splitlines() if "error" in line), said.strip()[-300:])
    if failed:
        raise NoLibraryError(f"{commands[0][0]} cannot compile the kernels: {failed}")
