# SPDX-License-Identifier: Apache-2.0
"""Measures what the machine can do at most: float32 FMAs per second, and bytes read per second."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from treadle.cli.threads import at_once
from treadle.target.backend import LoadedCode, backend_of
from treadle.target.parse import parse_target
from treadle.target.probes import PROBE_KIND, chain_count, fma_kernel, lanes_of, read_kernel

ROUNDS = 40
"""Short rounds, of which the best counts: other work on the machine spoils only some."""

FMA_LOOPS = 1_000_000
READ_ROUNDS = 10
READ_BYTES = 256 << 20
"""What all threads read together from memory: too much for a cache."""
CACHE_PASSES_BYTES = 64 << 20
"""What each thread reads from a cache in one round, in many passes over the same bytes."""

Work = Callable[[int], object]
"""What the thread of the given index does."""


@dataclass(frozen=True)
class CacheLevel:
    """A level of cache: how much all threads can hold in it, and 10^9 bytes read per second."""

    name: str
    bytes: int
    gigabytes: float


@dataclass(frozen=True)
class Probe:
    """A compiled loop that meets one limit, and the code that is freed with it."""

    code: LoadedCode
    call: Callable[..., object]


def compile_probe(text: str, result: type, *arguments: type, target: str = PROBE_KIND) -> Probe:
    """Compile a text of treadle.target.probes, which this machine must be able to run."""
    backend = backend_of(PROBE_KIND)
    objects = backend.compile([("kernel", text)], parse_target(target), None)
    code = backend.load(objects.values())
    signature = ctypes.CFUNCTYPE(result, *arguments)
    return Probe(code, signature(code.address("kernel")))


def fastest_round(threads: int, work: Work, rounds: int = ROUNDS) -> float:
    """Return the seconds from a common start until the last thread ends, in the best round."""
    best = float("inf")
    for _ in range(rounds):
        barrier = threading.Barrier(threads + 1)
        with at_once([partial(_at_barrier, barrier, work, i) for i in range(threads)], barrier):
            barrier.wait()
            start = time.perf_counter()
        best = min(best, time.perf_counter() - start)
    return best


def _at_barrier(barrier: threading.Barrier, work: Work, index: int) -> None:
    barrier.wait()
    work(index)


def fma_gflops(threads: int, of: str = PROBE_KIND) -> float:
    """Return the float32 operations per second, a multiply-add counting two, in 10^9.

    `of` is the target whose vectors are used, of the kind "llvm", which this machine must be able
    to run.
    """
    target = parse_target(of)
    types = (ctypes.c_int64, ctypes.c_float, ctypes.c_float)
    probe = compile_probe(fma_kernel(target), ctypes.c_float, *types, target=of)
    seconds = fastest_round(threads, lambda _: probe.call(FMA_LOOPS, 0.5, 1.0))
    return 2e-9 * threads * FMA_LOOPS * chain_count(target) * lanes_of(target) / seconds


def read_gigabytes(threads: int, each: int | None = None) -> float:
    """Return the bytes read from memory per second, in 10^9.

    With `each`, every thread reads so many bytes of its own again and again, from a cache.
    """
    target = parse_target("llvm")
    types = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    probe = compile_probe(read_kernel(target), ctypes.c_int32, *types)
    block = 4 * lanes_of(target) * chain_count(target)
    blocks = max(1, (each or READ_BYTES // threads) // block)
    passes = 1 if each is None else max(1, CACHE_PASSES_BYTES // (blocks * block))
    page = target.machine.page_bytes
    share = -(-blocks * block // page) * page  # whole pages for each thread
    with pages(share * threads) as address:
        seconds = fastest_round(
            threads, lambda i: probe.call(passes, blocks, address + i * share), READ_ROUNDS
        )
    return 1e-9 * passes * blocks * block * threads / seconds


@contextmanager
def pages(size: int) -> Iterator[int]:
    """Give the address of so many bytes of memory, large pages if there are any."""
    with mmap.mmap(-1, size) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, len(memory), mmap.PAGESIZE):
            memory[offset] = 1
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        try:
            yield ctypes.addressof(view)
        finally:
            del view  # the map cannot be closed while it is exported


def cache_levels(threads: int) -> tuple[CacheLevel, ...]:
    """Return the levels of cache, the nearest first, as threads on cores of their own see them."""
    target = parse_target("llvm")
    first, middle = threads * target.l1_bytes, threads * target.l2_bytes
    levels: list[CacheLevel] = []
    for name, size in (("L1", first), ("L2", middle), ("L3", target.l3_bytes)):
        before = levels[-1].bytes if levels else 0
        if size // 2 > before:  # else there is nothing that only this level holds
            rate = read_gigabytes(threads, size // 2 // threads)
            levels.append(CacheLevel(name, size, rate))
    return tuple(levels)
