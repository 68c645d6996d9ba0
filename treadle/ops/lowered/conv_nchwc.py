# SPDX-License-Identifier: Apache-2.0
"""Convolutions in the channel-blocked layout NCHWc."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, same_dim, tensor_type
from treadle.ops.accumulate import product, product_example
from treadle.ops.axis_names import image_axes
from treadle.ops.conv import (
    ConvAttrs,
    check_factors,
    check_groups,
    conv_axes,
    input_channel,
    known_extent,
    padded,
    padding,
    reference_conv,
    stages,
)
from treadle.ops.example_numbers import uniform
from treadle.ops.lowered.channel_blocks import (
    PackAttrs,
    UnpackAttrs,
    reference_pack,
    reference_unpack,
)
from treadle.ops.numeric import dims_of
from treadle.ops.schedules.conv import schedule_conv2d_nchwc, schedule_depthwise_nchwc
from treadle.ops.window import kernel_axes, positions


@dataclass(frozen=True, slots=True)
class BlockedConvAttrs(ConvAttrs):
    """`unused`: the last input channels of every group whose weights are all zero.

    They are there to fill the last block, hold any finite value and are not read.
    """

    unused: int = 0
    blocks_axis: ClassVar[int] = 0
    """Which axis of the sums counts blocks of input channels; the last counts those of a block."""


def _infer_conv2d_nchwc(attrs: BlockedConvAttrs, x: Type, w: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(w)
    layout = "[n, ic/ib, *spatial, ib] and [oc/ob, ic/groups/ib, *kernel, ib, ob]"
    rank = max(data.ndim, 4)
    check_factors(data, weights, rank, rank + 1, layout)
    filters, per_group, *kernel, ib, ob = weights.static_shape
    chunks = known_extent(data, 1, "channel blocks")
    check_groups(attrs.groups, chunks, filters)
    if chunks != per_group * attrs.groups or not same_dim(data.shape[-1], ib):
        raise TypeMismatch(
            f"the weights {weights} take {per_group} blocks of {ib} channels in each of "
            f"{attrs.groups} groups, the data is {data}"
        )
    if not 0 <= attrs.unused < ib:
        raise TypeMismatch(f"{attrs.unused} of the {ib} channels of the last block are not in use")
    axes = conv_axes(attrs, data.shape[2:-1], kernel)
    return data.with_shape((data.shape[0], filters, *(a.out for a in axes), ob))


def _compute_conv2d_nchwc(attrs: BlockedConvAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    filters, per_group, *kernel, ib, ob = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:-1], kernel)
    pad = padded(x, axes, trailing=1)
    source = x if pad is None else pad
    ic, icb = te.reduce_axis((0, per_group), "ic"), te.reduce_axis((0, ib), "icb")
    taps = kernel_axes(kernel)

    def element(n: Expr, oc: Expr, *o: Expr) -> Expr:
        *at, ocb = o
        chunk = input_channel(oc, ic, filters, attrs.groups, per_group)
        value = source[(n, chunk, *positions(axes, at, taps), icb)]
        return te.sum(product(value, w[(oc, ic, *taps, icb, ocb)]), axis=[ic, *taps, icb])

    shape = (x.shape[0], filters, *(a.out for a in axes), ob)
    names = image_axes(len(axes), block="ocb")
    total = te.compute_one(shape, element, name="conv2d_nchwc", axes=names)
    return stages(pad, total, x.dtype)


def reference_in_blocks(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray, block: int) -> np.ndarray:
    """Return a convolution of data in blocks with weights as a model has them, in blocks again."""
    data = reference_unpack(UnpackAttrs(x.shape[1] * x.shape[-1]), x)
    return reference_pack(PackAttrs(block), reference_conv(attrs, data, w))


def _reference_conv2d_nchwc(attrs: BlockedConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    chunks, per_group, *kernel, ib, ob = w.shape
    split = np.moveaxis(w, (-1, -2), (1, 3))  # [oc/ob, ob, ic/ib, ib, *kernel]
    plain = split.reshape(chunks * ob, per_group * ib, *kernel)
    return reference_in_blocks(attrs, x, plain, ob)


def _flops_conv2d_nchwc(attrs: BlockedConvAttrs, x: Type, w: Type) -> Dim:
    out = _infer_conv2d_nchwc(attrs, x, w)
    per_group, *kernel, ib, _ = tensor_type(w).static_shape[1:]
    return 2 * out.elements * prod(kernel) * (per_group * ib - attrs.unused)


def _without_last(unused: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return weights that are zero for the last input channels."""
    w = uniform(shape, -1, 1).astype(np.float32)
    w[:, -1, ..., shape[-2] - unused :, :] = 0
    return w


