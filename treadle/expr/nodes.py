# SPDX-License-Identifier: Apache-2.0
"""Scalar and short-vector expressions: node classes, their text, and the
functions that make them.

The law of these nodes:

* Nodes are immutable and interned: two structurally equal expressions are one object, so `is`
  decides equality. A `Var` is equal only to itself.
* Every node has a `dtype` (treadle.dtype) and `lanes` (1 = scalar). Operands of a binary node
  agree in both; nothing is converted implicitly below the constructors in this file.
* Integer arithmetic wraps modulo 2**bits. `floordiv` and `floormod` round towards minus infinity,
  `truncdiv` and `truncmod` towards zero; a zero divisor is undefined and must be guarded.
* Float arithmetic is IEEE 754 in the order written: no reassociation, no contraction. `min` and
  `max` of floats return NaN if either operand is NaN. Comparisons with NaN are false but for `ne`.
* Expressions have no side effects. Every operand is evaluated, except that a lazy `Select`
  evaluates only the chosen branch (so it may guard an out-of-range `Load`).
* Indices and sizes are "int64" and are assumed not to overflow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from treadle.dtype import INDEX, check_dtype, is_float, is_integer
from treadle.errors import TypeMismatch
from treadle.expr.interning import TABLE, intern, known
from treadle.expr.operands import Operands
from treadle.expr.promotion import as_value, common_dtype, literal_dtype
from treadle.expr.references import Instruction, Source
from treadle.expr.vocabulary import (
    COMPARE_OPS,
    DIVISIONS,
    HAS_CALL,
    HAS_DIVISION,
    HAS_LAZY,
    HAS_LOAD,
    INTRINSICS,
    LOGIC_OPS,
    BinaryOp,
)


class Expr(Operands):
    """Base of all expression nodes; arithmetic on nodes builds nodes."""

    __slots__ = ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """Return this node with other operands (itself where there are none)."""
        return self

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("floormod", other, self)

    def __pow__(self, other: ExprLike) -> Expr:
        a, b = match(self, other)
        return call("pow", a, b)

    def __neg__(self) -> Expr:
        if is_float(self.dtype):
            return binary("mul", self, Const.of(-1.0, self.dtype))
        return binary("sub", Const.of(0, self.dtype), self)

    def __and__(self, other: ExprLike) -> Expr:
        return binary("and" if self.dtype == "bool" else "bitand", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return binary("or" if self.dtype == "bool" else "bitor", self, other)

    def __xor__(self, other: ExprLike) -> Expr:
        return binary("bitxor", self, other)

    def __lshift__(self, other: ExprLike) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return binary("shr", self, other)

    def __invert__(self) -> Expr:
        if self.dtype == "bool":
            return call("not", self)
        return binary("bitxor", self, Const.of(-1, self.dtype))

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("ge", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        if not isinstance(other, (Expr, int, float)):
            return NotImplemented
        return binary("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        if not isinstance(other, (Expr, int, float)):
            return NotImplemented
        return binary("ne", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        if isinstance(self, Binary) and self.op == "eq":
            return self.a is self.b
        if isinstance(self, Binary) and self.op == "ne":
            return self.a is not self.b
        if isinstance(self, Const):
            return bool(self.value)
        raise TypeMismatch(
            f"the expression {self} has no truth value while the program is being built",
            hint="use te.if_then_else, te.all or te.any instead of if, and, or",
        )

    def astype(self, dtype: str) -> Expr:
        """Return this value converted to `dtype`."""
        return cast(self, dtype)


ExprLike: TypeAlias = Expr | int | float | bool

_INDEX_LIMIT = 1 << 63


@dataclass(slots=True, eq=False, repr=False)
class Var(Expr):
    """A named scalar: a loop variable, an axis or a symbolic size. Equal only to itself."""

    name: str
    dtype: str = INDEX
    lanes: int = 1

    def __post_init__(self) -> None:
        self.hold((), leaf=self)

    def text(self, operands: Sequence[str]) -> str:
        return self.name


@dataclass(slots=True, eq=False, repr=False)
class Const(Expr):
    """A literal; a vector constant is a `Broadcast` of one. Build with `Const.of`."""

    value: int | float | bool
    dtype: str
    lanes: int = 1

    def __post_init__(self) -> None:
        self.hold(())

    @staticmethod
    def of(value: int | float | bool, dtype: str = INDEX) -> Const:
        """Return the constant `value` as `dtype`; integers wrap, floats round to the type."""
        if dtype == INDEX and value in _SMALL:
            return _SMALL[value]
        if dtype != INDEX or type(value) is not int or not -_INDEX_LIMIT <= value < _INDEX_LIMIT:
            value = as_value(value, check_dtype(dtype))
        key = (Const, dtype, struct.pack("<d", value) if isinstance(value, float) else value)
        found = known(key)
        return intern(key, Const(value, dtype)) if found is None else found

    def text(self, operands: Sequence[str]) -> str:
        if self.dtype == INDEX or self.dtype == "bool":
            return str(self.value)
        return f"{self.dtype}({self.value!r})"


_SMALL: dict[object, Const] = {}
"""Indices that kernels are full of: they stay."""
_SMALL.update((n, Const.of(n)) for n in range(-16, 257))


_SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%",
    "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip


@dataclass(slots=True, eq=False, repr=False)
class Binary(Expr):
    """`a op b`; comparisons and logic give bool. Build with `binary`."""

    op: BinaryOp
    a: Expr
    b: Expr
    dtype: str
    lanes: int

    def __post_init__(self) -> None:
        self.hold_two(self.a, self.b, HAS_DIVISION if self.op in DIVISIONS else 0)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return same_typed(self.op, children[0], children[1])

    def text(self, operands: Sequence[str]) -> str:
        symbol = _SYMBOL.get(self.op)
        a, b = operands
        return f"{self.op}({a}, {b})" if symbol is None else f"({a} {symbol} {b})"


@dataclass(slots=True, eq=False, repr=False)
class Select(Expr):
    """`then` where `cond` holds, else `other`; lazy: only the chosen branch is evaluated."""

    cond: Expr
    then: Expr
    other: Expr
    lazy: bool
    dtype: str
    lanes: int

    def __post_init__(self) -> None:
        self.hold((self.cond, self.then, self.other), HAS_LAZY if self.lazy else 0)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return select(children[0], children[1], children[2], lazy=self.lazy)

    def text(self, operands: Sequence[str]) -> str:
        return f"{'if_then_else' if self.lazy else 'select'}({', '.join(operands)})"


@dataclass(slots=True, eq=False, repr=False)
class Cast(Expr):
    """Conversion: float to integer truncates and saturates (NaN gives 0), to bool is `!= 0`."""

    value: Expr
    dtype: str
    lanes: int

    def __post_init__(self) -> None:
        self.hold((self.value,))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return cast(children[0], self.dtype)

    def text(self, operands: Sequence[str]) -> str:
        return f"{self.dtype}({operands[0]})"


@dataclass(slots=True, eq=False, repr=False)
class Call(Expr):
    """A pure intrinsic of INTRINSICS applied element by element."""

    name: str
    args: tuple[Expr, ...]
    dtype: str
    lanes: int

    def __post_init__(self) -> None:
        self.hold(self.args, HAS_CALL)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return call(self.name, *children, dtype=self.dtype)

    def text(self, operands: Sequence[str]) -> str:
        head = f"bitcast[{self.dtype}]" if self.name == "bitcast" else self.name
        return f"{head}({', '.join(operands)})"


@dataclass(slots=True, eq=False, repr=False)
class Apply(Expr):
    """An instruction of some machine applied lane by lane; its value is what the instruction means.

    A machine that has it may round float results otherwise than the meaning as it is written.
    """

    instruction: Instruction
    args: tuple[Expr, ...]
    dtype: str
    lanes: int

    def __post_init__(self) -> None:
        self.hold(self.args, HAS_CALL)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return apply(self.instruction, children)

    def text(self, operands: Sequence[str]) -> str:
        return f"{self.instruction.name}({', '.join(operands)})"


@dataclass(slots=True, eq=False, repr=False)
class Load(Expr):
    """The element of `source` at `indices` (one per dimension, int64).

    The last index may be a vector (`Ramp` with stride 1 = a contiguous read, otherwise a gather);
    the result has its lanes. Reading outside the source is undefined.
    """

    source: Source
    indices: tuple[Expr, ...]
    dtype: str
    lanes: int

    def __post_init__(self) -> None:
        self.hold(self.indices, HAS_LOAD, self.source)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return _load(self.source, children)

    def text(self, operands: Sequence[str]) -> str:
        return f"{self.source.name}[{', '.join(operands)}]"


@dataclass(slots=True, eq=False, repr=False)
class Ramp(Expr):
    """The vector base, base + stride, ..., of `lanes` elements."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: str = INDEX

    def __post_init__(self) -> None:
        self.hold((self.base, self.stride))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return ramp(children[0], children[1], self.lanes)

    def text(self, operands: Sequence[str]) -> str:
        return f"ramp({', '.join(operands)}, {self.lanes})"


