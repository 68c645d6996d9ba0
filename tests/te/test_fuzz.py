# SPDX-License-Identifier: Apache-2.0
"""Random schedules of random tensor expressions compute what the expressions mean.

A failure names its seed; `check(seed)` is all that is needed to see it again.
"""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests import loop_eval, te_eval
from tests.te.fuzz import Case, make_case, random_schedule
from treadle.errors import ScheduleError
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import PrimFunc, func_text, verify
from treadle.lower.pipeline import LOOPS, LOWER

PER_TEST = 20
READABLE = {"expand_math"}
"""Passes whose result the interpreter does not run: they work on the bits of floats."""


def loops_of(case: Case, seed: int, name: str = "main") -> PrimFunc | None:
    """Return the loop nest of a random schedule; None where it is refused, with a reason.

    Where iterations need other parts than the first, nothing may be stored for all of them.
    """
    schedule = random_schedule(case, seed + 1)
    try:
        return schedule_to_func(schedule, [*case.inputs, *case.outputs], name)
    except ScheduleError as error:
        if case.sizes and "has no constant bound" in error.problem:
            return None
        if "cannot be stored" in error.problem and "than the first" in error.problem:
            return None
        raise


def stages(func: PrimFunc) -> list[tuple[str, PrimFunc]]:
    found = [("schedule", func)]
    for step in (*LOOPS.passes, *LOWER.passes):
        if step.name not in READABLE:
            func = step.run(func)
            verify(func)
            found.append((step.name, func))
    return found


def expected_of(seed: int) -> list[np.ndarray]:
    case = make_case(seed)
    return te_eval.evaluate(case.outputs, dict(zip(case.inputs, case.arrays, strict=True)))


def empty_outputs(case: Case) -> list[np.ndarray]:
    pairs = zip(case.shapes, case.outputs, strict=True)
    return [np.full(shape, 99, tensor.dtype) for shape, tensor in pairs]


def compare(got: list[np.ndarray], seed: int, stage: str, func: PrimFunc) -> None:
    for mine, theirs in zip(got, expected_of(seed), strict=True):
        np.testing.assert_allclose(
            mine, theirs, rtol=1e-5, atol=1e-5, err_msg=f"seed {seed}, {stage}\n{func_text(func)}"
        )


def check(seed: int, *, symbolic: bool = False) -> None:
    """Run the loop nest of case `seed` after every pass in the interpreter."""
    case = make_case(seed, symbolic=symbolic)
    if symbolic and not case.sizes:
        return
    func = loops_of(case, seed)
    if func is None:
        return
    try:
        steps = stages(func)
    except ScheduleError as error:
        if symbolic and "only known at run time" in error.problem:
            return
        raise
    for stage, made in steps:
        outputs = empty_outputs(case)
        try:
            loop_eval.run(made, [*case.arrays, *outputs], case.sizes, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {stage}\n{func_text(made)}") from error
        compare(outputs, seed, stage, made)


def check_compiled(seeds: range) -> None:
    """Compile the loop nests of many cases at once and run them."""
    cases = {seed: make_case(seed) for seed in seeds}
    funcs = {seed: loops_of(case, seed, f"case_{seed}") for seed, case in cases.items()}
    funcs = {seed: LOOPS.run(func) for seed, func in funcs.items() if func is not None}
    module = treadle.build(list(funcs.values()))
    for seed, func in funcs.items():
        outputs = empty_outputs(cases[seed])
        module[func.name](*cases[seed].arrays, *outputs)
        compare(outputs, seed, "compiled", func)


@pytest.mark.parametrize("group", range(10))
def test_every_stage_of_lowering_keeps_the_meaning(group: int) -> None:
    for seed in range(group * PER_TEST, (group + 1) * PER_TEST):
        check(seed)
        check(seed, symbolic=True)


@pytest.mark.parametrize("seed", [3714])
def test_schedules_that_were_wrong_once(seed: int) -> None:
    check(seed)
    check(seed, symbolic=True)
    check_compiled(range(seed, seed + 1))


@pytest.mark.parametrize("group", range(6))
def test_machine_code_keeps_the_meaning(group: int) -> None:
    check_compiled(range(group * PER_TEST, (group + 1) * PER_TEST))


@pytest.mark.slow
@pytest.mark.parametrize("group", range(10, 250))
def test_many_more(group: int) -> None:
    for seed in range(group * PER_TEST, (group + 1) * PER_TEST):
        check(seed)
        check(seed, symbolic=True)
    check_compiled(range(group * PER_TEST, (group + 1) * PER_TEST))
