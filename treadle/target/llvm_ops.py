# SPDX-License-Identifier: Apache-2.0
"""Arithmetic in LLVM IR: comparisons, logic, floats and intrinsics, operands already emitted."""

from __future__ import annotations

from collections.abc import Callable

from treadle.dtype import bits, is_float, is_integer, is_signed
from treadle.errors import InternalError
from treadle.expr.nodes import Binary, Call, Select
from treadle.target.llvm_builder import (
    Builder,
    Machine,
    constant,
    register_type,
    splat_constant,
    suffix,
    vector,
)
from treadle.target.llvm_casts import Casts
from treadle.target.llvm_floats import Floats
from treadle.target.llvm_integers import Integers
from treadle.target.llvm_intrinsics import Intrinsics
from treadle.target.value_facts import is_never_nan, scalar_const

_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_BOOL_OPS = {
    "and": "and", "or": "or", "min": "and", "max": "or",
    "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


class Ops:
    """Emits `Binary`, `Call` and strict `Select`; conversions of types are in `casts`."""

    def __init__(self, builder: Builder, machine: Machine) -> None:
        self.b = builder
        self.machine = machine
        self.floats = Floats(builder, machine)
        self.integers = Integers(builder, machine)
        self.casts = Casts(builder, machine, self.floats)
        self.intrinsics = Intrinsics(builder, machine.features)

    def binary(self, e: Binary, a: str, b: str) -> str:
        """Return `a op b` for operands of the node's types."""
        dtype, lanes = e.a.dtype, e.a.lanes
        if e.op in _FLOAT_COMPARE:
            return self._compare(e.op, dtype, lanes, a, b)
        if dtype == "bool":
            return self._logic(e, a, b)
        if is_float(dtype):
            return self._float_binary(e, a, b)
        return self.integers.binary(e, a, b)

    def select(self, e: Select, cond: str, then: str, other: str) -> str:
        """Return `then` where `cond` holds, else `other`, with both evaluated."""
        type_ = register_type(e.dtype, e.lanes)
        if (test := _test_of_extreme(e)) is not None:
            limit = scalar_const(e.then)
            if self.machine.nan_min and limit and limit == limit:  # signs of zeros are kept
                return self._propagating(test, type_, then, other)
            return self.floats.better(test, type_, e.lanes, then, other)
        return self.b.choose(cond, type_, e.cond.lanes, then, other)

    # -- comparisons and logic

    def _compare(self, op: str, dtype: str, lanes: int, a: str, b: str) -> str:
        if is_float(dtype):
            type_, (x, y) = self.floats.wide(dtype, lanes, a, b)
            return self.b.let(f"fcmp {_FLOAT_COMPARE[op]} {type_} {x}, {y}")
        sign = "" if op in ("eq", "ne") else ("s" if is_signed(dtype) else "u")
        return self.b.let(f"icmp {sign}{op} {register_type(dtype, lanes)} {a}, {b}")

    def _logic(self, e: Binary, a: str, b: str) -> str:
        op = _BOOL_OPS.get(e.op)
        if op is None:
            raise InternalError(f"'{e.op}' of bool operands reaches code generation: {e}")
        return self.b.let(f"{op} {vector('i1', e.lanes)} {a}, {b}")

    def _float_binary(self, e: Binary, a: str, b: str) -> str:
        if e.op in ("min", "max"):
            return self._float_extreme(e, a, b)
        op = _FLOAT_OPS.get(e.op)
        if op is None:
            raise InternalError(f"'{e.op}' of {e.dtype} operands reaches code generation: {e}")
        type_, (x, y) = self.floats.wide(e.dtype, e.lanes, a, b)
        return self.floats.stored(e.dtype, e.lanes, self.b.let(f"{op} {type_} {x}, {y}"))

    def _float_extreme(self, e: Binary, a: str, b: str) -> str:
        """Minimum or maximum with NaN winning.

        The compare-and-select forms become one x86 instruction, which returns its second operand
        when either is NaN; the operand that may be NaN goes there.
        """
        lanes = e.lanes
        type_, (x, y) = self.floats.wide(e.dtype, lanes, a, b)
        test = "ogt" if e.op == "max" else "olt"
        if self.machine.nan_min:
            best = self._propagating(test, type_, x, y)
        elif is_never_nan(e.a):
            best = self.floats.better(test, type_, lanes, x, y)
        else:
            best = self.floats.better(test, type_, lanes, y, x)
            if not is_never_nan(e.b):
                # A constant NaN, for with y LLVM would merge both selects into slower code.
                nan = self.b.let(f"fcmp uno {type_} {y}, {y}")
                best = self.b.choose(nan, type_, lanes, self._nan(type_, lanes), best)
        return self.floats.stored(e.dtype, lanes, best)

    def _propagating(self, test: str, type_: str, x: str, y: str) -> str:
        name = "minimum" if test == "olt" else "maximum"
        return self.b.intrinsic(type_, f"{name}.{suffix(type_)}", (type_, x), (type_, y))

    def _nan(self, type_: str, lanes: int) -> str:
        element = type_[1:-1].split(" x ")[1] if lanes > 1 else type_
        text = "0xH7E00" if element == "half" else "0x7FF8000000000000"
        return splat_constant(text, element, lanes)

    # -- intrinsics

    def call(self, e: Call, args: list[str]) -> str:
        """Return the intrinsic of the node; transcendental functions must be expanded before."""
        dtype, lanes = e.args[0].dtype, e.lanes
        method = self._methods().get(e.name)
        if method is None:
            raise InternalError(
                f"'{e.name}' reaches code generation unexpanded: {e}",
                hint="the lowering pass expand_math runs before the target",
            )
        return method(e, dtype, lanes, args)

    def _methods(self) -> dict[str, Callable[[Call, str, int, list[str]], str]]:
        return {
            "sqrt": self._float_call, "abs": self._abs, "copysign": self._float_call,
            "floor": self._round, "ceil": self._round, "trunc": self._round, "round": self._round,
            "fma": self._fma, "isnan": self._isnan, "isinf": self._isinf, "not": self._not,
            "popcount": self._count_bits, "clz": self._count_bits, "bitcast": self._bitcast,
        }  # fmt: skip

    def _float_call(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        if not is_float(dtype):
            raise InternalError(f"'{e.name}' of {dtype} reaches code generation: {e}")
        type_, wide = self.floats.wide(dtype, lanes, *args)
        result = self.b.intrinsic(type_, f"{e.name}.{suffix(type_)}", *[(type_, v) for v in wide])
        return self.floats.stored(dtype, lanes, result)

    def _abs(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        type_ = register_type(dtype, lanes)
        if is_float(dtype) and bits(dtype) > 16:
            return self.b.intrinsic(type_, f"fabs.{suffix(type_)}", (type_, args[0]))
        if is_float(dtype):
            return self.b.let(f"and {type_} {args[0]}, {splat_constant('32767', 'i16', lanes)}")
        if not is_signed(dtype):
            return args[0]
        name = f"abs.{suffix(type_)}"
        return self.b.intrinsic(type_, name, (type_, args[0]), ("i1", "false"))

    def _round(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        if is_integer(dtype):
            return args[0]
        type_, (x,) = self.floats.wide(dtype, lanes, args[0])
        if self.machine.rounding:
            name = f"{_ROUNDING[e.name]}.{suffix(type_)}"
            result = self.b.intrinsic(type_, name, (type_, x))
        else:
            result = self._round_by_adding(e.name, type_, lanes, x)
        return self.floats.stored(dtype, lanes, result)

    def _round_by_adding(self, name: str, type_: str, lanes: int, x: str) -> str:
        """Round without an instruction for it: adding 2**(mantissa bits) drops the fraction."""
        dtype = "float64" if "double" in type_ else "float32"
        big = constant(2.0 ** (52 if dtype == "float64" else 23), dtype, lanes)
        size = self.b.intrinsic(type_, f"fabs.{suffix(type_)}", (type_, x))
        up = self.b.let(f"fadd {type_} {size}, {big}")
        near = self.b.let(f"fsub {type_} {up}, {big}")
        if name == "trunc":
            near = self._step(type_, lanes, "ogt", near, size, -1.0, dtype)
        near = self._copysign(type_, near, x)
        if name == "floor":
            near = self._step(type_, lanes, "ogt", near, x, -1.0, dtype)
        if name == "ceil":
            near = self._step(type_, lanes, "olt", near, x, 1.0, dtype)
        near = self._copysign(type_, near, x)
        small = self.b.let(f"fcmp olt {type_} {size}, {big}")
        return self.b.choose(small, type_, lanes, near, x)

    def _step(
        self, type_: str, lanes: int, test: str, near: str, x: str, by: float, dtype: str
    ) -> str:
        off = self.b.let(f"fcmp {test} {type_} {near}, {x}")
        moved = self.b.let(f"fadd {type_} {near}, {constant(by, dtype, lanes)}")
        return self.b.choose(off, type_, lanes, moved, near)

    def _copysign(self, type_: str, size: str, sign: str) -> str:
        return self.b.intrinsic(type_, f"copysign.{suffix(type_)}", (type_, size), (type_, sign))

    def _fma(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        type_, wide = self.floats.wide(dtype, lanes, *args)
        if self.machine.fma:
            result = self.b.intrinsic(type_, f"fma.{suffix(type_)}", *[(type_, v) for v in wide])
        else:
            product = self.b.let(f"fmul {type_} {wide[0]}, {wide[1]}")
            result = self.b.let(f"fadd {type_} {product}, {wide[2]}")
        return self.floats.stored(dtype, lanes, result)

    def _isnan(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        type_, (x,) = self.floats.wide(dtype, lanes, args[0])
        return self.b.let(f"fcmp uno {type_} {x}, {x}")

    def _isinf(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        size = self._abs(e, dtype, lanes, args)
        inf = constant(float("inf"), dtype, lanes)
        return self._compare("eq", dtype, lanes, size, inf)

    def _not(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        return self.b.let(
            f"xor {vector('i1', lanes)} {args[0]}, {splat_constant('true', 'i1', lanes)}"
        )

    def _count_bits(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        type_ = register_type(dtype, lanes)
        if e.name == "popcount":
            return self.b.intrinsic(type_, f"ctpop.{suffix(type_)}", (type_, args[0]))
        name = f"ctlz.{suffix(type_)}"
        return self.b.intrinsic(type_, name, (type_, args[0]), ("i1", "false"))

    def _bitcast(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        source, target = register_type(dtype, lanes), register_type(e.dtype, lanes)
        if source == target:
            return args[0]
        return self.b.let(f"bitcast {source} {args[0]} to {target}")


def _test_of_extreme(e: Select) -> str | None:
    """Return how `then` compares with `other` where it is chosen, if it is the better of both."""
    if not isinstance(e.cond, Binary) or e.dtype not in ("float32", "float64"):
        return None
    is_of_both = e.cond.a is e.other and e.cond.b is e.then
    return {"gt": "olt", "lt": "ogt"}.get(e.cond.op) if is_of_both else None
