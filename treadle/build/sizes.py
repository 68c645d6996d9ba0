# SPDX-License-Identifier: Apache-2.0
"""Sizes as data: the plan's table of sizes that each run decides, and sizes of cached kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.errors import InternalError
from treadle.expr.nodes import Binary, Const, Expr, Select, Var, binary, int_value
from treadle.expr.traversal import free_vars
from treadle.graph.broadcasting import taken_dim
from treadle.graph.types import Dim, normal_size

Json = dict[str, object]

OPERATIONS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")
"""The arithmetic a plan can do with sizes."""

BROADCAST = "broadcast"
"""a, or b where a is 1: the selects among sizes (`treadle.graph.broadcasting`)."""


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
        if size in self._index:
            return self._index[size]
        found = _operation(size)
        if found is None:
            raise InternalError(f"no input decides the size {size}")
        op, a, b = found
        return self._row(size, {"op": op, "a": self.refer(a), "b": self.refer(b)})


def _operation(size: Dim) -> tuple[str, Expr, Expr] | None:
    """Return the operation of a plan that a size is the result of, and its operands."""
    if isinstance(size, Select):
        return BROADCAST, size.other, size.then
    if isinstance(size, Binary) and size.op in OPERATIONS:
        return size.op, size.a, size.b
    return None


def size_to_json(size: Dim, symbols: Sequence[Var]) -> object:
    """Return a size over `symbols` as JSON: a number, ["size", k], or [operation, a, b]."""
    number = int_value(size)
    if number is not None:
        return number
    if isinstance(size, Var):
        return ["size", symbols.index(size)]
    found = _operation(size)
    if found is not None:
        op, a, b = found
        return [op, size_to_json(a, symbols), size_to_json(b, symbols)]
    raise InternalError(f"the size {size} is not made of sums, products and quotients")


def can_tell(size: Dim, symbols: Sequence[Var]) -> bool:
    """True when `size_to_json` can write a size over `symbols`."""
    if int_value(size) is not None:
        return True
    if isinstance(size, Var):
        return size in symbols
    found = _operation(size)
    return found is not None and all(can_tell(part, symbols) for part in found[1:])


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
            data = [row["op"], *(["size", k] for k in range(2))]
            found.append(number_of(data, [None if p is None else int(str(p)) for p in parts]))
        else:
            found.append(None)
    return found


def number_of(data: object, sizes: Sequence[int | None]) -> int | None:
    """Return the number `size_to_json` wrote for sizes in its order; None where one is unknown."""
    known = [Const.of(0 if size is None else size) for size in sizes]
    if any(size is None and _uses(data, k) for k, size in enumerate(sizes)):
        return None
    return int_value(size_from_json(data, known))


def _uses(data: object, size: int) -> bool:
    return isinstance(data, list) and (
        data == ["size", size] if data[0] == "size" else any(_uses(d, size) for d in data[1:])
    )


def size_from_json(data: object, symbols: Sequence[Var | Const]) -> Dim:
    """Return the size that `size_to_json` wrote, over other symbols in the same order."""
    if not isinstance(data, list):
        return int(str(data))
    if data[0] == "size":
        return symbols[data[1]]
    a, b = (size_from_json(d, symbols) for d in data[1:])
    return taken_dim(a, b) if data[0] == BROADCAST else normal_size(binary(data[0], a, b))
