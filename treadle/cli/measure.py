# SPDX-License-Identifier: Apache-2.0
"""Measures the facts of this machine: `treadle doctor --measure`.

Every figure is the best of many short rounds, so that other work on the machine spoils only some;
the clock is told by a chain of dependent operations in rounds between them, in which wide vectors
are multiplied, too, as kernels do. What cannot be told from outside is kept from the CPU's row:
widths of units, lines, pages, who shares caches, what an iteration takes beyond its arithmetic.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from treadle import te
from treadle.build.te_build import build
from treadle.cli.peak import Probe, compile_probe, pages, read_gigabytes
from treadle.cli.threads import at_once
from treadle.runtime import native
from treadle.target.base import Target
from treadle.target.machine import Cache, Machine
from treadle.target.parse import parse_target
from treadle.target.probes import (
    CLOCK_STEPS,
    chain_count,
    chase_kernel,
    clock_kernel,
    fma_kernel,
    lanes_of,
    read_kernel,
)

_ROUNDS = 60
_CLOCK_LOOPS = 3_000
_FMA_LOOPS = 20_000
_CHASES = 20_000
_MOST_CHASED = 256 << 20
"""Bytes among which memory's latency is measured, or four times the last cache if that is less."""
_HANDED_OVER = 128 << 10
"""Bytes that one core writes and another reads: they fit a second level of cache."""
_REMOTE_ROUNDS = 300
_FORKS, _FORK_ROUNDS = 50, 40
_INEXACT = 0.1
"""Of a unit: what the clock may be told wrong by."""
_ADDITIONS = 4096
"""Steps of a task: enough that no thread has done all tasks before the others wake up."""

Run = Callable[[], object]


@dataclass(frozen=True)
class Measured:
    """The facts that were found, the clock in 10^9 cycles per second, what was not measured."""

    machine: Machine
    gigahertz: float
    left_out: str = ""


def measure_machine() -> Measured:
    """Return the facts of this machine; measuring them takes some ten seconds."""
    target = parse_target("llvm")
    threads = native.num_threads()
    machine, hertz = _alone(target, threads)
    if min(threads, len(_cores())) < 2:
        reason = "one core is usable: what threads and other cores cost is the row's"
        return Measured(machine, hertz / 1e9, reason)
    rate, latency = _remote(target, machine.line_bytes)
    machine = replace(
        machine,
        remote_bytes_per_cycle=rate,
        remote_latency=latency,
        fork_cycles=max(1, round(_fork_seconds(threads) * hertz)),
    )
    return Measured(machine, hertz / 1e9)


def _alone(target: Target, threads: int) -> tuple[Machine, float]:
    """Return the facts of one core and of its memory, and the cycles of a second."""
    row, bits, stopwatch = target.machine, target.vector_bits, Stopwatch(target)
    chains = chain_count(target)
    fmas = chains * _FMA_LOOPS / stopwatch.cycles(_fma_run(target, chains))
    latency = stopwatch.cycles(_fma_run(target, 1)) / _FMA_LOOPS
    machine = replace(
        row,
        fma_units=_units(fmas * max(1.0, bits / row.fma_bits)),
        fma_latency=_whole(latency),
        memory_latency=_whole(_memory_latency(target, stopwatch)),
    )
    hertz = stopwatch.hertz()
    caches = _caches(target, threads, hertz)
    loads = caches[0].bytes_per_cycle * 8 / bits
    machine = replace(
        machine,
        caches=caches,
        loads_per_cycle=_units(loads * max(1.0, bits / row.load_bits)),
        memory_bytes_per_cycle=_rate(read_gigabytes(1) * 1e9 / hertz),
    )
    return machine, hertz


class Stopwatch:
    """Tells cycles: rounds of what is measured alternate with rounds of the chain."""

    def __init__(self, target: Target) -> None:
        types = (*(ctypes.c_int64,) * 3, ctypes.c_float)
        self.chain = compile_probe(clock_kernel(target), ctypes.c_int64, *types)
        self.best = float("inf")

    def hertz(self) -> float:
        """Return the cycles of a second, as the fastest round of the chain so far tells them."""
        for _ in range(_ROUNDS):
            self._tick()
        return _CLOCK_LOOPS * CLOCK_STEPS / self.best

    def cycles(self, run: Run, rounds: int = _ROUNDS) -> float:
        """Return the cycles of the fastest round of `run`."""
        fastest = float("inf")
        for _ in range(rounds):
            fastest = min(fastest, _seconds(run))
            self._tick()
        return fastest * _CLOCK_LOOPS * CLOCK_STEPS / self.best

    def _tick(self) -> None:
        """Time a round of the chain."""
        seconds = _seconds(lambda: self.chain.call(_CLOCK_LOOPS, 3, 5, 0.0))
        self.best = min(self.best, seconds)


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _whole(value: float) -> int:
    return max(1, round(value))


