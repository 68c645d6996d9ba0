# SPDX-License-Identifier: Apache-2.0
"""The Operator record: everything the compiler knows of an operator is one of its fields."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Generic, TypeVar

import numpy as np

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import Dim, Type
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule


class Fusion(Enum):
    """How an operator may join a fused group."""

    ELEMENTWISE = "elementwise"
    """Output element i depends on element i of every input (same shape)."""
    BROADCAST = "broadcast"
    """As elementwise, with inputs broadcast to the output's shape."""
    INJECTIVE = "injective"
    """Each output element reads one element per input (a move: reshape, transpose, slice, pad)."""
    REDUCE = "reduce"
    """Combines elements along axes; takes producers inlined, gives to element-wise users."""
    ANCHOR = "anchor"
    """Has a schedule of its own (convolution, matmul); element-wise users join it."""
    OPAQUE = "opaque"
    """Never fused."""


POINTWISE = frozenset({Fusion.ELEMENTWISE, Fusion.BROADCAST})
"""The kinds of which an output element depends on the element at its place of every input."""


@dataclass(frozen=True, slots=True)
class Attrs:
    """Base of attribute records: frozen dataclasses of str, bool, int, float, tuple fields.

    An operator without attributes uses this class itself.
    """


A = TypeVar("A", bound=Attrs)


@dataclass(slots=True, eq=False)
class Group:
    """A fused group as te: what a schedule function gets.

    `anchor` are the tensors of the anchor operator's `compute` (its last one is its result; when
    the anchor's result is the group's output they coincide), `outputs` the tensors to store,
    `inputs` the placeholders. `attrs` are the anchor's.
    """

    schedule: Schedule
    inputs: tuple[Tensor, ...]
    anchor: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: Any  # the anchor operator's attribute record
    when: Expr | None = None
    """What is known of the sizes where this schedule runs: one of the operator's `cases`."""


