# SPDX-License-Identifier: Apache-2.0
"""The rows of CPU families: known names, sources, caches, and what schedules count of them."""

from __future__ import annotations

import pytest

from treadle.target.cpus import architecture_of
from treadle.target.host import real_host
from treadle.target.machine import GENERIC, MACHINES, CacheSizes, cache_sizes_of, machine_of
from treadle.target.parse import parse_target

TRIPLES = ("x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu")

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True)
def _as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves say what the machine looks like."""
    monkeypatch.delenv("TREADLE_HOST_CPU", raising=False)


def test_every_row_names_cpus_that_are_known_once_and_its_source() -> None:
    known = [architecture_of(triple) for triple in TRIPLES]
    names = [cpu for machine in MACHINES for cpu in machine.cpus]
    assert len(names) == len(set(names))
    assert all(any(a is not None and name in a.cpus for a in known) for name in names)
    assert all(machine.source for machine in (*MACHINES, *GENERIC.values()))


def test_caches_grow_with_their_level() -> None:
    for machine in (*MACHINES, *GENERIC.values()):
        assert len(machine.caches) in (2, 3)
        sizes = [cache.bytes for cache in machine.caches]
        assert sizes == sorted(sizes), machine.name
        assert machine.sizes.l1 < machine.sizes.l2 < machine.sizes.l3, machine.name


@pytest.mark.parametrize(
    ("triple", "cpu", "sizes"),
    [
        (TRIPLES[0], "znver3", "32K,512K,32M"),
        (TRIPLES[0], "haswell", "32K,256K,8M"),
        (TRIPLES[0], "sapphirerapids", "48K,2M,105M"),
        (TRIPLES[0], "penryn", "32K,512K,8M"),
        (TRIPLES[1], "cortex-a72", "32K,256K,1M"),  # a quarter of what four cores share
        (TRIPLES[1], "cortex-a55", "32K,128K,3M"),
        (TRIPLES[1], "apple-m1", "128K,3M,12M"),
        (TRIPLES[2], "generic-rv64", "32K,512K,2M"),
    ],
)
def test_a_named_cpu_has_its_own_caches(triple: str, cpu: str, sizes: str) -> None:
    target = parse_target(f"llvm -mtriple={triple} -mcpu={cpu}")
    found = CacheSizes(target.l1_bytes, target.l2_bytes, target.l3_bytes)
    assert str(found) == sizes
    assert "-caches" not in str(target)


def test_a_cpu_named_here_has_the_same_caches_as_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever this machine has, a CPU's name means the same."""
    cpu = real_host().cpu
    before = parse_target(f"llvm -mcpu={cpu}")
    monkeypatch.setattr("treadle.target.host.cache_bytes", lambda: {1: 1 << 10, 2: 2 << 10, 3: 3})
    real_host.cache_clear()
    try:
        assert parse_target(f"llvm -mcpu={cpu}") == before
        here = parse_target("llvm")
        assert str(CacheSizes(here.l1_bytes, here.l2_bytes, here.l3_bytes)) == "1K,2K,3"
        assert parse_target(str(here)) == here
    finally:
        real_host.cache_clear()


def test_levels_the_system_does_not_tell_are_those_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("treadle.target.host.cache_bytes", lambda: {1: 16 << 10})
    real_host.cache_clear()
    try:
        here, row = real_host(), cache_sizes_of(real_host().triple, real_host().cpu)
    finally:
        real_host.cache_clear()
    assert (here.caches.l1, here.caches.l2, here.caches.l3) == (16 << 10, row.l2, row.l3)


def test_an_unknown_architecture_has_no_row() -> None:
    assert machine_of("sparc-linux", "v9") is None
    assert cache_sizes_of("sparc-linux", "v9") == CacheSizes()
    assert str(CacheSizes(48 << 10, 2 << 20, 12345)) == "48K,2M,12345"
