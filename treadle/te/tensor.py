# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions: placeholders, computes, reductions and the functions used inside them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Const, Expr, ExprLike, Var, convert
from treadle.te.reads import check_reads
from treadle.te.shapes import Shape, as_shape, axis_names

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
        return tuple(nodes.substitute(r, mapping) for r in self.results)


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

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.sources, self.condition)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        *sources, condition = children
        return Reduce(self.combiner, tuple(sources), self.axes, condition, self.index, self.dtype)

    def __str__(self) -> str:
        axes = ", ".join(f"{a.name}: {a.extent}" for a in self.axes)
        sources = ", ".join(map(str, self.sources))
        where = "" if nodes.int_value(self.condition) is True else f", where={self.condition}"
        return f"{self.combiner.name}({sources}, [{axes}]{where})"


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
        for n in nodes.walk(e):
            if isinstance(n, nodes.Load) and isinstance(n.source, Tensor):
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


def var(name: str = "n", dtype: str = dt.INDEX) -> Var:
    """Return a fresh symbolic scalar, for example a size: `n = te.var("n")`."""
    return Var(name, dt.check_dtype(dtype))


def size_var(name: str = "size", dtype: str = dt.INDEX) -> Var:
    """Return a fresh symbolic size (not negative)."""
    return var(name, dtype)


