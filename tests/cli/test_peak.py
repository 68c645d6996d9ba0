# SPDX-License-Identifier: Apache-2.0
"""What the machine can do at most: kernels that keep every accumulator in a register."""

from __future__ import annotations

import re

import pytest

from tests.targets import AVX2, AVX512, MACHINES, NEON, SSE
from treadle.cli import peak
from treadle.target import probes
from treadle.target.base import Target
from treadle.target.llvm import asm_text, spill_count
from treadle.target.parse import parse_target

TARGETS = {
    **MACHINES,
    "sse": SSE,
    "apple": parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=apple-m1"),
    "riscv": parse_target("llvm -mtriple=riscv64-linux-gnu"),
}
PRODUCT = re.compile(r"fn?madd|fmla|mulps")


def loop_of(asm: str) -> list[str]:
    """Return the instructions of the loop of multiply-adds, from its label to the jump to it."""
    lines = asm.splitlines()
    last = max(n for n, line in enumerate(lines) if PRODUCT.search(line))
    first = max(n for n in range(last) if re.match(r"\.?LBB\w+:", lines[n]))
    return lines[first : last + 1]


@pytest.mark.parametrize(("target", "count"), [(AVX512, 24), (AVX2, 12), (NEON, 24), (SSE, 12)])
def test_there_are_as_many_chains_as_registers_hold(target: Target, count: int) -> None:
    assert probes.chain_count(target) == count
    assert count <= target.vector_registers - 2


@pytest.mark.parametrize("name", TARGETS)
def test_the_loops_touch_no_stack(name: str) -> None:
    target = TARGETS[name]
    for text in (probes.fma_kernel(target), probes.read_kernel(target)):
        assert spill_count(asm_text(text)) == 0
    loop = loop_of(asm_text(probes.fma_kernel(target)))
    assert not [line for line in loop if re.search(r"\(%?[re]?sp\)|\[sp|call", line)]
    assert sum(bool(PRODUCT.search(line)) for line in loop) == probes.chain_count(target)


def test_a_level_that_holds_no_more_than_a_nearer_one_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int | None]] = []

    def read(threads: int, each: int | None = None) -> float:
        asked.append((threads, each))
        return 7.0

    shared = parse_target("llvm -mtriple=x86_64-linux-gnu -caches=32K,512K,1M")
    monkeypatch.setattr(peak, "parse_target", lambda text: shared)
    monkeypatch.setattr(peak, "read_gigabytes", read)
    assert [level.name for level in peak.cache_levels(1)] == ["L1", "L2"]
    assert asked == [(1, 16 << 10), (1, 256 << 10)]


def test_reading_counts_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_second(threads: int, work: peak.Work, rounds: int) -> float:
        work(0)
        return 1.0

    monkeypatch.setattr(peak, "fastest_round", one_second)
    monkeypatch.setattr(peak, "CACHE_PASSES_BYTES", 1 << 20)
    assert peak.read_gigabytes(1, 1 << 14) == pytest.approx(1e-9 * (1 << 20), rel=0.2)
