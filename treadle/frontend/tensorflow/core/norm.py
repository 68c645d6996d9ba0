# SPDX-License-Identifier: Apache-2.0
"""Converters of normalisations and of softmax."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.norm import ChannelStatistics, batch_normalized
from treadle.frontend.tensorflow.node import Result, TfNode, converter
from treadle.graph.nodes import Node
from treadle.ops import norm


@converter("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(node: TfNode) -> Result:
    """Convert a normalisation by known statistics of the channels."""
    if node.attributes.flag("is_training", True):
        raise ModelError(
            "a batch normalisation computes the statistics of its own batch (is_training)",
            hint="export the model for inference",
        )
    x = node.input(0)
    scale, shift, mean, variance = (node.input(k) for k in range(1, 5))
    statistics = ChannelStatistics(scale, shift, mean, variance)
    epsilon = node.attributes.number("epsilon", 1e-4)
    is_first = node.attributes.text("data_format").startswith("NC")
    made = batch_normalized(x if is_first else channels_first(x), statistics, epsilon)
    moments = [mean, variance, mean, variance, mean]
    return [made if is_first else channels_last(made), *moments]


@converter("Softmax")
def softmax(node: TfNode) -> Node:
    """Convert a softmax over the last axis."""
    return norm.softmax(node.input(0), axis=_last(node))


@converter("LogSoftmax")
def log_softmax(node: TfNode) -> Node:
    """Convert the logarithm of a softmax over the last axis."""
    return norm.log_softmax(node.input(0), axis=_last(node))


def _last(node: TfNode) -> int:
    if not node.rank(0):
        raise ModelError(f"{node.op} of a scalar is not defined")
    return node.rank(0) - 1


@converter("LRN")
def local_response_normalization(node: TfNode) -> Node:
    """Convert a division by a power of the squares of neighbouring channels."""
    if node.rank(0) != 4:
        raise ModelError(f"{node.op} takes images [n, h, w, c], not {node.type(0)}")
    size = 2 * node.attributes.integer("depth_radius", 5) + 1
    made = norm.lrn(
        converted(channels_first(node.input(0)), "float32"),
        size=size,
        alpha=node.attributes.number("alpha", 1.0) * size,
        beta=node.attributes.number("beta", 0.5),
        bias=node.attributes.number("bias", 1.0),
    )
    assert len(dims_of(made)) == 4
    return channels_last(made)
