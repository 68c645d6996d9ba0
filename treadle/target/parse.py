# SPDX-License-Identifier: Apache-2.0
"""Target strings: "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+crc -num-cores=4"."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from treadle.errors import TargetError
from treadle.target.backend import backend_kinds
from treadle.target.base import Target
from treadle.target.cpus import (
    Architecture,
    architecture_names,
    architecture_of,
    is_source_only,
)
from treadle.target.host import host, usable_cores
from treadle.target.machine import Machine
from treadle.target.machine_file import read_machine
from treadle.target.machine_options import OPTIONS, with_options
from treadle.target.machine_rows import machine_of
from treadle.target.parse_gpu import GPU_KINDS, parse_gpu_target

_LATER = {
    "nvptx": "GPU code generation", "rocm": "GPU code generation",
    "vulkan": "GPU code generation",
    "metal": "GPU code generation", "webgpu": "GPU code generation",
}  # fmt: skip
_SHOWN = 40
"""Names that a hint lists at most; all CPUs are listed."""

_OPTIONS = (
    *("mcpu", "mattr", "mtriple", "num-cores", "machine", *OPTIONS),
    *("keys", "device", "model", "libs", "tag"),
)
_FLAGS = {
    "system-lib": "kernels that are linked into a program and found there by name",
    "link-params": "weights inside the machine code",
}
"""Options of TVM v0.8 that may stand without a value, and what they ask for: it is not made yet."""

_MOST_CORES = 4096
_DEFAULT_CORES = 4
_LOADABLE_HINT = "compile for Linux on x86_64, aarch64 or riscv64, as in -mtriple=aarch64-linux-gnu"
_NOT_LOADABLE = re.compile(r"i[3-6]86|wasm\d*")
_SYSTEMS = ("linux", "darwin", "macos", "windows", "freebsd")


def parse_target(text: str) -> Target:
    """Return the target a string describes.

    "llvm" alone is this machine with everything it has. A triple without a CPU is the baseline of
    that architecture. A CPU that is named has the facts of its row in
    treadle.target.machine_rows, on every machine; options named after the facts say otherwise
    (treadle.target.machine_options): `-caches=32K,1M,32M` the bytes of level 1, of one core's part
    of level 2 and of the last level; `-machine=FILE` takes those that `treadle doctor --measure`
    has saved. `-keys`, `-device`, `-model`, `-libs` and `-tag` of TVM v0.8
    are accepted and have no effect.

    "cuda -arch=sm_90" and "opencl" are GPUs (treadle.target.parse_gpu).

    Machines of 32 bits, and those without a system, are targets of the kind "c" alone.

    Raises: TargetError for an unknown kind, option, triple, CPU or feature, and for a machine that
    the native runtime cannot run on.
    """
    kind = text.split(maxsplit=1)[0] if text.split() else ""
    if kind in GPU_KINDS:
        return parse_gpu_target(text, host().triple)
    kind, options = _split(text)
    _check_kind(kind, text)
    triple, architecture, is_host = _triple(kind, options.get("mtriple", ""), text)
    cpu, features = _cpu(options, triple, architecture, is_host, text)
    chosen = _Chosen(triple, cpu, features, architecture)
    chosen.check(text)
    cores = _cores(options.get("num-cores"), is_host, is_source_only(triple), text)
    bits, registers = chosen.vectors()
    return Target(
        kind=kind,
        triple=triple,
        cpu=cpu,
        features=tuple(sorted(features)),
        vector_bits=bits,
        vector_registers=registers,
        cores=cores,
        machine=_machine(options, triple, cpu, text),
    )


def _split(text: str) -> tuple[str, dict[str, str]]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} cannot be read: {error}") from error
    if not words:
        raise TargetError("the target is empty", hint='write "llvm" to compile for this machine')
    options: dict[str, str] = {}
    rest = words[1:]
    while rest:
        key, value, rest = _option(rest, text)
        if key in options:
            raise TargetError(f"option -{key} stands twice in target {text!r}")
        if key in _FLAGS and value.lower() not in ("0", "false"):
            raise TargetError(
                f"option -{key} of target {text!r} asks for {_FLAGS[key]}, which is not built yet",
                hint="leave it out: an artifact holds a shared object and a file of weights",
            )
        options[key] = value
    return words[0], options


def _option(words: list[str], text: str) -> tuple[str, str, list[str]]:
    word, rest = words[0], words[1:]
    key, has_value, value = word.lstrip("-").partition("=")
    if not word.startswith("-") or key not in (*_OPTIONS, *_FLAGS):
        raise TargetError(
            f"target {text!r} has an unknown option {word!r}",
            hint=_suggest(key, (*_OPTIONS, *_FLAGS), "options are", dash="-"),
        )
    if has_value or key in _FLAGS:
        return key, value, rest
    if rest and not rest[0].startswith("-"):
        return key, rest[0], rest[1:]
    raise TargetError(f"option -{key} of target {text!r} has no value", hint=f"write -{key}=…")


def _check_kind(kind: str, text: str) -> None:
    if kind in backend_kinds():
        return
    if kind in _LATER:
        raise TargetError(
            f"target {kind!r} needs {_LATER[kind]}, which is not built yet",
            hint='compile for a GPU with "cuda" or "opencl", or for a CPU with "llvm"',
        )
    raise TargetError(
        f"{kind!r} is not a kind of target",
        hint=_suggest(kind, (*backend_kinds(), *_LATER), "kinds are"),
    )


def _triple(kind: str, triple: str, text: str) -> tuple[str, Architecture, bool]:
    """Return the triple, its architecture, and whether it is this machine's architecture."""
    here = host().triple
    triple = triple or here
    architecture = architecture_of(triple)
    if kind != "c" or not is_source_only(triple):
        _check_loadable(triple, here, text)
    if architecture is None:
        first = triple.partition("-")[0]
        raise TargetError(
            f"target {text!r} names the unknown architecture {first!r}",
            hint=_suggest(first, architecture_names(), "architectures are"),
        )
    return triple, architecture, triple.partition("-")[0] == here.partition("-")[0]


