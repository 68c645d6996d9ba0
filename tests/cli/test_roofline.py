# SPDX-License-Identifier: Apache-2.0
"""Kernels held against what the machine can do."""

from __future__ import annotations

import pytest

from treadle.cli import peak
from treadle.cli.peak import CacheLevel
from treadle.cli.roofline import Layer, Limits, measured_limits
from treadle.target.parse import parse_target


def test_a_layer_is_held_against_the_limit_it_meets() -> None:
    limits = Limits(gflops=100.0, gigabytes=10.0)
    product = Layer("a", "k", flops=1_000_000, bytes=1_000, seconds=2e-5)
    assert product.bound(limits) == "compute"
    assert product.roofline(limits) == pytest.approx(0.5)
    assert product.gflops == pytest.approx(50.0)
    move = Layer("b", "k", flops=0, bytes=1_000, seconds=4e-7)
    assert move.bound(limits) == "memory"
    assert move.roofline(limits) == pytest.approx(0.25)
    assert Layer("c", "copy", 0, 0, 1e-6).bound(limits) == ""


def test_data_that_a_cache_holds_is_held_against_that_cache() -> None:
    caches = (CacheLevel("L1", 1 << 15, 200.0), CacheLevel("L2", 1 << 20, 50.0))
    limits = Limits(100.0, 10.0, caches)
    sizes = (1 << 15, 1 << 20, (1 << 20) + 1)
    layers = [Layer("a", "k", 0, size, size * 1e-11) for size in sizes]
    assert [layer.bound(limits) for layer in layers] == ["L1", "L2", "memory"]
    assert [layer.roofline(limits) for layer in layers] == pytest.approx([0.5, 2.0, 10.0])
    near = Layer("b", "k", flops=100_000, bytes=1 << 15, seconds=1e-6)
    assert near.bound(limits) == "compute"
    assert near.bound(Limits(100.0, 10.0)) == "memory"


def test_work_that_no_cache_holds_is_held_against_memory() -> None:
    limits = Limits(100.0, 10.0, (CacheLevel("L1", 1 << 15, 200.0),))
    move = Layer("a", "k", 0, 1000, 1e-7)
    assert (move.bound(limits), move.bound(limits.out_of_cache)) == ("L1", "memory")
    assert move.rates(limits.out_of_cache)["of_roofline"] == 1.0
    assert limits.text() == "at most 100 GFLOP/s and 10.0 GB/s from memory, 200 from L1"
    assert limits.to_json()["caches"] == {"L1": {"bytes": 1 << 15, "gigabytes_per_second": 200.0}}


@pytest.mark.parametrize("of_here", [False, True])
def test_arithmetic_is_measured_with_the_vectors_of_the_target(
    monkeypatch: pytest.MonkeyPatch, *, of_here: bool
) -> None:
    """Without the widest vectors of this machine, or its own where the target does not run here."""
    host = parse_target("llvm").triple.split("-")[0]
    narrow = {"x86_64": "x86-64", "aarch64": "generic"}.get(host, "generic")
    elsewhere = "llvm -mtriple=riscv64-linux-gnu"
    target = f"llvm -mtriple={host}-unknown-linux-gnu -mcpu={narrow}" if of_here else elsewhere
    asked: list[str] = []

    def gflops(threads: int, of: str) -> float:
        asked.append(of)
        return 1.0

    monkeypatch.setattr(peak, "fma_gflops", gflops)
    monkeypatch.setattr(peak, "read_gigabytes", lambda threads: 1.0)
    monkeypatch.setattr(peak, "cache_levels", lambda threads: ())
    measured_limits(1, target)
    measured_limits(1, "c")
    assert asked == [target if of_here else "llvm", "llvm"]
