# SPDX-License-Identifier: Apache-2.0
"""From a te schedule to a loop nest that prints and a module that runs."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import treadle
from treadle import te
from treadle.errors import ScheduleError
from treadle.expr.nodes import Var
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule


def doubled(*shape: int | Var, name: str = "C") -> tuple[Schedule, list[Tensor | Var]]:
    a = te.placeholder(shape, name="A")
    c = te.compute(shape, lambda *i: a[i] * 2.0, name=name)
    assert isinstance(c, Tensor)
    return te.create_schedule(c.op), [a, c]


def test_every_stage_is_text() -> None:
    schedule, args = doubled(8)
    module = treadle.build(schedule, args, "llvm -mcpu=x86-64-v3", target_host="llvm", name="twice")
    assert module.loop_text() == (
        "def twice(A: float32[8], C: float32[8]):\n"
        "    for i0 in range(8):\n"
        "        C[i0] = (A[i0] * float32(2.0))\n"
    )
    assert "@twice(" in module.source()
    assert "twice:" in module.asm()


def test_lowered_functions_become_one_module() -> None:
    lowered = []
    for k in (3, 5):
        schedule, args = doubled(k)
        lowered.append(treadle.lower(schedule, args, name=f"of_{k}"))
    module = treadle.build(lowered)
    for k in (3, 5):
        out = np.zeros(k, "float32")
        module[f"of_{k}"](np.ones(k, "float32"), out)
        np.testing.assert_array_equal(out, 2)
    out = np.zeros(3, "float32")
    treadle.build(lowered[0])(np.ones(3, "float32"), out)
    np.testing.assert_array_equal(out, 2)


def test_names_become_symbols() -> None:
    schedule, args = doubled(2)
    func = treadle.lower(schedule, args, name="my kernel/2; rm")
    assert func.name.isidentifier()
    out = np.zeros(2, "float32")
    treadle.build(func)(np.ones(2, "float32"), out)
    np.testing.assert_array_equal(out, 2)


def test_a_schedule_needs_its_arguments() -> None:
    schedule, _ = doubled(2)
    with pytest.raises(treadle.UsageError) as caught:
        treadle.build(schedule)
    assert str(caught.value) == "build of a schedule needs the arguments of the kernel"


def test_a_size_that_no_argument_shows() -> None:
    schedule, args = doubled(4)
    with pytest.raises(treadle.UsageError) as caught:
        treadle.build(schedule, [*args, te.var("m")], name="f")
    assert str(caught.value) == (
        "size 'm' of kernel f is in no parameter's shape"
        "\n  hint  pass a tensor that has this size, or a multiple of it, as one of its dimensions"
    )


def test_an_unknown_target_is_refused() -> None:
    schedule, args = doubled(4)
    with pytest.raises(treadle.TargetError):
        treadle.build(schedule, args, "abacus")


def test_wrong_arrays_are_refused() -> None:
    n = te.var("n")
    schedule, args = doubled(n, 4)
    module = treadle.build(schedule, args)
    good = np.zeros((3, 4), "float32")
    for bad in (np.zeros((3, 5), "float32"), np.zeros((3, 4)), np.zeros(12, "float32")):
        with pytest.raises(treadle.InputError):
            module(bad, good)
    with pytest.raises(treadle.InputError):
        module(good, np.zeros((2, 4), "float32"))
    module(good, good.copy())


def test_the_order_of_arguments_is_free() -> None:
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((5,), lambda i: a[i] + b[i], name="C")  # type: ignore[index]
    given = np.arange(5, dtype="float32")
    for order in permutations((a, b, c)):
        schedule = te.create_schedule([c.op])  # type: ignore[union-attr]
        module = treadle.build(schedule, list(order))
        params = module["default_function"].signature.params
        assert [p.name for p in params if p.is_output] == [t.name for t in order if t is not a]
        values = {a: given, b: np.zeros(5, "float32"), c: np.zeros(5, "float32")}
        given.flags.writeable = False  # an input is not written
        module(*(values[t] for t in order))
        np.testing.assert_array_equal(values[b], given * 2)
        np.testing.assert_array_equal(values[c], given * 3)
    with pytest.raises(ScheduleError, match="tensor C is not among the arguments"):
        treadle.build(te.create_schedule([c.op]), [a])  # type: ignore[union-attr]
