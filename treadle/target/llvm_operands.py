# SPDX-License-Identifier: Apache-2.0
"""Operands of intrinsics that take several elements in every lane, and where they are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.dtype import bits, is_integer, itemsize
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Apply, Binary, Broadcast, Cast, Expr, Load
from treadle.loop.nodes import Buffer
from treadle.target.llvm_facts import buffer_of, linear_parts
from treadle.te.intrinsics import Intrinsic

_WORD_BYTES = (2, 4, 8)


def intrinsic_of(e: Apply) -> Intrinsic:
    """Return the record of an applied intrinsic."""
    if not isinstance(e.instruction, Intrinsic):
        raise InternalError(f"{e.instruction.name} reaches code generation and is no intrinsic")
    return e.instruction


@dataclass(frozen=True, slots=True)
class Place:
    """Where the elements of every lane lie side by side: from `base` on, a `stride` further each.

    Both are numbers of elements of the buffer.
    """

    buffer: Buffer
    base: Expr
    stride: int


@dataclass(slots=True, eq=False, repr=False)
class Neighbours(Expr):
    """The elements that an intrinsic takes of one operand, those of a lane together.

    `lanes` counts elements, those of all lanes. A `shared` operand has the same in every lane, and
    they stand here once. `place` says where to load them from, `word` is the integer whose parts
    they are, from the lowest bits on; None where they are neither.
    """

    args: tuple[Expr, ...]
    dtype: str
    lanes: int
    shared: bool
    place: Place | None = None
    word: Expr | None = None

    @staticmethod
    def of(args: tuple[Expr, ...], *, shared: bool) -> Neighbours:
        """Return the elements, given one vector or scalar for each of a lane."""
        first = args[0]
        if shared:
            return Neighbours(args, first.dtype, len(args), True)
        lanes = len(args) * first.lanes
        return Neighbours(args, first.dtype, lanes, False, _place_of(args), _word_of(args))

    @property
    def count(self) -> int:
        """How many elements one lane takes."""
        return len(self.args)

    def __post_init__(self) -> None:
        self.hold(self.args)

    def text(self, operands: Sequence[str]) -> str:
        return f"({', '.join(operands)})"


def _word_of(args: Sequence[Expr]) -> Expr | None:
    """Return the integer of which the args are all parts, the lowest first."""
    width = bits(args[0].dtype)
    word = _shifted(args[0])[0]
    if word is None or bits(word.dtype) != width * len(args):
        return None
    found = [_shifted(e) for e in args]
    is_whole = all(w is word and by == k * width for k, (w, by) in enumerate(found))
    return word if is_whole else None


def _shifted(e: Expr) -> tuple[Expr | None, int]:
    """Return the integer of which `e` is a part, and where the part begins."""
    if not isinstance(e, Cast) or not is_integer(e.dtype) or not is_integer(e.value.dtype):
        return None, 0
    inner = e.value
    if not isinstance(inner, Binary) or inner.op != "shr":
        return inner, 0
    by = ex.int_value(inner.b.value if isinstance(inner.b, Broadcast) else inner.b)
    return (inner, 0) if by is None else (inner.a, by)


def _place_of(args: Sequence[Expr]) -> Place | None:
    found = [_linear_load(e) for e in args]
    first = found[0]
    if first is None:
        return None
    for k, place in enumerate(found):
        if place is None or place.buffer is not first.buffer or place.stride != first.stride:
            return None
        apart = decompose(place.base).plus(decompose(first.base), -1)
        if apart.terms or apart.const != k:
            return None
    is_packed = args[0].lanes == 1 or first.stride == len(args)
    is_word = len(args) * itemsize(first.buffer.dtype) in _WORD_BYTES
    return first if is_packed or is_word else None


def _linear_load(e: Expr) -> Place | None:
    load = e.value if isinstance(e, Broadcast) else e
    if not isinstance(load, Load) or load.dtype == "bool":
        return None
    index, buffer = load.indices[0], buffer_of(load.source)
    if load.lanes == 1:
        return Place(buffer, index, 0)
    parts = linear_parts(index)
    stride = None if parts is None else ex.int_value(parts[1])
    return None if parts is None or stride is None else Place(buffer, parts[0], stride)
