# SPDX-License-Identifier: Apache-2.0
"""Shrinks a graph while it keeps failing in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx

from tests.fuzz import oracles
from tests.fuzz.check import Finding, check_graph
from tests.fuzz.graph import Graph

Fails = Callable[[Graph], bool]


def minimise(graph: Graph, finding: Finding, *, budget: int = 300) -> Graph:
    """Return a smaller graph with the same kind of finding, after at most `budget` attempts."""
    left = [budget]

    def fails(smaller: Graph) -> bool:
        left[0] -= 1
        try:
            again = check_graph(smaller, (finding.level,))
        except (oracles.Refused, onnx.checker.ValidationError, ValueError):
            return False
        return again is not None and again.kind == finding.kind

    changed = True
    while changed and left[0] > 0:
        changed = False
        for smaller in _smaller(graph):
            if left[0] <= 0:
                break
            if fails(smaller):
                graph, changed = smaller, True
                break
    return graph


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Yield graphs with something less, what removes most first."""
    if graph.others:
        yield graph.copy(others=[])
    if len(graph.others) > 1:
        for run in graph.others:
            yield graph.copy(others=[run])
    if len(graph.outputs) > 1:
        for name in graph.outputs:
            yield graph.used([name])
    values = None
    for node in graph.nodes[:-1]:
        values = values or [graph.values(inputs) for inputs in graph.runs]
        if all(o in values[0] for o in node.output):
            yield _cut(graph, node, [{o: v[o].array for o in node.output} for v in values])
    for node in graph.nodes[::-1]:
        if node.output[0] in graph.outputs and len(graph.nodes) > 1:
            before = [i for i in node.input if i not in graph.inputs and i not in graph.constants]
            if before:
                yield graph.used([n for n in before if n])
    yield from _with_fewer_attributes(graph)
    yield from _with_inputs_constant(graph)


def _cut(graph: Graph, node: onnx.NodeProto, arrays: list[dict[str, np.ndarray]]) -> Graph:
    """Return the graph with the results of a node as inputs, by their arrays in every run."""
    nodes = [n for n in graph.nodes if n is not node]
    first, *others = ({**run, **made} for run, made in zip(graph.runs, arrays, strict=True))
    made = graph.copy(nodes=nodes, inputs=first, others=others)
    return made.used([n for n in graph.outputs if n not in arrays[0]] or graph.outputs)


def _with_fewer_attributes(graph: Graph) -> Iterator[Graph]:
    for place, node in enumerate(graph.nodes):
        for index in range(len(node.attribute)):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            del copy.attribute[index]
            yield graph.copy(nodes=[*graph.nodes[:place], copy, *graph.nodes[place + 1 :]])


def _with_inputs_constant(graph: Graph) -> Iterator[Graph]:
    for name, array in graph.constants.items():
        if array.size > 1:
            rest = {n: a for n, a in graph.constants.items() if n != name}
            first, *others = ({**run, name: array} for run in graph.runs)
            yield graph.copy(constants=rest, inputs=first, others=others)


def describe(graph: Graph) -> str:
    """Return a graph as text: one line per input, constant and node."""
    lines = [f"opset {graph.opset}, outputs {', '.join(graph.outputs)}"]
    for kind, arrays in (("input", graph.inputs), ("constant", graph.constants)):
        for name, array in arrays.items():
            text = f" = {array.tolist()}" if array.size <= 8 else ""
            lines.append(f"{kind} {name}: {array.dtype}{list(array.shape)}{text}")
    for run in graph.others:
        sizes = ", ".join(f"{n} {list(a.shape)}" for n, a in run.items())
        lines.append(f"also with {sizes}")
    return "\n".join([*lines, *(_node_text(node) for node in graph.nodes)])


def _node_text(node: onnx.NodeProto) -> str:
    attributes = ", ".join(f"{a.name}={_attribute_text(a)}" for a in node.attribute)
    return f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)}) {{{attributes}}}"


def _attribute_text(attribute: onnx.AttributeProto) -> str:
    if attribute.type != onnx.AttributeProto.GRAPH:
        return repr(onnx.helper.get_attribute_value(attribute))
    body = attribute.g
    inputs, outputs = (", ".join(v.name for v in vs) for vs in (body.input, body.output))
    nodes = "; ".join(_node_text(n) for n in body.node)
    return f"({inputs}) -> ({outputs}): {nodes}"
