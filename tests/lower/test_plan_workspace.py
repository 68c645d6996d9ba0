# SPDX-License-Identifier: Apache-2.0
"""Shared buffers of a kernel lie in one workspace; those alive at once never overlap."""

from __future__ import annotations

import random

import pytest

from treadle.dtype import itemsize
from treadle.expr.conditions import all_of
from treadle.expr.nodes import Const, Var, binary, int_value, load, minimum
from treadle.expr.simplify import simplify
from treadle.expr.traversal import substitute
from treadle.loop.nodes import Allocate, Buffer, For, If, PrimFunc, Stmt, Store, seq, shape_of
from treadle.lower.plan_workspace import plan_workspace

OUT = Buffer("out", "float32", shape_of(1))
ZERO = Const.of(0)
DTYPES = ("float32", "int8", "float64")


def shared(name: str, count: int, dtype: str = "float32") -> Buffer:
    return Buffer(name, dtype, shape_of(count), "workspace")


def use(buffer: Buffer) -> Stmt:
    return Store(buffer, (ZERO,), load(buffer, (ZERO,)))


def kernel(buffers: list[Buffer], *stmts: Stmt) -> PrimFunc:
    body = seq(*stmts)
    for buffer in buffers:
        body = Allocate(buffer, body)
    return PrimFunc("f", (OUT,), (), body)


def offsets_of(f: PrimFunc) -> dict[str, int]:
    found = f.attrs["workspace_offsets"]
    assert isinstance(found, dict)
    return found


def nbytes(buffer: Buffer) -> int:
    count = int_value(buffer.shape[0])
    assert count is not None
    return count * itemsize(buffer.dtype)


def test_lives_that_do_not_meet_share_memory() -> None:
    a, b = shared("a", 100), shared("b", 50)
    planned = plan_workspace(kernel([a, b], use(a), use(b)))
    assert offsets_of(planned) == {"a": 0, "b": 0}
    assert planned.workspace_bytes == 448
    planned = plan_workspace(kernel([a, b], use(a), use(b), use(a)))
    assert offsets_of(planned) == {"a": 0, "b": 448}
    assert planned.workspace_bytes == 448 + 256


def test_a_kernel_without_shared_buffers_is_left_alone() -> None:
    f = kernel([Buffer("l", "float32", shape_of(3), "local")], use(OUT))
    assert plan_workspace(f) is f


def test_a_buffer_inside_a_loop_lives_throughout() -> None:
    a, b = shared("a", 16), shared("b", 16)
    inside = For(Var("i"), Const.of(3), "serial", Allocate(b, use(b)))
    planned = plan_workspace(kernel([a], use(a), inside))
    assert sorted(offsets_of(planned).values()) == [0, 64]


