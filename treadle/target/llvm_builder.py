# SPDX-License-Identifier: Apache-2.0
"""LLVM IR as text: type names, constants and a builder that appends instructions to a function."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from treadle.dtype import NARROW, is_float
from treadle.target.base import Target

_REGISTER = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "float16": "i16",
    "bfloat16": "i16",
    "float32": "float",
    "float64": "double",
    **dict.fromkeys(NARROW, "i8"),
}


def element_type(dtype: str) -> str:
    """Return the type of one element in a register; 16-bit floats travel as their bits."""
    return _REGISTER[dtype]


def memory_type(dtype: str) -> str:
    """Return the type of one element in memory (bool takes a byte)."""
    return "i8" if dtype == "bool" else _REGISTER[dtype]


def vector(element: str, lanes: int) -> str:
    """Return `element` itself for one lane, else the vector type."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def register_type(dtype: str, lanes: int = 1) -> str:
    """Return the type of a value of `lanes` elements in registers."""
    return vector(_REGISTER[dtype], lanes)


def float_bits(value: float, dtype: str) -> int:
    """Return the bits of a float16 or bfloat16 constant (already rounded to the type)."""
    if dtype == "float16":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16


def scalar_constant(value: int | float | bool, dtype: str) -> str:
    """Return the text of one constant element."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in ("float16", "bfloat16"):
        return str(float_bits(float(value), dtype))
    if is_float(dtype):
        return "0x" + struct.pack(">d", float(value)).hex().upper()
    return str(int(value))


def splat_constant(text: str, element: str, lanes: int) -> str:
    """Return a constant repeated over the lanes."""
    return text if lanes == 1 else f"splat ({element} {text})"


def constant(value: int | float | bool, dtype: str, lanes: int = 1) -> str:
    """Return the text of a constant value repeated over the lanes."""
    return splat_constant(scalar_constant(value, dtype), element_type(dtype), lanes)


def suffix(type_: str) -> str:
    """Return the part of an intrinsic's name that stands for a type: `v16f32`, `i64`."""
    names = {"float": "f32", "double": "f64", "half": "f16"}
    if type_.startswith("<"):
        lanes, element = type_[1:-1].split(" x ")
        return f"v{lanes}{names.get(element, element)}"
    return names.get(type_, type_)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the code generator asks of a target.

    `fma`: fused multiply-add is an instruction; `rounding`: floor, ceil, trunc and rint are;
    `half_convert`, `half_arithmetic`: float16 conversions and arithmetic are; `nan_min`: one
    instruction gives the minimum that propagates NaN; `least_masked`: the bytes of the smallest
    elements that vector loads and stores can leave out by a mask (0: none); `loads_anywhere`: see
    `Target`; `features`: LLVM's names of what is on; `wide_registers`: general registers have 64
    bits.
    """

    x86: bool
    fma: bool
    rounding: bool
    half_convert: bool
    half_arithmetic: bool
    nan_min: bool
    least_masked: int = 0
    loads_anywhere: bool = False
    features: frozenset[str] = frozenset()
    wide_registers: bool = False

    @staticmethod
    def of(target: Target) -> Machine:
        """Read the facts from a target's triple and features."""
        architecture = target.triple.partition("-")[0]
        on = frozenset(target.features)
        if architecture in ("x86_64", "i686", "i386"):
            half = bool(on & {"f16c", "avx512f"})
            rounding = "sse4.1" in on or "avx" in on
            halves = half, "avx512fp16" in on
            known = True, "fma" in on, rounding, *halves, False, target.least_masked
            return Machine(*known, target.loads_anywhere, on, architecture == "x86_64")
        if architecture in ("aarch64", "arm64"):
            halves = True, "fullfp16" in on
            return Machine(False, True, True, *halves, True, 0, target.loads_anywhere, on, True)
        fused = "vfp4" in on or (architecture.startswith("riscv") and "f" in on)
        wide = architecture == "riscv64"
        return Machine(False, fused, *(False,) * 4, features=on, wide_registers=wide)


Lines: TypeAlias = "list[str | Lines]"
"""Lines of code, and places among them to which more are appended later."""


def flattened(lines: Lines) -> Iterator[str]:
    """Return lines and those of the places among them, in order."""
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from flattened(line)


@dataclass(slots=True)
class Builder:
    """Appends instructions to one function; `declarations` is shared by the module."""

    declarations: dict[str, str]
    lines: Lines = field(default_factory=list)
    entry: list[str] = field(default_factory=list)
    block: str = "entry"
    _values: int = 0
    _labels: int = 0

    def name(self) -> str:
        """Return an unused value name."""
        self._values += 1
        return f"%v{self._values}"

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def opaque(self, value: str) -> str:
        """Return an i64 value as one of which LLVM does not know how it was computed."""
        return self.let(f'call i64 asm "", "=r,0"(i64 {value}) nounwind memory(none)')

    def order_loads(self) -> None:
        """Keep LLVM from scheduling a load from behind this place before one from before it."""
        self.line('call void asm sideeffect "", ""() nounwind memory(none)')

    def let_entry(self, text: str) -> str:
        """Append an instruction to the function's entry block."""
        name = self.name()
        self.entry.append(f"  {name} = {text}")
        return name

    def place(self) -> Lines:
        """Return a place at the end of the code to which more can be appended later."""
        made: Lines = []
        self.lines.append(made)
        return made

    def label(self, stem: str) -> str:
        """Return an unused block label."""
        self._labels += 1
        return f"{stem}{self._labels}"

    def start(self, label: str) -> None:
        """Begin a block; what follows goes into it."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """End the block by going to `label`."""
        self.line(f"br label %{label}")

    def branch(self, condition: str, then: str, other: str) -> None:
        """End the block by going to one of two labels."""
        self.line(f"br i1 {condition}, label %{then}, label %{other}")

    def phi(self, type_: str, *incoming: tuple[str, str]) -> str:
        """Join values that come from blocks, given as (value, label)."""
        pairs = ", ".join(f"[ {value}, %{label} ]" for value, label in incoming)
        return self.let(f"phi {type_} {pairs}")

    def intrinsic(self, result: str, name: str, *args: tuple[str, str]) -> str:
        """Call `@llvm.<name>` with (type, value) arguments and declare it."""
        types = ", ".join(t for t, _ in args)
        self.declarations.setdefault(name, f"declare {result} @llvm.{name}({types})")
        operands = ", ".join(f"{t} {v}" for t, v in args)
        return self.let(f"call {result} @llvm.{name}({operands})")

    def intrinsic_void(self, name: str, *args: tuple[str, str]) -> None:
        """Call `@llvm.<name>` that returns nothing and declare it."""
        types = ", ".join(t for t, _ in args)
        self.declarations.setdefault(name, f"declare void @llvm.{name}({types})")
        operands = ", ".join(f"{t} {v}" for t, v in args)
        self.line(f"call void @llvm.{name}({operands})")

    def choose(self, cond: str, type_: str, lanes: int, then: str, other: str) -> str:
        """Return `then` in the lanes where `cond` holds, else `other`, both of an LLVM type."""
        return self.let(f"select {vector('i1', lanes)} {cond}, {type_} {then}, {type_} {other}")

    def splat(self, value: str, element: str, lanes: int) -> str:
        """Return a scalar repeated over the lanes."""
        if lanes == 1:
            return value
        if not value.startswith("%"):
            return splat_constant(value, element, lanes)
        type_ = vector(element, lanes)
        first = self.let(f"insertelement {type_} poison, {element} {value}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.let(f"shufflevector {type_} {first}, {type_} poison, {zeros}")
