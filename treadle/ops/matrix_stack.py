# SPDX-License-Identifier: Apache-2.0
"""Stacks [b, m, n] of small matrices that operators work on in place, by loops written by hand.

They compute in float64. A stack is spread over the threads, a matrix is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, ExprLike, cast, load
from treadle.graph.types import Dim, TensorType, Type, known_sizes
from treadle.loop.build import loop, nest, put
from treadle.loop.nodes import Buffer, Stmt
from treadle.ops.numeric import FLOATS, check_elements, dims_of
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor

WIDE = "float64"


def stack_type(x: Type, which: str = "the input") -> TensorType:
    """Return a stack of matrices of known size. Raises: TypeMismatch for anything else."""
    source = check_elements(x, FLOATS, which)
    if source.ndim != 3:
        raise TypeMismatch(f"{which} is {source}, not a stack of matrices [b, m, n]")
    known_sizes(source.shape[1:], f"the matrices of {source}")
    return source


def sizes_of(x: Tensor) -> tuple[Dim, int, int]:
    """Return the extents of a stack: those of a matrix are known."""
    count, m, n = dims_of(x)
    assert isinstance(m, int)  # as inferred
    assert isinstance(n, int)
    return count, m, n


def number(name: str) -> Buffer:
    """Return a local variable for a real number."""
    return Buffer(name, WIDE, (Const.of(1),), "local")


def each_matrix(count: Dim, work: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """Return a loop over the matrices of a stack, each of which takes so many steps."""
    many = not isinstance(count, int) or (count > 1 and is_much((count, work)))
    return loop(count, body, "b", "parallel" if many else "serial")


def stage(
    shapes: Sequence[Sequence[Dim]],
    inputs: Sequence[Tensor],
    build: Callable[[Sequence[Buffer], Sequence[Buffer]], Stmt],
    name: str,
    dtypes: Sequence[str],
) -> tuple[Tensor, ...]:
    """Return the tensors of a stage that `build` writes by hand."""
    made = te.extern(shapes, inputs, build, name, tuple(dtypes))
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    return made


def rounded(x: Tensor, dtype: str) -> Tensor:
    """Return a tensor in another type, apart from the stage that makes it."""
    return te.compute_one(x.shape, lambda *i: cast(x[i], dtype), "rounded")


@dataclass(frozen=True, slots=True)
class Matrix:
    """Matrix `b` of a stack, to be read and written."""

    buffer: Buffer
    b: Expr

    def __call__(self, r: ExprLike, c: ExprLike) -> Expr:
        """Return an element."""
        return load(self.buffer, (self.b, r, c))

    def set(self, r: ExprLike, c: ExprLike, value: ExprLike) -> Stmt:
        """Return what writes an element."""
        return put(self.buffer, (self.b, r, c), value)

    def copied(self, source: Buffer, m: int, n: int) -> Stmt:
        """Return what fills the matrix from another stack."""
        return nest(
            (m, n), lambda r, c: self.set(r, c, cast(load(source, (self.b, r, c)), WIDE)), "r"
        )
