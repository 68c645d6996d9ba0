# SPDX-License-Identifier: Apache-2.0
"""Convolutions in groups in the channel-blocked layout, whatever the order of their channels."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import product, product_example
from treadle.ops.axis_names import image_axes
from treadle.ops.conv import (
    ConvAttrs,
    check_factors,
    check_groups,
    conv_axes,
    padded,
    padding,
    stages,
)
from treadle.ops.lowered.channel_blocks import channel_at, check_static_image, element_of
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.ops.numeric import dims_of
from treadle.ops.schedules.conv import schedule_conv2d_nchwc
from treadle.ops.window import kernel_axes, positions


def _infer(attrs: ConvAttrs, x: Type, w: Type, places: Type) -> TensorType:
    data, weights, table = tensor_type(x), tensor_type(w), tensor_type(places)
    check_factors(data, weights, 5, 5, "[n, c/b, h, w, b] and [oc/b, ic/groups, kh, kw, b]")
    filters, per_group, kh, kw, block = weights.static_shape
    check_static_image(data)
    check_groups(attrs.groups, attrs.groups, filters)
    if table.dtype != "int32" or table.shape != (attrs.groups, per_group):
        raise TypeMismatch(
            f"the places of the channels are {table}, not int32[{attrs.groups}, {per_group}]"
        )
    axes = conv_axes(attrs, data.shape[2:4], (kh, kw))
    return data.with_shape((data.shape[0], filters, *(a.out for a in axes), block))


def _compute(attrs: ConvAttrs, x: te.Tensor, w: te.Tensor, places: te.Tensor) -> list[te.Tensor]:
    filters, per_group, *kernel, block = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:4], kernel)
    pad = padded(x, axes, trailing=1)
    source = x if pad is None else pad
    ic = te.reduce_axis((0, per_group), "ic")
    kh, kw = kernel_axes(kernel)

    def element(n: Expr, oc: Expr, oh: Expr, ow: Expr, ocb: Expr) -> Expr:
        group = te.floordiv(oc, filters // attrs.groups)
        chunk, lane = channel_at(x, places[group, ic])
        value = source[(n, chunk, *positions(axes, (oh, ow), (kh, kw)), lane)]
        return te.sum(product(value, w[oc, ic, kh, kw, ocb]), axis=[ic, kh, kw])

    shape = (x.shape[0], filters, *(a.out for a in axes), block)
    names = image_axes(len(axes), block="ocb")
    total = te.compute_one(shape, element, name="grouped_conv2d_nchwc", axes=names)
    return stages(pad, total, x.dtype)


def _reference(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray, places: np.ndarray) -> np.ndarray:
    per_group = w.shape[0] // attrs.groups
    alone = ConvAttrs(attrs.strides, attrs.pads_before, attrs.pads_after, attrs.dilations)
    parts = []
    chunks, lanes = np.divmod(places, prod(x.shape[2:]))
    for group in range(attrs.groups):
        picked = x[:, chunks[group], :, :, lanes[group]]  # [ic, n, h, w]
        weights = w[group * per_group : (group + 1) * per_group, None, :, :, :]
        data = np.moveaxis(picked, 0, -1)[:, None]
        parts.append(conv2d_nchwc.reference(alone, data, weights.transpose(0, 1, 3, 4, 2, 5)))
    return np.concatenate(parts, axis=1)


def _flops(attrs: ConvAttrs, x: Type, w: Type, places: Type) -> Dim:
    return 2 * _infer(attrs, x, w, places).elements * prod(tensor_type(w).static_shape[1:4])


def _example(
    shapes: tuple[tuple[int, ...], ...], places: list[list[int]], **attrs: object
) -> Example:
    table = element_of(np.array(places, np.int32), *shapes[0][2:])
    return product_example(
        (*shapes, table.shape), {"groups": len(places), **attrs}, inputs={2: table}
    )


grouped_conv2d_nchwc: Operator[ConvAttrs] = register(
    # Group g reads the channels whose first elements are `places[g]` elements into the data
    # (block * h * w * b + lane), in this order: an offset costs the inner loop no arithmetic. It
    # writes `oc / b / groups` blocks of its own.
    Operator(
        name="grouped_conv2d_nchwc",
        schedule={"cpu": schedule_conv2d_nchwc},
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=ConvAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        flushes_subnormals=True,
        examples=(
            _example(((1, 2, 5, 7, 4), (2, 3, 1, 1, 8)), [[0, 3, 6], [1, 4, 7]]),
            _example(((2, 3, 6, 6, 4), (3, 2, 1, 1, 4)), [[9, 1], [2, 8], [5, 5]], strides=(2, 2)),
            _example(((1, 2, 6, 5, 4), (4, 3, 3, 2, 4)), [[0, 1, 2], [6, 5, 4]], **padding(1)),
        ),
    )
)
