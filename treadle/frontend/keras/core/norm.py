# SPDX-License-Identifier: Apache-2.0
"""Layers that normalise."""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    in_float32,
    operands,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.layout import channels_first, channels_last, in_one_layout
from treadle.frontend.builders.norm import (
    ChannelStatistics,
    batch_normalized,
    centred_and_scaled,
    group_normalized,
    layer_normalized,
    scaled_by_rms,
)
from treadle.frontend.keras.layer import KerasLayer, layer, rank
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes
from treadle.ops import elementwise as ew
from treadle.ops import reduce as reductions


@layer("BatchNormalization")
def batch_normalization(use: KerasLayer) -> Node:
    """Convert a normalisation by statistics of training; variables: scale, shift, mean, variance.

    Scale and shift are left out where the settings say so.
    """
    x = use.input()
    (axis,) = use.axes("axis", rank(x))
    places = iter(range(4))
    found = {
        name: use.weights.array(next(places)).astype("float32")
        for name, setting in (("scale", "scale"), ("shift", "center"))
        if use.flag(setting, True)
    }
    mean, variance = (use.weights.array(next(places)).astype("float32") for _ in range(2))
    statistics = ChannelStatistics(
        Constant.of(found.get("scale", np.ones_like(mean))),
        Constant.of(found.get("shift", np.zeros_like(mean))),
        Constant.of(mean),
        Constant.of(variance),
    )
    epsilon = use.number("epsilon", 1e-3)
    if axis == rank(x) - 1 and rank(x) > 2:
        return channels_last(batch_normalized(channels_first(x), statistics, epsilon))
    if axis == 1:
        return batch_normalized(x, statistics, epsilon)
    order = (0, axis, *(k for k in range(1, rank(x)) if k != axis))
    made = batch_normalized(transposed(x, order), statistics, epsilon)
    return transposed(made, sorted(range(rank(x)), key=lambda k: order[k]))


@layer("LayerNormalization")
def layer_normalization(use: KerasLayer) -> Node:
    """Convert a normalisation of every sample over its last axes."""
    x = use.input()
    axes = tuple(sorted(use.axes("axis", rank(x))))
    variables = iter(range(2))
    scale = use.weight(next(variables)) if use.flag("scale", True) else None
    shift = use.weight(next(variables)) if use.flag("center", True) else None
    epsilon = use.number("epsilon", 1e-3)
    if use.flag("rms_scaling"):
        made = scaled_by_rms(x, axes, epsilon)[0]
        return made if scale is None else ew.multiply(*operands(made, scale))
    if axes == tuple(range(axes[0], rank(x))):
        return layer_normalized(x, axes[0], scale, shift, epsilon)
    wide, dtype = in_float32(x)
    made = converted(centred_and_scaled(wide, axes, epsilon)[0], dtype)
    shape = [d if k in axes else 1 for k, d in enumerate(dims_of(x))]
    if scale is not None:
        made = ew.multiply(made, reshaped(scale, shape))
    return made if shift is None else ew.add(made, reshaped(shift, shape))


@layer("RMSNormalization")
def rms_normalization(use: KerasLayer) -> Node:
    """Convert a division by the root of the mean square."""
    x = use.input()
    made = scaled_by_rms(x, use.axes("axis", rank(x)), use.number("epsilon", 1e-6))[0]
    return ew.multiply(*operands(made, use.weight(0)))


@layer("GroupNormalization")
def group_normalization(use: KerasLayer) -> Node:
    """Convert a normalisation by groups of channels."""
    x = use.input()
    (axis,) = use.axes("axis", rank(x))
    if axis not in (1, rank(x) - 1) or rank(x) < 3:
        raise ModelError(f"a normalisation of groups over axis {axis} of {x.type} is not supported")
    is_last = axis == rank(x) - 1
    images = channels_first(x) if is_last else x
    (channels,) = known_sizes(dims_of(images)[1:2])
    variables = iter(range(2))
    scale = use.weight(next(variables)) if use.flag("scale", True) else None
    shift = use.weight(next(variables)) if use.flag("center", True) else None
    groups = use.integer("groups", 32)
    made = group_normalized(
        images, channels if groups == -1 else groups, scale, shift, use.number("epsilon", 1e-3)
    )
    return channels_last(made) if is_last else made


@layer("UnitNormalization")
def unit_normalization(use: KerasLayer) -> Node:
    """Convert a division by the length."""
    x = use.input()
    squares = ew.multiply(x, x)
    total = reductions.sum_(squares, axes=use.axes("axis", rank(x)), keepdims=True)
    return ew.multiply(x, ew.rsqrt(ew.maximum(total, scalar_like(1e-12, x))))


@layer("Normalization")
def normalization(use: KerasLayer) -> Node:
    """Convert a normalisation by the statistics of a data set.

    They are variables (mean, variance, count), or settings.
    """
    x = converted(use.input(), use.compute_dtype)
    if use.setting("mean") is not None:
        mean, variance = (np.asarray(use.setting(n), "float32") for n in ("mean", "variance"))
    else:
        mean, variance = (use.weights.array(k).astype("float32") for k in range(2))
    axes = () if use.setting("axis") is None else use.axes("axis", rank(x))
    if mean.size > 1:
        if not axes:
            raise ModelError("a normalisation over no axis has several means")
        shape = [n if k in axes else 1 for k, n in _sizes(x, axes)]
        mean, variance = mean.reshape(shape), variance.reshape(shape)
    else:
        mean, variance = mean.reshape(()), variance.reshape(())
    deviation = np.maximum(np.sqrt(variance), np.float32(1e-7))

    def compute(value: Node, middle: Node, spread: Node) -> Node:
        if use.flag("invert"):
            return ew.add(middle, ew.multiply(value, spread))
        return ew.divide(ew.subtract(value, middle), spread)

    return in_one_layout(compute, x, Constant.of(mean), Constant.of(deviation))


def _sizes(x: Node, axes: tuple[int, ...]) -> list[tuple[int, int]]:
    dims = dims_of(x)
    return [(k, known_sizes((d,))[0] if k in axes else 1) for k, d in enumerate(dims)]
