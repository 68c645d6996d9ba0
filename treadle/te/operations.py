# SPDX-License-Identifier: Apache-2.0
"""What tensor expressions are made of: axes, reductions, operations and the tensors they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Const, Expr, ExprLike, Var, convert
from treadle.expr.traversal import loads, substitute

AxisKind = Literal["data", "reduce", "thread"]


@dataclass(slots=True, eq=False, repr=False)
class IterVar(Var):
    """An axis: a variable that runs over [start, start + extent).

    Kind "data" axes may run in any order and in parallel, "reduce" axes combine, "thread" axes
    name a hardware index (`tag`, such as "blockIdx.x").
    """

    start: Expr = field(default_factory=lambda: Const.of(0))
    extent: Expr = field(default_factory=lambda: Const.of(1))
    kind: AxisKind = "data"
    tag: str = ""

    @property
    def var(self) -> Var:
        """The variable itself (an axis is its own variable)."""
        return self

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Combiner:
    """A commutative, associative combination of tuples, with its identity.

    `results` are expressions over `lhs` and `rhs`, one per component. A combiner that `contracts`
    adds float products by fma, rounded once: the exception that te.sum makes from the law of
    `expr.nodes`, by which float arithmetic is done as written.
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    results: tuple[Expr, ...]
    identity: tuple[Expr, ...]
    contracts: bool = False

    def combine(self, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the combination of two tuples of values."""
        mapping: dict[Expr, Expr] = dict(zip(self.lhs + self.rhs, (*a, *b), strict=True))
        return tuple(substitute(r, mapping) for r in self.results)


@dataclass(slots=True, eq=False, repr=False)
class Reduce(Expr):
    """Component `index` of combining `sources` over `axes` where `condition` holds.

    Starts from the combiner's identity; the order of combination is the order of the loops that
    the schedule makes. May only stand at the top of a compute's body.
    """

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    condition: Expr
    index: int
    dtype: str
    lanes: int = 1

    def __post_init__(self) -> None:
        self.hold((*self.sources, self.condition))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        *sources, condition = children
        return Reduce(self.combiner, tuple(sources), self.axes, condition, self.index, self.dtype)

    def text(self, operands: Sequence[str]) -> str:
        *sources, condition = operands
        axes = ", ".join(f"{a.name}: {a.extent}" for a in self.axes)
        where = "" if nodes.int_value(self.condition) is True else f", where={condition}"
        return f"{self.combiner.name}({', '.join(sources)}, [{axes}]{where})"


KEPT = "kept"
"""The tag of an operation that default schedules do not inline: a step of a longer computation."""


@dataclass(slots=True, eq=False)
class PlaceholderOp:
    """An input tensor."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    _outputs: tuple[Tensor, ...] = ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors this operation reads: none."""
        return ()

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors this operation makes."""
        if not self._outputs:
            self._outputs = (Tensor(self, 0, self.shape, self.dtype),)
        return self._outputs

    def output(self, index: int) -> Tensor:
        """Return output number `index`."""
        return self.outputs[index]


@dataclass(slots=True, eq=False)
class ComputeOp:
    """One or more tensors of one shape, each element given by an expression over `axis`."""

    name: str
    axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]
    tag: str = ""
    attrs: Mapping[str, object] = field(default_factory=dict)
    _outputs: tuple[Tensor, ...] = ()
    _inputs: tuple[Tensor, ...] | None = None

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The shape of every output."""
        return tuple(a.extent for a in self.axis)

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes, in the order given to the reduction."""
        first = self.body[0]
        return first.axes if isinstance(first, Reduce) else ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The distinct tensors the body reads, in order of first use."""
        if self._inputs is None:
            self._inputs = read_tensors(self.body)
        return self._inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors this operation makes, one per body expression."""
        if not self._outputs:
            shape = self.shape
            self._outputs = tuple(Tensor(self, i, shape, b.dtype) for i, b in enumerate(self.body))
        return self._outputs

    def output(self, index: int) -> Tensor:
        """Return output number `index`."""
        return self.outputs[index]


BuildFn = Callable[[Sequence[Any], Sequence[Any]], Any]
"""build(inputs, outputs) -> statement, over buffers of treadle.loop (a layer above this one)."""


@dataclass(slots=True, eq=False)
class ExternOp:
    """Tensors made by a loop nest written by hand, for what no compute can say (a scatter, a sort).

    It reads `inputs` whole and writes every element of its outputs. The order of its loops is part
    of its meaning, so a schedule can neither move nor change it, nor inline what it reads.
    """

    name: str
    inputs: tuple[Tensor, ...]
    shapes: tuple[tuple[Expr, ...], ...]
    dtypes: tuple[str, ...]
    build: BuildFn
    tag: str = ""
    _outputs: tuple[Tensor, ...] = ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The distinct tensors this operation reads."""
        return tuple(dict.fromkeys(self.inputs))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors this operation makes."""
        if not self._outputs:
            kinds = enumerate(zip(self.shapes, self.dtypes, strict=True))
            self._outputs = tuple(Tensor(self, i, shape, dtype) for i, (shape, dtype) in kinds)
        return self._outputs

    def output(self, index: int) -> Tensor:
        """Return output number `index`."""
        return self.outputs[index]


Operation = PlaceholderOp | ComputeOp | ExternOp


def read_tensors(body: Iterable[Expr]) -> tuple[Tensor, ...]:
    """Return the distinct tensors that expressions read, in order of first use."""
    found: dict[Tensor, None] = {}
    for e in body:
        for n in loads(e):
            if isinstance(n.source, Tensor):
                found.setdefault(n.source)
    return tuple(found)


class Tensor:
    """A value with a shape; `T[i, j]` reads an element inside a compute.

    Two handles on the same output of one operation are equal.
    """

    __slots__ = ("dtype", "op", "shape", "value_index")

    def __init__(
        self, op: Operation, value_index: int, shape: tuple[Expr, ...], dtype: str
    ) -> None:
        self.op = op
        self.value_index = value_index
        self.shape = shape
        self.dtype = dtype

    @property
    def name(self) -> str:
        """The operation's name, with `.vK` for a further output."""
        return self.op.name if self.value_index == 0 else f"{self.op.name}.v{self.value_index}"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tensor)
            and self.op is other.op
            and self.value_index == other.value_index
        )

    def __hash__(self) -> int:
        return hash((id(self.op), self.value_index))

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Expr:
        at = tuple(map(convert, indices if isinstance(indices, tuple) else (indices,)))
        for index in at:
            if not (dt.is_integer(index.dtype) or index.dtype == "bool"):
                raise TypeMismatch(
                    f"{self.name} is indexed by {index}, a {index.dtype}",
                    hint='an index is an integer; convert it by .astype("int64")',
                )
        return nodes.load(self.op.output(self.value_index), at)

    def __call__(self, *indices: ExprLike) -> Expr:
        return self[indices]

    def __iter__(self) -> Iterator[Expr]:
        raise TypeError("a te.Tensor is not iterable; index it with all its axes: T[i, j]")

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"Tensor(shape=[{shape}], op.name={self.op.name}, dtype={self.dtype})"
