# SPDX-License-Identifier: Apache-2.0
"""Facts about expressions and statements that the LLVM generator asks for again and again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from treadle.dtype import is_integer
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.conditions import all_of, conjuncts
from treadle.expr.nodes import Binary, Broadcast, Const, Expr, Load, Ramp, Select, Var
from treadle.expr.traversal import loads, uses, walk
from treadle.expr.vocabulary import BinaryOp
from treadle.loop.nodes import (
    Allocate,
    Buffer,
    For,
    Let,
    Prefetch,
    Stmt,
    Store,
    stmt_exprs,
    sub_stmts,
    walk_stmts,
)

_MOST_MULTIPLE = 64
_DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod", "div"})


def buffer_of(source: object) -> Buffer:
    """Return the loop-level buffer a load reads."""
    if not isinstance(source, Buffer):
        raise InternalError(f"a load of {source!r} reaches code generation unlowered")
    return source


def flat_size(buffer: Buffer) -> int | None:
    """Return the number of elements of a buffer, None when it is symbolic."""
    total = 1
    for extent in buffer.shape:
        value = ex.int_value(extent)
        if value is None:
            return None
        total *= value
    return total


class Facts:
    """Memoised questions about expressions: may it trap, and which buffers does it read."""

    def __init__(self) -> None:
        self._hazards: dict[Expr, bool] = {}
        self._reads: dict[frozenset[object], frozenset[int]] = {}
        self._multiples: dict[Expr, int] = {}

    def has_hazard(self, e: Expr) -> bool:
        """True when evaluating `e` needlessly could trap: it loads, or divides integers."""
        hazards = self._hazards
        if e not in hazards:
            is_next = all(c in hazards for c in e.children)
            for node in [e] if is_next else walk(e):
                if node not in hazards:
                    hazards[node] = any(hazards[c] for c in node.children) or _is_hazard(node)
        return hazards[e]

    def multiple_of(self, index: Expr) -> int:
        """Return a power of two, at most `_MOST_MULTIPLE`, of which an index is a multiple."""
        if index not in self._multiples:
            for node in walk(index):
                if node not in self._multiples:
                    self._multiples[node] = self._multiple_of(node)
        return self._multiples[index]

    def _multiple_of(self, node: Expr) -> int:
        if isinstance(node, Const):
            value = int(node.value) | _MOST_MULTIPLE
            return value & -value
        if not isinstance(node, Binary) or node.op not in ("add", "sub", "mul"):
            return 1
        a, b = self._multiples[node.a], self._multiples[node.b]
        return min(a * b, _MOST_MULTIPLE) if node.op == "mul" else min(a, b)

    def within_vector(self, index: Expr, buffer: Buffer) -> tuple[Expr, tuple[int, ...]] | None:
        """Return where lanes lie that are all in one vector of as many, as (base, places).

        That vector lies in the buffer: both begin and end at multiples of its length. None where
        the lanes may lie in several.
        """
        parts = place_parts(index)
        if parts is None:
            return None
        base, places = in_whole_vectors(*parts)
        whole = any(self.multiple_of(d) % index.lanes == 0 for d in buffer.shape)
        begins = self.multiple_of(base) % index.lanes == 0
        is_inside = min(places) >= 0 and max(places) < index.lanes
        return (base, places) if whole and begins and is_inside else None

    def reads(self, e: Expr) -> frozenset[int]:
        """Return the ids of the buffers that `e` reads."""
        inside = e.leaves
        found = self._reads.get(inside)
        if found is None:
            found = frozenset(id(leaf) for leaf in inside if not isinstance(leaf, Var))
            self._reads[inside] = found
        return found


def _is_hazard(node: Expr) -> bool:
    if isinstance(node, Load):
        return not _is_inside(node)
    if isinstance(node, Binary) and node.op in _DIVISIONS and is_integer(node.dtype):
        divisor = node.b.value if isinstance(node.b, Broadcast) else node.b
        return not (isinstance(divisor, Const) and divisor.value != 0)
    return False


def _is_inside(node: Load) -> bool:
    """True for a load at a constant place inside its buffer."""
    index, size = node.indices[0], flat_size(buffer_of(node.source))
    first, step = ex.int_value(index), 0
    if isinstance(index, Ramp) and isinstance(index.stride, Const):
        first, step = ex.int_value(index.base), int(index.stride.value)
    if first is None or size is None:
        return False
    last = first + step * (node.lanes - 1)
    return min(first, last) >= 0 and max(first, last) < size


def stored_buffers(stmt: Stmt) -> dict[int, Buffer]:
    """Return the buffers a statement writes, by id, in order of first use."""
    found: dict[int, Buffer] = {}
    for s in walk_stmts(stmt):
        if isinstance(s, Store):
            found.setdefault(id(s.buffer), s.buffer)
    return found


def sums_in_memory(stmt: Stmt) -> bool:
    """True where a loop adds to the same elements again and again, which have no registers.

    LLVM keeps the elements of a local buffer in registers where all places are constants.
    """
    sums: dict[int, Buffer] = {}
    others: list[Stmt] = []

    def visit(s: Stmt, loop: Var | None) -> None:
        if isinstance(s, Store) and uses(s.value, s.buffer):
            if loop is not None and not uses(s.indices[0], loop):
                sums[id(s.buffer)] = s.buffer
                if not _is_fixed(s.indices[0]):
                    moving.add(id(s.buffer))
        else:
            others.append(s)
            for child in sub_stmts(s):
                visit(child, s.var if isinstance(s, For) else loop)

    moving: set[int] = set()
    visit(stmt, None)
    for root in (e for s in others if sums for e in stmt_exprs(s)):
        if not sums.keys().isdisjoint(map(id, root.leaves)):
            moving.update(id(e.source) for e in loads(root) if not _is_fixed(e.indices[0]))
    return any(b.scope != "local" or key in moving for key, b in sums.items())


def _is_fixed(index: Expr) -> bool:
    return isinstance(index.base if isinstance(index, Ramp) else index, Const)


def captures(stmt: Stmt) -> tuple[list[Buffer], list[Var]]:
    """Return the buffers and variables a statement uses but does not define, in order of use.

    Workspace buffers count as defined outside: their place is known from the start.
    """
    buffers: dict[int, Buffer] = {}
    variables: dict[Var, None] = {}
    inner_buffers: set[int] = set()
    inner_vars: set[Var] = set()
    seen: set[object] = set()
    for s in walk_stmts(stmt):
        if isinstance(s, Allocate) and s.buffer.scope != "workspace":
            inner_buffers.add(id(s.buffer))
        if isinstance(s, (For, Let)):
            inner_vars.add(s.var)
        if isinstance(s, (Store, Prefetch)):
            buffers.setdefault(id(s.buffer), s.buffer)
        for root in stmt_exprs(s):
            inside = root.leaves
            for node in walk(root) if not inside <= seen else ():
                if isinstance(node, Load):
                    source = buffer_of(node.source)
                    buffers.setdefault(id(source), source)
                elif isinstance(node, Var):
                    variables.setdefault(node)
            seen |= inside
    outer = [b for key, b in buffers.items() if key not in inner_buffers]
    return outer, [v for v in variables if v not in inner_vars]


def linear_parts(index: Expr) -> tuple[Expr, Expr] | None:
    """Return (base, stride) of a vector index that is base + stride * lane, else None."""
    if isinstance(index, Ramp):
        return index.base, index.stride
    if isinstance(index, Broadcast):
        return index.value, Const.of(0)
    if not isinstance(index, Binary) or index.op not in ("add", "sub", "mul"):
        return None
    a, b = linear_parts(index.a), linear_parts(index.b)
    if a is None or b is None:
        return None
    if index.op == "mul":
        if ex.int_value(a[1]) != 0:
            a, b = b, a
        if ex.int_value(a[1]) != 0:
            return None
        return _fold("mul", a[0], b[0]), _fold("mul", a[0], b[1])
    return _fold(index.op, a[0], b[0]), _fold(index.op, a[1], b[1])


def place_parts(index: Expr) -> tuple[Expr, tuple[int, ...]] | None:
    """Return (base, places) of a vector index that is base + places[lane], numbers; else None.

    Divisions of lanes by numbers count: lane // 4 * 4 is 0, 0, 0, 0, 4, 4, ...
    """
    lanes = index.lanes
    parts = linear_parts(index)
    if parts is not None:
        stride = ex.int_value(parts[1])
        return None if stride is None else (parts[0], tuple(stride * k for k in range(lanes)))
    if not isinstance(index, Binary) or index.op not in _OF_LANES:
        return None
    a, b = place_parts(index.a), place_parts(index.b)
    if a is None or b is None:
        return None
    of = _OF_LANES[index.op]
    if index.op in ("add", "sub"):
        return _fold(index.op, a[0], b[0]), tuple(map(of, a[1], b[1]))
    x, y = ex.int_value(a[0]), ex.int_value(b[0])
    if x is None or y is None or (index.op != "mul" and y + min(b[1]) <= 0):
        return None
    return Const.of(0), tuple(of(x + p, y + q) for p, q in zip(a[1], b[1], strict=True))


def in_whole_vectors(base: Expr, places: tuple[int, ...]) -> tuple[Expr, tuple[int, ...]]:
    """Return (base, places) with what the base is past a multiple of the lanes in the places."""
    total = decompose(base)
    past = total.const % len(places)
    rest = total.like(total.terms, total.const - past).to_expr() if past else base
    return rest, tuple(past + p for p in places)


_OF_LANES: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "floormod": operator.mod,
}  # fmt: skip


def _fold(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    x, y = ex.int_value(a), ex.int_value(b)
    if x is not None and y is not None:
        return Const.of(x + y if op == "add" else x - y if op == "sub" else x * y)
    if op == "mul" and (x == 0 or y == 0):
        return Const.of(0)
    if y == (1 if op == "mul" else 0):
        return a
    if x == (1 if op == "mul" else 0) and op != "sub":
        return b
    return ex.binary(op, a, b)


def apart(cond: Expr) -> tuple[Expr | None, Expr | None]:
    """Return what a condition asks of all lanes alike, as a scalar, and what of each; or None.

    Their conjunction is the condition.
    """
    alike: list[Expr] = []
    each: list[Expr] = []
    for part in conjuncts(cond):
        scalar = scalar_of(part)
        if scalar is None:
            each.append(part)
        else:
            alike.append(scalar)
    return all_of(alike) if alike else None, all_of(each) if each else None


def scalar_of(e: Expr) -> Expr | None:
    """Return the scalar every lane of a vector condition equals, None where lanes may differ."""
    if e.lanes == 1:
        return e
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, Binary):
        a, b = scalar_of(e.a), scalar_of(e.b)
        return None if a is None or b is None else ex.binary(e.op, a, b)
    if isinstance(e, ex.Call) and e.name == "not":
        inner = scalar_of(e.args[0])
        return None if inner is None else ex.call("not", inner)
    if isinstance(e, Select):
        parts = [scalar_of(c) for c in e.children]
        if any(p is None for p in parts):
            return None
        return ex.select(*parts, lazy=e.lazy)  # type: ignore[arg-type]  # none is None
    return None
