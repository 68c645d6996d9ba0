# SPDX-License-Identifier: Apache-2.0
"""Target strings: "llvm -mcpu=haswell -mattr=+avx2 -mtriple=aarch64-linux-gnu -num-cores=4"."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from treadle.errors import TargetError
from treadle.target.base import Target
from treadle.target.cpus import Architecture, architecture_names, architecture_of, has_64_bits
from treadle.target.host import cache_bytes, host, usable_cores

_LATER = {
    "cuda": "GPU code generation", "nvptx": "GPU code generation", "rocm": "GPU code generation",
    "opencl": "OpenCL code generation", "vulkan": "GPU code generation",
    "metal": "GPU code generation", "webgpu": "GPU code generation", "c": "C source output",
}  # fmt: skip
_SHOWN = 40
"""Names that a hint lists at most; all CPUs are listed."""

_OPTIONS = ("mcpu", "mattr", "mtriple", "num-cores", "keys", "device", "model", "libs", "tag")
_FLAGS = ("system-lib", "link-params")
_IGNORED = frozenset({"keys", "device", "model", "libs", "tag", *_FLAGS})
_MOST_CORES = 4096
_DEFAULT_CORES = 4


def parse_target(text: str) -> Target:
    """Return the target a string describes.

    "llvm" alone is this machine with everything it has. A triple without a CPU is the baseline of
    that architecture. `-keys`, `-device`, `-model`, `-libs` and `-tag` of TVM v0.8 are accepted
    and have no effect.

    Raises: TargetError for an unknown kind, option, triple, CPU or feature.
    """
    kind, options = _split(text)
    _check_kind(kind, text)
    triple, architecture, is_host = _triple(options.get("mtriple", ""), text)
    cpu, features = _cpu(options, triple, architecture, is_host, text)
    chosen = _Chosen(triple, cpu, features, architecture)
    chosen.check(text)
    cores = _cores(options.get("num-cores"), is_host, text)
    bits, registers = chosen.vectors()
    caches = cache_bytes() if is_host else {}
    return Target(
        kind="llvm",
        triple=triple,
        cpu=cpu,
        features=tuple(sorted(features)),
        vector_bits=bits,
        vector_registers=registers,
        cores=cores,
        l1_bytes=caches.get(1, 32 << 10),
        l2_bytes=caches.get(2, 512 << 10),
        l3_bytes=caches.get(3, 8 << 20),
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
    if kind == "llvm":
        return
    if kind in _LATER:
        raise TargetError(
            f"target {kind!r} needs {_LATER[kind]}, which is not built yet",
            hint='compile for a CPU with the target "llvm"',
        )
    raise TargetError(
        f"{kind!r} is not a kind of target", hint=_suggest(kind, ("llvm", *_LATER), "kinds are")
    )


def _triple(triple: str, text: str) -> tuple[str, Architecture, bool]:
    """Return the triple, its architecture, and whether it is this machine's architecture."""
    here = host().triple
    triple = triple or here
    architecture = architecture_of(triple)
    if architecture is None:
        first = triple.partition("-")[0]
        raise TargetError(
            f"target {text!r} names the unknown architecture {first!r}",
            hint=_suggest(first, architecture_names(), "architectures are"),
        )
    return triple, architecture, triple.partition("-")[0] == here.partition("-")[0]


def _cpu(
    options: dict[str, str], triple: str, architecture: Architecture, is_host: bool, text: str
) -> tuple[str, frozenset[str]]:
    cpu = options.get("mcpu", "" if "mtriple" in options else "native")
    if cpu == "native":
        if not is_host:
            raise TargetError(
                f"target {text!r} asks for this machine's CPU under another machine's triple",
                hint="name the CPU, as in -mcpu=cortex-a72",
            )
        name, on = host().cpu, host().features
    else:
        name = cpu or _baseline(architecture, triple)
        if name not in architecture.cpus:
            is_wide = _is_64_bit_x86(triple)
            fitting = [cpu for cpu in architecture.cpus if has_64_bits(cpu) or not is_wide]
            raise TargetError(
                f"{name!r} is not a CPU of architecture {architecture.name}",
                at=f"target {text!r}",
                hint=_suggest(name, fitting, "CPUs are", limit=len(fitting)),
            )
        on = architecture.cpus[name]
        if not cpu and architecture.name == "riscv":  # what every Linux distribution assumes
            on |= architecture.closure(("m", "a", "d", "c"))
    return name, _with_changes(on, options.get("mattr", ""), architecture, text)


def _baseline(architecture: Architecture, triple: str) -> str:
    if architecture.name == "x86":
        return "x86-64" if _is_64_bit_x86(triple) else "i686"
    if architecture.name == "riscv":
        return "generic-rv32" if triple.startswith("riscv32") else "generic-rv64"
    return "generic"


def _is_64_bit_x86(triple: str) -> bool:
    return triple.startswith(("x86_64", "amd64"))


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
        """Refuse what would make LLVM abort."""
        if not _is_64_bit_x86(self.triple):
            return
        if not has_64_bits(self.cpu) or (self.cpu != "generic" and "sse2" not in self.features):
            raise TargetError(
                f"CPU {self.cpu!r} with these features cannot run 64-bit code",
                at=f"target {text!r}",
                hint="use a 64-bit CPU, or the triple i686-linux-gnu",
            )

    def vectors(self) -> tuple[int, int]:
        """Return the width in bits and the number of vector registers worth using."""
        on, name = self.features, self.architecture.name
        if name == "x86":
            registers = 16 if _is_64_bit_x86(self.triple) else 8
            if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= on:
                return 512, 32
            return (256 if "avx" in on else 128), registers
        if name == "riscv":
            sizes = [n for n in (512, 256, 128) if f"zvl{n}b" in on]
            return (sizes[0] if sizes else 64), 32
        return 128, 32 if name == "aarch64" else 16


def _cores(option: str | None, is_host: bool, text: str) -> int:
    if option is None:
        return usable_cores() if is_host else _DEFAULT_CORES
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