@dataclass(slots=True, eq=False, repr=False)
class Broadcast(Expr):
    """A scalar repeated `lanes` times."""

    value: Expr
    lanes: int
    dtype: str

    def __post_init__(self) -> None:
        self.hold((self.value,))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return broadcast(children[0], self.lanes)

    def text(self, operands: Sequence[str]) -> str:
        return f"broadcast({operands[0]}, {self.lanes})"


def convert(value: ExprLike, dtype: str | None = None) -> Expr:
    """Return a Python number as a constant (`dtype`, else int64 / float32 / bool) or the node."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return Const.of(value, dtype or "bool")
    if isinstance(value, int):
        return Const.of(value, dtype or INDEX)
    if isinstance(value, float):
        return Const.of(value, dtype or "float32")
    item = getattr(value, "item", None)
    if item is not None and not getattr(value, "shape", ()):
        return convert(item(), dtype)
    raise TypeMismatch(f"{value!r} of type {type(value).__name__} is not a scalar expression")


def match(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Return both operands with one dtype and one lane count.

    A Python number takes the other's dtype; of two integer types the wider wins; an integer meets
    a float as that float; a scalar is broadcast to the lanes of a vector.
    """
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        a, b = _match_literals(a, b)
    if a.dtype != b.dtype:
        dtype = common_dtype(a.dtype, b.dtype)
        a, b = cast(a, dtype), cast(b, dtype)
    if a.lanes != b.lanes:
        a, b = broadcast(a, b.lanes), broadcast(b, a.lanes)
    return a, b


