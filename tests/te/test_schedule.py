# SPDX-License-Identifier: Apache-2.0
"""Every schedule primitive: its steps, the loops before and after, and that nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import treadle
from tests.conftest import Golden
from tests.te.round_trip import check_again
from tests.te.scripts import check, matrix_product
from treadle import te
from treadle.loop import nodes as lp
from treadle.loop.from_schedule import schedule_to_func
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule
from treadle.te.steps import Step


@dataclass
class Example:
    """A one-stage graph, C = A * 2 + 1 over [m, n], with its axes at hand."""

    schedule: Schedule
    args: list[Tensor]

    @property
    def stage(self) -> treadle.te.Stage:
        return self.schedule[self.args[-1]]

    @property
    def i(self) -> te.IterVar:
        return self.stage.op.axis[0]

    @property
    def j(self) -> te.IterVar:
        return self.stage.op.axis[1]


def simple(m: int = 10, n: int = 20) -> Example:
    a = te.placeholder((m, n), name="A")
    c = te.compute((m, n), lambda i, j: a[i, j] * 2.0 + 1.0, name="C")
    return Example(te.create_schedule(c.op), [a, c])


def chain(m: int = 10, n: int = 20) -> tuple[Example, Tensor]:
    """B = A + 1; C = blur of B along the second axis."""
    a = te.placeholder((m, n + 2), name="A")
    b = te.compute((m, n + 2), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((m, n), lambda i, j: b[i, j] + b[i, j + 1] + b[i, j + 2], name="C")
    return Example(te.create_schedule(c.op), [a, c]), b


def product(m: int = 6, n: int = 16, k: int = 10) -> Example:
    a, b, c = matrix_product(m, n, k)
    return Example(te.create_schedule(c.op), [a, b, c])


def split_by_factor() -> Example:
    e = simple()
    e.stage.split(e.j, factor=8)
    return e


def split_in_parts() -> Example:
    e = simple()
    e.stage.split(e.i, nparts=3)
    return e


def split_of_a_split() -> Example:
    e = simple(1, 130)
    outer, _ = e.stage.split(e.j, factor=16)
    e.stage.split(outer, factor=4)
    return e


def fuse() -> Example:
    e = simple()
    e.stage.fuse(e.i, e.j)
    return e


def fuse_by_name() -> Example:
    e = product()
    i, j, _ = e.stage.leaf_iter_vars
    outer, inner = e.stage.split(j, nparts=2)
    e.stage.reorder(i, outer, inner)
    e.stage.parallel(e.stage.fuse(i, outer, inner, name="task"))
    return e


def fuse_and_split() -> Example:
    e = simple()
    e.stage.split(e.stage.fuse(e.i, e.j), factor=32)
    return e


def reorder() -> Example:
    e = simple()
    e.stage.reorder(e.j, e.i)
    return e


def reorder_inner_before_outer() -> Example:
    e = simple()
    outer, inner = e.stage.split(e.j, factor=8)
    e.stage.reorder(inner, outer)
    return e


def tile() -> Example:
    e = simple()
    e.stage.tile(e.i, e.j, 4, 8)
    return e


def vectorize() -> Example:
    e = simple()
    _, inner = e.stage.split(e.j, factor=8)
    e.stage.vectorize(inner)
    return e


def unroll() -> Example:
    e = simple()
    _, inner = e.stage.split(e.j, factor=4)
    e.stage.unroll(inner)
    return e


def parallel() -> Example:
    e = simple()
    e.stage.parallel(e.i)
    return e


def pragma() -> Example:
    e = simple()
    e.stage.pragma(e.i, "note", 4)
    return e


def peel() -> Example:
    a = te.placeholder((10,), name="A")
    zero = te.const(0.0, "float32")
    c = te.compute(
        (14,), lambda i: te.if_then_else(te.all(i >= 2, i < 12), a[i - 2], zero), name="C"
    )
    e = Example(te.create_schedule(c.op), [a, c])
    e.stage.peel(e.i, 2, 12)
    e.stage.split(e.i, factor=5)
    return e


def compute_at() -> Example:
    e, b = chain()
    e.schedule[b].compute_at(e.stage, e.i)
    return e


def compute_at_a_tile() -> Example:
    e, b = chain()
    outer, _ = e.stage.split(e.j, factor=6)
    e.schedule[b].compute_at(e.stage, outer)
    return e


def store_at() -> Example:
    """The first tile of rows computes what all read."""
    e = product()
    copy = e.schedule.cache_read(e.args[1], "local", [e.args[2]])
    (k,) = e.stage.op.reduce_axis  # type: ignore[union-attr]
    outer, inner = e.stage.split(e.i, factor=4)
    column, lane = e.stage.split(e.j, factor=8)
    e.stage.reorder(column, outer, k, inner, lane)
    e.schedule[copy].compute_at(e.stage, k)
    e.schedule[copy].store_at(e.stage, column)
    return e


def compute_inline() -> Example:
    e, b = chain()
    e.schedule[b].compute_inline()
    return e


def compute_root() -> Example:
    e, b = chain()
    e.schedule[b].compute_inline()
    e.schedule[b].compute_root()
    return e


def set_scope() -> Example:
    e, b = chain(2, 4)
    e.schedule[b].set_scope("local")
    return e


def storage_align() -> Example:
    """Rows of 132 floats lie 140 apart."""
    e, b = chain(4, 130)
    stage = e.schedule[b]
    stage.storage_align(stage.op.axis[0], 32, 12)
    return e


def cache_read() -> Example:
    e = product()
    copy = e.schedule.cache_read(e.args[1], "local", [e.args[2]])
    e.schedule[copy].compute_at(e.stage, e.i)
    return e


def cache_write() -> Example:
    e = product()
    cache = e.schedule.cache_write(e.args[2], "local")
    outer, _ = e.stage.split(e.j, factor=8)
    e.schedule[cache].compute_at(e.stage, outer)
    return e


def rfactor() -> Example:
    a = te.placeholder((130,), name="A")
    k = te.reduce_axis((0, 130), "k")
    c = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(k, factor=16)
    partial = s.rfactor(c, inner)
    s[partial].reorder(s[partial].op.reduce_axis[0], s[partial].op.axis[0])
    s[partial].vectorize(s[partial].op.axis[0])
    return Example(s, [a, c])


def rfactor_of_the_whole_axis() -> Example:
    a = te.placeholder((3, 7), name="A")
    k = te.reduce_axis((0, 7), "k")
    c = te.compute((3,), lambda i: te.max(a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    s.rfactor(c, k, 1)
    return Example(s, [a, c])


def prefetch() -> Example:
    e = product(8, 40, 12)
    b, k = e.args[1], e.stage.op.reduce_axis[0]
    outer, inner = e.stage.split(e.j, factor=20)
    e.stage.reorder(e.i, outer, k, inner)
    e.stage.prefetch(b, k, 4)
    e.stage.prefetch(e.args[0], outer, 0)
    return e


def prefetch_spread() -> Example:
    """Of four rows of A a block of 16 steps later, a line in each of the first four steps."""
    e = product(4, 40, 64)
    k = e.stage.op.reduce_axis[0]
    outer, inner = e.stage.split(k, factor=16)
    e.stage.reorder(e.j, outer, inner, e.i)
    e.stage.prefetch(e.args[0], outer, 1, spread=inner)
    return e


def skip_outside() -> Example:
    """Zeros around the inside of A, which the window meets at both ends."""
    a = te.placeholder((12,), name="A")
    inside = te.compute(
        (20,),
        lambda i: te.if_then_else(te.all(i >= 4, i < 16), a[i - 4], 0.0),
        name="P",
    )
    w = te.placeholder((3,), name="W")
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((12,), lambda i: te.sum(inside[i + k * 4] * w[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].op.axis[0], factor=4)
    s[c].reorder(outer, k, inner)
    s[c].skip_outside(k, inside, 0, 4, 16)
    return Example(s, [a, w, c])


def skip_past() -> Example:
    """Twelve products of sixteen, the last four by zeros."""
    a = te.placeholder((5, 12), name="A")
    zeros = te.compute(
        (5, 4, 4),
        lambda i, b, c: te.if_then_else(b * 4 + c < 12, a[i, b * 4 + c], 0.0),
        name="P",
    )
    b = te.reduce_axis((0, 4), "b")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute((5,), lambda i: te.sum(zeros[i, b, k], axis=(b, k)), name="C")
    s = te.create_schedule(c.op)
    s[c].skip_past(k, (b, k), 12)
    return Example(s, [a, c])


def panels(columns: int = 40, width: int = 20) -> tuple[Example, Tensor]:
    """A product with the columns of B in panels, each in one run."""
    a = te.placeholder((8, 12), name="A")
    b = te.placeholder((columns // width, 12, width), name="B")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute(
        (8, columns),
        lambda i, j: te.sum(a[i, k] * b[j // width, k, j % width], axis=k),
        name="C",
    )
    return Example(te.create_schedule(c.op), [a, b, c]), b


def prefetch_panel() -> Example:
    """Four tiles of two rows share the next panel: five elements each per step."""
    e, b = panels()
    (k,) = e.stage.op.reduce_axis
    outer, inner = e.stage.split(e.j, factor=20)
    high, low = e.stage.split(e.i, factor=2)
    e.stage.reorder(outer, high, k, low, inner)
    e.stage.prefetch_panel(b, k, [e.j], step=20, tiles=[([e.i], 2)])
    return e


def prefetch_panels_side_by_side() -> Example:
    """Two tiles share the three panels that a tile of the next three meets."""
    a = te.placeholder((4, 8), name="A")
    b = te.placeholder((6, 8, 16), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((4, 6, 16), lambda i, p, j: te.sum(a[i, k] * b[p, k, j], axis=k), name="C")
    e = Example(te.create_schedule(c.op), [a, b, c])
    i, p, j = c.op.axis
    outer, inner = e.stage.split(p, factor=3)
    high, low = e.stage.split(i, factor=2)
    e.stage.reorder(outer, high, k, low, inner, j)
    e.stage.prefetch_panel(b, k, [p], step=3, tiles=[([i], 2)])
    return e


def prefetch_panel_once() -> Example:
    """Points follow one another, then the next columns: the first of those fetches A of a point."""
    a = te.placeholder((3, 4, 2, 16), name="A")
    b = te.placeholder((8, 16), name="B")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute(
        (3, 4, 2, 8),
        lambda x, y, i, j: te.sum(a[x, y, i, k] * b[j, k], axis=k),
        name="C",
    )
    e = Example(te.create_schedule(c.op), [a, b, c])
    x, y, i, j = c.op.axis
    outer, inner = e.stage.split(j, factor=4)
    e.stage.reorder(outer, x, y, k, i, inner)
    e.stage.prefetch_panel(a, k, [j, x, y], step=4, tiles=[([j], 4, 8)], once=True)
    return e


def trim() -> Example:
    """Sums of what a row sees: what lies later than one after its number is zero."""
    a = te.placeholder((10, 12), name="A")
    seen = te.compute((10, 12), lambda i, j: te.if_then_else(j <= i + 1, a[i, j], 0.0), name="seen")
    k = te.reduce_axis((0, 12), "k")
    sums = te.compute((10,), lambda i: te.sum(seen[i, k], axis=k), name="sums")
    c = te.compute((10,), lambda i: sums[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].op.axis[0], factor=4)
    for stage in (s[seen], s[sums]):
        stage.compute_at(s[c], outer)
    s[seen].trim(s[seen].op.axis[1], s[seen].op.axis[0], 1, 2)
    s[sums].trim(k, s[sums].op.axis[0], 1, 2)
    return Example(s, [a, c])


PRIMITIVES: list[Callable[[], Example]] = [
    split_by_factor, split_in_parts, split_of_a_split, fuse, fuse_and_split, reorder,
    reorder_inner_before_outer, tile, vectorize, unroll, parallel, pragma, peel, compute_at,
    compute_at_a_tile, store_at, compute_inline, compute_root, set_scope, storage_align, cache_read,
    cache_write, rfactor, rfactor_of_the_whole_axis, prefetch, prefetch_spread, prefetch_panel,
    prefetch_panels_side_by_side, prefetch_panel_once, skip_outside, skip_past, fuse_by_name,
    trim,
]  # fmt: skip


@pytest.mark.parametrize("make", PRIMITIVES, ids=lambda f: f.__name__)
def test_primitive(make: Callable[[], Example], golden: Golden) -> None:
    example = make()
    plain = te.create_schedule([t.op for t in example.args if isinstance(t.op, te.ComputeOp)])
    before = treadle.lower(plain, example.args, name="before")
    after = treadle.lower(example.schedule, example.args, name="after")
    text = f"{example.schedule.as_python()}\n\n{before}\n{after}"
    golden.check(f"schedule_{make.__name__}.txt", text)
    check_again(example.schedule, example.args)
    check(example.schedule, example.args)


def test_bind_names_a_hardware_axis() -> None:
    e = simple()
    thread = te.thread_axis((0, 10), "blockIdx.x")
    e.stage.bind(e.i, thread)
    assert e.schedule.as_python().endswith('s[C].bind(i, te.thread_axis((0, 10), "blockIdx.x"))')
    check_again(e.schedule, e.args)
    assert 'thread(10, "blockIdx.x")' in str(treadle.lower(e.schedule, e.args))


# -- errors --------------------------------------------------------------------------------------


def foreign_axis(e: Example) -> None:
    e.stage.split(simple().i, factor=2)


def vectorize_a_foreign_axis(e: Example) -> None:
    e.stage.vectorize(simple().i)


def split_twice(e: Example) -> None:
    e.stage.split(e.j, factor=4)
    e.stage.split(e.j, factor=4)


def split_by_nothing(e: Example) -> None:
    e.stage.split(e.i)


def split_by_zero(e: Example) -> None:
    e.stage.split(e.i, factor=0)


def split_in_negative_parts(e: Example) -> None:
    e.stage.split(e.i, nparts=-2)


def align_an_output(e: Example) -> None:
    e.stage.storage_align(e.i, 16)


def align_by_more_than_the_factor(_: Example) -> None:
    e, b = chain()
    e.schedule[b].storage_align(e.schedule[b].op.axis[0], 16, 16)


def align_a_part_of_an_axis(_: Example) -> None:
    e, b = chain()
    outer, _ = e.schedule[b].split(e.schedule[b].op.axis[1], factor=2)
    e.schedule[b].storage_align(outer, 16)


def spread_over_a_loop_outside(_: Example) -> None:
    e = product()
    e.stage.prefetch(e.args[0], e.j, 1, spread=e.i)


def fuse_nothing(e: Example) -> None:
    e.stage.fuse()


def fuse_backwards(e: Example) -> None:
    e.stage.fuse(e.j, e.i)


def reorder_twice(e: Example) -> None:
    e.stage.reorder(e.i, e.i)


def bind_to_data(e: Example) -> None:
    e.stage.bind(e.i, e.j)


def peel_outside(e: Example) -> None:
    e.stage.peel(e.i, 4, 11)


def peel_after_split(e: Example) -> None:
    e.stage.split(e.i, factor=2)
    e.stage.peel(e.i, 2, 4)


def peel_a_loop(e: Example) -> None:
    outer, _ = e.stage.split(e.i, factor=2)
    e.stage.peel(outer, 0, 1)


def inline_an_output(e: Example) -> None:
    e.stage.compute_inline()


def at_a_stage_of_another_schedule(e: Example) -> None:
    other = simple()
    e.stage.compute_at(other.stage, other.i)


def at_itself(e: Example) -> None:
    e.stage.compute_at(e.stage, e.i)


def stored_but_computed_at_root(e: Example) -> None:
    e.stage.store_at(e.stage, e.i)


def an_input_at_a_loop(e: Example) -> None:
    e.schedule[e.args[0]].compute_at(e.stage, e.i)


def inline_an_input(e: Example) -> None:
    e.schedule[e.args[0]].compute_inline()


def rfactor_of_no_reduction(e: Example) -> None:
    e.schedule.rfactor(e.args[1], e.i)


def cache_write_of_an_input(e: Example) -> None:
    e.schedule.cache_write(e.args[0], "local")


def cache_write_after_split(e: Example) -> None:
    e.stage.split(e.i, factor=2)
    e.schedule.cache_write(e.args[1], "local")


def cache_read_by_an_input(e: Example) -> None:
    e.schedule.cache_read(e.args[1], "local", [e.args[0]])


def cache_read_by_who_does_not(e: Example) -> None:
    e.schedule.cache_read(e.args[1], "local", [e.args[1]])


def prefetch_of_what_is_not_read(e: Example) -> None:
    e.stage.prefetch(e.args[1], e.i, 1)


def skip_of_a_data_axis(e: Example) -> None:
    e.stage.skip_outside(e.i, e.args[0], 0, 0, 4)


def prefetch_of_now(e: Example) -> None:
    e.stage.prefetch(e.args[0], e.i, -1)


def prefetch_panel_along_a_part(e: Example) -> None:
    outer, _ = e.stage.split(e.i, factor=2)
    e.stage.prefetch_panel(e.args[0], e.j, [outer])


def prefetch_panel_along_nothing(e: Example) -> None:
    e.stage.prefetch_panel(e.args[0], e.j, [])


def prefetch_panel_of_what_is_not_read(e: Example) -> None:
    e.stage.prefetch_panel(e.args[1], e.j, [e.i])


def prefetch_panel_of_no_step(e: Example) -> None:
    e.stage.prefetch_panel(e.args[0], e.j, [e.i], step=0)


def prefetch_panel_into_the_third_level(e: Example) -> None:
    e.stage.prefetch_panel(e.args[0], e.j, [e.i], level=3)


def prefetch_panel_for_tiles_of_nothing(e: Example) -> None:
    e.stage.prefetch_panel(e.args[0], e.j, [e.i], tiles=[([e.i], 0)])


def split_after_vectorize(e: Example) -> None:
    e.stage.vectorize(e.j)
    e.stage.split(e.j, factor=4)


def fuse_after_prefetch(e: Example) -> None:
    e.stage.prefetch(e.args[0], e.j, 1)
    e.stage.fuse(e.i, e.j)


def cache_in_no_memory(e: Example) -> None:
    e.schedule.cache_write(e.args[-1], "bogus")  # type: ignore[arg-type]


def read_cache_in_no_memory(e: Example) -> None:
    e.schedule.cache_read(e.args[0], "lokal", [e.args[-1]])  # type: ignore[arg-type]


def split_with_no_such_tail(e: Example) -> None:
    e.stage.split(e.j, factor=4, tail="chop")  # type: ignore[arg-type]


def bind_to_another_length(e: Example) -> None:
    e.stage.bind(e.i, te.thread_axis((0, 64), "threadIdx.x"))


def a_name_that_is_not_there(e: Example) -> None:
    _ = e.schedule["CC"]


def a_foreign_stage(e: Example) -> None:
    _ = e.schedule[te.placeholder((1,), name="Z")]


ERRORS: dict[Callable[[Example], None], str] = {
    foreign_axis: "split: i is not a loop of this stage; its loops are i, j"
    "\n  at    schedule of stage C",
    split_twice: "split: j is not a loop of this stage; its loops are i, j.outer, j.inner"
    "\n  at    schedule of stage C",
    split_by_nothing: "split of i takes either factor or nparts\n  at    schedule of stage C",
    split_by_zero: "split of i needs a positive integer factor, got 0\n  at    schedule of stage C",
    align_an_output: "storage_align: the rows of an argument lie where the caller has them"
    "\n  at    schedule of stage C\n  hint  align a copy: cache_read or cache_write makes one",
    align_by_more_than_the_factor: "storage_align: an offset from 0 to below the factor is "
    "needed, not 16 of 16\n  at    schedule of stage B",
    align_a_part_of_an_axis: "storage_align: j.outer is no axis of B\n  at    schedule of stage B",
    spread_over_a_loop_outside: "prefetch of A is spread over i, no loop inside of j"
    "\n  at    schedule of stage C",
    split_in_negative_parts: "split of i needs a positive integer nparts, got -2"
    "\n  at    schedule of stage C",
    fuse_nothing: "fuse takes at least one axis\n  at    schedule of stage C",
    fuse_backwards: "j and i are not neighbours, the order is i, j\n  at    schedule of stage C"
    "\n  hint  reorder them first, the inner right after the outer",
    reorder_twice: "reorder names an axis twice\n  at    schedule of stage C",
    bind_to_data: "j is not a thread axis\n  at    schedule of stage C",
    peel_outside: "peel of i needs 0 <= begin < end <= 10\n  at    schedule of stage C",
    peel_after_split: "peel of i must come before it is split\n  at    schedule of stage C",
    peel_a_loop: "i.outer is not a data axis of C\n  at    schedule of stage C",
    inline_an_output: "an output cannot be inlined\n  at    schedule of stage C",
    at_a_stage_of_another_schedule: "compute_at: C is a stage of another schedule"
    "\n  at    schedule of stage C",
    at_itself: "a stage cannot be computed at itself\n  at    schedule of stage C",
    stored_but_computed_at_root: "store_at: the stage is not computed at a loop"
    "\n  at    schedule of stage C\n  hint  say compute_at first, a loop further in",
    an_input_at_a_loop: "compute_at: an input is not computed\n  at    schedule of stage A",
    inline_an_input: "compute_inline: an input is not computed\n  at    schedule of stage A",
    rfactor_of_no_reduction: "rfactor: not a reduction\n  at    schedule of stage C",
    cache_write_of_an_input: "cache_write: only a compute can be written through a cache"
    "\n  at    schedule of stage A",
    cache_write_after_split: "cache_write must come before the loops of the stage are changed"
    "\n  at    schedule of stage C",
    cache_read_by_an_input: "cache_read: only a compute can read a copy"
    "\n  at    schedule of stage A",
    vectorize_a_foreign_axis: "vectorize: i is not a loop of this stage; its loops are i, j"
    "\n  at    schedule of stage C",
    cache_read_by_who_does_not: "cache_read: it does not read C\n  at    schedule of stage C",
    prefetch_of_what_is_not_read: "prefetch: C does not read C\n  at    schedule of stage C",
    skip_of_a_data_axis: "skip_outside: i is not an axis of a reduction\n"
    "  at    schedule of stage C",
    prefetch_of_now: "prefetch of A needs an offset of 0 or more\n  at    schedule of stage C",
    prefetch_panel_along_a_part: "prefetch_panel: i.outer is no axis of C"
    "\n  at    schedule of stage C",
    prefetch_panel_along_nothing: "prefetch_panel of A names no axis along which tiles follow"
    "\n  at    schedule of stage C",
    prefetch_panel_of_what_is_not_read: "prefetch_panel: C does not read C"
    "\n  at    schedule of stage C",
    prefetch_panel_of_no_step: "prefetch_panel of A: steps and tiles have a length of 1 or more"
    "\n  at    schedule of stage C",
    prefetch_panel_into_the_third_level: "prefetch_panel of A fetches into level 1 or 2, not 3"
    "\n  at    schedule of stage C",
    prefetch_panel_for_tiles_of_nothing: "prefetch_panel of A: steps and tiles have a length of 1 "
    "or more\n  at    schedule of stage C",
    split_after_vectorize: "split: j is vectorized already, which its parts would not be"
    "\n  at    schedule of stage C\n  hint  split it first, then say so of one of its parts",
    fuse_after_prefetch: "fuse: j is where memory is fetched already, which its parts would not be"
    "\n  at    schedule of stage C\n  hint  fuse it first, then say so of one of its parts",
    cache_in_no_memory: "cache_write: 'bogus' names no memory\n  at    schedule of stage C"
    "\n  hint  it is one of 'global', 'local', 'shared', 'workspace'",
    read_cache_in_no_memory: "cache_read: 'lokal' names no memory\n  at    schedule of stage A"
    "\n  hint  it is one of 'global', 'local', 'shared', 'workspace'",
    split_with_no_such_tail: "split of j: tail is 'chop'\n  at    schedule of stage C"
    "\n  hint  it is one of 'cut', 'shorten', 'guard'",
    bind_to_another_length: "bind: i has 10 iterations, threadIdx.x is 64 long"
    "\n  at    schedule of stage C",
    a_name_that_is_not_there: "no stage is named CC; the stages are A, C\n  hint  do you mean C?",
    a_foreign_stage: "Z is not part of this schedule; its stages are A, C",
}


@pytest.mark.parametrize("mistake", ERRORS, ids=lambda f: f.__name__)
def test_mistake(mistake: Callable[[Example], None]) -> None:
    example = simple()
    with pytest.raises(treadle.ScheduleError) as caught:
        mistake(example)
    assert str(caught.value) == ERRORS[mistake]
    check(example.schedule, example.args)


def test_a_close_name_is_offered() -> None:
    example, other = simple(), simple()
    example.stage.split(example.j, factor=4)
    foreign, _ = other.stage.split(other.j, factor=4)
    foreign.name = "j.outr"
    with pytest.raises(treadle.ScheduleError, match=r"do you mean j\.outer\?"):
        example.stage.unroll(foreign)


def test_an_output_is_computed_at_root() -> None:
    e, b = chain()
    with pytest.raises(treadle.ScheduleError) as caught:
        e.stage.compute_at(e.schedule[b], b.op.axis[0])
    assert str(caught.value) == (
        "an output is always computed at root\n  at    schedule of stage C"
    )


def test_a_loop_where_a_stage_is_stored_stays_a_loop() -> None:
    e, b = chain()
    e.schedule[b].compute_at(e.stage, e.j)
    e.schedule[b].store_at(e.stage, e.i)
    with pytest.raises(treadle.ScheduleError) as caught:
        e.stage.split(e.i, factor=2)
    assert str(caught.value) == (
        "split: B is stored at i, which would be no loop any more"
        "\n  at    schedule of stage C"
        "\n  hint  split it first, then store B at one of its parts"
    )


SKIP_ERRORS: dict[str, Callable[[Example, te.IterVar], None]] = {
    "skip_outside needs begin <= end, not 4 and 0": lambda e, k: e.stage.skip_outside(
        k, e.args[0], 1, 4, 0
    ),
    "skip_outside: A has no dimension 2": lambda e, k: e.stage.skip_outside(k, e.args[0], 2, 0, 4),
    "skip_outside: C reads C along dimension 0 nowhere": lambda e, k: e.stage.skip_outside(
        k, e.args[2], 0, 0, 4
    ),
    "skip_past needs axes, and an end of 0 or more": lambda e, k: e.stage.skip_past(k, (k,), -1),
    "skip_past: i.outer is no axis of C": lambda e, k: e.stage.skip_past(
        k, e.stage.split(e.i, factor=2), 4
    ),
}


TRIM_ERRORS: dict[str, Callable[[Example, te.IterVar], None]] = {
    "trim takes an axis of the stage, and another that is of its tensor": lambda e, k: e.stage.trim(
        k, k, 0
    ),
    "trim: i.outer is no axis of C": lambda e, k: e.stage.trim(
        k, e.stage.split(e.i, factor=2)[0], 0
    ),
    "an output is computed whole": lambda e, k: e.stage.trim(e.i, e.j, 0),
    "trim takes an end of 0 or more, and a multiple of the scale": lambda e, k: e.stage.trim(
        k, e.i, 0, 3, 2
    ),
}


@pytest.mark.parametrize("problem", TRIM_ERRORS)
def test_what_trim_refuses(problem: str) -> None:
    e = product(8, 40, 12)
    with pytest.raises(treadle.ScheduleError, match=re.escape(problem)):
        TRIM_ERRORS[problem](e, e.stage.op.reduce_axis[0])


@pytest.mark.parametrize("problem", SKIP_ERRORS)
def test_what_cannot_be_skipped(problem: str) -> None:
    e = product()
    with pytest.raises(treadle.ScheduleError) as caught:
        SKIP_ERRORS[problem](e, e.stage.op.reduce_axis[0])
    assert str(caught.value) == f"{problem}\n  at    schedule of stage C"


REDUCTION_ERRORS = {
    "vectorize": "reduction axis k cannot be vectorized\n  at    schedule of stage C"
    "\n  hint  use rfactor, then vectorize",
    "parallel": "reduction axis k cannot run in parallel\n  at    schedule of stage C"
    "\n  hint  use rfactor on it",
}


@pytest.mark.parametrize("primitive", REDUCTION_ERRORS)
def test_reduction_axes_run_in_order(primitive: str) -> None:
    e = product()
    with pytest.raises(treadle.ScheduleError) as caught:
        getattr(e.stage, primitive)(e.stage.op.reduce_axis[0])
    assert str(caught.value) == REDUCTION_ERRORS[primitive]


def test_data_and_reduction_axes_do_not_fuse() -> None:
    e = product()
    with pytest.raises(treadle.ScheduleError) as caught:
        e.stage.fuse(e.j, e.stage.op.reduce_axis[0])
    assert str(caught.value) == ("cannot fuse data axis j with k\n  at    schedule of stage C")


def test_rfactor_comes_before_data_axes_are_split() -> None:
    e = product()
    e.stage.split(e.i, factor=2)
    with pytest.raises(treadle.ScheduleError) as caught:
        e.schedule.rfactor(e.args[2], e.stage.op.reduce_axis[0])
    assert str(caught.value) == (
        "rfactor must come before the data axes are split\n  at    schedule of stage C"
    )
    fresh = product()
    with pytest.raises(treadle.ScheduleError, match="j is not a reduction loop"):
        fresh.schedule.rfactor(fresh.args[2], fresh.j)


def test_an_inlined_reduction_is_refused() -> None:
    a = te.placeholder((4, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    with pytest.raises(treadle.ScheduleError) as caught:
        s[b].compute_inline()
    assert str(caught.value) == (
        "a reduction cannot be inlined\n  at    schedule of stage B\n  hint  use compute_at"
    )


def test_a_stage_read_outside_its_loop_is_refused() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
    d = te.compute((4,), lambda i: b[i] + c[i], name="D")
    s = te.create_schedule(d.op)
    s[b].compute_at(s[c], s[c].op.axis[0])
    with pytest.raises(treadle.ScheduleError) as caught:
        treadle.lower(s, [a, d])
    assert str(caught.value) == (
        "B is computed inside loop i of C, but D, which reads it, is not inside that loop"
        "\n  at    s[B].compute_at(s[C], i)"
        "\n  hint  compute it at a loop that encloses all its readers, or at root"
    )


def test_a_missing_argument_is_named() -> None:
    e = simple()
    for args, name in (([e.args[1]], "A"), ([e.args[0]], "C")):
        with pytest.raises(treadle.ScheduleError) as caught:
            treadle.lower(e.schedule, args, name="f")
        assert str(caught.value) == (
            f"tensor {name} is not among the arguments of f"
            "\n  hint  pass every input and output tensor to lower or build"
        )


def test_a_schedule_is_data() -> None:
    e = product()
    assert e.schedule.normalize() is e.schedule
    assert repr(e.stage) == "stage(C, [i, j, k])"
    e.stage.tile(e.i, e.j, 2, 8)
    assert [s.primitive for s in e.schedule.steps] == ["split", "split", "reorder"]
    assert str(e.schedule.steps[2]) == "stage 2: reorder((3, 5, 4, 6))"
    assert hash(e.schedule.steps[2]) == hash(Step(2, "reorder", ((3, 5, 4, 6),)))
    assert e.args[2] in e.schedule
    assert te.placeholder((1,)) not in e.schedule


def test_a_stage_is_found_by_its_name() -> None:
    e = simple()
    assert e.schedule["C"] is e.stage


def test_a_loop_that_a_stage_is_computed_at_is_not_divided() -> None:
    e, b = chain()
    e.schedule[b].compute_at(e.stage, e.j)
    with pytest.raises(treadle.ScheduleError) as caught:
        e.stage.split(e.j, factor=4)
    assert str(caught.value) == (
        "split: B is computed at j, which would be no loop any more\n  at    schedule of stage C"
        "\n  hint  split it first, then compute B at one of its parts"
    )


@pytest.mark.parametrize("position", [9, -1])
def test_rfactor_puts_its_axis_among_those_there_are(position: int) -> None:
    e = product()
    with pytest.raises(treadle.ScheduleError) as caught:
        e.schedule.rfactor(e.args[-1], e.stage.op.reduce_axis[0], position)
    assert str(caught.value) == (
        f"rfactor: factor_axis is {position}\n  at    schedule of stage C"
        "\n  hint  the partial results have 3 axes: it is one of 0 to 2"
    )


@pytest.mark.parametrize("parts", [2, 3, 4, 8, 50])
@pytest.mark.parametrize("tail", ["cut", "shorten", "guard"])
def test_nparts_divides_what_is_needed(parts: int, tail: str) -> None:
    e, b = chain(4, 21)
    outer, _ = e.stage.split(e.j, factor=5)
    e.schedule[b].compute_at(e.stage, outer)
    axis = e.schedule[b].op.axis[1]
    o, _ = e.schedule[b].split(axis, nparts=parts, tail=tail)  # type: ignore[arg-type]
    e.schedule[b].pragma(o, "mark")
    loops = [s for s in lp.walk_stmts(schedule_to_func(e.schedule, e.args).body)
             if isinstance(s, lp.For) and s.pragmas]  # fmt: skip
    assert loops
    assert {str(s.extent) for s in loops} == {str(parts)}
    check(e.schedule, e.args)


def bound(second: int) -> Example:
    a = te.placeholder((6, second), name="A")
    c = te.compute((6, second), lambda i, j: a[i, j] + 1.0, name="C")
    e = Example(te.create_schedule(c), [a, c])
    for axis in (e.i, e.j):
        e.stage.bind(axis, te.thread_axis("threadIdx.x"))
    return e


def test_a_hardware_axis_has_one_extent() -> None:
    same = bound(6)
    treadle.lower(same.schedule, same.args)
    e = bound(5)
    with pytest.raises(treadle.ScheduleError) as caught:
        treadle.lower(e.schedule, e.args)
    assert str(caught.value) == (
        "threadIdx.x is bound to j with 5 iterations, and has 6 elsewhere\n  at    stage C"
        "\n  hint  bind a hardware axis to loops of one extent: split the others to match"
    )


@pytest.mark.parametrize("primitive", ["vectorize", "unroll"])
def test_what_has_no_constant_bound_is_neither_vector_nor_unrolled(primitive: str) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1.0, name="C")
    s = te.create_schedule(c)
    getattr(s[c], primitive)(c.op.axis[0])
    kind = {"vectorize": "vectorized", "unroll": "unrolled"}[primitive]
    with pytest.raises(treadle.ScheduleError) as caught:
        treadle.lower(s, [a, c])
    assert str(caught.value) == (
        f"i cannot be {kind}: it has no constant bound, its extent is n\n  at    stage C"
        f"\n  hint  split it by a constant factor, and let the inner part be {kind}"
    )


def test_arguments_are_given_once_and_are_of_the_schedule() -> None:
    e = simple()
    with pytest.raises(treadle.UsageError, match="tensor A stands 2 times among the arguments"):
        treadle.lower(e.schedule, [e.args[0], *e.args])
    foreign = te.placeholder((10, 20), name="Z")
    with pytest.raises(treadle.UsageError, match="tensor Z is not part of the schedule"):
        treadle.lower(e.schedule, [foreign, *e.args])
    with pytest.raises(treadle.UsageError, match="an argument of a kernel is 3"):
        treadle.lower(e.schedule, [*e.args, 3])  # type: ignore[list-item]
