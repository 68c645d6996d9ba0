# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic in LLVM IR: wrapping sums, shifts by any width, divisions rounded either way.

Nothing here is undefined in LLVM for any operand but a divisor of zero.
"""

from __future__ import annotations

from treadle.dtype import bits, is_signed, is_unsigned
from treadle.errors import InternalError
from treadle.expr.nodes import Binary
from treadle.target.llvm_builder import Builder, Machine, constant, register_type, suffix, vector
from treadle.target.value_facts import is_never_negative, scalar_const

_PLAIN_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip


class Integers:
    """Emits the binary operations of integers."""

    def __init__(self, builder: Builder, machine: Machine) -> None:
        self.b = builder
        self.machine = machine

    def binary(self, e: Binary, a: str, b: str) -> str:
        """Return `a op b` for operands of the node's type, which is not bool."""
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
        return self.b.choose(inside, type_, e.lanes, shifted, zero)

    def _divide(self, e: Binary, type_: str, a: str, b: str) -> str:
        wants_quotient = e.op in ("floordiv", "truncdiv", "div")
        divisor = scalar_const(e.b)
        if divisor == 0:
            return a  # undefined by the law, and LLVM may not see it
        if is_unsigned(e.dtype) or (is_never_negative(e.a) and is_never_negative(e.b)):
            found = self.b.let(f"{'udiv' if wants_quotient else 'urem'} {type_} {a}, {b}")
            return self._as_one_term(type_, found)
        if e.op.startswith("trunc"):
            quotient = self._safe_quotient(e, type_, a, b)
            return quotient if wants_quotient else self._remainder(type_, a, b, quotient)
        if divisor is not None and divisor > 0:
            return self._floor_by_positive(e, type_, a, b, int(divisor), wants_quotient)
        return self._floor_general(e, type_, a, b, wants_quotient)

    def _as_one_term(self, type_: str, found: str) -> str:
        """Return what a division gives as one term of the addresses that are sums of it.

        LLVM reads x % c as x - x / c * c. Loop strength reduction tries the sums of terms that
        addresses share, exponentially many (`LoopStrengthReduce.cpp`), and took half of the time of
        code generation for the tasks of convolutions, whose bands and blocks are such remainders.
        """
        return self.b.opaque(found) if self.machine.wide_registers and type_ == "i64" else found

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
        safe = self.b.choose(unit, type_, e.lanes, constant(1, e.dtype, e.lanes), b)
        quotient = self.b.let(f"sdiv {type_} {a}, {safe}")
        return self.b.choose(unit, type_, e.lanes, negated, quotient)

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
        step = self.b.choose(adjust, type_, e.lanes, b, zero)
        return self.b.let(f"add {type_} {rest}, {step}")