def test_buffers_of_symbolic_size_follow_each_other() -> None:
    n = Var("n")
    one, four = (Buffer(f"t{k}", "float32", (n * k,), "workspace") for k in (1, 4))
    f = kernel([four, one, shared("a", 5)], use(OUT))
    planned = plan_workspace(PrimFunc(f.name, f.params, (n,), f.body))
    places = {**offsets_of(planned), "end": planned.workspace_bytes}
    for size in (0, 1, 16, 17):
        known = {
            k: simplify(substitute(v + Const.of(0), {n: Const.of(size)})) for k, v in places.items()
        }
        first = 64 + -(-size * 4 // 64) * 64
        wanted = {"a": 0, "t1": 64, "t4": first, "end": first + -(-size * 16 // 64) * 64}
        assert {k: int_value(v) for k, v in known.items()} == wanted


def test_a_case_that_does_not_run_takes_no_memory() -> None:
    n, m = Var("n"), Var("m")
    one, two = (Buffer(f"t{k}", "float32", (n * k,), "workspace") for k in (1, 2))
    body = If(all_of([n <= 8, m < 4]), Allocate(one, use(one)), Allocate(two, use(two)))
    planned = plan_workspace(PrimFunc("f", (OUT,), (n, m), body))
    total = planned.workspace_bytes + Const.of(0)
    for sizes, wanted in (((8, 3), 64), ((8, 4), 64), ((9, 0), 128), ((16, 9), 128), ((0, 0), 0)):
        known = dict(zip((n, m), map(Const.of, sizes), strict=True))
        assert int_value(simplify(substitute(total, known))) == wanted


def sizes_of(planned: PrimFunc, known: dict[Var, int]) -> dict[str, int | None]:
    """Return offsets, and the bytes of the workspace as "end", for sizes."""
    constants = {v: Const.of(size) for v, size in known.items()}
    found = {**offsets_of(planned), "end": planned.workspace_bytes}
    return {
        k: int_value(simplify(substitute(v + Const.of(0), constants))) for k, v in found.items()
    }


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "ge"])
def test_a_buffer_of_two_cases_has_one_place(op: str) -> None:
    """As in the two bodies of a kernel whose broadcasts repeat nothing for most sizes."""
    n, m = Var("n"), Var("m")
    twice, other = Buffer("t", "float32", (n,), "workspace"), shared("u", 4)
    narrow = Buffer("t", "float32", (minimum(n, m),), "workspace")
    for then in (twice, narrow):
        body = If(binary(op, n, m), Allocate(then, use(then)), Allocate(twice, use(twice)))
        planned = plan_workspace(
            PrimFunc("f", (OUT,), (n, m), Allocate(other, seq(use(other), body)))
        )
        for size, wanted in ((2, 64), (20, 128), (0, 0)):
            for against in (size, size + 1):
                places = sizes_of(planned, {n: size, m: against})
                assert (places["u"], places["t"], places["end"]) == (0, 64, 64 + wanted)


def test_a_buffer_of_a_case_of_fixed_size_has_room_there() -> None:
    """Conditions may make its size a number in one of the cases."""
    n = Var("n")
    fixed, open_ = shared("t", 40), Buffer("t", "float32", (n * 40,), "workspace")
    body = If(n <= 1, Allocate(fixed, use(fixed)), Allocate(open_, use(open_)))
    planned = plan_workspace(PrimFunc("f", (OUT,), (n,), body))
    assert sizes_of(planned, {n: 1}) == {"t": 0, "end": 192}
    assert sizes_of(planned, {n: 2}) == {"t": 0, "end": 320}


def test_a_buffer_allocated_twice_has_room_for_the_larger() -> None:
    small, large = shared("t", 4), shared("t", 40)
    planned = plan_workspace(kernel([], Allocate(small, use(small)), Allocate(large, use(large))))
    assert (offsets_of(planned)["t"], planned.workspace_bytes) == (0, 192)


@pytest.mark.parametrize("seed", range(60))
def test_random_lives_do_not_overlap(seed: int) -> None:
    chance = random.Random(seed)
    buffers = [
        shared(f"b{k}", chance.randint(1, 300), chance.choice(DTYPES))
        for k in range(chance.randint(1, 12))
    ]
    uses = [chance.choice(buffers) for _ in range(chance.randint(1, 25))]
    planned = plan_workspace(kernel(buffers, *map(use, uses)))
    offsets = offsets_of(planned)
    lives = {b.name: [i for i, u in enumerate(uses) if u is b] for b in buffers}
    for b in buffers:
        assert offsets[b.name] % 64 == 0
        assert offsets[b.name] + nbytes(b) <= planned.workspace_bytes
    for i, a in enumerate(buffers):
        for b in buffers[:i]:
            x, y = lives[a.name], lives[b.name]
            if x and y and x[0] <= y[-1] and y[0] <= x[-1]:
                low, high = sorted((a, b), key=lambda v: offsets[v.name])
                assert offsets[low.name] + nbytes(low) <= offsets[high.name]
    most = max(
        sum(-(-nbytes(b) // 64) * 64 for b in buffers if lives[b.name] and
            lives[b.name][0] <= t <= lives[b.name][-1])
        for t in range(len(uses))
    )  # fmt: skip
    assert planned.workspace_bytes >= most
