# SPDX-License-Identifier: Apache-2.0
"""Builders of normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    in_float32,
    per_channel,
    reshaped,
    scalar_like,
    shape_of,
    stretched,
)
from treadle.graph.nodes import Node
from treadle.graph.types import product_of, tensor_type
from treadle.ops import elementwise, norm, sizes
from treadle.ops import reduce as reductions


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What a batch normalisation knows of every channel: vectors [c]."""

    scale: Node
    shift: Node
    mean: Node
    variance: Node


def batch_normalized(x: Node, channels: ChannelStatistics, epsilon: float) -> Node:
    """Return x [n, c, ...] normalised by known statistics of its channels."""
    dtype = tensor_type(x.type).dtype
    vectors = (channels.scale, channels.shift, channels.mean, channels.variance)
    return norm.batch_norm(x, *(converted(v, dtype) for v in vectors), epsilon=epsilon)


def normalized_by_batch(
    x: Node, channels: ChannelStatistics, epsilon: float, kept: float
) -> tuple[Node, Node, Node]:
    """Return x [n, c, ...] normalised by its own moments, and the running mean and variance.

    `kept` is the share of the old running moments in the new ones.
    """
    ndim = len(dims_of(x))
    axes = tuple(k for k in range(ndim) if k != 1)
    wide, dtype = in_float32(x)
    normal, mean, _ = centred_and_scaled(wide, axes, epsilon)
    centred = elementwise.subtract(wide, mean)
    variance = reductions.mean(elementwise.multiply(centred, centred), axes=axes)
    scale, shift = (per_channel(v, x) for v in (channels.scale, channels.shift))
    result = elementwise.add(elementwise.multiply(converted(normal, dtype), scale), shift)
    mean = reshaped(mean, (shape_of(x)[1],))
    return (
        result,
        _running(channels.mean, mean, kept),
        _running(channels.variance, variance, kept),
    )


def _running(old: Node, new: Node, kept: float) -> Node:
    share = elementwise.multiply(old, scalar_like(kept, old))
    fresh = converted(new, tensor_type(old.type).dtype)
    return elementwise.add(share, elementwise.multiply(fresh, scalar_like(1 - kept, old)))


def normalized_per_element(x: Node, elements: ChannelStatistics, epsilon: float) -> Node:
    """Return a normalisation whose statistics have a value per element, not per channel."""
    variance = elements.variance
    spread = elementwise.sqrt(elementwise.add(variance, scalar_like(epsilon, variance)))
    factor = elementwise.divide(elements.scale, spread)
    centred = elementwise.subtract(x, elements.mean)
    return elementwise.add(elementwise.multiply(centred, factor), elements.shift)


