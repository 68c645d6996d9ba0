# SPDX-License-Identifier: Apache-2.0
"""Instructions of x86-64: dot products of bytes, of 16-bit integers and of bfloat16; lookups.

What each does is in the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
under its name.
"""

from __future__ import annotations

from treadle.target.intrinsics.meanings import choice, dot
from treadle.te.intrinsics import Form, Intrinsic, Operand, register_intrinsic


def _vnni_forms(name: str, element: str, count: int) -> tuple[Form, ...]:
    """Return the forms of an instruction that adds dot products to 32-bit integers."""

    def form(lanes: int, *features: str) -> Form:
        acc, wide = f"<{lanes} x i32>", f"<{lanes * count} x {element}>"
        llvm = f"{acc} @llvm.x86.avx512.{name}.{32 * lanes}({acc}, {wide}, {wide})"
        return Form(lanes, features, llvm)

    return (
        form(4, "avx512vnni", "avx512vl"),
        form(8, "avx512vnni", "avx512vl"),
        form(16, "avx512vnni"),
        form(4, "avxvnni"),
        form(8, "avxvnni"),
    )


vpdpbusd = register_intrinsic(
    Intrinsic(
        name="x86.vpdpbusd",
        operands=(Operand("a", "uint8", 4), Operand("b", "int8", 4)),
        meaning=dot("int32"),
        accumulates=True,
        forms=_vnni_forms("vpdpbusd", "i8", 4),
    )
)

vpdpwssd = register_intrinsic(
    Intrinsic(
        name="x86.vpdpwssd",
        operands=(Operand("a", "int16", 2), Operand("b", "int16", 2)),
        meaning=dot("int32"),
        accumulates=True,
        forms=_vnni_forms("vpdpwssd", "i16", 2),
    )
)

pmaddwd = register_intrinsic(
    Intrinsic(
        name="x86.pmaddwd",
        operands=(Operand("a", "int16", 2), Operand("b", "int16", 2)),
        meaning=dot("int32"),
        forms=(
            Form(4, ("sse2",), "<4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16>, <8 x i16>)"),
            Form(8, ("avx2",), "<8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)"),
            Form(
                16,
                ("avx512bw",),
                "<16 x i32> @llvm.x86.avx512.pmaddw.d.512(<32 x i16>, <32 x i16>)",
            ),
        ),
    )
)


def _bf16_form(lanes: int, *features: str) -> Form:
    acc, wide = f"<{lanes} x float>", f"<{2 * lanes} x bfloat>"
    llvm = f"{acc} @llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}({acc}, {wide}, {wide})"
    return Form(lanes, features, llvm)


vdpbf16ps = register_intrinsic(
    Intrinsic(
        name="x86.vdpbf16ps",
        operands=(Operand("a", "bfloat16", 2), Operand("b", "bfloat16", 2)),
        meaning=dot("float32"),
        accumulates=True,
        forms=(
            _bf16_form(4, "avx512bf16", "avx512vl"),
            _bf16_form(8, "avx512bf16", "avx512vl"),
            _bf16_form(16, "avx512bf16"),
        ),
    )
)
"""Flushes subnormal numbers to zero, and adds the second product first."""

_PERMD_256 = Form(8, ("avx2",), "<8 x i32> @llvm.x86.avx2.permd(<8 x i32>, <8 x i32>)")
_PERMD_512 = Form(
    16, ("avx512f",), "<16 x i32> @llvm.x86.avx512.permvar.si.512(<16 x i32>, <16 x i32>)"
)

vpermd_8 = register_intrinsic(
    Intrinsic(
        name="x86.vpermd.8",
        operands=(Operand("table", "uint32", 8, shared=True), Operand("index", "uint32")),
        meaning=choice,
        forms=(_PERMD_256, _PERMD_512),
    )
)
"""The one of eight numbers that the low three bits of an index number."""

vpermd_16 = register_intrinsic(
    Intrinsic(
        name="x86.vpermd.16",
        operands=(Operand("table", "uint32", 16, shared=True), Operand("index", "uint32")),
        meaning=choice,
        forms=(_PERMD_512,),
    )
)
"""The one of sixteen numbers that the low four bits of an index number."""

LOOKUPS = (vpermd_8, vpermd_16)
"""By the size of their table."""