def placeholder(shape: Shape, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """Return an input tensor of `shape` (ints or symbolic sizes); float32 unless said."""
    return PlaceholderOp(name, as_shape(shape, name), dt.check_dtype(dtype or "float32")).output(0)


def reduce_axis(dom: tuple[ExprLike, ExprLike], name: str = "rv", thread_tag: str = "") -> IterVar:
    """Return a reduction axis over [dom[0], dom[1])."""
    lo, hi = convert(dom[0], dt.INDEX), convert(dom[1], dt.INDEX)
    extent = hi if nodes.int_value(lo) == 0 else hi - lo
    a, b = nodes.int_value(lo), nodes.int_value(hi)
    if a is not None and b is not None:
        extent = Const.of(b - a)
    return IterVar(name, start=lo, extent=extent, kind="reduce", tag=thread_tag)


def thread_axis(
    dom: ExprLike | tuple[ExprLike, ExprLike] | str | None = None,
    tag: str = "",
    name: str = "",
) -> IterVar:
    """Return a hardware axis: `te.thread_axis("blockIdx.x")` or `te.thread_axis((0, 64), tag)`."""
    if isinstance(dom, str):
        return IterVar(name or dom, extent=Const.of(-1), kind="thread", tag=dom)
    last = dom[1] if isinstance(dom, tuple) else dom
    extent = Const.of(-1) if last is None else convert(last, dt.INDEX)
    return IterVar(name or tag, extent=extent, kind="thread", tag=tag)


def compute(
    shape: Shape,
    fcompute: Callable[..., ExprLike | Sequence[ExprLike]],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, object] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Return the tensor whose element at (i, j, ...) is `fcompute(i, j, ...)`.

    `fcompute` may return a tuple: then a tuple of tensors of the same shape is made. A reduction
    (te.sum, ...) may only be the whole body.

    >>> C = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="C")
    """
    dims = as_shape(shape, name)
    axis = tuple(
        IterVar(axis_name, extent=extent)
        for axis_name, extent in zip(axis_names(fcompute, len(dims)), dims, strict=True)
    )
    result = fcompute(*axis)
    bodies = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    op = ComputeOp(name, axis, tuple(_check_body(convert(b), name) for b in bodies), tag)
    op.attrs = dict(attrs or {})
    check_reads(name, (*axis, *op.reduce_axis), _always_evaluated(op.body))
    return op.outputs if isinstance(result, (tuple, list)) else op.output(0)


def compute_one(
    shape: Shape,
    fcompute: Callable[..., ExprLike],
    name: str = "compute",
    tag: str = "",
) -> Tensor:
    """Return `compute` of a single-valued function, typed as one tensor."""
    result = compute(shape, fcompute, name, tag)
    assert isinstance(result, Tensor)
    return result


def extern(
    shape: Shape | Sequence[Shape],
    inputs: Sequence[Tensor],
    fcompute: BuildFn,
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    tag: str = "",
) -> Tensor | tuple[Tensor, ...]:
    """Return the tensors that a hand-written loop nest makes from `inputs`.

    `fcompute(ins, outs)` gets one buffer per input and per output and returns a statement of
    `treadle.loop` that writes every element of `outs`. A list of shapes makes several tensors;
    some may be temporaries. `dtype` (one, or one per shape) defaults to that of the inputs.

    Raises:
        TypeMismatch: the element type is neither given nor told by the inputs.
    """
    several = isinstance(shape, list) and builtins.all(isinstance(s, (tuple, list)) for s in shape)
    shapes = tuple(as_shape(s, name) for s in (shape if several else [shape]))  # type: ignore[arg-type, union-attr]
    if dtype is None or isinstance(dtype, str):
        dtypes = (_extern_dtype(dtype, inputs, name),) * len(shapes)
    else:
        dtypes = tuple(dt.check_dtype(d) for d in dtype)
    if len(dtypes) != len(shapes):
        raise TypeMismatch(f"{name} has {len(shapes)} shapes and {len(dtypes)} element types")
    op = ExternOp(name, tuple(inputs), shapes, dtypes, fcompute, tag)
    return op.outputs if several else op.output(0)


def _extern_dtype(dtype: str | None, inputs: Sequence[Tensor], name: str) -> str:
    if dtype is not None:
        return dt.check_dtype(dtype)
    found = {t.dtype for t in inputs}
    if len(found) != 1:
        raise TypeMismatch(
            f"the element type of {name} does not follow from its inputs", hint="give dtype="
        )
    return found.pop()


def _always_evaluated(body: Iterable[Expr]) -> list[Expr]:
    """Return the parts of bodies that are evaluated for every element."""
    parts: list[Expr] = []
    for b in body:
        if isinstance(b, Reduce):
            parts += b.sources if nodes.int_value(b.condition) is True else [b.condition]
        else:
            parts.append(b)
    return parts


def _check_body(body: Expr, name: str) -> Expr:
    for n in nodes.walk(body):
        if isinstance(n, Reduce) and n is not body:
            raise TypeMismatch(
                f"the reduction inside {name} is not the whole body",
                hint="put the reduction in a compute of its own and read it from this one",
            )
    return body


def _combiner(
    name: str,
    dtypes: Sequence[str],
    fcombine: Callable[..., Any],
    identity: Sequence[Expr],
    *,
    contracts: bool,
) -> Combiner:
    lhs = tuple(Var(f"x{i}", d) for i, d in enumerate(dtypes))
    rhs = tuple(Var(f"y{i}", d) for i, d in enumerate(dtypes))
    combined = (fcombine(lhs[0], rhs[0]),) if len(dtypes) == 1 else fcombine(lhs, rhs)
    results = tuple(convert(r) for r in combined)
    return Combiner(name, lhs, rhs, results, tuple(identity), contracts)


def comm_reducer(
    fcombine: Callable[..., Any],  # an expression, or a sequence of them
    fidentity: Callable[..., Any],
    name: str = "reduce",
) -> Callable[..., Expr | tuple[Expr, ...]]:
    """Return a reduction function made from a combination and its identity.

    One value: `fcombine(x, y)`, `fidentity(dtype)`. Several: `fcombine(xs, ys)` returns a tuple and
    `fidentity(*dtypes)` returns a tuple.
    """
    return _reducer(fcombine, fidentity, name)


def _reducer(
    fcombine: Callable[..., Any],
    fidentity: Callable[..., Any],
    name: str,
    *,
    contracts: bool = False,
) -> Callable[..., Expr | tuple[Expr, ...]]:
    def reducer(
        expr: ExprLike | Sequence[ExprLike],
        axis: IterVar | Sequence[IterVar],
        where: ExprLike | None = None,
    ) -> Expr | tuple[Expr, ...]:
        several = isinstance(expr, Sequence)
        sources = tuple(convert(e) for e in (expr if isinstance(expr, Sequence) else (expr,)))
        axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        for a in axes:
            if not isinstance(a, IterVar) or a.kind != "reduce":
                raise TypeMismatch(f"{a} is not a reduction axis", hint="make it by te.reduce_axis")
        identity = fidentity(*(s.dtype for s in sources))
        values = identity if several else (identity,)
        combiner = _combiner(
            name,
            [s.dtype for s in sources],
            fcombine,
            [convert(v, s.dtype) for v, s in zip(values, sources, strict=True)],
            contracts=contracts,
        )
        condition = Const.of(True, "bool") if where is None else convert(where)
        made = tuple(
            Reduce(combiner, sources, axes, condition, i, s.dtype) for i, s in enumerate(sources)
        )
        return made if several else made[0]

    return reducer


def _single(
    name: str,
    fcombine: Callable[[Expr, Expr], Expr],
    fidentity: Callable[[str], object],
    *,
    note: str = "",
    contracts: bool = False,
) -> Callable[..., Expr]:
    reducer = _reducer(fcombine, fidentity, name, contracts=contracts)

    def reduce_(
        expr: ExprLike, axis: IterVar | Sequence[IterVar], where: ExprLike | None = None
    ) -> Expr:
        result = reducer(expr, axis, where)
        assert isinstance(result, Expr)
        return result

    reduce_.__name__ = name
    what = f"Return the {name} of `expr` over reduction axes (where a condition holds)."
    reduce_.__doc__ = f"{what}\n\n{note}" if note else what
    return reduce_


sum = _single(
    "sum",
    lambda x, y: x + y,
    lambda t: Const.of(0, t),
    note="""A sum of float32 or float64 products is accumulated by fma: each product is added
