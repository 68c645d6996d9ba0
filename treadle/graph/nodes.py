# SPDX-License-Identifier: Apache-2.0
"""Graph nodes: typed values with the origin of each in the user's model.

The law of these nodes: a graph is a DAG of immutable nodes without side effects; a node's type is
computed when it is made and never changes; a value used twice is one node used twice. A `Call` of
a `Function` means the function's body with its parameters replaced by the arguments.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.graph.arrays import row_major
from treadle.graph.types import Structure, TensorType, TupleType, Type

if TYPE_CHECKING:
    from treadle.graph.operator import Attrs, Operator


@dataclass(slots=True, eq=False)
class Var:
    """A parameter of a function; a graph input when the function is a model's main."""

    name: str
    type: Type
    origin: str = ""


@dataclass(slots=True, eq=False)
class Constant:
    """A tensor known at compile time. `value` is never copied and must not be written."""

    value: np.ndarray
    type: TensorType
    origin: str = ""

    @staticmethod
    def of(value: np.ndarray | int | float | bool, dtype: str = "", origin: str = "") -> Constant:
        """Return an array (or a number, as `dtype`) as a constant; C-contiguous arrays are kept."""
        array = np.asarray(value, dtype=dt.to_numpy(dtype) if dtype else None)
        return Constant.over(row_major(array), origin)

    @staticmethod
    def over(array: np.ndarray, origin: str = "") -> Constant:
        """Return an array as a constant, as it lies in memory: a view of weights stays one."""
        return Constant(array, TensorType(array.shape, dt.from_numpy(array.dtype)), origin)

    def store(self, value: np.ndarray) -> None:
        """Hold `value`, an equal array that lies elsewhere, in place of the array held so far."""
        self.value = value


class DeferredConstant(Constant):
    """A constant computed from others each time its value is asked for.

    Large weights that are rescaled, and packed in another layout later, so never lie in memory
    twice. `compute` must give the same array every time, of the type `type`.
    """

    __slots__ = ("_compute", "_last")

    def __init__(
        self, compute: Callable[[], np.ndarray], type: TensorType, origin: str = ""
    ) -> None:
        self._compute = compute
        self._last: weakref.ref[np.ndarray] | None = None
        self.type = type
        self.origin = origin

    @property
    def value(self) -> np.ndarray:  # type: ignore[override]
        """The elements; one array for all who hold it at the same time."""
        known = None if self._last is None else self._last()
        if known is None:
            known = self._compute()
            self._last = weakref.ref(known)
        return known

    def store(self, value: np.ndarray) -> None:
        """Hold `value`; nothing is computed any more."""
        self._compute = lambda: value
        self._last = weakref.ref(value)


@dataclass(slots=True, eq=False)
class Call:
    """`op(args)` with attributes; `op` is an operator or a (fused) function."""

    op: Operator[Any] | Function
    args: tuple[Node, ...]
    attrs: Attrs | None
    type: Type
    origin: str = ""


@dataclass(slots=True, eq=False)
class Tuple:
    """Several values as one."""

    fields: tuple[Node, ...]
    type: TupleType
    origin: str = ""

    @staticmethod
    def of(fields: Iterable[Node], origin: str = "") -> Tuple:
        """Return the tuple of `fields`."""
        items = tuple(fields)
        return Tuple(items, TupleType(tuple(f.type for f in items)), origin)


@dataclass(slots=True, eq=False)
class TupleItem:
    """Field `index` of a tuple value."""

    value: Node
    index: int
    type: Type
    origin: str = ""

    @staticmethod
    def of(value: Node, index: int) -> Node:
        """Return field `index` of `value` (directly, where `value` is a Tuple node)."""
        if not isinstance(value.type, TupleType) or not 0 <= index < len(value.type.fields):
            raise TypeMismatch(f"a value of type {value.type} has no field {index}")
        if isinstance(value, Tuple):
            return value.fields[index]
        return TupleItem(value, index, value.type.fields[index], value.origin)


@dataclass(slots=True, eq=False, repr=False)
class Function:
    """A function of its parameters. `name` is set on fused groups (they become kernels)."""

    params: tuple[Var, ...]
    body: Node
    name: str = ""
    attrs: dict[str, object] = field(default_factory=dict)

    @property
    def type(self) -> Type:
        """The type of the result."""
        return self.body.type


Node: TypeAlias = Var | Constant | Call | Tuple | TupleItem


@dataclass(slots=True, eq=False)
class Module:
    """Named functions; "main" is the model. Input names are main's parameter names.

    `structures`, where given, says how main's outputs make up those of the model: a sequence is
    made of several, an absent optional value of none.
    """

    main: Function
    output_names: tuple[str, ...] = ()
    name: str = "model"
    structures: tuple[Structure, ...] = ()


def outputs_of(body: Node) -> tuple[Node, ...]:
    """Return the values a function gives back: the fields of a tuple, else the one value."""
    return body.fields if isinstance(body, Tuple) else (body,)


def operands(node: Node) -> tuple[Node, ...]:
    """Return the values a node uses directly."""
    if isinstance(node, Call):
        return node.args
    if isinstance(node, Tuple):
        return node.fields
    if isinstance(node, TupleItem):
        return (node.value,)
    return ()


def with_operands(node: Node, values: Sequence[Node]) -> Node:
    """Return `node` with other operands, its type inferred anew; itself if none changed."""
    if all(a is b for a, b in zip(operands(node), values, strict=True)):
        return node
    if isinstance(node, Call):
        if isinstance(node.op, Function):
            return Call(node.op, tuple(values), node.attrs, node.type, node.origin)
        return node.op.call(node.attrs, values, origin=node.origin)
    if isinstance(node, Tuple):
        return Tuple.of(values, node.origin)
    if isinstance(node, TupleItem):
        return TupleItem.of(values[0], node.index)
    return node


def topological(
    roots: Iterable[Node], before: Callable[[Node], Iterable[Node]] | None = None
) -> list[Node]:
    """Return every node that `roots` depend on, operands before users, without recursion.

    `before` names further nodes that must come before a node; it may name the node itself.
    """
    seen: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(tuple(roots))]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready:
            seen[node] = None
            continue
        stack.append((node, True))
        first = operands(node) if before is None else (*operands(node), *before(node))
        stack.extend((o, False) for o in reversed(first) if o not in seen and o is not node)
    return list(seen)


def users(roots: Iterable[Node]) -> dict[Node, list[Node]]:
    """Return for every node the nodes that use it, once per use, in topological order."""
    found: dict[Node, list[Node]] = {}
    for node in topological(roots):
        found.setdefault(node, [])
        for operand in operands(node):
            found[operand].append(node)
    return found


def rewrite(
    function: Function,
    rule: Callable[[Node], Node | None],
    params: Mapping[Var, Var] | None = None,
) -> Function:
    """Return `function` with `rule` applied to every node, operands first.

    `rule` gets a node whose operands are already rewritten; it returns the replacement, or None to
    keep the node. Parameters are kept unless `params` maps them.
    """
    done: dict[Node, Node] = {old: new for old, new in (params or {}).items()}
    for node in topological([function.body]):
        if node in done:
            continue
        fresh = with_operands(node, [done[o] for o in operands(node)])
        replaced = rule(fresh)
        done[node] = fresh if replaced is None else replaced
    mapped = tuple((params or {}).get(p, p) for p in function.params)
    return Function(mapped, done[function.body], function.name, dict(function.attrs))
