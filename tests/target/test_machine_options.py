# SPDX-License-Identifier: Apache-2.0
"""The facts of a machine as options of a target: each has one, all read back, mistakes are said."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from treadle.errors import TargetError
from treadle.target.machine import Cache, Machine
from treadle.target.machine_options import FACTS, OPTIONS, options_of, with_options
from treadle.target.machine_rows import FAMILIES, machine_of
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny

ZEN3 = machine_of("x86_64-linux-gnu", "znver3")
OTHER = Machine(
    fma_units=3,
    fma_bits=1024,
    fma_latency=7,
    loads_per_cycle=5,
    load_bits=64,
    stores_per_cycle=6,
    store_bits=32,
    vector_issue=9,
    fill_buffers=48,
    iteration_cycles=0.75,
    line_bytes=128,
    fetch_bytes=512,
    page_bytes=1000,
    caches=(Cache(3000, 9.1, 2), Cache(8 << 10, 7.3, 4), Cache(3 << 20, 1 / 3, 5)),
    memory_bytes_per_cycle=0.1,
    memory_latency=12345,
    remote_bytes_per_cycle=123456.5,
    remote_latency=2,
    fork_cycles=1,
    dot_rates=(("float16", "float16", 1.5), ("int8", "uint8", 8.0)),
    stack_bytes=12345,
    last_caches=3,
)
"""It shares no fact with any row."""


def test_every_fact_has_an_option_that_is_printed_where_it_differs() -> None:
    named = {option.removeprefix("-").partition("=")[0] for option in options_of(OTHER, ZEN3)}
    assert named == set(OPTIONS)
    assert {f.name for f in fields(Machine)} - {n.replace("-", "_") for n in OPTIONS} == set()
    assert options_of(ZEN3, ZEN3) == []


def test_a_target_holds_all_facts_of_its_machine_as_text() -> None:
    target = replace(parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3"), machine=OTHER)
    assert parse_target(str(target)) == target


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family.name))
def test_a_row_on_another_cpu_reads_back(family: object) -> None:
    machine = family.machine  # type: ignore[attr-defined]
    words = (option.removeprefix("-").partition("=") for option in options_of(machine, OTHER))
    given = {name: value for name, _, value in words}
    assert with_options(OTHER, given, "a test") == machine


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: str(fact.option))
def test_the_example_of_a_mistake_can_be_written(fact: object) -> None:
    option, example = fact.option, fact.example  # type: ignore[attr-defined]
    parse_target(f"llvm -{option}={example}")
    for wrong in ("", "0", "-1", "x", "1e9", "nan", "1,2", "1,1,1,1", "float32:1", "9" * 30):
        with pytest.raises(TargetError) as error:
            parse_target(f"llvm -{option}={wrong}")
        assert error.value.hint == f"write -{option}={example}"


def test_options_are_read_beside_each_other() -> None:
    target = parse_target(
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -caches=32K,1M,8M -caches-shared-by=1,2,4"
    )
    assert [c.bytes for c in target.machine.caches] == [32 << 10, 2 << 20, 8 << 20]
    assert target.l2_bytes == 1 << 20
