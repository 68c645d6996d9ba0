# SPDX-License-Identifier: Apache-2.0
"""Take a lowered kernel for a GPU apart: the functions that the device runs, in their order.

before: for i in thread(4, "blockIdx.x"): for j in thread(64, "threadIdx.x"): B[...] = f(A)
        for i in thread(n, "blockIdx.x"): for j in thread(32, "threadIdx.x"): C[...] = g(B)
after:  k_1(A, B) by 4 blocks of 64 threads   then   k_2(B, C) by n blocks of 32 threads
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from treadle.errors import InternalError, ScheduleError
from treadle.expr.conditions import as_number
from treadle.expr.nodes import Const, Expr, Load, Var, call, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import free_vars, walk
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, For, If, Let, PrimFunc, Seq, Stmt, Store
from treadle.lower.host_statements import is_of_host, thread_loops

Extents = tuple[Expr, Expr, Expr]

GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
BLOCK = ("threadIdx.x", "threadIdx.y", "threadIdx.z")

_ONE: Expr = Const.of(1)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceFunction:
    """A function that the threads of a GPU run together.

    `params` are the parameters of the kernel that it uses, by their numbers there; `workspace`
    what it uses of the memory that the caller lends; `sizes` the sizes it reads. `grid` may depend
    on all sizes of the kernel: where one of its extents is 0, nothing is launched. `result` is the
    first buffer it writes.
    """

    name: str
    body: Stmt
    params: Mapping[int, Buffer]
    workspace: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    grid: Extents
    block: tuple[int, int, int]
    result: str


def split_launches(func: PrimFunc) -> list[DeviceFunction]:
    """Return the device functions of a lowered kernel; of several the names are numbered.

    Raises:
        ScheduleError: a buffer is written by threads that do not differ in what they write.
    """
    found = list(_launches(func.body, func, _ONE))
    names = [func.name] if len(found) == 1 else [f"{func.name}_{k + 1}" for k in range(len(found))]
    return [_device_function(n, s, func, t) for n, (s, t) in zip(names, found, strict=True)]


def _launches(s: Stmt, func: PrimFunc, runs: Expr) -> Iterator[tuple[Stmt, Expr]]:
    """Yield each launch with 1 for sizes for which it runs, 0 for others."""
    if not is_of_host(s, func.sizes):
        yield s, runs
    elif isinstance(s, Seq):
        for part in s.stmts:
            yield from _launches(part, func, runs)
    elif isinstance(s, Allocate):
        yield from _launches(s.body, func, runs)
    elif isinstance(s, Let):
        yield from _launches(lp.substitute(s.body, {s.var: s.value}), func, runs)
    elif isinstance(s, If):
        holds, fails = as_number(s.cond), as_number(call("not", s.cond))
        assert holds is not None
        assert fails is not None
        yield from _launches(s.then, func, runs * holds)
        if s.orelse is not None:
            yield from _launches(s.orelse, func, runs * fails)


def _device_function(name: str, s: Stmt, func: PrimFunc, runs: Expr) -> DeviceFunction:
    extents = _extents(s, func)
    _check_stores(s, func, {t for t, e in extents.items() if int_value(e) != 1})
    used, variables = _used(s)
    variables |= {v for b in used.values() for v in _offset_sizes(func, b)}
    numbers = {id(p): k for k, p in enumerate(func.params)}
    own = {id(x.buffer) for x in lp.walk_stmts(s) if isinstance(x, Allocate)}
    lent = [b for b in used.values() if b.scope == "workspace"]
    params = {numbers[k]: b for k, b in used.items() if k in numbers}
    for key, b in used.items():
        if key not in numbers and key not in own and b.scope != "workspace":
            raise InternalError(f"{b.name} is used outside of its launch", at=f"kernel {func.name}")
    grid = [extents.get(t, _ONE) for t in GRID]
    grid[0] = simplify(grid[0] * runs)
    block = [int_value(extents.get(t, _ONE)) for t in BLOCK]
    if None in block:
        raise ScheduleError(
            "the number of threads in a block depends on sizes that a run decides",
            at=f"kernel {func.name}",
            hint="split by a constant factor, and bind the inner loop to threads",
        )
    return DeviceFunction(
        name=name,
        body=s,
        params=dict(sorted(params.items())),
        workspace=tuple(lent),
        sizes=tuple(v for v in func.sizes if v in variables),
        grid=(grid[0], grid[1], grid[2]),
        block=(block[0] or 1, block[1] or 1, block[2] or 1),
        result=next(_seen(s), ""),
    )


def _offset_sizes(func: PrimFunc, buffer: Buffer) -> tuple[Var, ...]:
    """Return the sizes that decide where a buffer lies in the workspace."""
    offsets = func.attrs.get("workspace_offsets", {})
    offset = offsets.get(buffer.name) if isinstance(offsets, dict) else None
    return tuple(free_vars(offset)) if isinstance(offset, Expr) else ()


def _seen(s: Stmt) -> Iterator[str]:
    """Yield the names of the buffers that a launch writes for others."""
    for x in lp.walk_stmts(s):
        if isinstance(x, Store) and x.buffer.scope in ("global", "workspace"):
            yield x.buffer.name


def _extents(s: Stmt, func: PrimFunc) -> dict[str, Expr]:
    """Return how long each hardware axis of a launch is."""
    found: dict[str, Expr] = {}
    for loop in thread_loops(s):
        if loop.thread not in (*GRID, *BLOCK):
            raise ScheduleError(
                f"loop {loop.var} is bound to {loop.thread}, which a GPU does not have",
                at=f"kernel {func.name}",
                hint=f"bind it to one of {', '.join((*GRID, *BLOCK))}",
            )
        if found.setdefault(loop.thread, loop.extent) is not loop.extent:
            raise InternalError(f"{loop.thread} has two extents", at=f"kernel {func.name}")
        unknown = [v for v in free_vars(loop.extent) if v not in func.sizes]
        if unknown:
            raise ScheduleError(
                f"the extent of {loop.thread} depends on {unknown[0]}, a loop around it",
                at=f"kernel {func.name}",
                hint="bind axes whose extents are known before the launch",
            )
    return found


def _check_stores(s: Stmt, func: PrimFunc, tags: set[str], around: frozenset[str] = frozenset()
                  ) -> None:  # fmt: skip
    """Raise ScheduleError where threads that differ in a hardware index write the same place."""
    if isinstance(s, Store):
        needed = {t for t in tags if s.buffer.scope != "shared" or t in BLOCK}
        missing = sorted(needed - around) if s.buffer.scope != "local" else []
        if missing:
            raise ScheduleError(
                f"every thread along {missing[0]} would write all of {s.buffer.name}",
                at=f"kernel {func.name}",
                hint=f"bind a loop of that stage to {missing[0]}, too",
            )
    inside = around | {s.thread} if isinstance(s, For) and s.kind == "thread" else around
    for part in lp.sub_stmts(s):
        _check_stores(part, func, tags, inside)


def _used(s: Stmt) -> tuple[dict[int, Buffer], set[Var]]:
    """Return the buffers and variables that a launch reads or writes."""
    buffers: dict[int, Buffer] = {}
    variables: set[Var] = set()
    for x in lp.walk_stmts(s):
        if isinstance(x, Store):
            buffers.setdefault(id(x.buffer), x.buffer)
        is_index = isinstance(x, For) and x.kind == "thread"  # the host alone asks for its extent
        for n in (n for e in (() if is_index else lp.stmt_exprs(x)) for n in walk(e)):
            if isinstance(n, Load) and isinstance(n.source, Buffer):
                buffers.setdefault(id(n.source), n.source)
            elif isinstance(n, Var):
                variables.add(n)
    return buffers, variables
