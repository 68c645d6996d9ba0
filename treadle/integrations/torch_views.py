# SPDX-License-Identifier: Apache-2.0
"""Results of a graph that share memory with its inputs: views, which torch makes.

AOTAutograd returns such a result as a view of the caller's tensor. Where sizes are symbolic it
takes shape, strides and offset from what the compiled graph returns, so that has to be a view too:
a copy has the offset 0.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import fx
from torch._functorch._aot_autograd.schemas import OutputType, ViewAndMutationMeta

_SHARED = (OutputType.alias_of_input, OutputType.is_input)


def views_apart(graph: fx.Graph, metadata: ViewAndMutationMeta) -> set[fx.Node]:
    """Give results that share memory with an input views of their own; return the nodes of those.

    a = x[n:]; return a, a + 1  ->  a = x[n:]; b = x[n:]; return b, a + 1
    """
    end = graph.output_node()
    results = list(end.args[0])
    last = len(results) - metadata.num_intermediate_bases
    first = last - len(metadata.output_info)
    made: set[fx.Node] = set()
    for k, info in enumerate(metadata.output_info, first):
        chain = _views_of(results[k]) if info.output_type in _SHARED else []
        if chain:
            copies = _copied(graph, chain, end)
            made.update(copies)
            results[k] = copies[-1]
    end.args = (tuple(results),)
    graph.eliminate_dead_code()
    return made


def _views_of(result: object) -> list[fx.Node]:
    """Return the views that lead to a result, the innermost first."""
    chain: list[fx.Node] = []
    while isinstance(result, fx.Node) and _is_view(result):
        chain.append(result)
        result = result.args[0]
    return chain[::-1]


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and _is_view(source)
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target.is_view)


def _copied(graph: fx.Graph, chain: Sequence[fx.Node], end: fx.Node) -> list[fx.Node]:
    """Return copies of nodes, each of which reads the one before it."""
    copies: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(end):
        for node in chain:
            copies[node] = graph.node_copy(node, lambda n: copies.get(n, n))
    return list(copies.values())
