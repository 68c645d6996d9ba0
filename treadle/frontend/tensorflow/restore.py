# SPDX-License-Identifier: Apache-2.0
"""Which entry of the checkpoint is which variable: as the model's own restoring function says.

A SavedModel names an operation that reads the checkpoint and assigns the variables. It is not run:
what it assigns is followed back to a variable on one side and a key of the checkpoint on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.errors import ModelError
from treadle.frontend.protobuf import Message
from treadle.frontend.tensorflow.graph import Graph, NodeDef, Reference

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_SAME = frozenset({"Identity", "DisableCopyOnRead", "ReadVariableOp"})
"""Operators whose result stands for their first input, here."""

_ASSIGNMENTS = frozenset({"AssignVariableOp", "Assign"})
_VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_DEEPEST = 8


def variable_name(node: NodeDef) -> str:
    """Return the name that a variable is shared under: its own where it has no other."""
    return node.attributes.text("shared_name") or node.name


@dataclass(frozen=True, slots=True)
class _Frame:
    """The nodes of a graph or of a called function, and what its arguments are."""

    nodes: Mapping[str, NodeDef]
    arguments: Mapping[str, str | None]

    def name_of(self, at: Reference) -> str | None:
        """Return the variable, or the key of the checkpoint, that a value comes from."""
        for _ in range(len(self.nodes) + 1):
            if at.node in self.arguments:
                return self.arguments[at.node]
            node = self.nodes.get(at.node)
            if node is None:
                return None
            if node.op in _VARIABLES:
                return variable_name(node)
            if node.op == "RestoreV2":
                return self._key(node, at.place)
            if node.op not in _SAME or not node.inputs:
                return None
            at = node.inputs[0]
        raise ModelError("the restoring of variables reads itself")

    def _key(self, node: NodeDef, index: int) -> str | None:
        keys = self.nodes.get(node.inputs[1].node) if len(node.inputs) > 1 else None
        names = [] if keys is None else keys.attributes.texts_of_tensor("value")
        return names[index] if index < len(names) else None


def saved_names(graph: Graph, saver: Message | None) -> dict[str, str]:
    """Return the key of the checkpoint of every variable that the model restores, by name."""
    if saver is None:
        return {}
    restored = saver.text(3).removeprefix("^").partition(":")[0]
    found: dict[str, str] = {}
    _collect(graph, _Frame(graph.nodes, {}), [restored], found, 0)
    return found


def _collect(
    graph: Graph, frame: _Frame, wanted: Sequence[str], found: dict[str, str], depth: int
) -> None:
    """Add what nodes, and those that run before them, assign."""
    seen: set[str] = set()
    stack = list(wanted)
    while stack:
        node = frame.nodes.get(stack.pop())
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        stack += [*node.after, *(r.node for r in node.inputs)]
        if node.op in _ASSIGNMENTS and len(node.inputs) > 1:
            variable, key = (frame.name_of(r) for r in node.inputs[:2])
            if variable is not None and key is not None:
                found[variable] = key
        elif node.op in _CALLS and depth < _DEEPEST:
            function = graph.function(node.attributes.function("f"))
            given = [frame.name_of(r) for r in node.inputs]
            inner = _Frame(function.nodes, dict(zip(function.arguments, given, strict=False)))
            _collect(graph, inner, list(function.nodes), found, depth + 1)