unrounded. A reducer of your own, te.comm_reducer(lambda x, y: x + y, ...), rounds it first.""",
    contracts=True,
)
prod = _single("prod", lambda x, y: x * y, lambda t: Const.of(1, t))
_max_reduce = _single("max", nodes.maximum, lambda t: Const.of(dt.min_value(t), t))
_min_reduce = _single("min", nodes.minimum, lambda t: Const.of(dt.max_value(t), t))


def max(
    expr: ExprLike,
    axis: IterVar | Sequence[IterVar] | ExprLike,
    where: ExprLike | None = None,
) -> Expr:
    """Return the maximum over reduction axes, or of two values: te.max(a, b)."""
    if _is_axes(axis):
        return _max_reduce(expr, axis, where)
    return nodes.maximum(expr, axis)  # type: ignore[arg-type]


def min(
    expr: ExprLike,
    axis: IterVar | Sequence[IterVar] | ExprLike,
    where: ExprLike | None = None,
) -> Expr:
    """Return the minimum over reduction axes, or of two values: te.min(a, b)."""
    if _is_axes(axis):
        return _min_reduce(expr, axis, where)
    return nodes.minimum(expr, axis)  # type: ignore[arg-type]


def _is_axes(axis: object) -> bool:
    if isinstance(axis, (tuple, list)):
        return True
    return isinstance(axis, IterVar) and axis.kind == "reduce"


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike) -> Expr:
    """Return t or f by `cond`; only the chosen one is evaluated (it may guard a read)."""
    return nodes.select(cond, t, f, lazy=True)


def all(*args: Expr) -> Expr:
    """Return the conjunction of conditions."""
    return nodes.all_of(args)


def any(*args: Expr) -> Expr:
    """Return the disjunction of conditions."""
    return nodes.any_of(args)


def min_value(dtype: str) -> Expr:
    """Return the smallest value of the type (-inf for floats)."""
    return Const.of(dt.min_value(dtype), dtype)


def max_value(dtype: str) -> Expr:
    """Return the largest value of the type (inf for floats)."""
    return Const.of(dt.max_value(dtype), dtype)


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """Return a constant."""
    return convert(value, dtype)


def _intrinsic(name: str) -> Callable[[ExprLike], Expr]:
    def apply(x: ExprLike) -> Expr:
        return nodes.call(name, x)

    apply.__name__ = name
    apply.__doc__ = f"Return {name}(x)."
    return apply


exp, log, log2, log1p, expm1 = map(_intrinsic, ("exp", "log", "log2", "log1p", "expm1"))
sqrt, rsqrt, erf, sigmoid = map(_intrinsic, ("sqrt", "rsqrt", "erf", "sigmoid"))
sin, cos, tan, sinh, cosh, tanh = map(_intrinsic, ("sin", "cos", "tan", "sinh", "cosh", "tanh"))
asin, acos, atan = map(_intrinsic, ("asin", "acos", "atan"))
asinh, acosh, atanh = map(_intrinsic, ("asinh", "acosh", "atanh"))
normal_cdf = _intrinsic("normal_cdf")
softplus = _intrinsic("softplus")
floor, ceil, trunc, round = map(_intrinsic, ("floor", "ceil", "trunc", "round"))
isnan, isinf, abs = map(_intrinsic, ("isnan", "isinf", "abs"))


def power(x: ExprLike, y: ExprLike) -> Expr:
    """Return x to the power of y."""
    a, b = nodes.match(x, y)
    return nodes.call("pow", a, b)


def fmod(x: ExprLike, y: ExprLike) -> Expr:
    """Return the remainder of x / y with the sign of x."""
    a, b = nodes.match(x, y)
    return nodes.call("fmod", a, b)


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """Return a * b + c, rounded once."""
    return nodes.call("fma", a, b, c)


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """Return the integer quotient rounded towards minus infinity."""
    return nodes.binary("floordiv", a, b)


def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """Return the remainder with the sign of `b`."""
    return nodes.binary("floormod", a, b)


truncdiv, truncmod = nodes.truncdiv, nodes.truncmod
