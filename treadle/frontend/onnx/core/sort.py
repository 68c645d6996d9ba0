# SPDX-License-Identifier: Apache-2.0
"""Converters of selections by size."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node, TupleItem
from treadle.graph.types import Dim
from treadle.ops import sort


@converter("TopK", since=(1, 10, 11, 24))
def top_k(node: OnnxNode) -> list[Node]:
    """Convert the k largest or smallest elements along an axis, always in order."""
    largest = True
    if node.version >= 11:
        largest = node.flag("largest", True)
        node.without_effect("sorted")  # any order is allowed without it
    axis = node.axis(node.integer("axis", -1), node.type(0).ndim)
    if node.version > 1 and node.type(1).shape not in ((), (1,)):
        raise ModelError(f"K must be one number, not {node.type(1)}")
    k = _wanted(node)
    both = sort.topk(node.input(0), k=k, axis=axis, largest=largest)
    return [TupleItem.of(both, 0), TupleItem.of(both, 1)]


def _wanted(node: OnnxNode) -> Dim:
    """Return how many elements are wanted: a number, or one that a run knows."""
    if node.version == 1:
        return node.integer("k")
    if node.is_computed(1):
        return node.measure(node.elements(1)[0])
    return node.sizes(1, "K")[0]
