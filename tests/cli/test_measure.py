# SPDX-License-Identifier: Apache-2.0
"""`treadle doctor --measure`: the facts of this machine, printed, saved, read by a target."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from treadle.cli import doctor, measure
from treadle.cli.main import main
from treadle.cli.measure import Measured
from treadle.target.host import host
from treadle.target.parse import parse_target
from treadle.target.probes import CLOCK_STEPS, chase_kernel, clock_kernel


def test_the_chain_of_the_clock_computes_every_step() -> None:
    types = (*(ctypes.c_int64,) * 3, ctypes.c_float)
    chain = measure.compile_probe(clock_kernel(parse_target("llvm")), ctypes.c_int64, *types)
    x = 5
    for _ in range(3 * CLOCK_STEPS // 2):
        x = (x + 3) ^ 5
    assert chain.call(3, 3, 5, 0.0) == x


def test_wide_vectors_are_multiplied_beside_the_chain() -> None:
    """The clock is that of kernels: a core may run slower while it multiplies long vectors."""
    machines = ("x86_64-linux-gnu -mcpu=cascadelake", "x86_64-linux-gnu -mcpu=nehalem")
    wide, narrow = (clock_kernel(parse_target(f"llvm -mtriple={m}")) for m in machines)
    assert wide.count("@llvm.fmuladd.v16f32(<16 x float> %") == CLOCK_STEPS
    assert "call" not in narrow


def test_what_was_done_in_a_cycle_says_how_many_units_there_are() -> None:
    found = [measure._units(x) for x in (0.4, 0.97, 1.05, 1.37, 1.9, 2.08)]
    assert found == [1, 1, 1, 2, 2, 2]


def test_latency_is_of_lines_that_no_round_before_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []

    class Steps:
        def call(self, steps: int, first: int) -> int:
            began.append(first)
            return first + steps

    monkeypatch.setattr(measure, "_chase", lambda target: Steps())
    monkeypatch.setattr(measure, "_MOST_CHASED", 1 << 20)
    target = parse_target("llvm")
    assert measure._memory_latency(target, measure.Stopwatch(target)) > 0
    assert len(set(began)) == len(began) > 1


def test_lines_are_linked_in_one_ring() -> None:
    """After as many steps as there are lines, and no fewer, the first is reached again."""
    probe = measure._chase(parse_target("llvm"))
    memory = np.zeros(64 * 16, np.uint64)
    start = memory.ctypes.data
    measure._link_lines(start, 64 * 64, 64)
    assert chase_kernel(parse_target("llvm"))
    met = [probe.call(steps, start) for steps in range(1, 65)]
    assert len(set(met)) == 64
    assert met[-1] == start


def test_what_is_measured_is_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few rounds; nothing is said of the figures, as other work may run."""
    for name in ("_ROUNDS", "_REMOTE_ROUNDS", "_FORK_ROUNDS", "_FORKS"):
        monkeypatch.setattr(measure, name, 3)
    monkeypatch.setattr(measure, "_MOST_CHASED", 1 << 20)
    monkeypatch.setattr(measure, "read_gigabytes", lambda threads, each=None: 40.0 * threads)
    found = measure.measure_machine()
    row, machine = host().machine, found.machine
    assert found.gigahertz > 0
    assert machine.sizes == row.sizes
    assert (machine.fma_bits, machine.line_bytes) == (row.fma_bits, row.line_bytes)
    rates = [cache.bytes_per_cycle for cache in machine.caches]
    assert rates == sorted(rates, reverse=True)
    target = replace(parse_target("llvm"), machine=machine)
    assert parse_target(str(target)) == target


def test_one_core_keeps_what_needs_two(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(host().machine, fma_latency=9)
    monkeypatch.setattr(measure, "_alone", lambda target, threads: (row, 2e9))
    monkeypatch.setattr(measure, "_cores", lambda: [0])
    found = measure.measure_machine()
    assert found.machine == row
    assert "one core" in found.left_out


def test_doctor_prints_and_saves_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = replace(host().machine, fork_cycles=4321, memory_bytes_per_cycle=3.5)
    monkeypatch.setattr(doctor, "measure_machine", lambda: Measured(machine, 3.25))
    path = tmp_path / "this machine.json"
    assert main(["doctor", "--measure", "--save", str(path)]) == 0
    out = capsys.readouterr().out
    assert "3.25 GHz" in out
    assert f"-fork-cycles=4321   (without: {host().machine.fork_cycles})" in out
    assert "-caches=" in out
    assert parse_target(f"llvm '-machine={path}'").machine == machine


def test_doctor_saves_only_what_it_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--save", str(tmp_path / "m.json")]) == 2
    assert "add --measure" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
