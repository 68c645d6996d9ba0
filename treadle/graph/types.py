# SPDX-License-Identifier: Apache-2.0
"""Types of graph values: tensors with possibly symbolic dimensions, and tuples of types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

from treadle.dtype import check_dtype, itemsize
from treadle.errors import TypeMismatch
from treadle.expr.bounds import prove
from treadle.expr.intervals import FAR, Interval
from treadle.expr.nodes import Binary, Expr, Var, convert, int_value
from treadle.expr.simplify import simplify
from treadle.expr.text import Parts
from treadle.expr.traversal import free_vars, rewrite

Dim: TypeAlias = int | Expr
"""An extent: an int, or an int64 expression over symbolic sizes (`Var`s)."""


def as_dim(value: Dim) -> Dim:
    """Return a dimension in normal form, so that equal ones are one object; constants as ints.

    Raises: TypeMismatch if it is a negative number.
    """
    found = normal_size(value)
    if isinstance(found, int) and found < 0:
        raise TypeMismatch(f"a dimension cannot be {found}")
    return found


def normal_size(value: Dim) -> Dim:
    """Return a number, possibly below 0, of elements in normal form: constants as ints."""
    number = int_value(value)
    if number is None and isinstance(value, Expr):
        value = _normal(value)
        number = int_value(value)
    return value if number is None else number


@lru_cache(maxsize=4096)
def _normal(value: Expr) -> Expr:
    return value if isinstance(value, Var) else simplify(_without_far(value), _sizes_of(value))


def _without_far(value: Expr) -> Expr:
    """Drop limits that no extent reaches: min(n, 2**63 - 1)  ->  n."""
    return rewrite(value, _within_far)


def _within_far(node: Expr) -> Expr | None:
    limit = int_value(node.b) if isinstance(node, Binary) else None
    if not isinstance(node, Binary) or limit is None:
        return None
    is_far = (node.op == "min" and limit >= FAR) or (node.op == "max" and limit <= -FAR)
    return node.a if is_far else None


def _sizes_of(*values: Expr) -> dict[Var, Interval]:
    return {v: Interval(0, None) for value in values for v in free_vars(value)}


def product_of(dims: Iterable[Dim]) -> Dim:
    """Return the product of extents."""
    return as_dim(prod(dims))


def known_sizes(dims: Iterable[Dim], what: str = "") -> tuple[int, ...]:
    """Return extents as ints. Raises TypeMismatch, about `what` they are, when one is symbolic."""
    sizes = tuple(dims)
    known = tuple(d for d in sizes if isinstance(d, int))
    if len(known) < len(sizes):
        name = what or f"each of the sizes [{', '.join(map(str, sizes))}]"
        raise TypeMismatch(f"{name} must be known here", hint="give the sizes with --input-shapes")
    return known


def known_true(condition: Expr | bool) -> bool | None:
    """Tell whether a condition on sizes holds for all of them; None where it depends."""
    if isinstance(condition, bool):
        return condition
    return prove(condition, _sizes_of(condition))


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor: element type and extents; rank 0 is a scalar."""

    shape: tuple[Dim, ...]
    dtype: str

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        object.__setattr__(self, "shape", tuple(as_dim(d) for d in self.shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """True when every dimension is an int."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints. Raises TypeMismatch when a dimension is symbolic."""
        known = tuple(d for d in self.shape if isinstance(d, int))
        return known if len(known) == self.ndim else known_sizes(self.shape, f"the shape of {self}")

    @property
    def elements(self) -> Dim:
        """The number of elements, over symbolic sizes too."""
        return product_of(self.shape)

    @property
    def size(self) -> int:
        """The number of elements (static shapes only)."""
        return prod(self.static_shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of a row-major copy (static shapes only)."""
        return self.size * itemsize(self.dtype)

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        """Return this type with another shape."""
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: str) -> TensorType:
        """Return this type with another element type."""
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        parts = Parts("%{}")
        shape = parts.shorten(map(convert, self.shape))
        text = f"{self.dtype}[{', '.join(map(str, shape))}]"
        named = ", ".join(f"{name} = {value}" for name, value in parts.values)
        return f"{text} where {named}" if named else text


@dataclass(frozen=True, slots=True)
class TupleType:
    """A fixed-length tuple."""

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


Type: TypeAlias = TensorType | TupleType

Structure: TypeAlias = "tuple[int, ...] | list[Structure] | None"
"""What a model's value consists of: a tensor of some shape, a sequence of values, or nothing."""


def tensor_type(value: Type) -> TensorType:
    """Return `value` as a tensor type. Raises TypeMismatch for a tuple."""
    if isinstance(value, TensorType):
        return value
    raise TypeMismatch(f"a tensor is expected here, not a tuple {value}")


def same_dim(a: Dim, b: Dim) -> bool:
    """True when two dimensions are certainly equal."""
    return a is b if isinstance(a, Expr) or isinstance(b, Expr) else a == b


def may_agree(a: Dim, b: Dim) -> bool:
    """True unless two dimensions certainly differ."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def shapes_may_agree(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True unless two shapes certainly differ."""
    return len(a) == len(b) and all(map(may_agree, a, b))


def broadcast_dim(a: Dim, b: Dim) -> Dim | None:
    """Return the extent of two broadcast dimensions, None where they certainly do not fit."""
    if same_dim(a, b) or (isinstance(b, int) and b == 1):
        return a
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        return None
    return a if isinstance(a, int) else b


def broadcast_shapes(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shape of broadcasting `shapes` together (NumPy's rule).

    Raises:
        TypeMismatch: two extents differ and neither is 1.
    """
    ndim = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * ndim
    for shape in shapes:
        for k, d in enumerate(shape, start=ndim - len(shape)):
            merged = broadcast_dim(result[k], d)
            if merged is None:
                text = " and ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
                raise TypeMismatch(f"the shapes {text} do not broadcast: {result[k]} against {d}")
            result[k] = merged
    return tuple(result)
