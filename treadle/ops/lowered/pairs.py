# SPDX-License-Identifier: Apache-2.0
"""Sums of products of small integers, two at a time: `dense_pairs` and `conv_pairs`.

An int32 word holds two neighbouring steps of the reduction as signed 16-bit numbers, the first in
the low half. One instruction of x86 multiplies the halves of two words and adds the products; the
sums are those of int32 factors, bit by bit.
"""

from __future__ import annotations

import numpy as np

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, call
from treadle.graph.operator import Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.conv import (
    ConvAttrs,
    compute_conv,
    conv_rules,
    flops_conv,
    infer_conv,
    reference_conv,
)
from treadle.ops.lowered.dense_packed import (
    DensePackedAttrs,
    compute_dense_packed,
    dense_packed_rules,
    infer_dense_packed,
)
from treadle.ops.schedules.matmul import schedule_dense_packed
from treadle.ops.schedules.plain_conv import schedule_plain_conv
from treadle.te.tensor import Tensor


def pair_words(x: np.ndarray, axis: int) -> np.ndarray:
    """Return integers of 16 bits at most with neighbours along an axis in one int32 word.

    An odd extent is filled up by a zero.
    """
    rows = np.moveaxis(np.asarray(x).astype("<i2"), axis, -1)
    if rows.shape[-1] % 2:
        rows = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, 1)])
    words = np.ascontiguousarray(rows).view("<i4")
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


def halves(words: np.ndarray, axis: int) -> np.ndarray:
    """Return the int32 numbers whose pairs along an axis the words hold."""
    rows = np.ascontiguousarray(np.moveaxis(words, axis, -1))
    return np.moveaxis(rows.view("<i2"), -1, axis).astype("int32")


def _dot(a: Expr, b: Expr) -> Expr:
    return call("dot_pairs", a, b)


def _check_words(*types: Type) -> None:
    for type_ in types:
        if tensor_type(type_).dtype != "int32":
            raise TypeMismatch(f"{type_} does not hold pairs of 16-bit numbers in int32 words")


# dense_pairs: [..., k / 2] words by panels of words [n/nb, k / 2, nb].


def _infer_dense(attrs: DensePackedAttrs, a: Type, w: Type) -> TensorType:
    _check_words(a, w)
    return infer_dense_packed(attrs, a, w)


def _compute_dense(attrs: DensePackedAttrs, a: Tensor, w: Tensor) -> list[Tensor]:
    return compute_dense_packed(attrs, a, w, _dot)


def _reference_dense(attrs: DensePackedAttrs, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    panels = halves(w, 1)
    chunks, rows, width = panels.shape
    matrix = panels.transpose(1, 0, 2).reshape(rows, chunks * width)[:, : attrs.n]
    result: np.ndarray = np.matmul(halves(a, a.ndim - 1), matrix)
    return result


def _flops_dense(attrs: DensePackedAttrs, a: Type, w: Type) -> Dim:
    return 4 * tensor_type(a).elements * attrs.n


def _words(*shape: int, axis: int) -> np.ndarray:
    """Return words of random numbers of 9 bits and a sign, the extreme ones among them."""
    full = [2 * d if k == axis else d for k, d in enumerate(shape)]
    numbers = np.random.default_rng(sum(shape)).integers(-255, 256, full)
    numbers.reshape(-1)[:4] = (-32768, 32767, -1, 255)
    return pair_words(numbers, axis)


def _dense_example(rows: tuple[int, ...], panels: tuple[int, int, int], n: int) -> Example:
    shape = (*rows, panels[1])
    inputs = {0: _words(*shape, axis=len(rows)), 1: _words(*panels, axis=1)}
    return Example((shape, panels), {"n": n}, ("int32", "int32"), inputs=inputs)


dense_pairs: Operator[DensePackedAttrs] = register(
    Operator(
        name="dense_pairs",
        infer=_infer_dense,
        reference=_reference_dense,
        compute=_compute_dense,
        rules=dense_packed_rules,
        attrs_type=DensePackedAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_dense_packed},
        flops=_flops_dense,
        examples=(
            _dense_example((4,), (2, 5, 8), 16),
            _dense_example((1,), (3, 16, 16), 41),
            _dense_example((2, 3), (1, 7, 16), 3),
            _dense_example((21,), (2, 9, 64), 100),
        ),
    )
)


# conv_pairs: [n, c / 2, *spatial] words by words [oc, c / 2, *kernel].


def _infer_conv_pairs(attrs: ConvAttrs, x: Type, w: Type) -> TensorType:
    _check_words(x, w)
    if attrs.groups != 1:
        raise TypeMismatch("a convolution of pairs of channels has one group")
    return infer_conv(attrs, x, w)


def _compute_conv_pairs(attrs: ConvAttrs, x: Tensor, w: Tensor) -> list[Tensor]:
    return compute_conv(attrs, x, w, _dot)


def _reference_conv_pairs(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return reference_conv(attrs, halves(x, 1), halves(w, 1))


def _flops_conv_pairs(attrs: ConvAttrs, x: Type, w: Type) -> Dim:
    return 2 * flops_conv(attrs, x, w)


def _conv_example(x: tuple[int, ...], w: tuple[int, ...], **attrs: object) -> Example:
    inputs = {0: _words(*x, axis=1), 1: _words(*w, axis=1)}
    return Example((x, w), attrs, ("int32", "int32"), inputs=inputs)


conv_pairs: Operator[ConvAttrs] = register(
    Operator(
        name="conv_pairs",
        infer=_infer_conv_pairs,
        reference=_reference_conv_pairs,
        compute=_compute_conv_pairs,
        rules=conv_rules,
        attrs_type=ConvAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_plain_conv},
        flops=_flops_conv_pairs,
        examples=(
            _conv_example((1, 3, 8, 9), (5, 3, 3, 3), pads_before=(1, 1), pads_after=(1, 1)),
            _conv_example((2, 8, 7, 33), (9, 8, 1, 1)),
            _conv_example((1, 2, 20), (3, 2, 5), strides=(2,)),
            _conv_example((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), dilations=(1, 2, 1)),
        ),
    )
)