def _check_loadable(triple: str, here: str, text: str) -> None:
    """Refuse what LLVM compiles and no native runtime loads: 32-bit code and foreign systems."""
    name, _, system = triple.partition("-")
    if is_source_only(triple):
        raise TargetError(
            f"the native runtime loads no machine code of {triple}; C source reaches it",
            at=f"target {text!r}",
            hint=f'write C: --target "c -mtriple={triple}" --output-format c',
        )
    if _NOT_LOADABLE.fullmatch(name) or system.endswith("x32") or "ilp32" in system:
        raise TargetError(
            "the native runtime loads 64-bit machine code only",
            at=f"target {text!r}",
            hint=_LOADABLE_HINT,
        )
    systems = {"linux", *(known for known in _SYSTEMS if known in here)}
    if system and not any(known in system for known in systems):
        raise TargetError(
            f"the native runtime does not run on {system!r}: its machine code could not be loaded",
            at=f"target {text!r}",
            hint=_LOADABLE_HINT,
        )


def _cpu(
    options: dict[str, str], triple: str, architecture: Architecture, is_host: bool, text: str
) -> tuple[str, frozenset[str]]:
    cpu = _named_cpu(options)
    if cpu == "native":
        if not is_host:
            raise TargetError(
                f"target {text!r} asks for this machine's CPU under another machine's triple",
                hint="name the CPU, as in -mcpu=cortex-a72",
            )
        name, on = host().cpu, host().features
    else:
        name = cpu or _baseline(architecture)
        if name not in architecture.cpus:
            raise TargetError(
                f"{name!r} is not a CPU of architecture {architecture.name}",
                at=f"target {text!r}",
                hint=_suggest(name, architecture.cpus, "CPUs are", limit=len(architecture.cpus)),
            )
        on = architecture.cpus[name]
    return name, _with_changes(on, options.get("mattr", ""), architecture, text)


