# SPDX-License-Identifier: Apache-2.0
"""Converters of normalisations and of softmax."""

from __future__ import annotations

from collections.abc import Callable

from treadle import dtype as dt
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
from treadle.frontend.onnx.node import OnnxNode, Result, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Node
from treadle.graph.types import product_of, tensor_type
from treadle.ops import elementwise, norm, sizes
from treadle.ops import reduce as reductions


@converter("BatchNormalization", since=(1, 6, 7, 9, 14, 15))
def batch_normalization(node: OnnxNode) -> Result:
    """Convert a batch normalisation, with known mean and variance or with those of the batch."""
    node.without_effect("consumed_inputs", "momentum", "is_test")
    if node.version >= 14 and node.flag("training_mode"):
        return _normalized_by_batch(node)
    if any(map(node.wants, range(1, 5))):
        raise ModelError(
            "BatchNormalization in training mode is not supported",
            hint="export the model for inference (model.eval())",
        )
    epsilon = node.number("epsilon", 1e-5)
    x, *rest = (node.input(k) for k in range(5))
    if node.version < 9 and not node.flag("spatial", True):
        return _normalized_per_element(x, rest, epsilon)
    dtype = node.type(0).dtype
    return norm.batch_norm(x, *(converted(r, dtype) for r in rest), epsilon=epsilon)


def _normalized_by_batch(node: OnnxNode) -> list[Node]:
    """Return the result by the moments of the batch, and the running moments after it."""
    x, ndim = node.input(0), node.type(0).ndim
    axes = tuple(k for k in range(ndim) if k != 1)
    wide, dtype = in_float32(x)
    normal, mean, _ = centred_and_scaled(wide, axes, node.number("epsilon", 1e-5))
    centred = elementwise.subtract(wide, mean)
    variance = reductions.mean(elementwise.multiply(centred, centred), axes=axes)
    scale, shift = (per_channel(node.input(k), ndim) for k in (1, 2))
    result = elementwise.add(elementwise.multiply(converted(normal, dtype), scale), shift)
    moments = (reshaped(mean, (node.shape(0)[1],)), variance)
    share = node.number("momentum", 0.9)
    running = []
    for old, new in zip((node.input(3), node.input(4)), moments, strict=True):
        kept = elementwise.multiply(old, scalar_like(share, old))
        fresh = converted(new, tensor_type(old.type).dtype)
        added = elementwise.multiply(fresh, scalar_like(1 - share, old))
        running.append(elementwise.add(kept, added))
    return [result, *running]


def _normalized_per_element(x: Node, parameters: list[Node], epsilon: float) -> Node:
    """Return a normalisation whose parameters have a value per element, not per channel."""
    scale, bias, mean, variance = parameters
    spread = elementwise.sqrt(elementwise.add(variance, scalar_like(epsilon, variance)))
    factor = elementwise.divide(scale, spread)
    return elementwise.add(elementwise.multiply(elementwise.subtract(x, mean), factor), bias)


@converter("InstanceNormalization", since=(1, 6, 22))
def instance_normalization(node: OnnxNode) -> Node:
    """Convert a normalisation of every channel of every image by itself."""
    node.without_effect("consumed_inputs")
    epsilon = node.number("epsilon", 1e-5)
    return norm.instance_norm(node.input(0), node.input(1), node.input(2), epsilon=epsilon)


