# SPDX-License-Identifier: Apache-2.0
"""Conversions between element types in LLVM IR.

Floats become integers by dropping the fraction, saturated at the ends of the type, NaN as zero;
integers keep their low bits; whatever is not zero is true.
"""

from __future__ import annotations

from treadle.dtype import bits, is_float, is_integer, is_signed, max_value, min_value
from treadle.expr.nodes import Cast
from treadle.target.llvm_builder import Builder, Machine, constant, register_type, suffix
from treadle.target.llvm_floats import Floats
from treadle.target.value_facts import float_bounds


class Casts:
    """Emits `Cast` nodes."""

    def __init__(self, builder: Builder, machine: Machine, floats: Floats) -> None:
        self.b = builder
        self.machine = machine
        self.floats = floats

    def cast(self, e: Cast, value: str) -> str:
        """Return `value` converted to the node's dtype."""
        source, target = e.value.dtype, e.dtype
        if self.machine.x86 and e.lanes > 1 and is_float(source) and is_integer(target):
            low, high = float_bounds(e.value)
            if bits(source) >= 32 and bits(target) < 32:
                inside = min_value(target) <= low and high <= max_value(target)
                return self._float_vector_to_int(value, source, target, e.lanes, inside)
        return self._cast(value, source, target, e.lanes)

    def _cast(self, value: str, source: str, target: str, lanes: int) -> str:
        if source == target:
            return value
        if target == "bool":
            return self._is_not_zero(value, source, lanes)
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
            bounded = self.floats.better("ogt", type_, lanes, value, constant(low, source, lanes))
        if is_exact and not is_inside:
            bounded = self.floats.better(
                "olt", type_, lanes, bounded, constant(high, source, lanes)
            )
        middle = target if bits(target) >= 32 else "int32"
        op = "fptosi" if is_signed(middle) else "fptoui"
        whole = register_type(middle, lanes)
        result = self.b.let(f"{op} {type_} {bounded} to {whole}")
        if not is_exact:
            above = self.b.let(f"fcmp oge {type_} {value}, {constant(high + 1.0, source, lanes)}")
            result = self.b.choose(above, whole, lanes, constant(high, middle, lanes), result)
        if low < 0 or is_inside:
            nan = self.b.let(f"fcmp uno {type_} {value}, {value}")
            result = self.b.choose(nan, whole, lanes, constant(0, middle, lanes), result)
        return self._int_to_int(result, middle, target, lanes)

    def _is_not_zero(self, value: str, source: str, lanes: int) -> str:
        zero = constant(0, source, lanes)
        if not is_float(source):
            return self.b.let(f"icmp ne {register_type(source, lanes)} {value}, {zero}")
        type_, (x, y) = self.floats.wide(source, lanes, value, zero)
        return self.b.let(f"fcmp une {type_} {x}, {y}")
