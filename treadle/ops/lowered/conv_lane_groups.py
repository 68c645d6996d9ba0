# SPDX-License-Identifier: Apache-2.0
"""Convolutions in groups of few channels, several of them side by side in a block of channels.

Group g of `size` channels reads and writes lanes g * size to (g + 1) * size - 1 of its block. A
lane of the result adds up products of its own weights with each channel of its group: a vector in
which every group's lanes hold that channel, which is a shuffle of the vector of the position.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, same_dim, tensor_type
from treadle.ops.accumulate import product, product_example
from treadle.ops.axis_names import image_axes
from treadle.ops.conv import ConvAttrs, check_factors, conv_axes, padded, padding, stages
from treadle.ops.lowered.conv_nchwc import reference_in_blocks
from treadle.ops.numeric import dims_of
from treadle.ops.schedules.conv import schedule_lane_groups
from treadle.ops.window import kernel_axes, positions


def _infer(attrs: ConvAttrs, x: Type, w: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(w)
    check_factors(data, weights, 5, 5, "[n, c/b, h, w, b] and [c/b, kh, size, kw, b]")
    chunks, kh, size, kw, block = weights.static_shape
    if not (same_dim(data.shape[1], chunks) and same_dim(data.shape[-1], block)):
        raise TypeMismatch(f"the weights {weights} and the data {data} differ in channels")
    if block % size:
        raise TypeMismatch(f"groups of {size} channels do not fill blocks of {block}")
    axes = conv_axes(attrs, data.shape[2:-1], (kh, kw))
    return data.with_shape((data.shape[0], chunks, *(a.out for a in axes), block))


def _compute(attrs: ConvAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    chunks, kh, size, kw, block = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:-1], (kh, kw))
    pad = padded(x, axes, trailing=1)
    source = x if pad is None else pad
    down, across = kernel_axes([kh, kw])
    channel = te.reduce_axis((0, size), "ic")

    def element(n: Expr, oc: Expr, oh: Expr, ow: Expr, ocb: Expr) -> Expr:
        lane = te.floordiv(ocb, size) * size + channel
        value = source[(n, oc, *positions(axes, (oh, ow), (down, across)), lane)]
        factor = w[oc, down, channel, across, ocb]
        return te.sum(product(value, factor), axis=[down, channel, across])

    shape = (x.shape[0], chunks, *(a.out for a in axes), block)
    names = image_axes(2, block="ocb")
    total = te.compute_one(shape, element, name="lane_groups_conv2d_nchwc", axes=names)
    return stages(pad, total, x.dtype)


def _reference(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    chunks, kh, size, kw, block = w.shape
    channels = chunks * block
    plain = w.transpose(0, 4, 2, 1, 3).reshape(channels, size, kh, kw)
    return reference_in_blocks(replace(attrs, groups=channels // size), x, plain, block)


def _flops(attrs: ConvAttrs, x: Type, w: Type) -> Dim:
    return 2 * _infer(attrs, x, w).elements * prod(tensor_type(w).static_shape[1:-1])


lane_groups_conv2d_nchwc: Operator[ConvAttrs] = register(
    # The attribute `groups` is not read: weights say how many channels a group has.
    Operator(
        name="lane_groups_conv2d_nchwc",
        schedule={"cpu": schedule_lane_groups},
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=ConvAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        flushes_subnormals=True,
        examples=(
            product_example(((1, 2, 7, 9, 8), (2, 3, 4, 3, 8)), padding(1)),
            product_example(((1, 2, 9, 31, 16), (2, 3, 4, 3, 16))),
            product_example(((1, 2, 9, 33, 16), (2, 3, 8, 3, 16)), {"strides": (2, 2)}),
            product_example(((2, 3, 8, 8, 4), (3, 2, 2, 3, 4)), {**padding(1), "strides": (2, 2)}),
        ),
    )
)
