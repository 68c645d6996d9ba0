# SPDX-License-Identifier: Apache-2.0
"""Steps go through JSON and Python text unchanged; hostile ones are refused with a reason."""

from __future__ import annotations

import json
import random

import pytest

import treadle
from tests.te.round_trip import again, check_again
from treadle import te
from treadle.errors import ScheduleError, TreadleError
from treadle.te.loops import Split
from treadle.te.primitives import PRIMITIVES
from treadle.te.schedule import Schedule
from treadle.te.steps import Step, steps_from_json


def product() -> tuple[Schedule, list[te.Tensor]]:
    """C = A @ B, D = relu(C), of n rows."""
    n = te.var("n")
    a, b = te.placeholder((n, 12), name="A"), te.placeholder((12, 16), name="B")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute((n, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 16), lambda i, j: te.max(c[i, j], 0.0), name="D")
    return te.create_schedule(d.op), [a, b, d]


def test_stages_keep_their_numbers_when_others_are_made() -> None:
    s, (a, b, d) = product()
    c = s.tensors[2]
    local = s.cache_write(c, "local")
    k = s[local].op.reduce_axis[0]
    _, inner = s[local].split(k, factor=4)
    partial = s.rfactor(local, inner)
    copy = s.cache_read(b, "local", partial)
    s[copy].compute_at(s[partial], s[partial].op.axis[1])
    assert [x.name for x in s.stages] == ["A", "B", "B.local", "C.local.rf", "C.local", "C", "D"]
    assert [x.number for x in s.stages] == [0, 1, 6, 5, 4, 2, 3]
    assert s.as_python() == (
        "B = s.tensors[1]\n"
        "C = s.tensors[2]\n"
        'C_local = s.cache_write(C, "local")\n'
        "(k,) = s[C_local].op.reduce_axis\n"
        "k_outer, k_inner = s[C_local].split(k, factor=4)\n"
        "C_local_rf = s.rfactor(C_local, k_inner)\n"
        'B_local = s.cache_read(B, "local", [C_local_rf])\n'
        "C_local_rf_k_inner, i_c, j_c = s[C_local_rf].op.axis\n"
        "s[B_local].compute_at(s[C_local_rf], i_c)"
    )
    check_again(s, [a, b, d])


