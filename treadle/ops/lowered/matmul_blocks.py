# SPDX-License-Identifier: Apache-2.0
"""`dense_blocks`: products with weights of few bits, packed in memory and widened in registers.

A weight is `(number - zero) * scale`, with a zero and a scale per block of rows and column. The
bytes hold 8 / bits rows of one column, the first row in the lowest bits, as onnxruntime's
MatMulNBits stores them; columns lie side by side in panels, so that a vector of bytes becomes
vectors of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, cast, convert
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import narrowed
from treadle.ops.axis_names import product_axes
from treadle.ops.example_numbers import integers
from treadle.ops.numeric import FLOATS, accumulator, broadcast_index, check_elements, in_float64
from treadle.ops.schedules.matmul import schedule_dense_blocks


@dataclass(frozen=True, slots=True)
class BlocksAttrs(Attrs):
    """`n`: the columns of the result; `bits` of a weight: 2, 4 or 8.

    Operands: values [..., m, k], bytes [n/nb, blocks, bytes, nb], scales [n/nb, blocks, nb], zeros
    of the same shape or one for all [1, 1, 1], as uint8 or in the type of the values.
    """

    n: int
    bits: int


def _infer(attrs: BlocksAttrs, a: Type, w: Type, scales: Type, zeros: Type) -> TensorType:
    x, panels = check_elements(a, FLOATS), check_elements(w, ("uint8",), "the weights")
    if x.ndim < 2 or panels.ndim != 4 or attrs.bits not in (2, 4, 8):
        raise TypeMismatch(
            f"{x} and {panels} of {attrs.bits} bits are not [..., m, k] values and "
            "[n/nb, blocks, bytes, nb] weights of 2, 4 or 8 bits"
        )
    count, blocks, packed, width = panels.static_shape
    each = TensorType((count, blocks, width), x.dtype)
    if scales != each:
        raise TypeMismatch(f"the scales {scales} do not fit the weights {panels}: not {each}")
    zero = check_elements(zeros, (x.dtype, "uint8"), "the zeros")
    if zero.shape not in (each.shape, (1, 1, 1)):
        raise TypeMismatch(f"the zeros {zero} do not fit the weights {panels}")
    rows = blocks * packed * (8 // attrs.bits)
    if isinstance(x.shape[-1], int) and x.shape[-1] != rows:
        raise TypeMismatch(f"{x} has {x.shape[-1]} columns against {rows} rows of weights")
    if not (count - 1) * width < attrs.n <= count * width:
        raise TypeMismatch(f"{count} panels of {width} columns do not hold {attrs.n} columns")
    return x.with_shape((*x.shape[:-1], attrs.n))


def _rules(
    attrs: BlocksAttrs, result: Type, a: Type, w: Type, scales: Type, zeros: Type
) -> Iterator[SizeRule]:
    _, blocks, packed, _ = tensor_type(w).static_shape
    return equal([(tensor_type(a).shape[-1], blocks * packed * 8 // attrs.bits)])


def _compute(
    attrs: BlocksAttrs, a: te.Tensor, w: te.Tensor, scales: te.Tensor, zeros: te.Tensor
) -> list[te.Tensor]:
    _, blocks, packed, width = w.shape
    per = 8 // attrs.bits
    wide = accumulator(a.dtype)
    block, byte = te.reduce_axis((0, blocks), "block"), te.reduce_axis((0, packed), "byte")
    place = te.reduce_axis((0, per), "place")

    def element(*i: Expr) -> Expr:
        panel, lane = te.floordiv(i[-1], width), te.floormod(i[-1], width)
        number = _part(w[panel, block, byte, lane], place, attrs.bits)
        zero = zeros[broadcast_index(zeros, (panel, block, lane))]
        value = a[(*i[:-1], (block * packed + byte) * per + place)]
        weight = _difference(number, zero, wide) * cast(scales[panel, block, lane], wide)
        return te.sum(cast(value, wide) * weight, axis=(block, byte, place))

    names = product_axes(a.ndim)
    total = te.compute_one((*a.shape[:-1], attrs.n), element, name="dense", axes=names)
    return narrowed(total, a.dtype, "dense_cast")


def _part(stored: Expr, place: Expr, bits: int) -> Expr:
    """Return number `place` of those in a byte."""
    if bits == 8:
        return stored
    return (stored >> cast(place * bits, "uint8")) & convert((1 << bits) - 1, "uint8")


def _difference(number: Expr, zero: Expr, dtype: str) -> Expr:
    """Return a number less its zero, which are subtracted as integers where they are."""
    if zero.dtype == "uint8":
        return cast(cast(number, "int32") - cast(zero, "int32"), dtype)
    return cast(number, dtype) - cast(zero, dtype)


def _reference(
    attrs: BlocksAttrs, a: np.ndarray, w: np.ndarray, scales: np.ndarray, zeros: np.ndarray
) -> np.ndarray:
    shifts = np.arange(0, 8, attrs.bits, dtype="uint8")
    numbers = (w[:, :, :, None] >> shifts[:, None]) & ((1 << attrs.bits) - 1)
    count, blocks, packed, width = w.shape
    steps = numbers.reshape(count, blocks, packed * len(shifts), width).astype("float64")
    weights = (steps - in_float64(zeros)[:, :, None]) * in_float64(scales)[:, :, None]
    matrix = weights.transpose(1, 2, 0, 3).reshape(a.shape[-1], -1)[:, : attrs.n]
    result: np.ndarray = np.matmul(in_float64(a), matrix)
    return result.astype(a.dtype)


def _flops(attrs: BlocksAttrs, a: Type, *_: Type) -> Dim:
    return 2 * tensor_type(a).elements * attrs.n


def _example(
    rows: tuple[int, ...],
    panels: tuple[int, int, int, int],
    *,
    n: int,
    bits: int,
    dtype: str = "float32",
    zeros: str = "uint8",
    rtol: float = 1e-5,
) -> Example:
    count, blocks, packed, width = panels
    each = (count, blocks, width)
    shapes = ((*rows, blocks * packed * 8 // bits), panels, each, each if zeros else (1, 1, 1))
    stored = integers(panels, 0, 256).astype("uint8")
    middle = np.full((1, 1, 1), 1 << (bits - 1), "uint8")
    return Example(
        shapes,
        {"n": n, "bits": bits},
        (dtype, "uint8", dtype, zeros or "uint8"),
        low=0 if zeros == "uint8" else -2,
        inputs={1: stored} if zeros else {1: stored, 3: middle},
        rtol=rtol,
        atol=rtol * 1e3,
    )


dense_blocks: Operator[BlocksAttrs] = register(
    Operator(
        name="dense_blocks",
        schedule={"cpu": schedule_dense_blocks},
        infer=_infer,
        rules=_rules,
        reference=_reference,
        compute=_compute,
        attrs_type=BlocksAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        flushes_subnormals=True,
        examples=(
            _example((1,), (2, 3, 16, 64), n=100, bits=4),
            _example((1,), (3, 2, 8, 64), n=192, bits=4, zeros=""),
            _example((19,), (1, 2, 16, 32), n=32, bits=4),
            _example((2, 3), (2, 2, 16, 16), n=31, bits=4, zeros="float32"),
            _example((2,), (1, 3, 16, 64), n=50, bits=8),
            _example((5,), (1, 2, 4, 64), n=64, bits=2),
            _example((3,), (1, 2, 8, 64), n=64, bits=4, dtype="float16", rtol=1e-3),
            _example((3,), (1, 2, 8, 64), n=64, bits=4, dtype="bfloat16", rtol=8e-3),
            _example((3,), (1, 2, 8, 64), n=64, bits=4, dtype="float64"),
        ),
    )
)
