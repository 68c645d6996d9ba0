# SPDX-License-Identifier: Apache-2.0
"""Intrinsics: instructions of machines as records, each with its meaning as a tensor expression.

An intrinsic works lane by lane. In every lane it takes one or more neighbouring elements of each
operand and gives one result; where it `accumulates`, it adds that to a first argument. The record
says for how many lanes which instruction stands, what features that one needs, and how back ends
write it. The library is in `treadle.target.intrinsics`; a user's file may register more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import product

from treadle.dtype import check_dtype
from treadle.errors import ScheduleError, UsageError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, int_value
from treadle.expr.traversal import rewrite, substitute
from treadle.te.operations import ComputeOp, IterVar, Reduce, Tensor
from treadle.te.tensor import placeholder


@dataclass(frozen=True, slots=True)
class Operand:
    """What an intrinsic reads: in every lane `count` neighbouring elements of a type.

    A `shared` operand is the same for all lanes: a table of `count` elements, repeated to fill the
    register.
    """

    name: str
    dtype: str
    count: int = 1
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction that does an intrinsic for so many `lanes` at once.

    It exists where all `features` are on (LLVM's names). `llvm` declares the LLVM intrinsic as LLVM
    writes it, "<4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16>, <8 x i16>)": its parameters are the
    accumulator, if there is one, and the operands in their order, as registers.
    """

    lanes: int
    features: tuple[str, ...]
    llvm: str

    @property
    def signature(self) -> tuple[str, str, tuple[str, ...]]:
        """The result type, the name without "llvm.", and the parameter types."""
        found = _DECLARATION.fullmatch(self.llvm)
        if found is None:
            raise UsageError(
                f"{self.llvm!r} does not declare an LLVM intrinsic",
                hint='write "<4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16>, <8 x i16>)"',
            )
        return found[1], found[2], tuple(p.strip() for p in found[3].split(","))


_DECLARATION = re.compile(r"\s*(.+?)\s*@llvm\.([\w.]+)\((.*)\)\s*", re.DOTALL)