ScheduleFn = Callable[[Group, Target, Knobs], None]
"""f(group, target, knobs) applies schedule steps to `group.schedule`.

One function is default schedule and template: what it chooses, it asks `knobs` for."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One use of an operator, for tests and docs: input shapes (or arrays) and attributes.

    `dtypes` names the element type per input (all float32 when empty); `low` and `high` bound the
    random values; `inputs` may fix some inputs to given arrays by position.
    """

    shapes: tuple[tuple[int, ...], ...]
    attrs: Mapping[str, object] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    low: float = -2.0
    high: float = 2.0
    inputs: Mapping[int, np.ndarray] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Operator(Generic[A]):
    """An operator of the graph; calling it makes a typed node.

    infer(attrs, *types) -> type; raises TypeMismatch in the user's words.
    compute(attrs, *tensors) -> te tensor or tensors (several: temporaries first, the result last;
      an operator with a tuple type returns exactly its fields).
    reference(attrs, *arrays) -> array or tuple of arrays, by NumPy: folding and tests use it.
    schedule: by target family ("cpu"), f(group, target, knobs); absent for element-wise, injective
      and plain reductions, which share the default schedules.
    """

    name: str
    infer: Callable[..., Type]
    reference: Callable[..., Any]  # an array, or a tuple of arrays for a tuple type
    compute: Callable[..., Tensor | Sequence[Tensor]] | None = None
    attrs_type: type[Attrs] = Attrs
    fusion: Fusion = Fusion.OPAQUE
    schedule: Mapping[str, ScheduleFn] = field(default_factory=dict)
    cases: Callable[[Group, Target], Sequence[Expr]] | None = None
    """cases(group, target) -> conditions on dynamic sizes: the kernel has a loop nest for each,
    made by `schedule` with `group.when`; the first that holds runs, another one if none does."""
    examples: tuple[Example, ...] = ()
    flops: Callable[..., Dim] | None = None
    """flops(attrs, *types) -> floating point operations of one call, over symbolic sizes too."""
    saves: bool = False
    """True where it multiplies less than `flops`, which are those of the direct algorithm."""
    flushes_subnormals: bool = False
    """True where a subnormal number may count as zero, because it contributes less than the error
    that the result is allowed: to a sum of products, or as a share of 1."""
    rules: Callable[..., Iterable[SizeRule]] | None = None
    """rules(attrs, result, *types) -> what symbolic sizes must satisfy for all reads to lie inside,
    in addition to what `infer` asks of known ones; every run checks them."""
    binds: Callable[[A], tuple[Dim, ...]] | None = None
    """binds(attrs) -> the sizes that a call gives numbers: that in its last operand, or what its
    bodies decide."""
    keeps_finite: bool = False
    """Element-wise: True where finite elements give a finite one, whatever they are. Only then may
    it run over padding lanes, which hold finite values of no meaning."""
    is_pure: bool = True
    """Calls with equal attributes and operands are equal; False for what each run draws."""
    control: Callable[..., Sequence[np.ndarray]] | None = None
    """control(run, attrs, *arrays) -> results, where `run(function, arrays)` runs a body."""

    def __call__(self, *args: Node, origin: str = "", **attrs: object) -> Call:
        """Return a call of this operator; keyword arguments are its attributes."""
        return self.call(self.make_attrs(attrs), args, origin=origin)

    def call(self, attrs: Attrs | None, args: Sequence[Node], *, origin: str = "") -> Call:
        """Return a call with a ready attribute record; infers the type.

        Raises:
            TypeMismatch: the operands do not fit; the error names operator and origin.
        """
        record = attrs if attrs is not None else self.attrs_type()
        try:
            result = self.infer(record, *(a.type for a in args))
        except TypeMismatch as e:
            raise e.located(
                f"operator {self.name}" + (f", node {origin}" if origin else "")
            ) from None
        return Call(self, tuple(args), record, result, origin)

    def make_attrs(self, values: Mapping[str, object]) -> Attrs:
        """Return the attribute record of `values`, lists as tuples.

        Raises:
            TypeMismatch: an attribute is unknown or missing.
        """
        known = {f.name for f in fields(self.attrs_type)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise TypeMismatch(
                f"operator {self.name} has no attribute {unknown[0]!r}",
                hint=f"its attributes are {', '.join(sorted(known)) or 'none'}",
            )
        try:
            return self.attrs_type(**{k: _freeze(v) for k, v in values.items()})
        except TypeError as e:
            raise TypeMismatch(f"operator {self.name}: {e}") from None

    @property
    def is_kernel(self) -> bool:
        """True when a kernel computes it; what the plan itself does has no `compute`."""
        return self.compute is not None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Operator({self.name})"


def _freeze(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def bodies_of(call: Call) -> tuple[Function, ...]:
    """Return the functions among the attributes of a call: the bodies of control flow."""
    if call.attrs is None:
        return ()
    values = (getattr(call.attrs, f.name) for f in fields(call.attrs))
    return tuple(v for v in values if isinstance(v, Function))


def with_bodies(attrs: Attrs | None, changed: Mapping[Function, Function]) -> Attrs | None:
    """Return an attribute record with the functions in it replaced."""
    if attrs is None:
        return None
    found = {f.name: getattr(attrs, f.name) for f in fields(attrs)}
    bodies = {n: changed[v] for n, v in found.items() if isinstance(v, Function)}
    return replace(attrs, **bodies)


def constant_value(node: Node) -> np.ndarray | None:
    """Return the array of a constant node, else None."""
    return node.value if isinstance(node, Constant) else None


class OperatorTable:
    """All operators by name; names exist only at the edges (text, records, importers)."""

    def __init__(self) -> None:
        self._by_name: dict[str, Operator[Any]] = {}

    def register(self, operator: Operator[A]) -> Operator[A]:
        """Add an operator and return it.

        What was typed at a prompt or into a notebook replaces what was before, so that a cell can
        be run again. Raises TypeMismatch when the name is taken otherwise.
        """
        earlier = self._by_name.get(operator.name)
        if earlier is not None and not (_is_typed(earlier) and _is_typed(operator)):
            raise TypeMismatch(f"an operator named {operator.name!r} is already registered")
        self._by_name[operator.name] = operator
        return operator

    def get(self, name: str) -> Operator[Any] | None:
        """Return the operator called `name`, or None."""
        return self._by_name.get(name)

    def all(self) -> list[Operator[Any]]:
        """Return every operator, by name."""
        return [self._by_name[k] for k in sorted(self._by_name)]


def _is_typed(operator: Operator[Any]) -> bool:
    """True for an operator of the main module where that is no file, but a user at a prompt."""
    parts = (operator.infer, operator.compute, operator.reference)
    is_main = any(getattr(part, "__module__", "") == "__main__" for part in parts)
    return is_main and not hasattr(sys.modules.get("__main__"), "__file__")


OPERATORS = OperatorTable()
register = OPERATORS.register
