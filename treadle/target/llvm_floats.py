# SPDX-License-Identifier: Apache-2.0
"""Floats in LLVM IR: the better of two, and 16-bit ones: to and from float32, each rounded once.

bfloat16 always, and float16 where the machine has no conversion instructions, are converted with
integer arithmetic: the results are the same on every machine (the bfloat16 instruction of x86
flushes denormals) and no library function is called.
"""

from __future__ import annotations

import struct

from treadle.dtype import bits
from treadle.target.llvm_builder import (
    Builder,
    Machine,
    register_type,
    splat_constant,
    suffix,
    vector,
)

_VECTORS = {
    "<4 x float>": ("sse", "x86.sse.{}.ps"),
    "<2 x double>": ("sse2", "x86.sse2.{}.pd"),
    "<8 x float>": ("avx", "x86.avx.{}.ps.256"),
    "<4 x double>": ("avx", "x86.avx.{}.pd.256"),
    "<16 x float>": ("avx512f", "x86.avx512.{}.ps.512"),
    "<8 x double>": ("avx512f", "x86.avx512.{}.pd.512"),
}
"""By the type, the feature that x86's smaller and larger of two vectors need, and their names."""
_AS_SET = ("i32", "4")
"""How those of AVX-512 treat exceptions: as the control register says."""


def _f32(bits: int) -> str:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return "0x" + struct.pack(">d", value).hex().upper()