Meaning = Callable[..., object]


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic:
    """An instruction, in every lane: `meaning` of its operands.

    `meaning` takes a te tensor per operand, of shape (count,), and returns the tensor of shape ()
    that is the result: an expression or a reduction over constant extents. Where the record
    `accumulates`, the meaning is a reduction and starts from the value of a further argument, which
    comes first. `c` is the C text of one lane for the C back end, with the arguments by name,
    "__builtin_foo({a[0]}, {a[1]})"; the accumulator is {accumulator}. Where there is neither a form
    nor a text for a target, its code is that of the meaning.
    """

    name: str
    operands: tuple[Operand, ...]
    meaning: Meaning
    forms: tuple[Form, ...] = ()
    accumulates: bool = False
    c: str = ""
    c_features: tuple[str, ...] = ()
    placeholders: tuple[Tensor, ...] = field(init=False)
    body: Expr = field(init=False)

    def __post_init__(self) -> None:
        """Make and check the meaning. Raises: UsageError for a record that says nothing clear."""
        made = tuple(placeholder((o.count,), check_dtype(o.dtype), o.name) for o in self.operands)
        found = self.meaning(*made)
        op = found.op if isinstance(found, Tensor) else None
        if not isinstance(op, ComputeOp) or op.axis or len(op.body) != 1:
            raise self._error("is not one te.compute of shape ()")
        object.__setattr__(self, "placeholders", made)
        object.__setattr__(self, "body", op.body[0])
        self._check_body()
        for form in self.forms:
            self._check_form(form)

    def _error(self, problem: str) -> UsageError:
        return UsageError(f"the meaning of intrinsic {self.name} {problem}", at=self.name)

    def _check_body(self) -> None:
        body = self.body
        if self.accumulates and not isinstance(body, Reduce):
            raise self._error("accumulates, but is no reduction")
        if not isinstance(body, Reduce):
            return
        if any(int_value(a.extent) is None for a in body.axes) or len(body.sources) != 1:
            raise self._error("is not a reduction of one value over constant extents")

    def _check_form(self, form: Form) -> None:
        wanted = len(self.operands) + self.accumulates
        _, name, params = form.signature
        if len(params) != wanted:
            raise UsageError(
                f"@llvm.{name} has {len(params)} parameters, intrinsic {self.name} {wanted} "
                "operands",
                at=self.name,
            )

    # -- as an instruction of expressions

    @property
    def result(self) -> str:
        """The element type of the result."""
        return self.body.dtype

    @property
    def argument_types(self) -> tuple[str, ...]:
        """The element types of the arguments: the accumulator's, then every operand's elements."""
        own = [o.dtype for o in self.operands for _ in range(o.count)]
        return (self.result, *own) if self.accumulates else tuple(own)

    def grouped(self, args: Sequence[Expr]) -> tuple[Expr | None, list[tuple[Expr, ...]]]:
        """Return the accumulator, if there is one, and the elements of every operand."""
        rest = iter(args)
        accumulator = next(rest) if self.accumulates else None
        return accumulator, [tuple(next(rest) for _ in range(o.count)) for o in self.operands]

    def expand(self, args: Sequence[Expr]) -> Expr:
        """Return the meaning in terms of the arguments."""
        accumulator, groups = self.grouped(args)
        elements = dict(zip(self.placeholders, groups, strict=True))
        body = self.body
        if not isinstance(body, Reduce):
            return _placed(body, elements)
        total = accumulator
        for source in self.sources():
            value = _placed(source, elements)
            total = value if total is None else body.combiner.combine((total,), (value,))[0]
        assert total is not None
        return total

    def sources(self) -> list[Expr]:
        """Return what the reduction combines, one after the other, in terms of `placeholders`."""
        body = self.body
        assert isinstance(body, Reduce)
        ranges = [range(int_value(a.extent) or 0) for a in body.axes]
        return [substitute(body.sources[0], _at(body.axes, point)) for point in product(*ranges)]

    # -- as an instruction of machines

    def forms_for(self, features: Iterable[str]) -> dict[int, Form]:
        """Return the forms that a machine with these features has, by their lanes."""
        on = frozenset(features)
        found = (f for f in self.forms if on.issuperset(f.features))
        return {f.lanes: f for f in sorted(found, key=lambda f: f.lanes)}

    def has_text(self, features: Iterable[str]) -> bool:
        """True when there is C text for a machine with these features."""
        return bool(self.c) and frozenset(features).issuperset(self.c_features)

    def c_text(self, args: Sequence[str]) -> str:
        """Return the C text of one lane for arguments as text."""
        rest = iter(args)
        named: dict[str, object] = {"accumulator": next(rest)} if self.accumulates else {}
        for operand in self.operands:
            own = [next(rest) for _ in range(operand.count)]
            named[operand.name] = own[0] if operand.count == 1 else own
        return self.c.format(**named)

    def __repr__(self) -> str:
        return f"Intrinsic({self.name})"


def _at(axes: Sequence[IterVar], point: Sequence[int]) -> Mapping[Expr, Expr]:
    return {a: Const.of(p + (int_value(a.start) or 0)) for a, p in zip(axes, point, strict=True)}


def _placed(e: Expr, elements: Mapping[Tensor, Sequence[Expr]]) -> Expr:
    """Return an expression with reads of placeholders replaced by the elements they are."""

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, ex.Load) or not isinstance(n.source, Tensor):
            return None
        return _element(elements[n.source], n.indices[0])

    return rewrite(e, rule)


def _element(values: Sequence[Expr], index: Expr) -> Expr:
    known = int_value(index)
    if known is not None:
        return values[known]
    found = values[-1]
    for k in range(len(values) - 2, -1, -1):
        found = ex.select(ex.binary("eq", index, k), values[k], found)
    return found


_REGISTERED: dict[str, Intrinsic] = {}


def register_intrinsic(record: Intrinsic) -> Intrinsic:
    """Make an intrinsic known by its name, for `tensorize` and for schedules read from data.

    Raises: UsageError when there is another one of that name.
    """
    if _REGISTERED.setdefault(record.name, record) is not record:
        raise UsageError(
            f"there is an intrinsic named {record.name} already", hint="give yours another name"
        )
    return record


def intrinsics() -> Iterator[Intrinsic]:
    """Yield all that are registered, in the order of their names."""
    yield from (record for _, record in sorted(_REGISTERED.items()))


def find_intrinsic(name: str) -> Intrinsic:
    """Return the intrinsic of a name. Raises: ScheduleError when none is registered under it."""
    found = _REGISTERED.get(name)
    if found is not None:
        return found
    close = get_close_matches(name, _REGISTERED, 1)
    raise ScheduleError(
        f"there is no intrinsic named {name}; there are {', '.join(sorted(_REGISTERED)) or 'none'}",
        hint=f"do you mean {close[0]}?" if close else "import the module that registers it",
    )
