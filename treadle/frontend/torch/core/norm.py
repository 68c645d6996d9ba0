# SPDX-License-Identifier: Apache-2.0
"""Converters of normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.norm import (
    ChannelStatistics,
    batch_normalized,
    centred_and_scaled,
    group_normalized,
    layer_normalized,
    layer_normalized_with_moments,
)
from treadle.frontend.torch.node import AtenNode, aten
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, product_of
from treadle.ops import norm


@aten("_softmax", "_log_softmax", "softmax.int", "log_softmax.int")
def softmax(node: AtenNode, x: Node, dim: int, _option: object = None) -> Node:
    """Convert softmax, or its logarithm, along an axis."""
    op = norm.log_softmax if "log" in node.op else norm.softmax
    wide = converted(x, node.dtype())
    if not dims_of(x):
        made = op(reshaped(wide, (1,)), axis=0)
        return reshaped(made, ())
    return op(wide, axis=node.axis(dim, x))


@aten("native_layer_norm")
def native_layer_norm(
    node: AtenNode,
    x: Node,
    shape: Sequence[Dim],
    weight: Node | None,
    bias: Node | None,
    eps: float,
) -> list[Node]:
    """Convert a layer normalisation, with the mean and one over the deviation."""
    axis = len(dims_of(x)) - len(shape)
    _, mean, inverse = layer_normalized_with_moments(x, axis, None, None, eps)
    return [layer_normalized(x, axis, weight, bias, eps), mean, inverse]


@aten("layer_norm")
def layer_norm(
    node: AtenNode,
    x: Node,
    shape: Sequence[Dim],
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
    _cudnn: bool = True,
) -> Node:
    """Convert a layer normalisation."""
    return layer_normalized(x, len(dims_of(x)) - len(shape), weight, bias, eps)


@aten("_native_batch_norm_legit_no_training")
def batch_norm(
    node: AtenNode,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node,
    variance: Node,
    _momentum: float,
    eps: float,
) -> list[Node]:
    """Convert a batch normalisation by known statistics; it saves none."""
    scale = _filled(1, mean) if weight is None else weight
    shift = _filled(0, mean) if bias is None else bias
    made = batch_normalized(x, ChannelStatistics(scale, shift, mean, variance), eps)
    empty = Constant.of(np.zeros(0, "float32"))
    return [made, converted(empty, node.dtype(1)), converted(empty, node.dtype(2))]


def _filled(value: float, like: Node) -> Node:
    return broadcast(scalar_like(value, like), dims_of(like))


@aten("native_group_norm")
def native_group_norm(
    node: AtenNode,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    n: Dim,
    channels: Dim,
    pixels: Dim,
    groups: int,
    eps: float,
) -> list[Node]:
    """Convert a normalisation by groups of channels, with the mean and one over the deviation."""
    accumulator = "float64" if element_type(x) == "float64" else "float32"
    made = group_normalized(x, groups, weight, bias, eps, accumulator)
    rows = reshaped(x, (n, groups, product_of(dims_of(x)[1:]) // groups))
    _, mean, inverse = centred_and_scaled(converted(rows, accumulator), (2,), eps)
    moments = [converted(reshaped(m, (n, groups)), node.dtype(1)) for m in (mean, inverse)]
    return [made, *moments]
