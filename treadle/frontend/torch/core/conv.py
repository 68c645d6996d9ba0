# SPDX-License-Identifier: Apache-2.0
"""Converters of convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.frontend.builders import conv
from treadle.frontend.builders.basic import converted, dims_of, element_type, reshaped
from treadle.frontend.builders.windows import window_of
from treadle.frontend.torch.node import AtenNode, aten, sum_dtype
from treadle.graph.nodes import Node
from treadle.graph.types import known_sizes


@aten("convolution")
def convolution(
    node: AtenNode,
    x: Node,
    weights: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Node:
    """Convert a convolution or its transpose; an image may lack the axis of the batch.

    With a bias, halves are rounded once, after it is added.
    """
    kind = element_type(x)
    if bias is not None:
        wide = sum_dtype(kind)
        x, weights, bias = (converted(v, wide) for v in (x, weights, bias))
    is_single = len(dims_of(x)) < len(dims_of(weights))
    data = reshaped(x, (1, *dims_of(x))) if is_single else x
    kernel = known_sizes(dims_of(weights)[2:], "the kernel of a convolution")
    count = len(kernel)
    window = window_of(kernel, _each(stride, count), _each(dilation, count), _each(padding, count))
    if transposed:
        extra = _each(output_padding, count)
        made = conv.transposed_convolved(data, weights, window, groups, extra)
    else:
        made = conv.convolved(data, weights, window, groups)
    whole = converted(conv.with_bias(made, bias), kind)
    return reshaped(whole, node.dims()) if is_single else whole


def _each(values: Sequence[int], count: int) -> tuple[int, ...]:
    """Return one number per axis; one alone counts for all."""
    return tuple(values) * count if len(values) == 1 else tuple(values)
