# SPDX-License-Identifier: Apache-2.0
"""What LLVM says of itself and the machine: the same by a worker, from disk and in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from treadle.settings import use
from treadle.target import compiler_facts as module
from treadle.target.compiler_facts import CompilerFacts, compiler_facts
from treadle.target.llvm import facts_text
from treadle.target.worker_pool import pool
from treadle.target.workers import shut_down


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with use(cache=str(tmp_path / "cache")):
        compiler_facts.cache_clear()
        yield
    compiler_facts.cache_clear()


def own_facts() -> CompilerFacts:
    """Return what LLVM says in this process."""
    return module._from_json(facts_text().encode())


@pytest.mark.skipif(not module._cpu_lines(), reason="the system does not tell its CPU")
def test_a_worker_says_the_same_and_is_asked_once(tmp_path: Path) -> None:
    assert compiler_facts() == own_facts()
    shut_down()
    compiler_facts.cache_clear()
    assert compiler_facts() == own_facts()
    assert not pool().all  # it came from disk


@pytest.mark.skipif(not module._cpu_lines(), reason="the system does not tell its CPU")
@pytest.mark.parametrize("part", ["_cpu_lines", "_library"])
def test_another_machine_or_llvm_is_asked_anew(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    stale = CompilerFacts("0.0", "0.0", "none", "z80", ())
    monkeypatch.setattr(module, "_asked", lambda: json.dumps(asdict(stale)).encode())
    assert compiler_facts() == stale
    compiler_facts.cache_clear()
    monkeypatch.undo()
    monkeypatch.setattr(module, part, lambda: ["another"])
    assert compiler_facts() == own_facts()


def test_without_a_worker_this_process_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError("no more processes")

    shut_down()
    monkeypatch.setattr(pool(), "take", refused)
    assert compiler_facts() == own_facts()


def test_where_the_cpu_is_not_told_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cpu_lines", list)
    monkeypatch.setattr(module, "_asked", lambda: pytest.fail("a worker was asked"))
    assert compiler_facts() == own_facts()
