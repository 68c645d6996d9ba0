# SPDX-License-Identifier: Apache-2.0
"""Which work is worth other threads: by what waking them costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets import AVX512
from treadle.cost.forks import fork_cycles, is_worth_forking, least_elements, unevenness
from treadle.target.base import Target

pytestmark = pytest.mark.tiny


def waking(cycles: int) -> Target:
    return replace(AVX512, machine=replace(AVX512.machine, fork_cycles=cycles))


def test_work_is_shared_from_some_times_what_waking_costs() -> None:
    cheap, dear = waking(1000), waking(10_000)
    assert fork_cycles(dear) == 10_000
    assert is_worth_forking(4000, cheap)
    assert not is_worth_forking(3999, cheap)
    assert not is_worth_forking(4000, dear)


def test_fewer_elements_are_worth_it_where_they_are_large_or_waking_is_cheap() -> None:
    assert least_elements(waking(3072)) == 1 << 14
    assert least_elements(waking(6144)) == 1 << 15
    assert least_elements(waking(3072), itemsize=8) == 1 << 13


def test_jobs_that_the_cores_do_not_share_evenly_take_longer() -> None:
    four = replace(AVX512, cores=4)
    assert [unevenness(jobs, four) for jobs in (1, 4, 6, 8)] == [4, 1, 8 / 6, 1]
