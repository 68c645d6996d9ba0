# SPDX-License-Identifier: Apache-2.0
"""Records that a block applies: the inner goes before the outer, and no other thread sees them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import treadle
from tests.tune.tasks import network
from treadle.build.record_context import applied, records_to_read
from treadle.build.records import Record, Records
from treadle.target.parse import parse_target
from treadle.te.knobs import Config

pytestmark = pytest.mark.tiny

TARGET = parse_target("llvm")


def records(**rows: int) -> Records:
    """Records that say of a kernel how many rows it takes."""
    found = Records()
    for kernel, count in rows.items():
        found.put(kernel, TARGET, Config.of({"rows": count}))
    return found


def rows_of(kernel: str, named: Records | None = None) -> object:
    found = records_to_read(named)
    choice = None if found is None else found.get(kernel, TARGET)
    return choice.get("rows") if isinstance(choice, Config) else None


def test_the_innermost_that_speaks_of_a_kernel_counts() -> None:
    with applied(records(a=1, b=1, c=1)):
        with applied(records(b=2, c=2)):
            assert [rows_of(k, records(c=3)) for k in "abc"] == [1, 2, 3]
            with applied(None):
                assert rows_of("a") is None
        assert rows_of("b") == 1
    assert records_to_read(None) is None


def test_a_trial_inside_goes_before_a_decision_outside() -> None:
    inner = Records()
    inner.add(Record("a", str(TARGET), Config.of({"rows": 5}), seconds=(1.0,)))
    with applied(records(a=1)), applied(inner):
        assert rows_of("a") == 5


def test_no_other_thread_sees_them() -> None:
    seen: list[Records | None] = []
    with applied(records(a=1)):
        thread = threading.Thread(target=lambda: seen.append(records_to_read(None)))
        thread.start()
        thread.join()
    assert seen == [None]


def test_compile_reads_them_and_says_so(tmp_path: Path) -> None:
    (kernel,) = treadle.compile(network()).kernels
    file = tmp_path / "own.jsonl"
    records(**{kernel.name: 8}).write(file)
    with applied(records(**{kernel.name: 2})):
        tuned = treadle.compile(network())
        named = treadle.compile(network(), records=file)
    assert tuned.kernels[0].choice == Config.of({"rows": 2})
    assert named.kernels[0].choice == Config.of({"rows": 8})
    assert str(tuned.coverage) == "1 of 1 kernels are in the records"
    assert treadle.compile(network()).coverage is None
