# SPDX-License-Identifier: Apache-2.0
"""Sizes as data: the plan's table of sizes that each run decides, and sizes of cached kernels.

Both grow with the distinct operations in a size, not with its text: a part that is used more than
once is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from treadle.errors import InternalError
from treadle.expr.nodes import Binary, Expr, Select, Var, binary, convert, int_value
from treadle.expr.text import Parts
from treadle.expr.traversal import free_vars
from treadle.expr.vocabulary import BinaryOp
from treadle.graph.broadcasting import taken_dim
from treadle.graph.types import Dim, normal_size
from treadle.runtime.extents import Formula, evaluate

Json = dict[str, object]

OPERATIONS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")
"""The arithmetic a plan can do with sizes."""

BROADCAST = "broadcast"
"""a, or b where a is 1: the selects among sizes (`treadle.graph.broadcasting`)."""

_DEEP = 12
"""Levels of one formula: deeper parts are named, as the runtime reads JSON of 64 levels."""


class SizeTable:
    """Rows of a plan's "sizes"; equal sizes get one row."""

    def __init__(
        self,
        inputs: Mapping[Var, tuple[int, int]],
        given: Sequence[Var] = (),
        decided: Sequence[Var] = (),
    ) -> None:
        """`inputs` says which input and axis decides each symbol.

        `given` are the sizes of a body that the plan around it knows, `decided` those that an
        instruction decides.
        """
        self.rows: list[Json] = []
        self._index: dict[Expr, int] = {}
        for symbol, (position, axis) in inputs.items():
            self._row(symbol, {"name": symbol.name, "input": position, "axis": axis})
        for number, symbol in enumerate(given):
            self._row(symbol, {"name": symbol.name, "given": number})
        for symbol in decided:
            self._row(symbol, {"name": symbol.name})

    def refer(self, dim: Dim) -> int | Json:
        """Return an extent as it stands in a plan: a number, or which row holds it."""
        number = int_value(dim)
        if number is not None:
            return number
        assert isinstance(dim, Expr)
        return {"size": self.row_of(dim)}

    def knows(self, dim: Dim) -> bool:
        """True when everything a size is made of is decided by an input or by data."""
        return not isinstance(dim, Expr) or all(v in self._index for v in free_vars(dim))

    def _row(self, size: Expr, row: Json) -> int:
        self._index[size] = len(self.rows)
        self.rows.append(row)
        return self._index[size]

    def row_of(self, size: Expr) -> int:
        """Return the row that holds a size, which is added where there is none."""
        for part in _parts_of(size):
            if part not in self._index:
                self._add(part)
        return self._index[size]

    def _add(self, size: Expr) -> None:
        found = _operation(size)
        if found is None:
            raise InternalError(f"no input decides the size {size}")
        op, a, b = found
        self._row(size, {"op": op, "a": self.refer(a), "b": self.refer(b)})


def _operation(size: Dim) -> tuple[str, Expr, Expr] | None:
    """Return the operation of a plan that a size is the result of, and its operands."""
    if isinstance(size, Select):
        return BROADCAST, size.other, size.then
    if isinstance(size, Binary) and size.op in OPERATIONS:
        return size.op, size.a, size.b
    return None


def _parts_of(size: Expr) -> list[Expr]:
    """Return the distinct symbols and results of operations in a size, operands before users."""
    found: dict[Expr, None] = {}
    stack = [size]
    while stack:
        operands = () if stack[-1] in found else (_operation(stack[-1]) or ("",))[1:]
        waiting = [p for p in operands if p not in found and int_value(p) is None]
        if waiting:
            stack += reversed(waiting)
        else:
            found[stack.pop()] = None
    return list(found)


def size_to_json(size: Dim, symbols: Sequence[Var]) -> object:
    """Return a size over `symbols` as a `Formula`: as JSON."""
    if isinstance(size, int):
        return size
    parts = Parts("%{}", _DEEP)
    (short,) = parts.shorten([size])
    numbers = {name: k for k, (name, _) in enumerate(parts.values)}
    written = [_tree(part, symbols, numbers) for part in [*(v for _, v in parts.values), short]]
    return ["let", *written] if numbers else written[0]


def _tree(size: Expr, symbols: Sequence[Var], parts: Mapping[Var, int]) -> object:
    number = int_value(size)
    if number is not None:
        return number
    if isinstance(size, Var):
        return ["part", parts[size]] if size in parts else ["size", symbols.index(size)]
    found = _operation(size)
    if found is None:
        raise InternalError(f"the size {size} is not made of sums, products and quotients")
    op, a, b = found
    return [op, _tree(a, symbols, parts), _tree(b, symbols, parts)]


def can_tell(size: Dim, symbols: Sequence[Var]) -> bool:
    """True when `size_to_json` can write a size over `symbols`."""
    if isinstance(size, int):
        return True
    return all(
        part in symbols if isinstance(part, Var) else _operation(part) is not None
        for part in _parts_of(size)
        if int_value(part) is None
    )


def sizes_of_run(
    rows: Sequence[Mapping[str, object]], shapes: Sequence[Sequence[int]]
) -> list[int | None]:
    """Return the sizes of a plan's table for inputs of given shapes; None where data decides."""
    found: list[int | None] = []
    for row in rows:
        if "input" in row:
            found.append(shapes[int(str(row["input"]))][int(str(row["axis"]))])
        elif "op" in row:
            parts = [found[p["size"]] if isinstance(p, dict) else p for p in (row["a"], row["b"])]
            data = [row["op"], ["size", 0], ["size", 1]]
            found.append(number_of(data, [None if p is None else int(str(p)) for p in parts]))
        else:
            found.append(None)
    return found


def number_of(data: object, sizes: Sequence[int | None]) -> int | None:
    """Return the number `size_to_json` wrote for sizes in its order; None where one is unknown."""

    def applied(name: str, a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else int_value(_applied(name, a, b))

    return evaluate(_formula(data), lambda number: number, lambda k: sizes[k], applied)


def size_from_json(data: object, symbols: Sequence[Dim]) -> Dim:
    """Return the size that `size_to_json` wrote, over other symbols in the same order."""
    return evaluate(_formula(data), lambda number: number, lambda k: symbols[k], _applied)


def _formula(data: object) -> Formula:
    return cast(Formula, data) if isinstance(data, list) else int(str(data))


def _applied(name: str, a: Dim, b: Dim) -> Dim:
    if name == BROADCAST:
        return taken_dim(a, b)
    return normal_size(binary(cast(BinaryOp, name), convert(a), convert(b)))
