# SPDX-License-Identifier: Apache-2.0
"""te.extern: a hand-written stage beside computed ones, its text, its machine code, its limits."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle import te
from treadle.errors import ScheduleError, TypeMismatch
from treadle.expr.nodes import Expr, load
from treadle.loop.build import assign, counter, declared, let, loop, put, value_of
from treadle.loop.nodes import Buffer, ForKind, Stmt, seq
from treadle.te.operations import Tensor

N = 10


def _histogram(bins: int) -> tuple[Tensor, Tensor]:
    """Return int32[N] data and how often each number below `bins` is among it."""
    data = te.placeholder((N,), "int32", "data")

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (values,), (counts,) = ins, outs

        def count(i: Expr) -> Stmt:
            at = load(values, (i,)).astype("int64")
            return put(counts, (at,), load(counts, (at,)) + 1)

        return seq(
            loop(bins, lambda i: put(counts, (i,), 0), "bin"),
            loop(N, count, "n"),
        )

    made = te.extern((bins,), [data], build, "histogram")
    assert isinstance(made, Tensor)
    return data, made


def test_it_stands_between_computes_and_runs() -> None:
    data, counts = _histogram(4)
    share = te.compute((4,), lambda i: counts[i].astype("float32") / float(N), name="share")
    s = te.create_schedule(share.op)
    module = treadle.build(s, [data, share])
    x = np.array([0, 1, 1, 3, 3, 3, 0, 1, 3, 3], "int32")
    out = np.zeros(4, "float32")
    module(x, out)
    np.testing.assert_array_equal(
        out, np.bincount(x, minlength=4).astype("float32") / np.float32(N)
    )


def test_its_loops_print_with_the_others() -> None:
    data, counts = _histogram(4)
    text = str(treadle.lower(te.create_schedule(counts.op), [data, counts], "count"))
    assert text == (
        "def count(data: int32[10], histogram: int32[4]):\n"
        "    for bin in range(4):\n"
        "        histogram[bin] = int32(0)\n"
        "    for n in range(10):\n"
        "        histogram[int64(data[n])] = (histogram[int64(data[n])] + int32(1))\n"
    )


def test_several_results_and_local_variables() -> None:
    x = te.placeholder((N,), "float32", "x")

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (values,), (running, total) = ins, outs
        seen = counter("seen")

        def step(i: Expr) -> Stmt:
            before = te.if_then_else(i == 0, 0.0, load(running, (te.max(i - 1, 0),)))
            return seq(
                put(running, (i,), before + load(values, (i,))),
                assign(seen, value_of(seen) + 1),
            )

        last = put(total, (), value_of(seen))
        return declared([seen], seq(assign(seen, 0), loop(N, step), last))

    running, total = te.extern([(N,), ()], [x], build, "run", ["float32", "int64"])  # type: ignore[misc]
    module = treadle.build(te.create_schedule(running.op), [x, running, total])
    data = np.arange(N, dtype="float32")
    out, count = np.zeros(N, "float32"), np.zeros((), "int64")
    module(data, out, count)
    np.testing.assert_array_equal(out, np.cumsum(data))
    assert count == N


def test_what_it_reads_stays_whole() -> None:
    x = te.placeholder((N,), "int32", "x")
    twice = te.compute((N,), lambda i: x[i] * 2, name="twice")
    copy = te.extern(
        (N,),
        [twice],
        lambda ins, outs: loop(N, lambda i: put(outs[0], (i,), load(ins[0], (i,)))),
        "copy",
    )
    user = te.compute((N,), lambda i: copy[i] + 1, name="user")  # type: ignore[index]
    s = te.create_schedule(user.op)
    with pytest.raises(ScheduleError, match="reads this one whole"):
        s[twice].compute_inline()
    with pytest.raises(ScheduleError, match="computed at root"):
        s[copy].compute_inline()  # type: ignore[index]
    with pytest.raises(ScheduleError, match="computed at root"):
        s[copy].compute_at(s[user], user.op.axis[0])  # type: ignore[index]
    with pytest.raises(ScheduleError, match="only a compute"):
        s.cache_write(copy)  # type: ignore[arg-type]
    out = np.zeros(N, "int32")
    treadle.build(s, [x, user])(np.arange(N, dtype="int32"), out)
    np.testing.assert_array_equal(out, 2 * np.arange(N) + 1)


def test_mistakes_are_named() -> None:
    a, b = te.placeholder((N,), "int32"), te.placeholder((N,), "float32")
    with pytest.raises(TypeMismatch, match="does not follow from its inputs"):
        te.extern((N,), [a, b], lambda ins, outs: None)
    with pytest.raises(TypeMismatch, match="1 shapes and 2 element types"):
        te.extern([(N,)], [a], lambda ins, outs: None, "two", ["int32", "int32"])
    made = te.extern([N], [a], lambda ins, outs: None, "nothing")
    assert isinstance(made, Tensor)
    with pytest.raises(ScheduleError, match="not a statement"):
        treadle.lower(te.create_schedule(made.op), [a, made])


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_value_with_a_name_is_computed_once(target: str, kind: ForKind) -> None:
    data = te.placeholder((N,), "int32", "data")

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        (values,), (turned,) = ins, outs

        def element(i: Expr) -> Stmt:
            def scale(at: Expr) -> Stmt:
                return let(at * at, lambda square: put(turned, (at,), square), "square")

            return let(load(values, (i,)).astype("int64"), scale, "at")

        return loop(N, element, "n", kind)

    made = te.extern((N,), [data], build, "turned", "int64")
    assert isinstance(made, Tensor)
    s = te.create_schedule(made.op)
    assert str(treadle.lower(s, [data, made])).endswith(
        "        at = int64(data[n])\n        square = (at * at)\n        turned[at] = square\n"
    )
    x = np.random.default_rng(0).permutation(N).astype("int32")
    out = np.zeros(N, "int64")
    treadle.build(s, [data, made], target)(x, out)
    np.testing.assert_array_equal(out, np.arange(N) ** 2)
