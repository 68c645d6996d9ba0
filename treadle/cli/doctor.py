# SPDX-License-Identifier: Apache-2.0
"""`treadle doctor`: what this machine can do, in about ten lines."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from treadle.build.kernel_cache import cache_folders
from treadle.cli.machine import cpu_text, package_version, treadle_version
from treadle.cli.text import console, print_row, size_text
from treadle.errors import SettingError, ToolchainError, TreadleError
from treadle.runtime import native
from treadle.runtime.elf.link import MACHINE_NAMES
from treadle.runtime.toolchain import find_linkers, own_machine
from treadle.settings import get
from treadle.target.cache import obstacles
from treadle.target.cpus import architecture_names, architecture_of
from treadle.target.host import host

HELP = "say what this machine can do"

_TELLING_FEATURES = (
    *("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16"),
    *("avxvnni", "amx-int8", "amx-bf16", "neon", "dotprod", "i8mm", "bf16", "sve", "sve2"),
)
_EXTRAS = {"onnxruntime": "bench", "torch": "torch", "ziglang": "cross"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This command has no options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Print one line per fact; end with 1 where something that is needed is missing."""
    del arguments
    out = console()
    problems = []
    for label, describe in _LINES:
        try:
            print_row(out, label, describe())
        except TreadleError as error:
            problems.append(label)
            print_row(out, label, f"✗ {error}")
    if problems:
        print_row(out, "result", f"✗ needs attention: {', '.join(problems)}")
        return 1
    print_row(out, "result", "✓ all good")
    return 0


def _features() -> str:
    return " ".join(f for f in _TELLING_FEATURES if f in host().features) or "none of note"


def _llvm() -> str:
    import llvmlite
    import llvmlite.binding as llvm

    every = {a.name: n for n in reversed(architecture_names()) if (a := architecture_of(n))}
    targets = " ".join(reversed(every.values()))
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"{version} (llvmlite {llvmlite.__version__}) · targets {targets}"


def _link() -> str:
    found = [f"{tool.name} ✓" for tool in find_linkers()]
    machines = ", ".join(MACHINE_NAMES)
    if own_machine(None) is None and not found:
        raise ToolchainError(
            f"no linker is found: models run here, but saved only for {machines}",
            hint='install lld or a C compiler, or: pip install "treadle[cross]"',
        )
    return " · ".join([f"built in ({machines}) ✓", *found])


def _cache() -> str:
    folder = get().cache
    found = [problem for part in cache_folders() for problem in obstacles(part)]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise SettingError(
            f"{found[0]}{more}: kernels are compiled anew each time",
            hint="remove it, or set TREADLE_CACHE to a folder of your own",
        )
    files = [path for path in folder.rglob("*") if os.path.isfile(path)]
    kernels = sum(path.suffix == ".kernel" for path in files)
    return f"{_short(folder)} · {kernels} kernels, {size_text(sum(_size(p) for p in files))}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # another process has just removed it
        return 0


def _short(folder: Path) -> str:
    try:
        return str(Path("~") / folder.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(folder)


def _threads() -> str:
    chosen = get().num_threads
    why = "TREADLE_NUM_THREADS" if chosen else "the usable cores"
    return f"{native.num_threads()} ({why})"


def _extras() -> str:
    found = {name: package_version(name) for name in _EXTRAS}
    return " · ".join(
        f"{name} {version} ✓" if version else f'{name} – (pip install "treadle[{_EXTRAS[name]}]")'
        for name, version in found.items()
    )


_LINES: tuple[tuple[str, Callable[[], str]], ...] = (
    ("treadle", treadle_version),
    ("python", lambda: f"{platform.python_version()} · {sys.platform} {platform.machine()}"),
    ("cpu", cpu_text),
    ("features", _features),
    ("caches", lambda: str(host().machine.sizes)),
    ("llvm", _llvm),
    ("runtime", lambda: f"native runtime {native.version()} ✓"),
    ("link", _link),
    ("cache", _cache),
    ("threads", _threads),
    ("extras", _extras),
)