@converter("GroupNormalization", since=(18, 21))
def group_normalization(node: OnnxNode) -> Node:
    """Convert a normalisation of groups of channels; scale is per group before opset 21."""
    x, shape = node.input(0), node.dims(0)
    dtype = node.type(0).dtype
    groups, epsilon = node.integer("num_groups"), node.number("epsilon", 1e-5)
    channels = shape[1] if len(shape) > 2 else None
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise ModelError(f"{node.type(0)} does not split into {groups} groups of channels")
    rows = reshaped(x, (shape[0], groups, product_of((channels // groups, *shape[2:]))))
    normal = centred_and_scaled(converted(rows, _stash_type(node)), (2,), epsilon)[0]
    if node.version < 21:
        scale, bias = (_per_group(converted(node.input(k), "float32")) for k in (1, 2))
        scaled = elementwise.add(elementwise.multiply(normal, scale), bias)
        return converted(reshaped(scaled, shape), dtype)
    scale, bias = (per_channel(node.input(k), len(shape)) for k in (1, 2))
    back = converted(reshaped(normal, shape), dtype)
    return elementwise.add(elementwise.multiply(back, scale), bias)


def _stash_type(node: OnnxNode) -> str:
    """Return the type of the first stage: float32 before opset 21, and for narrower ones."""
    stash = "float32" if node.version < 21 else dtype_of(node.integer("stash_type", 1))
    if not dt.is_float(stash):
        raise ModelError(f"{node.op} cannot compute in {stash}, its stash_type")
    return "float32" if dt.bits(stash) < 32 else stash


def _per_group(x: Node) -> Node:
    return reshaped(x, (1, *shape_of(x), 1))


@converter("LayerNormalization", since=(1, 17))
def layer_normalization(node: OnnxNode) -> list[Node]:
    """Convert a normalisation over the last axes, from `axis` on.

    Version 1 is what onnxruntime's tools write where the opset does not have the operator yet.
    """
    node.without_effect("stash_type")
    x, shape = node.input(0), node.dims(0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    epsilon = node.number("epsilon", 1e-5)
    plain = node.dims(1) == shape[axis:] and not node.wants(1) and not node.wants(2)
    if plain and (not node.has_input(2) or node.dims(2) == shape[axis:]):
        bias = node.optional(2) or broadcast(scalar_like(0, x), node.dims(1))
        return [norm.layer_norm(x, node.input(1), bias, axis=axis, epsilon=epsilon)]
    return _layer_normalized(node, tuple(range(axis, len(shape))), epsilon)


def _layer_normalized(node: OnnxNode, axes: tuple[int, ...], epsilon: float) -> list[Node]:
    """Return the normalised data with the mean and inverse deviation it used."""
    wide, dtype = in_float32(node.input(0))
    normal, mean, inverse = centred_and_scaled(wide, axes, epsilon)
    result: Node = elementwise.multiply(converted(normal, dtype), _parameter(node, 1))
    if node.has_input(2):
        result = elementwise.add(result, _parameter(node, 2))
    return [result, mean, inverse]


def _parameter(node: OnnxNode, index: int) -> Node:
    """Return a scale or bias of the extents of the data where it is not known to have extent 1."""
    fits = node.type(index).ndim <= node.type(0).ndim
    return stretched(node.input(index), node.dims(0)) if fits else node.input(index)


def centred_and_scaled(x: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """Return (x - mean) / deviation over `axes`, the mean, and one over the deviation."""
    mean = reductions.mean(x, axes=axes, keepdims=True)
    centred = elementwise.subtract(x, mean)
    variance = reductions.mean(elementwise.multiply(centred, centred), axes=axes, keepdims=True)
    inverse = elementwise.rsqrt(elementwise.add(variance, scalar_like(epsilon, x)))
    return elementwise.multiply(centred, inverse), mean, inverse


@converter("RMSNormalization", since=(23,))
def rms_normalization(node: OnnxNode) -> Node:
    """Convert a division by the root mean square over the last axes."""
    node.without_effect("stash_type")
    ndim = node.type(0).ndim
    axes = tuple(range(node.axis(node.integer("axis", -1), ndim), ndim))
    normal, _ = scaled_by_rms(node.input(0), axes, node.number("epsilon", 1e-5))
    return elementwise.multiply(normal, _parameter(node, 1))


def scaled_by_rms(x: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """Return x / its root mean square over `axes`, in its own type, and one over that size."""
    wide, dtype = in_float32(x)
    power = reductions.mean(elementwise.multiply(wide, wide), axes=axes, keepdims=True)
    inverse = elementwise.rsqrt(elementwise.add(power, scalar_like(epsilon, wide)))
    return converted(elementwise.multiply(wide, inverse), dtype), inverse


@converter("MeanVarianceNormalization", since=(9, 13))
def mean_variance_normalization(node: OnnxNode) -> Node:
    """Convert (x - mean) / (deviation + 1e-9) over the given axes."""
    x, ndim = node.input(0), node.type(0).ndim
    axes = node.axes(node.integers("axes") or (0, 2, 3), ndim)
    centred = elementwise.subtract(x, reductions.mean(x, axes=axes, keepdims=True))
    power = reductions.mean(elementwise.multiply(centred, centred), axes=axes, keepdims=True)
    spread = elementwise.add(elementwise.sqrt(power), scalar_like(1e-9, x))
    return elementwise.divide(centred, spread)


@converter("LpNormalization", since=(1, 22))
def lp_normalization(node: OnnxNode) -> Node:
    """Convert a division by the 1-norm or 2-norm along an axis; a norm of 0 gives 0."""
    x, p = node.input(0), node.integer("p", 2)
    if p not in (1, 2):
        raise ModelError(f"the p of LpNormalization is {p}, not 1 or 2")
    axes = (node.axis(node.integer("axis", -1), node.type(0).ndim),)
    if p == 1:
        size: Node = reductions.sum_(elementwise.abs(x), axes=axes, keepdims=True)
    else:
        squares = elementwise.multiply(x, x)
        size = elementwise.sqrt(reductions.sum_(squares, axes=axes, keepdims=True))
    is_zero = elementwise.equal(size, scalar_like(0, size))
    return elementwise.divide(x, elementwise.where(is_zero, scalar_like(1, size), size))


@converter("LRN", since=(1, 13))
def local_response_normalization(node: OnnxNode) -> Node:
    """Convert a normalisation across neighbouring channels."""
    return norm.lrn(
        node.input(0),
        size=node.integer("size"),
        alpha=node.number("alpha", 1e-4),
        beta=node.number("beta", 0.75),
        bias=node.number("bias", 1.0),
    )


def _over_last_axes(node: OnnxNode, op: Callable[[Node, int], Node]) -> Node:
    """Apply `op(x, axis)`; before opset 13 all axes from `axis` on count as one."""
    x, shape = node.input(0), node.dims(0)
    axis = node.axis(node.integer("axis", 1 if node.version < 13 else -1), max(len(shape), 1))
    if node.version >= 13 or axis == len(shape) - 1:
        return op(x, axis) if shape else reshaped(op(reshaped(x, (1,)), 0), ())
    matrix = reshaped(x, (product_of(shape[:axis]), product_of(shape[axis:])))
    return reshaped(op(matrix, 1), shape)


@converter("Softmax", since=(1, 11, 13))
def softmax(node: OnnxNode) -> Node:
    """Convert a softmax."""
    return _over_last_axes(node, lambda x, axis: norm.softmax(x, axis=axis))


@converter("LogSoftmax", since=(1, 11, 13))
def log_softmax(node: OnnxNode) -> Node:
    """Convert the logarithm of a softmax."""
    return _over_last_axes(node, lambda x, axis: norm.log_softmax(x, axis=axis))


@converter("Hardmax", since=(1, 11, 13))
def hardmax(node: OnnxNode) -> Node:
    """Convert a vector with 1 at the first maximum and 0 elsewhere."""
    return _over_last_axes(node, _first_maximum)


def _first_maximum(x: Node, axis: int) -> Node:
    shape = dims_of(x)
    first = reductions.argmax(x, axis=axis, keepdims=True, select_last=False)
    places = sizes.count(start=0, step=1, size=shape[axis])
    column = reshaped(places, (shape[axis], *(1,) * (len(shape) - axis - 1)))
    return converted(elementwise.equal(column, first), tensor_type(x.type).dtype)
