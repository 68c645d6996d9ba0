# SPDX-License-Identifier: Apache-2.0
"""The facts of machines: rows with known names and sources, caches, rates, what others share."""

from __future__ import annotations

import pytest

from treadle.target.cpus import architecture_of
from treadle.target.host import real_host
from treadle.target.machine import Cache, CacheSizes
from treadle.target.machine_rows import FAMILIES, GENERIC, family_of, machine_of
from treadle.target.parse import parse_target

TRIPLES = ("x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu")

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True)
def _as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves say what the machine looks like."""
    monkeypatch.delenv("TREADLE_HOST_CPU", raising=False)


def test_every_row_names_cpus_that_are_known_once_and_its_source() -> None:
    known = [architecture_of(triple) for triple in TRIPLES]
    names = [cpu for family in FAMILIES for cpu in family.cpus]
    assert len(names) == len(set(names))
    assert all(any(a is not None and name in a.cpus for a in known) for name in names)
    for family in (*FAMILIES, *GENERIC.values()):
        assert all((family.sources.units, family.sources.caches, family.sources.rates))


def test_caches_grow_with_their_level_and_give_less_each_cycle() -> None:
    for family in (*FAMILIES, *GENERIC.values()):
        caches, sizes = family.machine.caches, family.machine.sizes
        assert sizes.l1 < sizes.l2 < sizes.l3, family.name
        rates = [cache.bytes_per_cycle for cache in caches]
        assert rates == sorted(rates, reverse=True), family.name
        assert rates[0] <= family.machine.loads_per_cycle * family.machine.load_bits / 8
        assert family.machine.memory_bytes_per_cycle <= rates[-1], family.name


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
    assert str(target.machine.sizes) == sizes
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
        assert str(here.machine.sizes) == "1K,2K,3"
        assert parse_target(str(here)) == here
    finally:
        real_host.cache_clear()


def test_levels_the_system_does_not_tell_are_those_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("treadle.target.host.cache_bytes", lambda: {1: 16 << 10})
    real_host.cache_clear()
    try:
        here, row = real_host(), machine_of(real_host().triple, real_host().cpu).sizes
    finally:
        real_host.cache_clear()
    assert here.machine.sizes == CacheSizes(16 << 10, row.l2, row.l3)


def test_an_unknown_architecture_has_no_row() -> None:
    assert family_of("sparc-linux", "v9") is None
    assert machine_of("sparc-linux", "v9") == GENERIC["x86"].machine
    assert str(CacheSizes(48 << 10, 2 << 20, 12345)) == "48K,2M,12345"


def test_wider_vectors_take_as_many_times_as_long() -> None:
    client = machine_of(TRIPLES[0], "icelake-client")
    assert [client.fmas_per_cycle(bits) for bits in (128, 256, 512)] == [2, 2, 1]
    assert [client.loads_of(bits) for bits in (256, 512)] == [2, 2]
    assert [client.stores_of(bits) for bits in (256, 512)] == [2, 1]


def test_dot_products_are_known_by_their_types() -> None:
    zen5, haswell = (machine_of(TRIPLES[0], cpu) for cpu in ("znver5", "haswell"))
    assert zen5.dot_rate("uint8", "int8") == 4
    assert zen5.dot_rate("int8", "uint8") is None
    assert haswell.dot_rate("bfloat16", "bfloat16") is None


def test_a_part_of_a_shared_cache_grows_with_the_sizes() -> None:
    a72 = machine_of(TRIPLES[1], "cortex-a72")
    assert a72.caches[1] == Cache(1 << 20, a72.caches[1].bytes_per_cycle, 4)
    larger = a72.with_sizes(CacheSizes(32 << 10, 512 << 10, 4 << 20))
    assert larger.caches[1].bytes == 2 << 20
    assert larger.sizes.l2 == 512 << 10


@pytest.mark.parametrize(
    ("triple", "stack"),
    [
        *((triple, 1 << 20) for triple in TRIPLES),
        ("armv7-linux-gnueabihf", 1 << 20),
        ("riscv32-unknown-linux-gnu", 1 << 20),
        ("thumbv7em-none-eabi", 1 << 10),
        ("riscv32-unknown-elf", 1 << 10),
        ("arm-zephyr-eabi", 1 << 10),
        ("aarch64-none-elf", 1 << 10),
    ],
)
def test_kernels_have_little_stack_and_no_threads_without_a_system(triple: str, stack: int) -> None:
    target = parse_target(f"c -mtriple={triple}")
    assert target.machine.stack_bytes == stack
    assert target.has_threads == (stack == 1 << 20)
    assert "-stack-bytes" not in str(target)
    more = parse_target(f"c -mtriple={triple} -stack-bytes=6K")
    assert more.machine.stack_bytes == 6 << 10
    assert parse_target(str(more)) == more


def test_chips_of_core_complexes_have_several_caches_of_the_last_level() -> None:
    found = {name for f in FAMILIES if f.machine.last_caches > 1 for name in f.cpus}
    assert found == {f"znver{k}" for k in range(1, 6)}
