# SPDX-License-Identifier: Apache-2.0
"""`treadle doctor`: what this machine can do, in about ten lines, or measured in full."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from treadle.build.kernel_cache import cache_folders
from treadle.build.model_cache import model_folder
from treadle.cli.machine import cpu_name, cpu_text, package_version, treadle_version
from treadle.cli.measure import measure_machine
from treadle.cli.named import DEFAULT_TARGET
from treadle.cli.text import console, count_text, print_row, size_text
from treadle.errors import DeviceError, SettingError, ToolchainError, TreadleError, UsageError
from treadle.runtime import native
from treadle.runtime.elf.link import MACHINE_NAMES
from treadle.runtime.gpu.devices import KINDS, found_devices
from treadle.runtime.toolchain import find_linkers, own_machine
from treadle.settings import get
from treadle.target.backend import backend_kinds, backend_of
from treadle.target.cache import obstacles
from treadle.target.host import host
from treadle.target.machine_file import save_machine
from treadle.target.machine_options import FACTS

_TELLING_FEATURES = (
    *("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16"),
    *("avxvnni", "amx-int8", "amx-bf16", "neon", "dotprod", "i8mm", "bf16", "sve", "sve2"),
)
_EXTRAS = {
    "ai-edge-litert": "tflite",
    "onnxruntime": "bench",
    "torch": "torch",
    "pillow": "image",
    "ziglang": "cross",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    parser.add_argument(
        "--measure", action="store_true", help="measure the facts of this machine (ten seconds)"
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help='write them to a file that the target "llvm -machine=FILE" reads',
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one line per fact; end with 1 where something that is needed is missing."""
    if arguments.save is not None and not arguments.measure:
        raise UsageError("--save writes what --measure finds", hint="add --measure")
    if arguments.measure:
        _measure(arguments.save)
        return 0
    out = console()
    problems = []
    for label, describe in (*_MACHINE, *_compilers(), *_gpus(), *_INSTALLED):
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


def _measure(path: Path | None) -> None:
    """Print the facts of this machine as they are measured, next to those of its row."""
    out = console()
    print_row(out, "cpu", cpu_text())
    found = measure_machine()
    print_row(out, "clock", f"{found.gigahertz:.2f} GHz")
    print_row(out, "facts", "as options of a target, and what is counted on without them")
    row = host().machine
    for fact in FACTS:
        value, usual = (fact.write(fact.get(machine)) for machine in (found.machine, row))
        differs = "" if value == usual else f"   (without: {usual})"
        out.print(f"  -{fact.option}={value}{differs}")
    if found.left_out:
        print_row(out, "left out", found.left_out)
    if path is not None:
        source = f"treadle doctor --measure on {cpu_name()}, {datetime.date.today().isoformat()}"
        save_machine(path, found.machine, cpu_name(), source)
        option = shlex.quote(f"-machine={path}")
        print_row(out, "saved", f'{path} · use it as --target "llvm {option}"')


def _features() -> str:
    return " ".join(f for f in _TELLING_FEATURES if f in host().features) or "none of note"


def _compilers() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each back end's kind and what says which compiler it has.

    Only the usual one must be there.
    """
    for kind in backend_kinds():
        describe = backend_of(kind).describe
        yield kind, describe if kind == DEFAULT_TARGET else partial(_if_any, describe)


def _if_any(describe: Callable[[], str]) -> str:
    try:
        return describe()
    except (DeviceError, ToolchainError) as error:
        return f"– {error.problem}" + (f" ({error.hint})" if error.hint else "")


def _gpus() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield a row for every device besides the CPU, and one for each kind that has none."""
    for kind in KINDS:
        try:
            found = found_devices(kind)
        except DeviceError as error:
            yield "gpu", partial(_no_device, kind, error.problem)
            continue
        for facts in found:
            yield "gpu", partial(_device, f"{kind}({facts.index})", facts.text())
        if not found:
            yield "gpu", partial(_no_device, kind, "none is found")


def _device(name: str, text: str) -> str:
    return f"{name} · {text} ✓"


def _no_device(kind: str, problem: str) -> str:
    return f"{kind} – {problem}"


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
    folders = (*cache_folders(), *([model_folder()] if get().model_cache else []))
    found = [problem for part in folders for problem in obstacles(part)]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise SettingError(
            f"{found[0]}{more}: kernels are compiled anew each time",
            hint="remove it, or set TREADLE_CACHE to a folder of your own",
        )
    files = [path for path in folder.rglob("*") if os.path.isfile(path)]
    total = size_text(sum(_size(p) for p in files))
    kernels, models = (
        count_text(sum(path.suffix == suffix for path in files), noun)
        for suffix, noun in ((".kernel", "kernel"), (".tar", "model"))
    )
    return f"{_short(folder)} · {kernels}, {models}, {total}"


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


_MACHINE: tuple[tuple[str, Callable[[], str]], ...] = (
    ("treadle", treadle_version),
    ("python", lambda: f"{platform.python_version()} · {sys.platform} {platform.machine()}"),
    ("cpu", cpu_text),
    ("features", _features),
    ("caches", lambda: str(host().machine.sizes)),
)
_INSTALLED: tuple[tuple[str, Callable[[], str]], ...] = (
    ("runtime", lambda: f"native runtime {native.version()} ✓"),
    ("link", _link),
    ("cache", _cache),
    ("threads", _threads),
    ("extras", _extras),
)