def test_symbolic_factors_are_text() -> None:
    s, (a, _, d) = product()
    n, tile = a.shape[0], te.var("tile")
    i, j = s[d].op.axis
    outer, _ = s[d].split(i, factor=te.max(n // 4 + 1, 2))
    s[d].split(outer, nparts=tile)
    s[d].split(j, factor=(n - 1) % 8 + te.min(tile, 3))
    assert [step.args[1:] for step in s.steps] == [
        ("te.max((n // 4) + 1, 2)",),
        (None, "tile"),
        ("((n - 1) % 8) + te.min(tile, 3)",),
    ]
    assert s.as_python().startswith(
        'from treadle import te\n\nn = s.sizes["n"]\nD = s.tensors[3]\n'
    )
    wanted = [r.factor for r in s[d].relations if isinstance(r, Split)]
    for made in again(s):
        assert made.steps == s.steps
        assert [r.factor for r in made[d].relations if isinstance(r, Split)] == wanted
    with pytest.raises(ScheduleError) as caught:
        s.fresh().replay(s.steps)
    assert str(caught.value) == (
        "split: there is no size tile; the sizes are n\n"
        "  at    step 1, stage 3: split(2, None, 'tile'), schedule of stage D\n"
        "  hint  name it where the steps are replayed: replay(steps, sizes=[...])"
    )


def test_numbers_in_an_expression_are_one_number() -> None:
    n = te.var("n")
    a = te.placeholder((4, n), name="A")
    b = te.compute((4, n), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b)
    i, j = b.op.axis
    s[b].peel(i, 0, i.extent - 0)
    s[b].peel(j, 0, n - (i.extent - 3) * 2)
    s[b].split(j, factor=(i.extent + 1) // (i.extent - 2))
    assert [step.args[1:] for step in s.steps] == [(0, 4), (0, "n - 2"), (2,)]
    check_again(s, [a, b])


def test_sizes_of_any_name_are_told_apart() -> None:
    m, n, keyword = te.var("batch-size"), te.var("batch size"), te.var("lambda")
    a = te.placeholder((m, n, keyword), name="1 + s")
    b = te.compute((m, n, keyword), lambda i, j, k: a[i, j, k] + 1.0, name="te")
    s = te.create_schedule(b)
    for axis, size in zip(b.op.axis, (n, keyword, m), strict=True):
        s[b].split(axis, factor=size)
    assert [step.args[1] for step in s.steps] == ["batch_size_1", "_lambda", "batch_size"]
    check_again(s, [a, b])


def test_a_pragma_holds_what_it_was_given() -> None:
    s, (a, b, d) = product()
    i, j = s[d].op.axis
    for value in (True, 1, 0.5, None, 'a "quoted" \\ text\n', te.const(3)):
        s[d].pragma(i, "mark", value)
    assert [step.args[2:] for step in s.steps] == [
        (), (1,), (0.5,), (None,), ('a "quoted" \\ text\n',), (3,),
    ]  # fmt: skip
    check_again(s, [a, b, d])
    for value in (object(), float("nan"), j, [1]):
        with pytest.raises(ScheduleError, match="is not a number or a string"):
            s[d].pragma(i, "mark", value)


def test_several_tensors_of_one_stage() -> None:
    a = te.placeholder((6,), name="A")
    sums, products = te.compute((6,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="two")
    c = te.compute((6,), lambda i: sums[i] - products[i], name="C")
    s = te.create_schedule(c)
    kept = s.cache_write(products, "local")
    copy = s.cache_read(products, "local", c)
    s[c].prefetch(copy, c.op.axis[0], 1)
    s[c].prefetch(sums, c.op.axis[0], 2)
    s[kept].compute_at(s[products], products.op.axis[0])
    assert "two_local = s.cache_write(two.op.output(1)" in s.as_python()
    check_again(s, [a, c])


def test_a_step_that_is_refused_leaves_nothing() -> None:
    s, (a, b, d) = product()
    i, j = s[d].op.axis
    outer, inner = s[d].split(j, factor=4)
    for refused in (
        lambda: s[d].fuse(i, outer, inner, j),
        lambda: s[d].fuse(outer, inner, i),
        lambda: s.cache_read(b, "local", [s.tensors[2], d]),
        lambda: s[d].reorder(i, j),
    ):
        with pytest.raises(ScheduleError):
            refused()
    assert [step.primitive for step in s.steps] == ["split"]
    assert len(s.stages) == 4
    check_again(s, [a, b, d])


STEP = '{{"version": 1, "steps": [[3, "split", 0, 4], {}]}}'

HOSTILE = {
    "": "the steps are not JSON: Expecting value: line 1 column 1 (char 0)",
    "[" * 100_000: "the steps are not JSON: it is nested too deeply",
    "[]": 'steps in JSON are an object {"version": ..., "steps": [...]}',
    '{"version": 1}': 'steps in JSON are an object {"version": ..., "steps": [...]}',
    '{"version": 2, "steps": []}': "the steps are of version 2, this Treadle reads 1",
    '{"version": true, "steps": []}': "the steps are of version True, this Treadle reads 1",
    '{"version": 1, "steps": {}}': '"steps" is not a list',
    STEP.format("7"): "step 1 is not a list [stage, primitive, argument, ...]",
    STEP.format("[3]"): "step 1 is not a list [stage, primitive, argument, ...]",
    STEP.format('["3", "split", 0, 4]'): "step 1: '3' is not the number of a stage",
    STEP.format('[3, 4, "split"]'): "step 1: 4 is not the name of a primitive",
    STEP.format('[3, "split", {"a": 1}]'): "step 1: {'a': 1} is not the argument of a step",
    STEP.format('[3, "split", 0, NaN]'): "the steps are not JSON: NaN is no number of JSON",
    STEP.format('[3, "x", [[[[[[[1]]]]]]]]'): "step 1: [1] is not the argument of a step",
    STEP.format('[9, "unroll", 0]'): "there is no stage 9; the last is 3",
    STEP.format('[-1, "unroll", 0]'): "there is no stage -1; the last is 3",
    STEP.format('[3, "unrol", 0]'): "there is no primitive 'unrol'",
    STEP.format('[3, "__init__", 0]'): "there is no primitive '__init__'",
    STEP.format('[3, "unroll"]'): "unroll has 0 arguments; they are var",
    STEP.format('[3, "unroll", 1, 2]'): "unroll has 2 arguments; they are var",
    STEP.format('[3, "unroll", 4]'): "unroll: there is no axis 4; "
    "the axes are 0 (i), 1 (j), 2 (i.outer), 3 (i.inner)",
    STEP.format('[3, "unroll", true]'): "unroll: there is no axis True; "
    "the axes are 0 (i), 1 (j), 2 (i.outer), 3 (i.inner)",
    STEP.format('[3, "unroll", 0]'): "unroll: i is not a loop of this stage; "
    "its loops are i.outer, i.inner, j",
    STEP.format('[3, "reorder", 1]'): "reorder: 1 is not a list of axes",
    STEP.format('[3, "fuse", []]'): "fuse takes at least one axis",
    STEP.format('[3, "split", 1, 0]'): "split of j needs a positive integer factor, got 0",
    STEP.format('[3, "split", 1, 99999999999999999999]'): "split: 99999999999999999999 is not a "
    "whole number",
    STEP.format('[3, "split", 1, 2.5]'): "split: 2.5 is not a whole number",
    STEP.format('[3, "split", 1, [2]]'): "split: (2,) is not a whole number",
    STEP.format('[3, "split", 1, 4, null, "chop"]'): "split of j: tail is 'chop'",
    STEP.format('[3, "split", 1, 4, 4]'): "split of j takes either factor or nparts",
    STEP.format('[3, "split", 1, "__import__(\'os\')"]'): "split: an expression of sizes cannot "
    "call '__import__'",
    STEP.format('[3, "split", 1, "n.__class__"]'): "split: an expression of sizes cannot hold "
    "'n.__class__'",
    STEP.format('[3, "split", 1, "n ** n"]'): "split: an expression of sizes cannot hold Pow",
    STEP.format('[3, "split", 1, "n <"]'): "split: 'n <' is no expression of sizes: "
    "invalid syntax (<unknown>, line 1)",
    STEP.format('[3, "split", 1, "n < 4"]'): "split: 'n < 4' is not an integer",
    STEP.format('[3, "split", 1, "te.min(n, 2.5)"]'): "split: an expression of sizes cannot hold "
    "'2.5'",
    STEP.format('[3, "split", 1, "m"]'): "split: there is no size m; the sizes are n",
    STEP.format('[3, "pragma", 1, 4]'): "pragma: 4 is not a string",
    STEP.format('[3, "pragma", 1, "a", [4]]'): "pragma: (4,) is not a number or a string",
    STEP.format('[3, "bind", 1, "threadIdx.x"]'): "bind: 'threadIdx.x' is not a tag, an extent "
    "and a name",
    STEP.format('[2, "compute_at", [3, 9]]'): "compute_at: there is no axis 9; "
    "the axes are 0 (i), 1 (j), 2 (i.outer), 3 (i.inner)",
    STEP.format('[2, "compute_at", [8, 0]]'): "compute_at: there is no stage 8",
    STEP.format('[2, "compute_at", 3]'): "compute_at: 3 is not a stage and an axis of it",
    STEP.format('[3, "prefetch", [2], 1, 0]'): "prefetch: (2,) is not a stage and one of its "
    "outputs",
    STEP.format('[3, "prefetch", [2, 1], 1, 0]'): "prefetch: there is no output 1 of C",
    STEP.format('[3, "prefetch", [2, 0], 1, -4]'): "prefetch of C needs an offset of 0 or more",
    STEP.format('[3, "prefetch_panel", [2, 0], 1, [1], 1, 4]'): "prefetch_panel: 4 is not a list "
    "of tiles",
    STEP.format('[3, "prefetch_panel", [2, 0], 1, [1], 1, [[[], 4]]]'): "prefetch_panel: tiles "
    "are along one axis or more",
    STEP.format('[3, "prefetch_panel", [2, 0], 1, [1], 1, [[[1], 4]], 1]'): "prefetch_panel: 1 is "
    "not True or False",
    STEP.format('[2, "cache_read", 0, "local", 3]'): "cache_read: 3 is not a list of stages",
    STEP.format('[2, "rfactor", 0, 0]'): "rfactor: i is not a reduction loop",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: t[32:80])
def test_hostile_steps_are_refused(text: str) -> None:
    s, _ = product()
    with pytest.raises(ScheduleError) as caught:
        s.replay(steps_from_json(text))
    assert caught.value.problem == HOSTILE[text]
    if text.startswith(STEP[:30]) and s.steps:
        assert caught.value.at.startswith("step 1, stage ")
        assert len(s.steps) == 1


DEEP = ["(" * 900 + "n" + ")" * 900, "-" * 1900 + "n", "n" + "+n" * 990, "n" * 2001, "n\x00"]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_long_expressions_end_in_a_reason_or_a_loop(text: str) -> None:
    s, _ = product()
    try:
        s.apply(Step(3, "split", (0, text)))
    except ScheduleError:
        assert not s.steps


@pytest.mark.parametrize("seed", range(100))
def test_steps_at_random_are_applied_or_refused(seed: int) -> None:
    """Whatever JSON holds, it ends in a schedule that can be written down or in a TreadleError."""
    chance = random.Random(seed)
    values = [0, 1, 2, 3, -1, 5, 10**20, 2.5, True, None, "cut", "local", "n", "n // 2", "", "te",
              [0, 1], [], [2, 0], [[0], 4], [[[1], 2, 3]], ["threadIdx.x", 4, "x"]]  # fmt: skip
    rows = [
        [chance.randint(0, 5), chance.choice(list(PRIMITIVES)), *chance.choices(values, k=k)]
        for k in (chance.randint(0, 6) for _ in range(40))
    ]
    s, args = product()
    for row in rows:
        steps = steps_from_json(json.dumps({"version": 1, "steps": [row]}))
        try:
            s.replay(steps)
        except TreadleError:
            continue
    try:
        treadle.lower(s, args)
    except TreadleError:
        s.as_python()
        return
    check_again(s, args)


def test_a_script_is_no_door() -> None:
    """Texts that a step holds stay texts where the steps are printed as Python."""
    s, (a, b, d) = product()
    evil = '"); raise SystemExit(1) #'
    s.apply(Step(3, "pragma", (0, evil, evil)))
    s.apply(Step(3, "bind", (1, (evil, 16, evil))))
    s.apply(Step(3, "split", (0, "n # )\n"))) if not s[d].notes else None
    check_again(s, [a, b, d])
