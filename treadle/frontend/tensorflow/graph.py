# SPDX-License-Identifier: Apache-2.0
"""What a GraphDef says: nodes with attributes, functions, and which value a reference names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.protobuf import Message, text_of
from treadle.frontend.tensorflow.tensors import array_of, dtype_of, shape_of_message

_MOST_NODES = 1 << 20
"""How many nodes a graph, or a function, may have."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a node; one that is left out has the default that is asked with it.

    Raises: ModelError for an attribute of another kind.
    """

    values: Mapping[str, Message]

    def _found(self, name: str, number: int) -> Message | None:
        found = self.values.get(name)
        if found is None or found.has(number):
            return found
        # A value that is the default of its type may be left out of the message.
        if any(found.has(k) for k in range(1, 11)):
            raise ModelError(f"the attribute {name} is of another kind than expected")
        return found

    def integer(self, name: str, default: int = 0) -> int:
        """Return a whole number."""
        found = self._found(name, 3)
        return default if found is None else found.integer(3)

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a float."""
        found = self._found(name, 4)
        return default if found is None else found.number(4)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a truth value."""
        found = self._found(name, 5)
        return default if found is None else found.integer(5) != 0

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        found = self._found(name, 2)
        return default if found is None else found.text(2)

    def dtype(self, name: str, default: str = "float32") -> str:
        """Return an element type; in capitals where the graph has none like it."""
        found = self._found(name, 6)
        return default if found is None else dtype_of(found.integer(6))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return a shape, None where it knows no rank or is left out."""
        found = self._found(name, 7)
        return None if found is None else shape_of_message(found.message(7))

    def tensor(self, name: str, what: str) -> np.ndarray:
        """Return a tensor; `what` it is of is named in errors."""
        found = self._found(name, 8)
        message = None if found is None else found.message(8)
        if message is None:
            raise ModelError(f"{what} lacks its attribute {name}")
        return array_of(message, what)

    def texts_of_tensor(self, name: str) -> list[str]:
        """Return the elements of a tensor of texts."""
        found = self._found(name, 8)
        message = None if found is None else found.message(8)
        return [] if message is None else message.texts(8)

    def function(self, name: str) -> str:
        """Return the name of a function. Raises ModelError where there is none."""
        found = self._found(name, 10)
        message = None if found is None else found.message(10)
        if message is None:
            raise ModelError(f"the attribute {name} names no function")
        return message.text(1)

    def functions(self, name: str) -> list[str]:
        """Return the names of a list of functions."""
        found = self._list(name)
        return [] if found is None else [f.text(1) for f in found.messages(9)]

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        found = self._list(name)
        return tuple(default) if found is None else tuple(found.integers(3))

    def count(self, name: str) -> int:
        """Return how many types a list of them has."""
        found = self._list(name)
        return 0 if found is None else len(found.integers(6))

    def _list(self, name: str) -> Message | None:
        found = self._found(name, 1)
        if found is None:
            return None
        return found.message(1) or Message(found.data[:0], found.kind)


class Reference(NamedTuple):
    """A value that a node reads: result `place` of a node, counted in its output called `part`."""

    node: str
    part: str
    place: int


@dataclass(frozen=True, slots=True)
class NodeDef:
    """A node of a graph; `after` names the nodes that run before it and give it nothing."""

    name: str
    op: str
    inputs: tuple[Reference, ...]
    after: tuple[str, ...]
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class FunctionDef:
    """A function: the names of its arguments, the values it returns, and its nodes."""

    name: str
    arguments: tuple[str, ...]
    results: tuple[Reference, ...]
    nodes: Mapping[str, NodeDef]


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of a graph by name, and its functions."""

    nodes: Mapping[str, NodeDef]
    functions: Mapping[str, FunctionDef] = field(default_factory=dict)

    def function(self, name: str) -> FunctionDef:
        """Return a function. Raises ModelError for a name of none."""
        if name not in self.functions:
            raise ModelError(f"the function {name!r} is used, but not in the file")
        return self.functions[name]


def reference(text: str) -> Reference:
    """Return what an input of a node names: `node`, `node:1`, or `node:output:1` in a function.

    Raises: ModelError for what is no reference.
    """
    name, _, rest = text.partition(":")
    part, _, number = rest.rpartition(":")
    if not rest:
        return Reference(name, "", 0)
    if not number.isdecimal() or len(number) > 6:
        raise ModelError(f"the reference {text!r} names no value")
    return Reference(name, part, int(number))


def read_graph(message: Message) -> Graph:
    """Return the graph of a GraphDef. Raises ModelError where it is damaged."""
    library = message.message(2)
    functions: dict[str, FunctionDef] = {}
    for part in () if library is None else library.messages(1):
        made = _function(part)
        functions[made.name] = made
    return Graph(_nodes(message, 1), functions)


def _nodes(message: Message, number: int) -> dict[str, NodeDef]:
    nodes: dict[str, NodeDef] = {}
    for part in message.messages(number):
        node = _node(part)
        if not node.name or node.name in nodes:
            raise ModelError(f"a node has no name, or that of another: {node.name!r}")
        nodes[node.name] = node
        if len(nodes) > _MOST_NODES:
            raise ModelError(f"a graph has more than {_MOST_NODES} nodes")
    return nodes


def _node(message: Message) -> NodeDef:
    inputs = message.texts(3)
    return NodeDef(
        name=message.text(1),
        op=message.text(2),
        inputs=tuple(reference(t) for t in inputs if not t.startswith("^")),
        after=tuple(t[1:] for t in inputs if t.startswith("^")),
        attributes=Attributes(dict(message.entries(5))),
    )


def _function(message: Message) -> FunctionDef:
    signature = message.message(1)
    if signature is None:
        raise ModelError("a function has no signature")
    returned = {e.text(1): text_of(e.bytes(2)) for e in message.messages(4)}
    name = signature.text(1)
    results = []
    for part in signature.messages(3):
        if part.text(1) not in returned:
            raise ModelError(f"the function {name!r} does not say what {part.text(1)!r} is")
        results.append(reference(returned[part.text(1)]))
    arguments = tuple(part.text(1) for part in signature.messages(2))
    nodes = _nodes(message, 3)
    taken = [a for a in arguments if a in nodes]
    if taken or len(set(arguments)) != len(arguments):
        raise ModelError(f"the arguments of the function {name!r} have names of others")
    return FunctionDef(name, arguments, tuple(results), nodes)