def groups_normalized(x: Node, groups: int, epsilon: float, dtype: str = "float32") -> Node:
    """Return x [n, c, ...] as [n, groups, elements of a group], each normalised, in `dtype`."""
    shape = dims_of(x)
    channels = shape[1] if len(shape) > 2 else None
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise ModelError(f"{x.type} does not split into {groups} groups of channels")
    rows = reshaped(x, (shape[0], groups, product_of((channels // groups, *shape[2:]))))
    return centred_and_scaled(converted(rows, dtype), (2,), epsilon)[0]


def group_normalized(
    x: Node,
    groups: int,
    scale: Node | None,
    shift: Node | None,
    epsilon: float,
    dtype: str = "float32",
) -> Node:
    """Return x [n, c, ...] normalised by groups of channels, with a scale and shift per channel.

    The normalisation is computed in `dtype`.
    """
    kind = tensor_type(x.type).dtype
    normal = groups_normalized(x, groups, epsilon, dtype)
    made = converted(reshaped(normal, dims_of(x)), kind)
    if scale is not None:
        made = elementwise.multiply(made, per_channel(scale, x))
    return made if shift is None else elementwise.add(made, per_channel(shift, x))


def layer_normalized(
    x: Node, axis: int, scale: Node | None, shift: Node | None, epsilon: float
) -> Node:
    """Return x normalised over the axes from `axis` on, with a scale and shift where given."""
    shape = dims_of(x)[axis:]
    if any(p is not None and dims_of(p) != shape for p in (scale, shift)):
        return layer_normalized_with_moments(x, axis, scale, shift, epsilon)[0]
    scale = broadcast(scalar_like(1, x), shape) if scale is None else scale
    shift = broadcast(scalar_like(0, x), shape) if shift is None else shift
    return norm.layer_norm(x, scale, shift, axis=axis, epsilon=epsilon)


def layer_normalized_with_moments(
    x: Node, axis: int, scale: Node | None, shift: Node | None, epsilon: float
) -> tuple[Node, Node, Node]:
    """Return the normalised data with the mean and inverse deviation it used."""
    wide, dtype = in_float32(x)
    axes = tuple(range(axis, len(dims_of(x))))
    normal, mean, inverse = centred_and_scaled(wide, axes, epsilon)
    result = converted(normal, dtype)
    if scale is not None:
        result = elementwise.multiply(result, fitted(scale, x))
    if shift is not None:
        result = elementwise.add(result, fitted(shift, x))
    return result, mean, inverse


def fitted(parameter: Node, x: Node) -> Node:
    """Return a scale or shift of the extents of `x` where it is not known to have extent 1."""
    fits = len(dims_of(parameter)) <= len(dims_of(x))
    return stretched(parameter, dims_of(x)) if fits else parameter


def centred_and_scaled(x: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """Return (x - mean) / deviation over `axes`, the mean, and one over the deviation."""
    mean = reductions.mean(x, axes=axes, keepdims=True)
    centred = elementwise.subtract(x, mean)
    variance = reductions.mean(elementwise.multiply(centred, centred), axes=axes, keepdims=True)
    inverse = elementwise.rsqrt(elementwise.add(variance, scalar_like(epsilon, x)))
    return elementwise.multiply(centred, inverse), mean, inverse


def scaled_by_rms(x: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """Return x / its root mean square over `axes`, in its own type, and one over that size."""
    wide, dtype = in_float32(x)
    power = reductions.mean(elementwise.multiply(wide, wide), axes=axes, keepdims=True)
    inverse = elementwise.rsqrt(elementwise.add(power, scalar_like(epsilon, wide)))
    return converted(elementwise.multiply(wide, inverse), dtype), inverse


def standardized(x: Node, axes: Sequence[int], epsilon: float = 1e-9) -> Node:
    """Return (x - mean) / (deviation + epsilon) over `axes`."""
    at = tuple(axes)
    centred = elementwise.subtract(x, reductions.mean(x, axes=at, keepdims=True))
    power = reductions.mean(elementwise.multiply(centred, centred), axes=at, keepdims=True)
    spread = elementwise.add(elementwise.sqrt(power), scalar_like(epsilon, x))
    return elementwise.divide(centred, spread)


def divided_by_norm(x: Node, axis: int, p: int) -> Node:
    """Return x over its 1-norm or 2-norm along an axis; a norm of 0 gives 0."""
    if p not in (1, 2):
        raise ModelError(f"the order of a norm is {p}, not 1 or 2")
    if p == 1:
        size: Node = reductions.sum_(elementwise.abs(x), axes=(axis,), keepdims=True)
    else:
        squares = elementwise.multiply(x, x)
        size = elementwise.sqrt(reductions.sum_(squares, axes=(axis,), keepdims=True))
    is_zero = elementwise.equal(size, scalar_like(0, size))
    return elementwise.divide(x, elementwise.where(is_zero, scalar_like(1, size), size))


def first_maximum(x: Node, axis: int) -> Node:
    """Return 1 at the first maximum along an axis, 0 elsewhere."""
    shape = dims_of(x)
    first = reductions.argmax(x, axis=axis, keepdims=True, select_last=False)
    places = sizes.arange(start=0, step=1, size=shape[axis])
    column = reshaped(places, (shape[axis], *(1,) * (len(shape) - axis - 1)))
    return converted(elementwise.equal(column, first), tensor_type(x.type).dtype)
