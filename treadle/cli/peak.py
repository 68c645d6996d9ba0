# SPDX-License-Identifier: Apache-2.0
"""Measures what the machine can do at most: float32 FMAs per second and memory read bandwidth.

The kernels are a few lines of LLVM IR at the host's widest vectors; the compiler of Treadle is not
involved, so that its kernels can be held against these figures.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm

ACCUMULATORS = 16
"""Independent chains: more than latency x ports on today's CPUs, fewer than the registers."""

ROUNDS = 40
"""Short rounds, of which the best counts: other work on the machine spoils only some."""

FMA_LOOPS = 1_000_000
READ_ROUNDS = 10
READ_BYTES = 256 << 20
"""What all threads read together: too much for a cache."""

Work = Callable[[int], object]
"""What the thread of the given index does."""


def vector_lanes() -> int:
    """Return how many float32 values the host's widest vector holds."""
    present = llvm.get_host_cpu_features()
    if present.get("avx512f"):
        return 16
    return 8 if present.get("fma") else 4


def fma_kernel(lanes: int) -> str:
    """Return float fma(i64 loops, float a, float b): ACCUMULATORS multiply-adds per loop."""
    vector = f"<{lanes} x float>"
    chains = range(ACCUMULATORS)
    phis = [f"  %x{i} = phi {vector} [ %b.v, %entry ], [ %y{i}, %loop ]" for i in chains]
    fma = f"call {vector} @llvm.fma.v{lanes}f32"
    steps = [f"  %y{i} = {fma}({vector} %x{i}, {vector} %a.v, {vector} %b.v)" for i in chains]
    return "\n".join(
        [
            f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
            f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {vector})",
            'define float @kernel(i64 %n, float %a, float %b) "prefer-vector-width"="512" {',
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
            *_total("y", "fadd", vector),
            f"  %sum = call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32("
            f"float 0.0, {vector} %t{ACCUMULATORS - 1})",
            "  ret float %sum",
            "}",
        ]
    )


def read_kernel(lanes: int) -> str:
    """Return i32 read(i64 blocks, ptr): reads ACCUMULATORS vectors per block."""
    vector = f"<{lanes} x i32>"
    chains = range(ACCUMULATORS)
    phis = [f"  %x{i} = phi {vector} [ zeroinitializer, %entry ], [ %y{i}, %loop ]" for i in chains]
    steps = []
    for i in chains:
        steps += [
            f"  %o{i} = add i64 %base, {i}",
            f"  %p{i} = getelementptr {vector}, ptr %data, i64 %o{i}",
            f"  %v{i} = load {vector}, ptr %p{i}, align {4 * lanes}",
            f"  %y{i} = xor {vector} %x{i}, %v{i}",
        ]
    return "\n".join(
        [
            f"declare i32 @llvm.vector.reduce.xor.v{lanes}i32({vector})",
            'define i32 @kernel(i64 %n, ptr %data) "prefer-vector-width"="512" {',
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
            *phis,
            f"  %base = mul i64 %i, {ACCUMULATORS}",
            *steps,
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *_total("y", "xor", vector),
            f"  %sum = call i32 @llvm.vector.reduce.xor.v{lanes}i32({vector} %t{ACCUMULATORS - 1})",
            "  ret i32 %sum",
            "}",
        ]
    )


def _splat(name: str, lanes: int) -> list[str]:
    vector = f"<{lanes} x float>"
    return [
        f"  %{name}.0 = insertelement {vector} poison, float %{name}, i32 0",
        f"  %{name}.v = shufflevector {vector} %{name}.0, {vector} poison, "
        f"<{lanes} x i32> zeroinitializer",
    ]


def _total(prefix: str, operation: str, vector: str) -> list[str]:
    first = f"  %t1 = {operation} {vector} %{prefix}0, %{prefix}1"
    rest = [
        f"  %t{i} = {operation} {vector} %t{i - 1}, %{prefix}{i}" for i in range(2, ACCUMULATORS)
    ]
    return [first, *rest]


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and the engine that keeps its code alive."""

    engine: llvm.ExecutionEngine
    call: Callable[..., object]


def compile_kernel(text: str, result: type, *arguments: type) -> Kernel:
    """Compile IR with one function "kernel" for this CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(result, *arguments)
    return Kernel(engine, signature(engine.get_function_address("kernel")))


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
    lanes = vector_lanes()
    types = (ctypes.c_int64, ctypes.c_float, ctypes.c_float)
    kernel = compile_kernel(fma_kernel(lanes), ctypes.c_float, *types)
    seconds = fastest_round(threads, lambda _: kernel.call(FMA_LOOPS, 0.5, 1.0))
    return 2e-9 * threads * FMA_LOOPS * ACCUMULATORS * lanes / seconds


def read_gigabytes(threads: int) -> float:
    """Return the bytes read from memory per second, in 10^9."""
    lanes = vector_lanes()
    kernel = compile_kernel(read_kernel(lanes), ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
    share = READ_BYTES // threads // 4096 * 4096
    with mmap.mmap(-1, share * threads) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, len(memory), 4096):
            memory[offset] = 1
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        address = ctypes.addressof(view)
        blocks = share // (4 * lanes * ACCUMULATORS)
        seconds = fastest_round(
            threads, lambda i: kernel.call(blocks, address + i * share), READ_ROUNDS
        )
        del view  # the map cannot be closed while it is exported
    return 1e-9 * share * threads / seconds
