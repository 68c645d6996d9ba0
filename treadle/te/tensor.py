# SPDX-License-Identifier: Apache-2.0
"""Declaring tensors and axes, and the scalar functions used inside of them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.conditions import all_of, any_of
from treadle.expr.nodes import Const, Expr, ExprLike, Var, convert
from treadle.expr.traversal import walk
from treadle.te.operations import (
    BuildFn,
    ComputeOp,
    ExternOp,
    IterVar,
    PlaceholderOp,
    Reduce,
    Tensor,
)
from treadle.te.reads import check_reads
from treadle.te.shapes import Shape, as_shape, axis_names


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
    *,
    axes: Sequence[str] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Return the tensor whose element at (i, j, ...) is `fcompute(i, j, ...)`.

    `fcompute` may return a tuple: then a tuple of tensors of the same shape is made. A reduction
    (te.sum, ...) may only be the whole body. The loops are called `axes`, one name per dimension;
    if that is not given, as the arguments of `fcompute`.

    >>> C = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="C")
    >>> C = te.compute(A.shape, lambda *i: A[i] + 1.0, name="C", axes=("n", "oc", "oh", "ow"))

    Raises: TypeMismatch where `fcompute` or `axes` are for another number of dimensions.
    """
    dims = as_shape(shape, name)
    names = axis_names(fcompute, len(dims), axes)
    axis = tuple(IterVar(a, extent=extent) for a, extent in zip(names, dims, strict=True))
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
    *,
    axes: Sequence[str] | None = None,
) -> Tensor:
    """Return `compute` of a single-valued function, typed as one tensor."""
    result = compute(shape, fcompute, name, tag, axes=axes)
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
    for n in walk(body):
        if isinstance(n, Reduce) and n is not body:
            raise TypeMismatch(
                f"the reduction inside {name} is not the whole body",
                hint="put the reduction in a compute of its own and read it from this one",
            )
    return body


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike) -> Expr:
    """Return t or f by `cond`; only the chosen one is evaluated (it may guard a read)."""
    return nodes.select(cond, t, f, lazy=True)


def all(*args: Expr) -> Expr:
    """Return the conjunction of conditions."""
    return all_of(args)


def any(*args: Expr) -> Expr:
    """Return the disjunction of conditions."""
    return any_of(args)


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
exp_weight = _intrinsic("exp_weight")
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