def _match_literals(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    if isinstance(a, Expr):
        if type(b) is int and a.dtype == INDEX:
            return a, Const.of(b)
        return a, convert(b, literal_dtype(b, a.dtype))
    if isinstance(b, Expr):
        return convert(a, literal_dtype(a, b.dtype)), b
    return convert(a), convert(b)


def same_typed(op: BinaryOp, a: Expr, b: Expr) -> Binary:
    """Return `a op b` of operands of one type that the operator takes, a scalar repeated."""
    if a.lanes != b.lanes:
        a, b = broadcast(a, b.lanes), broadcast(b, a.lanes)
    key = (Binary, op, a, b)
    entry = TABLE.get(key)
    found = None if entry is None else entry()
    if found is not None:
        return found  # type: ignore[no-any-return]  # a key starts with its class
    dtype = "bool" if op in COMPARE_OPS or op in LOGIC_OPS else a.dtype
    return intern(key, Binary(op, a, b, dtype, a.lanes))


def binary(op: BinaryOp, a: ExprLike, b: ExprLike) -> Expr:
    """Return `a op b` with operands brought to one type by `match`."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype == b.dtype:
        x, y = a, b
    else:
        x, y = match(a, b)
    if op in LOGIC_OPS and x.dtype != "bool":
        raise TypeMismatch(f"'{op}' takes bool operands, got {x.dtype} in {x} {op} {y}")
    if op == "div" and is_integer(x.dtype):
        op = "floordiv"
    return same_typed(op, x, y)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """Return the smaller of two values (NaN if either is NaN)."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """Return the larger of two values (NaN if either is NaN)."""
    return binary("max", a, b)


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Return the integer quotient rounded towards zero."""
    return binary("truncdiv", a, b)


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """Return the remainder with the sign of `a`."""
    return binary("truncmod", a, b)


def select(cond: ExprLike, then: ExprLike, other: ExprLike, *, lazy: bool = False) -> Expr:
    """Return `then` where `cond` holds, else `other`; lazy evaluates only the chosen branch."""
    test = convert(cond)
    if test.dtype != "bool":
        test = binary("ne", test, 0)
    x, y = match(then, other)
    lanes = max(test.lanes, x.lanes)
    x, y = broadcast(x, lanes), broadcast(y, lanes)
    if test.lanes == 1 and lanes > 1 and not lazy:
        test = broadcast(test, lanes)
    key = (Select, lazy, test, x, y)
    found = known(key)
    return intern(key, Select(test, x, y, lazy, x.dtype, lanes)) if found is None else found


def cast(value: ExprLike, dtype: str) -> Expr:
    """Return `value` converted to `dtype` (unchanged where it already has it)."""
    x = convert(value, None if isinstance(value, Expr) else dtype)
    if x.dtype == check_dtype(dtype):
        return x
    if isinstance(x, Const) and not (isinstance(x.value, float) and not is_float(dtype)):
        return Const.of(x.value, dtype)
    key = (Cast, dtype, x)
    found = known(key)
    return intern(key, Cast(x, dtype, x.lanes)) if found is None else found


def call(name: str, *args: ExprLike, dtype: str | None = None) -> Expr:
    """Return the intrinsic `name` of the arguments; `dtype` only for bitcast."""
    if INTRINSICS.get(name) != len(args):
        raise TypeMismatch(f"{name!r} with {len(args)} arguments is not an intrinsic")
    first = convert(args[0])
    nodes = (first, *(convert(a, first.dtype) for a in args[1:]))
    lanes = max(n.lanes for n in nodes)
    nodes = tuple(broadcast(n, lanes) for n in nodes)
    if name in ("isnan", "isinf", "not"):
        dtype = "bool"
    result = dtype or first.dtype
    key = (Call, name, result, nodes)
    found = known(key)
    return intern(key, Call(name, nodes, result, lanes)) if found is None else found


def apply(instruction: Instruction, args: Sequence[ExprLike]) -> Expr:
    """Return an instruction of arguments, a scalar among vectors repeated.

    Raises: TypeMismatch where number or types of the arguments are not the instruction's.
    """
    types = instruction.argument_types
    if len(args) != len(types):
        raise TypeMismatch(f"{instruction.name} takes {len(types)} arguments, not {len(args)}")
    nodes = tuple(convert(a, t) for a, t in zip(args, types, strict=True))
    for node, dtype in zip(nodes, types, strict=True):
        if node.dtype != dtype:
            raise TypeMismatch(f"{instruction.name} takes {dtype}, not the {node.dtype} {node}")
    lanes = max((n.lanes for n in nodes), default=1)
    nodes = tuple(broadcast(n, lanes) for n in nodes)
    key = (Apply, id(instruction), nodes)
    found = known(key)
    if found is not None:
        return found  # type: ignore[no-any-return]  # a key starts with its class
    return intern(key, Apply(instruction, nodes, instruction.result, lanes))


def load(source: Source, indices: Iterable[ExprLike]) -> Expr:
    """Return the element of `source` at `indices`."""
    at = tuple(convert(i, INDEX) for i in indices)
    if len(at) != len(source.shape):
        raise TypeMismatch(
            f"{source.name} has {len(source.shape)} dimensions, indexed with {len(at)}"
        )
    return _load(source, tuple(cast(i, INDEX) for i in at))


def _load(source: Source, at: tuple[Expr, ...]) -> Load:
    key = (Load, id(source), at)
    found: Load | None = known(key)
    if found is not None:
        return found
    lanes = max([i.lanes for i in at], default=1)
    return intern(key, Load(source, at, source.dtype, lanes))


def ramp(base: ExprLike, stride: ExprLike, lanes: int) -> Expr:
    """Return the vector base + stride * [0, lanes)."""
    b, s = convert(base), convert(stride)
    key = (Ramp, lanes, b, s)
    found = known(key)
    return intern(key, Ramp(b, s, lanes, b.dtype)) if found is None else found


def broadcast(value: ExprLike, lanes: int) -> Expr:
    """Return a scalar repeated `lanes` times; a vector of that many lanes is returned as it is."""
    x = convert(value)
    if x.lanes == lanes or lanes == 1:
        return x
    if x.lanes != 1:
        raise TypeMismatch(f"a vector of {x.lanes} lanes cannot become one of {lanes}: {x}")
    key = (Broadcast, lanes, x)
    found = known(key)
    return intern(key, Broadcast(x, lanes, x.dtype)) if found is None else found


def int_value(e: ExprLike) -> int | None:
    """Return the integer a constant holds, else None."""
    if isinstance(e, Expr):
        return e.value if isinstance(e, Const) and isinstance(e.value, int) else None
    return e if isinstance(e, int) else None
