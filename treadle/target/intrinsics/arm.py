# SPDX-License-Identifier: Apache-2.0
"""Instructions of AArch64: dot products of bytes and of bfloat16.

What each does is in the Arm Architecture Reference Manual (DDI 0487), C7, under its name.
"""

from __future__ import annotations

from treadle.target.intrinsics.meanings import dot
from treadle.te.intrinsics import Form, Intrinsic, Operand, register_intrinsic


def _bytes(name: str, a: str, b: str, feature: str) -> Intrinsic:
    """Return the record of an instruction that adds products of four bytes to an integer."""

    def form(lanes: int) -> Form:
        acc, wide = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
        types = f"v{lanes}i32.v{4 * lanes}i8"
        llvm = f"{acc} @llvm.aarch64.neon.{name}.{types}({acc}, {wide}, {wide})"
        return Form(lanes, (feature,), llvm)

    return register_intrinsic(
        Intrinsic(
            name=f"arm.{name}",
            operands=(Operand("a", a, 4), Operand("b", b, 4)),
            meaning=dot("int32"),
            accumulates=True,
            forms=(form(2), form(4)),
        )
    )


sdot = _bytes("sdot", "int8", "int8", "dotprod")
udot = _bytes("udot", "uint8", "uint8", "dotprod")
usdot = _bytes("usdot", "uint8", "int8", "i8mm")

bfdot = register_intrinsic(
    Intrinsic(
        name="arm.bfdot",
        operands=(Operand("a", "bfloat16", 2), Operand("b", "bfloat16", 2)),
        meaning=dot("float32"),
        accumulates=True,
        forms=(
            Form(
                4,
                ("bf16",),
                "<4 x float> @llvm.aarch64.neon.bfdot.v4f32.v8bf16"
                "(<4 x float>, <8 x bfloat>, <8 x bfloat>)",
            ),
        ),
    )
)
"""Flushes subnormal numbers to zero; products are rounded to odd where FEAT_EBF16 is off."""