def _units(per_cycle: float) -> int:
    """Return how many units did so much in a cycle: fewer could not have, but for a tenth."""
    return max(1, ceil(per_cycle - _INEXACT))


def _rate(value: float) -> float:
    """Return a rate to a tenth: more is not repeatable."""
    return max(0.1, round(value, 1))


def _fma_run(target: Target, chains: int) -> Run:
    types = (ctypes.c_int64, ctypes.c_float, ctypes.c_float)
    probe = compile_probe(fma_kernel(target, chains), ctypes.c_float, *types)
    return lambda: probe.call(_FMA_LOOPS, 0.5, 1.0)


def _caches(target: Target, threads: int, hertz: float) -> tuple[Cache, Cache, Cache]:
    """Return the caches with what each of the threads reads from half of its part of a level."""
    sizes = target.machine.sizes
    parts = (sizes.l1, sizes.l2, sizes.l3 // threads)
    rates = [_rate(read_gigabytes(threads, part // 2) * 1e9 / threads / hertz) for part in parts]
    ordered = (min(rates[: k + 1]) for k in range(len(rates)))  # a later level gives no more
    pairs = zip(target.machine.caches, ordered, strict=True)
    first, middle, last = (replace(c, bytes_per_cycle=rate) for c, rate in pairs)
    return first, middle, last


def _memory_latency(target: Target, stopwatch: Stopwatch) -> float:
    probe = _chase(target)
    size = min(_MOST_CHASED, 4 * target.l3_bytes)
    with pages(size) as address:
        _link_lines(address, size, target.machine.line_bytes)
        at = address

        def chase_on() -> None:  # the lines that are behind are in the caches
            nonlocal at
            reached = probe.call(_CHASES, at)
            assert isinstance(reached, int)
            at = reached

        return stopwatch.cycles(chase_on, 10) / _CHASES


def _chase(target: Target) -> Probe:
    return compile_probe(chase_kernel(target), ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


def _link_lines(address: int, size: int, line: int) -> None:
    """Let every line hold the address of another, all in one ring of no foreseeable order."""
    lines = size // line
    words = np.ctypeslib.as_array((ctypes.c_uint64 * (size // 8)).from_address(address))
    order = np.random.default_rng(0).permutation(lines)
    words[order * (line // 8)] = address + np.roll(order, -1).astype(np.uint64) * line


def _remote(target: Target, line: int) -> tuple[float, int]:
    """Return bytes per cycle, and the latency, of reading what another core has just written."""
    stopwatch, chase = Stopwatch(target), _chase(target)
    types = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    read = compile_probe(read_kernel(target), ctypes.c_int32, *types)
    block = 4 * lanes_of(target) * chain_count(target)
    blocks = _HANDED_OVER // block
    hertz = stopwatch.hertz()
    with pages(_HANDED_OVER) as address:
        reading = _handed_over(
            lambda: ctypes.memset(address, 1, _HANDED_OVER), lambda: read.call(1, blocks, address)
        )
        steps = _HANDED_OVER // line
        waiting = _handed_over(
            lambda: _link_lines(address, _HANDED_OVER, line), lambda: chase.call(steps, address)
        )
    return _rate(blocks * block / (reading * hertz)), _whole(waiting * hertz / steps)


def _handed_over(write: Run, read: Run) -> float:
    """Return the seconds of a read on one core after a write on another, as most of many take."""
    first, second, *_ = _cores()
    baton = threading.Barrier(2)
    times: list[float] = []

    def reader() -> None:
        _stay_on(second)
        for _ in range(_REMOTE_ROUNDS):
            baton.wait()
            times.append(_seconds(read))
            baton.wait()

    def writer() -> None:
        _stay_on(first)
        for _ in range(_REMOTE_ROUNDS):
            write()
            baton.wait()
            baton.wait()

    with at_once([reader, writer], baton):
        pass
    return statistics.median(times)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _stay_on(core: int) -> None:
    """Keep the calling thread on a core, where the system lets one choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def _fork_seconds(threads: int) -> float:
    """Return what a task for each of the threads takes more than one task alone."""
    return max(0.0, _task_seconds(threads) - _task_seconds(1))


def _task_seconds(tasks: int) -> float:
    """Return the time of a loop over tasks of some thousand dependent additions each."""
    a = te.placeholder((tasks, _ADDITIONS), name="a")
    k = te.reduce_axis((0, _ADDITIONS), name="k")
    b = te.compute((tasks,), lambda i: te.sum(a[i, k], axis=k), name="b")
    assert isinstance(b, te.Tensor)
    s = te.create_schedule(b.op)
    if tasks > 1:
        s[b].parallel(s[b].leaf_iter_vars[0])
    module = build(s, [a, b], name="tasks")
    timer = module.entry.time_evaluator(number=_FORKS, repeat=_FORK_ROUNDS)
    return timer(np.zeros((tasks, _ADDITIONS), np.float32), np.zeros(tasks, np.float32)).min
