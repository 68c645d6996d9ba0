# SPDX-License-Identifier: Apache-2.0
"""Random programs over symbolic sizes compute what NumPy does, at every size.

A failure names its seed; `check_program(seed)` is all that is needed to see it again. Thousands are
run by hand: python -m tests.te.differential --count 10000
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.te.differential import check_program, main, random_steps
from tests.te.programs import make_program

PER_TEST = 50
FOUND = [19, 43, 51, 89, 660, 751, 1578, 1627, 1860, 1869, 2863, 5490, 243830, 245294, 4000402]
"""Programs that once read outside of a tensor, divided by zero, were wrong, or never ended."""


@pytest.mark.parametrize("group", range(6))
def test_programs(group: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(group * PER_TEST, (group + 1) * PER_TEST):
        outcome = check_program(seed, compiled=seed % 10 == 0)
        kinds[outcome.kind] += 1
        assert outcome.kind != "wrong", outcome.text
    assert kinds["built"] > PER_TEST // 2, kinds


@pytest.mark.parametrize("seed", FOUND)
def test_programs_that_were_wrong_once(seed: int) -> None:
    outcome = check_program(seed)
    assert outcome.kind != "wrong", outcome.text


def test_every_primitive_is_drawn() -> None:
    said: Counter[str] = Counter()
    for seed in range(400):
        schedule, _ = random_steps(make_program(seed), seed + 1)
        said.update(s.primitive for s in schedule.steps)
        for step in schedule.steps:
            said.update(a for a in step.args if a in ("shorten", "guard"))
            said.update(["nparts"] if step.primitive == "split" and step.args[1] is None else [])
    wanted = {
        "split", "fuse", "reorder", "vectorize", "unroll", "parallel", "pragma", "prefetch",
        "prefetch_panel", "peel", "round_up", "compute_at", "store_at", "compute_inline",
        "cache_read", "cache_write", "rfactor", "set_scope", "storage_align", "shorten", "guard",
        "nparts",
    }  # fmt: skip
    assert wanted <= set(said), wanted - set(said)


def test_the_command_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "4", "--compile-every", "1000"]) == 0
    assert capsys.readouterr().out.startswith("4: ")
