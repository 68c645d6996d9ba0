# SPDX-License-Identifier: Apache-2.0
"""Converters of selections by size."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.onnx.computed import is_computed, top_k_computed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node, TupleItem
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
    if node.version > 1 and is_computed(node, 1):
        return top_k_computed(node, axis, largest)
    k = node.integer("k") if node.version == 1 else int(node.constant_scalar(1, "K"))
    both = sort.topk(node.input(0), k=k, axis=axis, largest=largest)
    return [TupleItem.of(both, 0), TupleItem.of(both, 1)]
