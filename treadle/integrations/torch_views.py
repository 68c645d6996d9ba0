# SPDX-License-Identifier: Apache-2.0
"""Results of a graph that share memory, with its inputs or each other: views, which torch makes.

AOTAutograd returns a view of an input as one of the caller's tensor. Where sizes are symbolic it
takes shape, strides and offset from what the compiled graph returns, so that has to be a view too:
a copy has the offset 0. Results that view one tensor share it in eager: a change of one is seen in
the others.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence

import torch
from torch import fx
from torch._functorch._aot_autograd.schemas import OutputType, ViewAndMutationMeta

_SHARED = (OutputType.alias_of_input, OutputType.is_input)


def views_apart(graph: fx.Graph, metadata: ViewAndMutationMeta) -> set[fx.Node]:
    """Give results that share memory views of their own; return the nodes of those.

    a = x[n:]; return a, a + 1  ->  a = x[n:]; b = x[n:]; return b, a + 1
    a = y.t(); return y, a, a * 2  ->  a = y.t(); b = y.t(); return y, b, a * 2
    """
    end = graph.output_node()
    results = list(end.args[0])
    last = len(results) - metadata.num_intermediate_bases
    first = last - len(metadata.output_info)
    made: set[fx.Node] = set()
    owners = Counter(_owner_of(r) for r in dict.fromkeys(results[first:last]))
    for k, info in enumerate(metadata.output_info, first):
        is_shared = info.output_type in _SHARED or owners[_owner_of(results[k])] > 1
        chain = _views_of(results[k]) if is_shared else []
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


def _owner_of(result: object) -> object:
    """Return the tensor that a result is a view of, or the result itself."""
    chain = _views_of(result)
    return chain[0].args[0] if chain else result


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