def _named_cpu(options: dict[str, str]) -> str:
    """Return the CPU's name: "native" for this machine's, "" for the architecture's baseline."""
    return options.get("mcpu", "" if "mtriple" in options else "native")


def _baseline(architecture: Architecture) -> str:
    names = {"x86": "x86-64", "riscv": "generic-rv64", "riscv32": "generic-rv32"}
    return names.get(architecture.name, "generic")


def _machine(options: dict[str, str], triple: str, cpu: str, text: str) -> Machine:
    """Return the facts of this machine or of the row of a CPU, as options change them."""
    is_native = _named_cpu(options) == "native"
    row = host().machine if is_native else machine_of(triple, cpu)
    if "machine" in options:
        row = read_machine(Path(options["machine"]).expanduser(), row)
    return with_options(row, options, f"target {text!r}")


def _with_changes(
    on: frozenset[str], changes: str, architecture: Architecture, text: str
) -> frozenset[str]:
    for change in filter(None, changes.replace(" ", "").split(",")):
        sign, feature = change[0], change[1:]
        if sign not in "+-":
            raise TargetError(
                f"feature {change!r} of target {text!r} has no sign",
                hint=f"write +{change} or -{change}",
            )
        if feature not in architecture.features and feature not in architecture.others:
            known = (*architecture.features, *sorted(architecture.others))
            raise TargetError(
                f"{feature!r} is not a feature of architecture {architecture.name}",
                at=f"target {text!r}",
                hint=_suggest(feature, known, "features are"),
            )
        if sign == "+":
            on |= architecture.closure((feature,))
        else:
            on = architecture.without(on, (feature,))
    return on


@dataclass(frozen=True, slots=True)
class _Chosen:
    triple: str
    cpu: str
    features: frozenset[str]
    architecture: Architecture

    def check(self, text: str) -> None:
        """Refuse what would make LLVM abort, or what Linux's calling convention does not allow."""
        needed = {"x86": "sse2", "riscv": "d"}.get(self.architecture.name)
        is_plain = self.architecture.name == "x86" and self.cpu == "generic"
        if needed is not None and needed not in self.features and not is_plain:
            raise TargetError(
                f"CPU {self.cpu!r} with these features lacks {needed}, which Linux needs there",
                at=f"target {text!r}",
                hint=f"use another CPU, or add {needed} to -mattr if the machine has it",
            )

    def vectors(self) -> tuple[int, int]:
        """Return the width in bits and the number of vector registers worth using."""
        on, name = self.features, self.architecture.name
        if name == "x86":
            if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= on:
                return 512, 32
            return (256 if "avx" in on else 128), 16
        if name == "riscv":
            sizes = [n for n in (512, 256, 128) if f"zvl{n}b" in on]
            return (sizes[0] if sizes else 64), 32
        if name in ("arm", "riscv32"):
            return (128 if "neon" in on else 64), 16
        return 128, 32


def _cores(option: str | None, is_host: bool, is_small: bool, text: str) -> int:
    if option is None:
        return usable_cores() if is_host else 1 if is_small else _DEFAULT_CORES
    if not option.isdecimal() or not 1 <= int(option) <= _MOST_CORES:
        raise TargetError(
            f"-num-cores={option} of target {text!r} is not a number of cores",
            hint=f"give a whole number from 1 to {_MOST_CORES}",
        )
    return int(option)


def _suggest(
    word: str, known: Iterable[str], intro: str, dash: str = "", limit: int = _SHOWN
) -> str:
    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(dash + n for n in near)}?"
    shown = ", ".join(dash + n for n in names[:limit])
    return f"{intro} {shown}{', …' if len(names) > limit else ''}"
