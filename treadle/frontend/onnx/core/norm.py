# SPDX-License-Identifier: Apache-2.0
"""Converters of normalisations and of softmax."""

from __future__ import annotations

from collections.abc import Callable

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, reshaped, shape_of
from treadle.frontend.builders.norm import (
    ChannelStatistics,
    batch_normalized,
    divided_by_norm,
    first_maximum,
    fitted,
    group_normalized,
    groups_normalized,
    layer_normalized,
    layer_normalized_with_moments,
    normalized_by_batch,
    normalized_per_element,
    scaled_by_rms,
    standardized,
)
from treadle.frontend.builders.shapes import as_matrix
from treadle.frontend.onnx.node import OnnxNode, Result, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Node
from treadle.ops import elementwise, norm


@converter("BatchNormalization", since=(1, 6, 7, 9, 14, 15))
def batch_normalization(node: OnnxNode) -> Result:
    """Convert a batch normalisation, with known mean and variance or with those of the batch."""
    node.without_effect("consumed_inputs", "momentum", "is_test")
    x, epsilon = node.input(0), node.number("epsilon", 1e-5)
    statistics = ChannelStatistics(*(node.input(k) for k in range(1, 5)))
    if node.version >= 14 and node.flag("training_mode"):
        return normalized_by_batch(x, statistics, epsilon, node.number("momentum", 0.9))
    if any(map(node.wants, range(1, 5))):
        raise ModelError(
            "BatchNormalization in training mode is not supported",
            hint="export the model for inference (model.eval())",
        )
    if node.version < 9 and not node.flag("spatial", True):
        return normalized_per_element(x, statistics, epsilon)
    return batch_normalized(x, statistics, epsilon)


@converter("InstanceNormalization", since=(1, 6, 22))
def instance_normalization(node: OnnxNode) -> Node:
    """Convert a normalisation of every channel of every image by itself."""
    node.without_effect("consumed_inputs")
    epsilon = node.number("epsilon", 1e-5)
    return norm.instance_norm(node.input(0), node.input(1), node.input(2), epsilon=epsilon)


@converter("GroupNormalization", since=(18, 21))
def group_normalization(node: OnnxNode) -> Node:
    """Convert a normalisation of groups of channels; scale is per group before opset 21."""
    x, groups, epsilon = node.input(0), node.integer("num_groups"), node.number("epsilon", 1e-5)
    if node.version >= 21:
        scale, shift = node.input(1), node.input(2)
        return group_normalized(x, groups, scale, shift, epsilon, _stash_type(node))
    normal = groups_normalized(x, groups, epsilon)
    scale, shift = (_per_group(converted(node.input(k), "float32")) for k in (1, 2))
    scaled = elementwise.add(elementwise.multiply(normal, scale), shift)
    return converted(reshaped(scaled, node.dims(0)), node.type(0).dtype)


def _stash_type(node: OnnxNode) -> str:
    """Return the type of the first stage: at least float32."""
    stash = dtype_of(node.integer("stash_type", 1))
    if not dt.is_float(stash):
        raise ModelError(f"{node.op} cannot compute in {stash}, its stash_type")
    return "float32" if dt.bits(stash) < 32 else stash


def _per_group(x: Node) -> Node:
    return reshaped(x, (1, *shape_of(x), 1))


@converter("LayerNormalization", since=(1, 17))
def layer_normalization(node: OnnxNode) -> Result:
    """Convert a normalisation over the last axes, from `axis` on.

    Version 1 is what onnxruntime's tools write where the opset does not have the operator yet.
    """
    node.without_effect("stash_type")
    x, scale, shift = node.input(0), node.input(1), node.optional(2)
    axis = node.axis(node.integer("axis", -1), node.type(0).ndim)
    epsilon = node.number("epsilon", 1e-5)
    if node.wants(1) or node.wants(2):
        return layer_normalized_with_moments(x, axis, scale, shift, epsilon)
    return layer_normalized(x, axis, scale, shift, epsilon)


@converter("RMSNormalization", since=(23,))
def rms_normalization(node: OnnxNode) -> Node:
    """Convert a division by the root mean square over the last axes."""
    node.without_effect("stash_type")
    x, ndim = node.input(0), node.type(0).ndim
    axes = tuple(range(node.axis(node.integer("axis", -1), ndim), ndim))
    normal, _ = scaled_by_rms(x, axes, node.number("epsilon", 1e-5))
    return elementwise.multiply(normal, fitted(node.input(1), x))


@converter("MeanVarianceNormalization", since=(9, 13))
def mean_variance_normalization(node: OnnxNode) -> Node:
    """Convert (x - mean) / (deviation + 1e-9) over the given axes."""
    axes = node.axes(node.integers("axes") or (0, 2, 3), node.type(0).ndim)
    return standardized(node.input(0), axes)


@converter("LpNormalization", since=(1, 22))
def lp_normalization(node: OnnxNode) -> Node:
    """Convert a division by the 1-norm or 2-norm along an axis; a norm of 0 gives 0."""
    axis = node.axis(node.integer("axis", -1), node.type(0).ndim)
    return divided_by_norm(node.input(0), axis, node.integer("p", 2))


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
    return reshaped(op(as_matrix(x, axis), 1), shape)


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
    return _over_last_axes(node, first_maximum)
