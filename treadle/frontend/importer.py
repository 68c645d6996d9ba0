# SPDX-License-Identifier: Apache-2.0
"""What all importers share: names and origins, the converter table, the list of what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from treadle import dtype as dt
from treadle.errors import UnsupportedOperators, name_hint
from treadle.frontend.symbolic import fold_sizes, is_sizes
from treadle.graph.interpret import evaluate
from treadle.graph.nodes import (
    Call,
    Constant,
    Function,
    Module,
    Node,
    TupleItem,
    operands,
    topological,
)
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType, TupleType

F = TypeVar("F", bound=Callable[..., Any])


class Imported(NamedTuple):
    """A model as a graph, with the notes a user should read (choices made for them).

    `files` are those that were read in addition to the model's own, by their names in its folder.
    """

    module: Module
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Converter(Generic[F]):
    """A function that turns one operator of a framework into graph nodes.

    `since` are the operator versions it implements (a version names the opset it appeared in).
    """

    function: F
    since: tuple[int, ...]


class ConverterTable(Generic[F]):
    """Converters by operator domain and name; the one table an importer speaks."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[Converter[F]]] = {}

    def converter(self, *names: str, since: Sequence[int], domain: str = "") -> Callable[[F], F]:
        """Return a decorator that registers a converter of `names` for the versions `since`."""

        def add(function: F) -> F:
            for name in names:
                entry = Converter(function, tuple(since))
                self._known.setdefault((domain, name), []).append(entry)
            return function

        return add

    def find(self, domain: str, name: str, version: int, *, exact: bool) -> F | None:
        """Return the converter of an operator version; the newest up to it unless `exact`."""
        entries = self._known.get((domain, name), [])
        if not exact:
            older = [s for e in entries for s in e.since if s <= version]
            version = max(older, default=version)
        for entry in reversed(entries):
            if version in entry.since:
                found: F = entry.function
                return found
        return None

    def versions(self, domain: str, name: str) -> tuple[int, ...]:
        """Return the operator versions that have a converter."""
        return tuple(sorted({s for e in self._known.get((domain, name), []) for s in e.since}))

    def names(self) -> list[tuple[str, str]]:
        """Return every (domain, name) that has a converter, sorted."""
        return sorted(self._known)


@dataclass(slots=True)
class _Missing:
    count: int
    first: str
    reason: str


class UnsupportedList:
    """Collects every operator without a conversion, so that the user sees all of them at once."""

    def __init__(self) -> None:
        self._missing: dict[tuple[str, str, int | None], _Missing] = {}

    def add(self, domain: str, op: str, version: int | None, origin: str, reason: str = "") -> None:
        """Count one use of a missing operator; the first use keeps its node name.

        Operators of frameworks that do not number them have no version.
        """
        found = self._missing.setdefault((domain, op, version), _Missing(0, origin, reason))
        found.count += 1

    def raise_if_any(self, at: str) -> None:
        """Raise UnsupportedOperators that lists everything collected."""
        if not self._missing:
            return
        rows = sorted(
            self._missing.items(), key=lambda kv: (-kv[1].count, kv[0][:2], kv[0][2] or 0)
        )
        lines = [_missing_line(key, found) for key, found in rows]
        total = sum(found.count for _, found in rows)
        raise UnsupportedOperators(
            f"{_count(len(rows), 'operator')} ({_count(total, 'node')}) of this model "
            f"{'is' if len(rows) == 1 else 'are'} not supported:\n" + "\n".join(lines),
            at=at,
            hint="register a converter for each (docs/how-to/add_operator.md), or export the "
            "model without them",
        )


def _missing_line(key: tuple[str, str, int | None], found: _Missing) -> str:
    domain, op, version = key
    reason = f" ({found.reason})" if found.reason else ""
    uses = _count(found.count, "node")
    name = f"{domain or 'ai.onnx'}.{op}" + ("" if version is None else f"-{version}")
    return f"  {name}: {uses}, first {found.first}{reason}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def origin_of(name: str, op: str, index: int) -> str:
    """Return what a node is called in messages and kernels: its name, else `Conv_12`."""
    return name or f"{op}_{index}"


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return `did you mean 'x'?`, or the list of options where none is close."""
    known = list(options)
    return name_hint(name, known, f"known names are {', '.join(known) or '(none)'}")


def stamp_origin(results: Iterable[Node], sources: Iterable[Node], origin: str) -> None:
    """Give the nodes made between `sources` and `results` their origin (only where they have none).

    This is part of making a node: converters build nodes, the importer says where they come from.
    """
    seen: set[int] = {id(s) for s in sources}
    stack = list(results)
    while stack:
        node = stack.pop()
        if id(node) in seen or node.origin:
            continue
        seen.add(id(node))
        node.origin = origin
        stack.extend(operands(node))


class Folder:
    """Evaluates small constant subgraphs at import, so that shape arithmetic becomes numbers.

    Results over `limit` bytes stay in the graph, as does everything after `budget` bytes, and
    matrices of floats that are made of bytes: passes may multiply the bytes.
    """

    def __init__(self, limit: int = 1 << 20, budget: int = 64 << 20) -> None:
        self.limit = limit
        self.budget = budget

    def fold(self, node: Node) -> Node:
        """Return `node` as a Constant when all it depends on is constant and small."""
        if not isinstance(node, (Call, TupleItem)) or not self._is_small(node):
            return node
        nodes = topological([node])
        if not all(self._can_fold(n) for n in nodes) or _is_dequantised(node, nodes):
            return node
        with np.errstate(all="ignore"):
            value = evaluate(Function((), node), [])
        if not isinstance(value, np.ndarray):
            return node
        self.budget -= value.nbytes
        return Constant.of(value, origin=node.origin)

    def fold_results(self, results: Iterable[Node], given: Sequence[Node]) -> list[Node]:
        """Return the results of an operator whose inputs are `given`, with what is known folded.

        Sizes that are computed of sizes become expressions.
        """
        known = all(isinstance(i, Constant) for i in given)
        folded = [self.fold(r) if known or is_constant_call(r) else r for r in results]
        if all(isinstance(i, Constant) or is_sizes(i) for i in given):
            return [fold_sizes(r) for r in folded]
        return folded

    def _is_small(self, node: Node) -> bool:
        kind = node.type
        if isinstance(kind, TupleType):
            return True
        return kind.is_static and kind.nbytes <= min(self.limit, self.budget)

    def _can_fold(self, node: Node) -> bool:
        if isinstance(node, Constant):
            return node.value.nbytes <= self.limit
        if isinstance(node, Call) and not (isinstance(node.op, Operator) and node.op.is_pure):
            return False
        if is_sizes(node):
            return False
        return isinstance(node, (Call, TupleItem)) and self._is_small(node)


def _is_dequantised(node: Node, nodes: Sequence[Node]) -> bool:
    """True for a matrix of floats with a byte among `nodes`, which it depends on, per element."""
    made = node.type
    if not isinstance(made, TensorType) or made.ndim < 2 or not dt.is_float(made.dtype):
        return False
    known = [n.type for n in nodes if isinstance(n, Constant)]
    return any(k.dtype in ("int8", "uint8") and k.size == made.size for k in known)


def is_constant_call(node: Node) -> bool:
    """True for a call of an operator on constants, which are no sizes."""
    if not isinstance(node, Call) or is_sizes(node):
        return False
    return bool(node.args) and all(isinstance(a, Constant) for a in node.args)
