# SPDX-License-Identifier: Apache-2.0
"""Measures what the machine can do at most: float32 FMAs per second, and bytes read per second.

The kernels are a few lines of LLVM IR at the target's widest vectors; the schedules of Treadle are
not involved, so that its kernels can be held against these figures.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from treadle.target.base import Target
from treadle.target.jit import JitModule
from treadle.target.llvm import compile_ir
from treadle.target.parse import parse_target

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


def chain_count(target: Target) -> int:
    """Return how many independent accumulators to use: 12 of 16 registers, 24 of 32.

    More than latency x ports of today's CPUs; the registers that are left hold the operands.
    """
    return target.vector_registers * 3 // 4


def lanes_of(target: Target) -> int:
    """Return how many float32 values a vector holds; 1 where there are no vectors."""
    has_none = target.architecture == "riscv64" and not target.has("zve64d")
    return 1 if has_none else target.lanes()


def fma_kernel(target: Target) -> str:
    """Return float kernel(i64 loops, float a, float b): a multiply-add per chain and loop.

    Where the target has no such instruction it multiplies and adds.
    """
    lanes = lanes_of(target)
    vector = f"<{lanes} x float>"
    chains = range(chain_count(target))
    phis = [f"  %x{i} = phi {vector} [ %b.v, %entry ], [ %y{i}, %loop ]" for i in chains]
    fma = f"call {vector} @llvm.fmuladd.v{lanes}f32"
    steps = [f"  %y{i} = {fma}({vector} %x{i}, {vector} %a.v, {vector} %b.v)" for i in chains]
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})",
            f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {vector})",
            "define float @kernel(i64 %n, float %a, float %b) #0 {",
            "entry:",
            *_splat("a", lanes),
            *_splat("b", lanes),
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
            *phis,
            *steps,
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *_total("y", "fadd", vector, len(chains)),
            f"  %sum = call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32("
            f"float 0.0, {vector} %t{len(chains) - 1})",
            "  ret float %sum",
            "}",
            _attributes(target),
        ]
    )


def read_kernel(target: Target) -> str:
    """Return i32 kernel(i64 passes, i64 blocks, ptr): reads a vector per chain and block."""
    lanes = lanes_of(target)
    vector = f"<{lanes} x i32>"
    chains = range(chain_count(target))
    heads = [
        f"  %h{i} = phi {vector} [ zeroinitializer, %entry ], [ %y{i}, %next ]" for i in chains
    ]
    phis = [f"  %x{i} = phi {vector} [ %h{i}, %pass ], [ %y{i}, %loop ]" for i in chains]
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            f"declare i32 @llvm.vector.reduce.xor.v{lanes}i32({vector})",
            "define i32 @kernel(i64 %passes, i64 %n, ptr %data) #0 {",
            "entry:",
            "  br label %pass",
            "pass:",
            "  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]",
            *heads,
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %pass ], [ %i.next, %loop ]",
            *phis,
            f"  %base = mul i64 %i, {len(chains)}",
            *(line for i in chains for line in _read_step(i, lanes)),
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %n",
            "  br i1 %more, label %loop, label %next",
            "next:",
            "  %k.next = add i64 %k, 1",
            "  %again = icmp ult i64 %k.next, %passes",
            "  br i1 %again, label %pass, label %done",
            "done:",
            *_total("y", "xor", vector, len(chains)),
            f"  %sum = call i32 @llvm.vector.reduce.xor.v{lanes}i32({vector} %t{len(chains) - 1})",
            "  ret i32 %sum",
            "}",
            _attributes(target),
        ]
    )


def _read_step(chain: int, lanes: int) -> list[str]:
    """Return what one chain does in a loop: it reads a vector and keeps what it has seen of all."""
    vector = f"<{lanes} x i32>"
    return [
        f"  %o{chain} = add i64 %base, {chain}",
        f"  %p{chain} = getelementptr {vector}, ptr %data, i64 %o{chain}",
        f"  %v{chain} = load {vector}, ptr %p{chain}, align {4 * lanes}",
        f"  %y{chain} = xor {vector} %x{chain}, %v{chain}",
    ]


def _attributes(target: Target) -> str:
    words = [f'"target-cpu"="{target.cpu}"', f'"prefer-vector-width"="{target.vector_bits}"']
    features = target.feature_string()
    words += [f'"target-features"="{features}"'] if features else []
    return f"attributes #0 = {{ {' '.join(words)} }}"


def _splat(name: str, lanes: int) -> list[str]:
    vector = f"<{lanes} x float>"
    return [
        f"  %{name}.0 = insertelement {vector} poison, float %{name}, i32 0",
        f"  %{name}.v = shufflevector {vector} %{name}.0, {vector} poison, "
        f"<{lanes} x i32> zeroinitializer",
    ]


def _total(prefix: str, operation: str, vector: str, count: int) -> list[str]:
    first = f"  %t1 = {operation} {vector} %{prefix}0, %{prefix}1"
    rest = [f"  %t{i} = {operation} {vector} %t{i - 1}, %{prefix}{i}" for i in range(2, count)]
    return [first, *rest]


@dataclass(frozen=True)
class Probe:
    """A compiled loop that meets one limit, and the module that keeps its code alive."""

    module: JitModule
    call: Callable[..., object]


def compile_probe(text: str, result: type, *arguments: type) -> Probe:
    """Compile IR with one function "kernel", which this machine must be able to run."""
    module = JitModule([compile_ir(text)])
    signature = ctypes.CFUNCTYPE(result, *arguments)
    return Probe(module, signature(module.address("kernel")))


def fastest_round(threads: int, work: Work, rounds: int = ROUNDS) -> float:
    """Return the seconds from a common start until the last thread ends, in the best round."""
    best = float("inf")
    for _ in range(rounds):
        barrier = threading.Barrier(threads + 1)
        workers = [
            threading.Thread(target=_at_barrier, args=(barrier, work, i)) for i in range(threads)
        ]
        for worker in workers:
            worker.start()
        barrier.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - start)
    return best


def _at_barrier(barrier: threading.Barrier, work: Work, index: int) -> None:
    barrier.wait()
    work(index)


def fma_gflops(threads: int) -> float:
    """Return the float32 operations per second, a multiply-add counting two, in 10^9."""
    target = parse_target("llvm")
    types = (ctypes.c_int64, ctypes.c_float, ctypes.c_float)
    probe = compile_probe(fma_kernel(target), ctypes.c_float, *types)
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
    share = -(-blocks * block // 4096) * 4096  # whole pages for each thread
    with mmap.mmap(-1, share * threads) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, len(memory), 4096):
            memory[offset] = 1
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        address = ctypes.addressof(view)
        seconds = fastest_round(
            threads, lambda i: probe.call(passes, blocks, address + i * share), READ_ROUNDS
        )
        del view  # the map cannot be closed while it is exported
    return 1e-9 * passes * blocks * block * threads / seconds


def cache_levels(threads: int) -> tuple[CacheLevel, ...]:
    """Return the levels of cache, the nearest first, as threads on cores of their own see them."""
    target = parse_target("llvm")
    near, middle = threads * target.l1_bytes, threads * target.l2_bytes
    levels: list[CacheLevel] = []
    for name, size in (("L1", near), ("L2", middle), ("L3", target.l3_bytes)):
        nearer = levels[-1].bytes if levels else 0
        if size // 2 > nearer:  # else there is nothing that only this level holds
            rate = read_gigabytes(threads, size // 2 // threads)
            levels.append(CacheLevel(name, size, rate))
    return tuple(levels)