conv2d_nchwc: Operator[BlockedConvAttrs] = register(
    Operator(
        name="conv2d_nchwc",
        schedule={"cpu": schedule_conv2d_nchwc},
        infer=_infer_conv2d_nchwc,
        reference=_reference_conv2d_nchwc,
        compute=_compute_conv2d_nchwc,
        attrs_type=BlockedConvAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_conv2d_nchwc,
        flushes_subnormals=True,
        examples=(
            product_example(((1, 2, 7, 9, 4), (3, 2, 3, 3, 4, 8)), padding(1)),
            product_example(((2, 2, 5, 5, 4), (1, 2, 1, 1, 4, 4))),
            product_example(((2, 2, 19, 4), (3, 2, 3, 4, 8)), {"strides": (2,)}),
            product_example(((1, 2, 4, 6, 5, 4), (2, 2, 3, 2, 3, 4, 4)), {"strides": (1, 2, 1)}),
            product_example(
                ((1, 1, 17, 17, 3), (1, 1, 7, 7, 3, 16)), {**padding(3), "strides": (2, 2)}
            ),
            product_example(
                ((1, 4, 6, 6, 4), (2, 2, 3, 2, 4, 4)), {"groups": 2, "dilations": (2, 1)}
            ),
            product_example(
                ((1, 2, 9, 7, 4), (2, 2, 3, 3, 4, 8)),
                {"pads_before": (6, 5), "pads_after": (6, 4), "dilations": (6, 5)},
            ),
            product_example(
                ((1, 2, 6, 6, 4), (2, 1, 3, 3, 4, 4)), {"groups": 2, "pads_before": (0, 2)}
            ),
            *(
                product_example(((1, *data), w.shape), {**how, "unused": 5}, inputs={1: w})
                for data, w, how in (
                    ((3, 9, 9, 8), _without_last(5, (5, 3, 1, 1, 8, 8)), {}),
                    ((2, 7, 9, 8), _without_last(5, (3, 2, 3, 3, 8, 8)), padding(1)),
                    ((2, 8, 8, 8), _without_last(5, (4, 1, 3, 3, 8, 8)), {"groups": 2}),
                )
            ),
            product_example(
                ((1, 2, 5, 5, 4), (1, 2, 3, 3, 4, 4)),
                {},
                ("float16", "float16"),
                rtol=2e-3,
                atol=2e-3,
            ),
        ),
    )
)


def _infer_depthwise(attrs: ConvAttrs, x: Type, w: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(w)
    rank = max(data.ndim, 4)
    check_factors(data, weights, rank, rank - 1, "[n, c/b, *spatial, b] and [c/b, *kernel, b]")
    chunks, *kernel, block = weights.static_shape
    if not (same_dim(data.shape[1], chunks) and same_dim(data.shape[-1], block)):
        raise TypeMismatch(f"the weights {weights} and the data {data} differ in channels")
    axes = conv_axes(attrs, data.shape[2:-1], kernel)
    return data.with_shape((data.shape[0], chunks, *(a.out for a in axes), block))


def _compute_depthwise(attrs: ConvAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    chunks, *kernel, block = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:-1], kernel)
    pad = padded(x, axes, trailing=1)
    source = x if pad is None else pad
    taps = kernel_axes(kernel)

    def element(n: Expr, oc: Expr, *o: Expr) -> Expr:
        *at, ocb = o
        value = source[(n, oc, *positions(axes, at, taps), ocb)]
        return te.sum(product(value, w[(oc, *taps, ocb)]), axis=taps)

    shape = (x.shape[0], chunks, *(a.out for a in axes), block)
    names = image_axes(len(axes), block="ocb")
    total = te.compute_one(shape, element, name="depthwise_conv2d_nchwc", axes=names)
    return stages(pad, total, x.dtype)


def _reference_depthwise(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    chunks, *kernel, block = w.shape
    channels = chunks * block
    plain = np.moveaxis(w, -1, 1).reshape(channels, 1, *kernel)
    return reference_in_blocks(replace(attrs, groups=channels), x, plain, block)


def _flops_depthwise(attrs: ConvAttrs, x: Type, w: Type) -> Dim:
    return 2 * _infer_depthwise(attrs, x, w).elements * prod(tensor_type(w).static_shape[1:-1])


depthwise_conv2d_nchwc: Operator[ConvAttrs] = register(
    # One filter per channel; the attribute `groups` is not read.
    Operator(
        name="depthwise_conv2d_nchwc",
        schedule={"cpu": schedule_depthwise_nchwc},
        infer=_infer_depthwise,
        reference=_reference_depthwise,
        compute=_compute_depthwise,
        attrs_type=ConvAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_depthwise,
        flushes_subnormals=True,
        examples=(
            product_example(((1, 2, 7, 9, 8), (2, 3, 3, 8)), padding(1)),
            product_example(((2, 3, 8, 8, 4), (3, 3, 3, 4)), {**padding(1), "strides": (2, 2)}),
            product_example(
                ((1, 1, 9, 9, 4), (1, 5, 3, 4)),
                {"dilations": (2, 1), "pads_after": (1, 0)},
                atol=1e-4,
            ),
            product_example(((1, 2, 1, 1, 4), (2, 1, 1, 4))),
            product_example(((2, 2, 19, 8), (2, 5, 8)), {"dilations": (2,)}),
            product_example(((1, 2, 4, 6, 5, 4), (2, 3, 3, 3, 4)), {"strides": (1, 2, 1)}),
        ),
    )
)
