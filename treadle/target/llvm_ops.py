# SPDX-License-Identifier: Apache-2.0
"""Arithmetic in LLVM IR: one method per kind of expression node, operands already emitted."""

from __future__ import annotations

from collections.abc import Callable

from treadle.dtype import bits, is_float, is_integer, is_signed, is_unsigned, max_value, min_value
from treadle.errors import InternalError
from treadle.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Select, Var
from treadle.target.llvm_builder import (
    Builder,
    Machine,
    constant,
    register_type,
    splat_constant,
    suffix,
    vector,
)
from treadle.target.llvm_floats import Floats
from treadle.target.llvm_intrinsics import Intrinsics

_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_PLAIN_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip
_BOOL_OPS = {
    "and": "and", "or": "or", "min": "and", "max": "or",
    "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


def scalar_const(e: Expr) -> int | float | bool | None:
    """Return the constant every lane of `e` holds, else None."""
    inner = e.value if isinstance(e, Broadcast) else e
    return inner.value if isinstance(inner, Const) else None


def is_never_negative(e: Expr) -> bool:
    """True when an index expression is surely >= 0 (loop variables and sizes are)."""
    if isinstance(e, Const):
        return e.value >= 0
    if isinstance(e, Var):
        return e.dtype == "int64"
    if isinstance(e, Broadcast):
        return is_never_negative(e.value)
    if isinstance(e, Binary) and e.dtype == "int64":
        if e.op in ("add", "mul", "floordiv", "floormod", "min"):
            return is_never_negative(e.a) and is_never_negative(e.b)
        if e.op == "max":
            return is_never_negative(e.a) or is_never_negative(e.b)
    return False


def is_never_nan(e: Expr) -> bool:
    """True when a float expression surely is not NaN."""
    if isinstance(e, Const):
        return e.value == e.value
    if isinstance(e, Broadcast):
        return is_never_nan(e.value)
    if isinstance(e, Cast):
        return not is_float(e.value.dtype)
    if isinstance(e, Binary) and e.op in ("min", "max"):
        return is_never_nan(e.a) and is_never_nan(e.b)
    if isinstance(e, Select):
        return is_never_nan(e.then) and is_never_nan(e.other)
    return False


def float_bounds(e: Expr) -> tuple[float, float]:
    """Return the constants a float expression surely lies between, if it is not NaN."""
    if isinstance(e, Broadcast):
        return float_bounds(e.value)
    if isinstance(e, Const):
        return float(e.value), float(e.value)
    if isinstance(e, Binary) and e.op in ("min", "max"):
        (a, b), (c, d) = float_bounds(e.a), float_bounds(e.b)
        return (min(a, c), min(b, d)) if e.op == "min" else (max(a, c), max(b, d))
    return float("-inf"), float("inf")


class Ops:
    """Emits the arithmetic nodes: `Binary`, `Cast`, `Call` and strict `Select`."""

    def __init__(self, builder: Builder, machine: Machine) -> None:
        self.b = builder
        self.machine = machine
        self.floats = Floats(builder, machine)
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
        return self._int_binary(e, a, b)

    def select(self, e: Select, cond: str, then: str, other: str) -> str:
        """Return `then` where `cond` holds, else `other`, with both evaluated."""
        type_ = register_type(e.dtype, e.lanes)
        return self.b.let(
            f"select {vector('i1', e.cond.lanes)} {cond}, {type_} {then}, {type_} {other}"
        )

    def cast(self, e: Cast, value: str) -> str:
        """Return `value` converted to the node's dtype."""
        source, target = e.value.dtype, e.dtype
        if self.machine.x86 and e.lanes > 1 and is_float(source) and is_integer(target):
            low, high = float_bounds(e.value)
            if bits(source) >= 32 and bits(target) < 32:
                inside = min_value(target) <= low and high <= max_value(target)
                return self._float_vector_to_int(value, source, target, e.lanes, inside)
        return self._cast(value, source, target, e.lanes)

    # -- comparisons and logic

    def _compare(self, op: str, dtype: str, lanes: int, a: str, b: str) -> str:
        if is_float(dtype):
            type_, (x, y) = self._wide(dtype, lanes, a, b)
            return self.b.let(f"fcmp {_FLOAT_COMPARE[op]} {type_} {x}, {y}")
        sign = "" if op in ("eq", "ne") else ("s" if is_signed(dtype) else "u")
        return self.b.let(f"icmp {sign}{op} {register_type(dtype, lanes)} {a}, {b}")

    def _logic(self, e: Binary, a: str, b: str) -> str:
        op = _BOOL_OPS.get(e.op)
        if op is None:
            raise InternalError(f"'{e.op}' of bool operands reaches code generation: {e}")
        return self.b.let(f"{op} {vector('i1', e.lanes)} {a}, {b}")

    # -- floats

    def _wide(self, dtype: str, lanes: int, *values: str) -> tuple[str, list[str]]:
        """Return the type arithmetic on `dtype` is done in, and the values in it."""
        if bits(dtype) != 16:
            return register_type(dtype, lanes), list(values)
        if dtype == "float16" and self.machine.half_arithmetic:
            return vector("half", lanes), [self.floats.as_half(v, lanes) for v in values]
        return vector("float", lanes), [self.floats.widen(v, dtype, lanes) for v in values]

    def _store_width(self, dtype: str, lanes: int, value: str) -> str:
        """Undo `_wide` on a result."""
        if bits(dtype) != 16:
            return value
        if dtype == "float16" and self.machine.half_arithmetic:
            return self.floats.from_half(value, lanes)
        return self.floats.narrow(value, dtype, lanes)

    def _float_binary(self, e: Binary, a: str, b: str) -> str:
        if e.op in ("min", "max"):
            return self._float_extreme(e, a, b)
        op = _FLOAT_OPS.get(e.op)
        if op is None:
            raise InternalError(f"'{e.op}' of {e.dtype} operands reaches code generation: {e}")
        type_, (x, y) = self._wide(e.dtype, e.lanes, a, b)
        return self._store_width(e.dtype, e.lanes, self.b.let(f"{op} {type_} {x}, {y}"))

    def _float_extreme(self, e: Binary, a: str, b: str) -> str:
        """Minimum or maximum with NaN winning.

        The compare-and-select forms become one x86 instruction, which returns its second operand
        when either is NaN; the operand that may be NaN goes there.
        """
        lanes = e.lanes
        type_, (x, y) = self._wide(e.dtype, lanes, a, b)
        test = "ogt" if e.op == "max" else "olt"
        if self.machine.nan_min:
            name = "maximum" if e.op == "max" else "minimum"
            best = self.b.intrinsic(type_, f"{name}.{suffix(type_)}", (type_, x), (type_, y))
        elif is_never_nan(e.a):
            best = self._better(test, type_, lanes, x, y)
        else:
            best = self._better(test, type_, lanes, y, x)
            if not is_never_nan(e.b):
                # A constant NaN, for with y LLVM would merge both selects into slower code.
                nan = self.b.let(f"fcmp uno {type_} {y}, {y}")
                best = self._choose(nan, type_, lanes, self._nan(type_, lanes), best)
        return self._store_width(e.dtype, lanes, best)

    def _nan(self, type_: str, lanes: int) -> str:
        element = type_[1:-1].split(" x ")[1] if lanes > 1 else type_
        text = "0xH7E00" if element == "half" else "0x7FF8000000000000"
        return splat_constant(text, element, lanes)

    def _better(self, test: str, type_: str, lanes: int, x: str, y: str) -> str:
        cond = self.b.let(f"fcmp {test} {type_} {x}, {y}")
        return self._choose(cond, type_, lanes, x, y)

    def _choose(self, cond: str, type_: str, lanes: int, then: str, other: str) -> str:
        return self.b.let(f"select {vector('i1', lanes)} {cond}, {type_} {then}, {type_} {other}")

    # -- integers

    def _int_binary(self, e: Binary, a: str, b: str) -> str:
        type_ = register_type(e.dtype, e.lanes)
        if e.op in _PLAIN_OPS:
            return self.b.let(f"{_PLAIN_OPS[e.op]} {type_} {a}, {b}")
        if e.op in ("min", "max"):
            sign = "s" if is_signed(e.dtype) else "u"
            name = f"{sign}{e.op}.{suffix(type_)}"
            return self.b.intrinsic(type_, name, (type_, a), (type_, b))
        if e.op in ("shl", "shr"):
            return self._shift(e, type_, a, b)
        if e.op in ("floordiv", "floormod", "truncdiv", "truncmod", "div"):
            return self._divide(e, type_, a, b)
        raise InternalError(f"'{e.op}' of {e.dtype} operands reaches code generation: {e}")

    def _shift(self, e: Binary, type_: str, a: str, b: str) -> str:
        """Shift; by more than the width, all bits leave (LLVM alone would give poison)."""
        op = "shl" if e.op == "shl" else ("ashr" if is_signed(e.dtype) else "lshr")
        width, by = bits(e.dtype), scalar_const(e.b)
        if by is not None and 0 <= by < width:
            return self.b.let(f"{op} {type_} {a}, {b}")
        last = constant(width - 1, e.dtype, e.lanes)
        safe = self.b.intrinsic(type_, f"umin.{suffix(type_)}", (type_, b), (type_, last))
        shifted = self.b.let(f"{op} {type_} {a}, {safe}")
        if op == "ashr":
            return shifted
        inside = self.b.let(f"icmp ule {type_} {b}, {last}")
        zero = constant(0, e.dtype, e.lanes)
        return self._choose(inside, type_, e.lanes, shifted, zero)

    def _divide(self, e: Binary, type_: str, a: str, b: str) -> str:
        wants_quotient = e.op in ("floordiv", "truncdiv", "div")
        divisor = scalar_const(e.b)
        if divisor == 0:
            return a  # undefined by the law, and LLVM may not see it
        if is_unsigned(e.dtype) or (is_never_negative(e.a) and is_never_negative(e.b)):
            return self.b.let(f"{'udiv' if wants_quotient else 'urem'} {type_} {a}, {b}")
        if e.op.startswith("trunc"):
            quotient = self._safe_quotient(e, type_, a, b)
            return quotient if wants_quotient else self._remainder(type_, a, b, quotient)
        if divisor is not None and divisor > 0:
            return self._floor_by_positive(e, type_, a, b, int(divisor), wants_quotient)
        return self._floor_general(e, type_, a, b, wants_quotient)

    def _remainder(self, type_: str, a: str, b: str, quotient: str) -> str:
        product = self.b.let(f"mul {type_} {quotient}, {b}")
        return self.b.let(f"sub {type_} {a}, {product}")

    def _safe_quotient(self, e: Binary, type_: str, a: str, b: str) -> str:
        """Signed quotient towards zero; the smallest value over -1 wraps instead of trapping."""
        divisor = scalar_const(e.b)
        if divisor is not None and divisor != -1:
            return self.b.let(f"sdiv {type_} {a}, {b}")
        zero = constant(0, e.dtype, e.lanes)
        negated = self.b.let(f"sub {type_} {zero}, {a}")
        if divisor == -1:
            return negated
        unit = self.b.let(f"icmp eq {type_} {b}, {constant(-1, e.dtype, e.lanes)}")
        safe = self._choose(unit, type_, e.lanes, constant(1, e.dtype, e.lanes), b)
        quotient = self.b.let(f"sdiv {type_} {a}, {safe}")
        return self._choose(unit, type_, e.lanes, negated, quotient)

    def _floor_by_positive(
        self, e: Binary, type_: str, a: str, b: str, divisor: int, wants_quotient: bool
    ) -> str:
        if divisor & (divisor - 1) == 0:
            op, by = ("ashr", divisor.bit_length() - 1) if wants_quotient else ("and", divisor - 1)
            return self.b.let(f"{op} {type_} {a}, {constant(by, e.dtype, e.lanes)}")
        # floor(a / c) = ~(~a / c) for negative a; x ^ (a >> last) is ~x exactly then.
        sign = self.b.let(f"ashr {type_} {a}, {constant(bits(e.dtype) - 1, e.dtype, e.lanes)}")
        size = self.b.let(f"xor {type_} {a}, {sign}")
        part = self.b.let(f"udiv {type_} {size}, {b}")
        quotient = self.b.let(f"xor {type_} {part}, {sign}")
        return quotient if wants_quotient else self._remainder(type_, a, b, quotient)

    def _floor_general(self, e: Binary, type_: str, a: str, b: str, wants_quotient: bool) -> str:
        zero = constant(0, e.dtype, e.lanes)
        quotient = self._safe_quotient(e, type_, a, b)
        rest = self._remainder(type_, a, b, quotient)
        uneven = self.b.let(f"icmp ne {type_} {rest}, {zero}")
        mixed = self.b.let(f"icmp slt {type_} {self.b.let(f'xor {type_} {rest}, {b}')}, {zero}")
        adjust = self.b.let(f"and {vector('i1', e.lanes)} {uneven}, {mixed}")
        if wants_quotient:
            step = self.b.let(f"sext {vector('i1', e.lanes)} {adjust} to {type_}")
            return self.b.let(f"add {type_} {quotient}, {step}")
        step = self._choose(adjust, type_, e.lanes, b, zero)
        return self.b.let(f"add {type_} {rest}, {step}")

    # -- conversions

    def _cast(self, value: str, source: str, target: str, lanes: int) -> str:
        if source == target:
            return value
        if target == "bool":
            zero = constant(0, source, lanes)
            return self._compare("ne", source, lanes, value, zero)
        if is_float(source):
            return self._cast_float(value, source, target, lanes)
        if is_float(target):
            return self._int_to_float(value, source, target, lanes)
        return self._int_to_int(value, source, target, lanes)

    def _int_to_int(self, value: str, source: str, target: str, lanes: int) -> str:
        old = 1 if source == "bool" else bits(source)
        if old == bits(target):
            return value
        op = "trunc" if old > bits(target) else ("sext" if is_signed(source) else "zext")
        return self.b.let(
            f"{op} {register_type(source, lanes)} {value} to {register_type(target, lanes)}"
        )

    def _int_to_float(self, value: str, source: str, target: str, lanes: int) -> str:
        op = "sitofp" if is_signed(source) else "uitofp"
        middle = "float32" if bits(target) == 16 else target
        result = self.b.let(
            f"{op} {register_type(source, lanes)} {value} to {register_type(middle, lanes)}"
        )
        return result if middle == target else self.floats.narrow(result, target, lanes)

    def _cast_float(self, value: str, source: str, target: str, lanes: int) -> str:
        if bits(source) == 16:
            wide = self.floats.widen(value, source, lanes)
            return self._cast(wide, "float32", target, lanes)
        if is_integer(target):
            return self._float_to_int(value, source, target, lanes)
        if bits(target) == 16:
            narrow = self.floats.narrow if source == "float32" else self.floats.narrow_double
            return narrow(value, target, lanes)
        op = "fpext" if bits(target) > bits(source) else "fptrunc"
        return self.b.let(
            f"{op} {register_type(source, lanes)} {value} to {register_type(target, lanes)}"
        )

    def _float_to_int(self, value: str, source: str, target: str, lanes: int) -> str:
        if self.machine.x86 and lanes > 1:
            return self._float_vector_to_int(value, source, target, lanes)
        type_, result = register_type(source, lanes), register_type(target, lanes)
        sign = "s" if is_signed(target) else "u"
        name = f"fpto{sign}i.sat.{suffix(result)}.{suffix(type_)}"
        return self.b.intrinsic(result, name, (type_, value))

    def _float_vector_to_int(
        self, value: str, source: str, target: str, lanes: int, is_inside: bool = False
    ) -> str:
        """Saturate by comparing: LLVM's own saturating conversion is scalar code on x86.

        `is_inside` promises that the value fits the target, or is NaN.
        """
        type_ = register_type(source, lanes)
        low, high = int(min_value(target)), int(max_value(target))
        is_exact = bits(target) < (53 if source == "float64" else 24)
        bounded = value
        if not is_inside:  # NaN becomes the least value
            bounded = self._better("ogt", type_, lanes, value, constant(low, source, lanes))
        if is_exact and not is_inside:
            bounded = self._better("olt", type_, lanes, bounded, constant(high, source, lanes))
        middle = target if bits(target) >= 32 else "int32"
        op = "fptosi" if is_signed(middle) else "fptoui"
        whole = register_type(middle, lanes)
        result = self.b.let(f"{op} {type_} {bounded} to {whole}")
        if not is_exact:
            above = self.b.let(f"fcmp oge {type_} {value}, {constant(high + 1.0, source, lanes)}")
            result = self._choose(above, whole, lanes, constant(high, middle, lanes), result)
        if low < 0 or is_inside:
            nan = self.b.let(f"fcmp uno {type_} {value}, {value}")
            result = self._choose(nan, whole, lanes, constant(0, middle, lanes), result)
        return self._int_to_int(result, middle, target, lanes)

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
        type_, wide = self._wide(dtype, lanes, *args)
        result = self.b.intrinsic(type_, f"{e.name}.{suffix(type_)}", *[(type_, v) for v in wide])
        return self._store_width(dtype, lanes, result)

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
        type_, (x,) = self._wide(dtype, lanes, args[0])
        if self.machine.rounding:
            name = f"{_ROUNDING[e.name]}.{suffix(type_)}"
            result = self.b.intrinsic(type_, name, (type_, x))
        else:
            result = self._round_by_adding(e.name, type_, lanes, x)
        return self._store_width(dtype, lanes, result)

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
        return self._choose(small, type_, lanes, near, x)

    def _step(
        self, type_: str, lanes: int, test: str, near: str, x: str, by: float, dtype: str
    ) -> str:
        off = self.b.let(f"fcmp {test} {type_} {near}, {x}")
        moved = self.b.let(f"fadd {type_} {near}, {constant(by, dtype, lanes)}")
        return self._choose(off, type_, lanes, moved, near)

    def _copysign(self, type_: str, size: str, sign: str) -> str:
        return self.b.intrinsic(type_, f"copysign.{suffix(type_)}", (type_, size), (type_, sign))

    def _fma(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        type_, wide = self._wide(dtype, lanes, *args)
        if self.machine.fma:
            result = self.b.intrinsic(type_, f"fma.{suffix(type_)}", *[(type_, v) for v in wide])
        else:
            product = self.b.let(f"fmul {type_} {wide[0]}, {wide[1]}")
            result = self.b.let(f"fadd {type_} {product}, {wide[2]}")
        return self._store_width(dtype, lanes, result)

    def _isnan(self, e: Call, dtype: str, lanes: int, args: list[str]) -> str:
        type_, (x,) = self._wide(dtype, lanes, args[0])
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