class Floats:
    """Widens and narrows 16-bit floats that are held as i16."""

    def __init__(self, builder: Builder, machine: Machine) -> None:
        self.b = builder
        self.machine = machine

    def wide(self, dtype: str, lanes: int, *values: str) -> tuple[str, list[str]]:
        """Return the type arithmetic on `dtype` is done in, and the values in it."""
        if bits(dtype) != 16:
            return register_type(dtype, lanes), list(values)
        if dtype == "float16" and self.machine.half_arithmetic:
            return vector("half", lanes), [self.as_half(v, lanes) for v in values]
        return vector("float", lanes), [self.widen(v, dtype, lanes) for v in values]

    def stored(self, dtype: str, lanes: int, value: str) -> str:
        """Return a result of that arithmetic as a value of `dtype`."""
        if bits(dtype) != 16:
            return value
        if dtype == "float16" and self.machine.half_arithmetic:
            return self.from_half(value, lanes)
        return self.narrow(value, dtype, lanes)

    def better(self, test: str, type_: str, lanes: int, x: str, y: str) -> str:
        """Return `x` where the comparison with `y` holds, else `y`; `type_` is their LLVM type.

        `test` is olt or ogt. For a vector x86 has an instruction that does just that. It is asked
        for by name: of a choice with a constant LLVM makes one among what comes of both.
        """
        feature, instruction = _VECTORS.get(type_, ("", ""))
        if self.machine.x86 and feature in self.machine.features:
            name = instruction.format("min" if test == "olt" else "max")
            rounding = (_AS_SET,) if feature == "avx512f" else ()
            return self.b.intrinsic(type_, name, (type_, x), (type_, y), *rounding)
        cond = self.b.let(f"fcmp {test} {type_} {x}, {y}")
        return self.b.choose(cond, type_, lanes, x, y)

    def widen(self, value: str, dtype: str, lanes: int) -> str:
        """Return the float32 value of a float16 or bfloat16."""
        if dtype == "bfloat16":
            return self._from_bits(self._op("shl", self._extend(value, lanes), 16, lanes), lanes)
        if self.machine.half_convert:
            half = self.as_half(value, lanes)
            return self.b.let(f"fpext {vector('half', lanes)} {half} to {vector('float', lanes)}")
        return self._half_to_float(value, lanes)

    def narrow(self, value: str, dtype: str, lanes: int) -> str:
        """Return a float32 value rounded to float16 or bfloat16."""
        if dtype == "bfloat16":
            return self._float_to_bfloat(value, lanes)
        if self.machine.half_convert:
            single = vector("float", lanes)
            if lanes == 1:
                # LLVM makes one rounding of two where the value was rounded from a double, and
                # calls a function for it that no library here has.
                value = self.b.intrinsic(single, "arithmetic.fence.f32", (single, value))
            half = self.b.let(f"fptrunc {single} {value} to {vector('half', lanes)}")
            return self.from_half(half, lanes)
        return self._float_to_half(value, lanes)

    def narrow_double(self, value: str, dtype: str, lanes: int) -> str:
        """Return a float64 value rounded once to float16 or bfloat16 (through round-to-odd)."""
        double, single = vector("double", lanes), vector("float", lanes)
        near = self.b.let(f"fptrunc {double} {value} to {single}")
        back = self.b.let(f"fpext {single} {near} to {double}")
        inexact = self.b.let(f"fcmp one {double} {back}, {value}")
        d = suffix(double)
        away = self.b.let(
            f"fcmp ogt {double} {self.b.intrinsic(double, f'fabs.{d}', (double, back))}, "
            f"{self.b.intrinsic(double, f'fabs.{d}', (double, value))}"
        )
        bits = self._to_bits(near, lanes)
        type_ = vector("i32", lanes)
        step = self.b.let(f"zext {vector('i1', lanes)} {away} to {type_}")
        odd = self._op("or", self.b.let(f"sub {type_} {bits}, {step}"), 1, lanes)
        return self.narrow(
            self._from_bits(self._pick(inexact, odd, bits, lanes), lanes), dtype, lanes
        )

    def as_half(self, value: str, lanes: int) -> str:
        """Return an i16 as LLVM's half."""
        return self.b.let(f"bitcast {vector('i16', lanes)} {value} to {vector('half', lanes)}")

    def from_half(self, value: str, lanes: int) -> str:
        """Return LLVM's half as an i16."""
        return self.b.let(f"bitcast {vector('half', lanes)} {value} to {vector('i16', lanes)}")

    def _extend(self, value: str, lanes: int) -> str:
        return self.b.let(f"zext {vector('i16', lanes)} {value} to {vector('i32', lanes)}")

    def _shorten(self, value: str, lanes: int) -> str:
        return self.b.let(f"trunc {vector('i32', lanes)} {value} to {vector('i16', lanes)}")

    def _from_bits(self, value: str, lanes: int) -> str:
        return self.b.let(f"bitcast {vector('i32', lanes)} {value} to {vector('float', lanes)}")

    def _to_bits(self, value: str, lanes: int) -> str:
        return self.b.let(f"bitcast {vector('float', lanes)} {value} to {vector('i32', lanes)}")

    def _op(self, op: str, value: str, by: int, lanes: int) -> str:
        amount = splat_constant(str(by), "i32", lanes)
        return self.b.let(f"{op} {vector('i32', lanes)} {value}, {amount}")

    def _test(self, op: str, value: str, by: int, lanes: int) -> str:
        limit = splat_constant(str(by), "i32", lanes)
        return self.b.let(f"icmp {op} {vector('i32', lanes)} {value}, {limit}")

    def _pick(self, cond: str, then: str, other: str, lanes: int) -> str:
        type_ = vector("i32", lanes)
        return self.b.let(f"select {vector('i1', lanes)} {cond}, {type_} {then}, {type_} {other}")

    def _float_to_bfloat(self, value: str, lanes: int) -> str:
        type_ = vector("i32", lanes)
        bits = self._to_bits(value, lanes)
        odd = self._op("and", self._op("lshr", bits, 16, lanes), 1, lanes)
        up = self.b.let(f"add {type_} {self._op('add', bits, 0x7FFF, lanes)}, {odd}")
        nan = self.b.let(f"fcmp uno {vector('float', lanes)} {value}, {value}")
        quiet = self._op("or", bits, 0x400000, lanes)
        picked = self._pick(nan, quiet, up, lanes)
        return self._shorten(self._op("lshr", picked, 16, lanes), lanes)

    def _half_to_float(self, value: str, lanes: int) -> str:
        type_, single = vector("i32", lanes), vector("float", lanes)
        wide = self._extend(value, lanes)
        body = self._op("shl", self._op("and", wide, 0x7FFF, lanes), 13, lanes)
        scale = splat_constant(_f32((254 - 15) << 23), "float", lanes)
        scaled = self.b.let(f"fmul {single} {self._from_bits(body, lanes)}, {scale}")
        bits = self._to_bits(scaled, lanes)
        special = self._test("uge", body, 0x7C00 << 13, lanes)
        bits = self._pick(special, self._op("or", body, 0x7F800000, lanes), bits, lanes)
        sign = self._op("shl", self._op("and", wide, 0x8000, lanes), 16, lanes)
        return self._from_bits(self.b.let(f"or {type_} {bits}, {sign}"), lanes)

    def _float_to_half(self, value: str, lanes: int) -> str:
        type_ = vector("i32", lanes)
        bits = self._to_bits(value, lanes)
        sign = self._op("and", bits, -0x80000000, lanes)
        size = self._op("and", bits, 0x7FFFFFFF, lanes)
        odd = self._op("and", self._op("lshr", size, 13, lanes), 1, lanes)
        biased = self._op("add", size, (15 - 127) * (1 << 23) + 0xFFF, lanes)
        normal = self._op("lshr", self.b.let(f"add {type_} {biased}, {odd}"), 13, lanes)
        special = self._pick(
            self._test("ugt", size, 255 << 23, lanes),
            splat_constant(str(0x7E00), "i32", lanes),
            splat_constant(str(0x7C00), "i32", lanes),
            lanes,
        )
        result = self._pick(
            self._test("ult", size, 113 << 23, lanes), self._denormal(size, lanes), normal, lanes
        )
        huge = self._test("uge", size, (127 + 16) << 23, lanes)
        result = self._pick(huge, special, result, lanes)
        signed = self.b.let(f"or {type_} {result}, {self._op('lshr', sign, 16, lanes)}")
        return self._shorten(signed, lanes)

    def _denormal(self, size: str, lanes: int) -> str:
        # Adding 0.5 lines the mantissa up with float16's denormals and rounds it there.
        magic = 126 << 23
        shift = splat_constant(_f32(magic), "float", lanes)
        moved = self.b.let(f"fadd {vector('float', lanes)} {self._from_bits(size, lanes)}, {shift}")
        return self._op("sub", self._to_bits(moved, lanes), magic, lanes)
