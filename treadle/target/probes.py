# SPDX-License-Identifier: Apache-2.0
"""Loops that meet one limit of a machine each, as LLVM IR: of its units, loads, memory and clock.

They are a few lines at the target's widest vectors; the schedules of Treadle are not involved, so
that its kernels can be held against what these reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.target.base import Target

PROBE_KIND = "llvm"
"""The kind of target whose back end reads the texts."""

CLOCK_STEPS = 64
"""Cycles that one loop of `clock_kernel` takes: as many dependent operations."""


_NARROW_BITS = 128
"""Vectors of so many bits change no core's clock."""


def chain_count(target: Target) -> int:
    """Return how many independent accumulators to use: 12 of 16 registers, 24 of 32.

    More than latency x ports of today's CPUs; the registers that are left hold the operands.
    """
    return target.vector_registers * 3 // 4


def lanes_of(target: Target) -> int:
    """Return how many float32 values a vector holds; 1 where there are no vectors."""
    has_none = target.architecture == "riscv64" and not target.has("zve64d")
    return 1 if has_none else target.lanes()


def fma_kernel(target: Target, count: int = 0) -> str:
    """Return float kernel(i64 loops, float a, float b): a multiply-add per chain and loop.

    There are `count` chains, 0 for `chain_count`. Where the target has no such instruction it
    multiplies and adds.
    """
    lanes = lanes_of(target)
    vector = f"<{lanes} x float>"
    chains = range(count or chain_count(target))
    phis = [f"  %x{i} = phi {vector} [ %b.v, %entry ], [ %y{i}, %loop ]" for i in chains]
    fma = f"call {vector} @llvm.fmuladd.v{lanes}f32"
    steps = [f"  %y{i} = {fma}({vector} %x{i}, {vector} %a.v, {vector} %b.v)" for i in chains]
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            *_declarations(lanes),
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
            *_sum([f"%y{i}" for i in chains], lanes),
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
            *_total([f"%y{i}" for i in chains], "xor", vector),
            f"  %sum = call i32 @llvm.vector.reduce.xor.v{lanes}i32({vector} %total)",
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
    words.append('"all-passes"')  # value numbering would make equal chains one
    return f"attributes #0 = {{ {' '.join(words)} }}"


def _splat(name: str, lanes: int) -> list[str]:
    vector = f"<{lanes} x float>"
    return [
        f"  %{name}.0 = insertelement {vector} poison, float %{name}, i32 0",
        f"  %{name}.v = shufflevector {vector} %{name}.0, {vector} poison, "
        f"<{lanes} x i32> zeroinitializer",
    ]


def _total(values: Sequence[str], operation: str, vector: str) -> list[str]:
    """Return what sums vectors up into %total."""
    first, *rest = values
    if not rest:
        return [f"  %total = select i1 true, {vector} {first}, {vector} {first}"]
    names = [first, *(f"%t{i}" for i in range(1, len(rest))), "%total"]
    return [f"  {names[i + 1]} = {operation} {vector} {names[i]}, {x}" for i, x in enumerate(rest)]


def _sum(values: Sequence[str], lanes: int) -> list[str]:
    """Return what sums vectors of floats, and their elements, up into %sum."""
    vector = f"<{lanes} x float>"
    reduce = f"call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32"
    total = _total(values, "fadd", vector)
    return [*total, f"  %sum = {reduce}(float 0.0, {vector} %total)"]


def _declarations(lanes: int) -> list[str]:
    """Return the declarations of what multiplies and adds vectors, and of what `_sum` calls."""
    vector = f"<{lanes} x float>"
    return [
        f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})",
        f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {vector})",
    ]


def clock_kernel(target: Target) -> str:
    """Return i64 kernel(i64 loops, i64 a, i64 b, float c): a chain of additions and exclusive ors.

    Each takes a cycle on every CPU, and needs the one before. Where vectors are wider than 128 bits
    an independent multiply-add of `c` by itself stands next to each: cores of Intel have a lower
    clock while they do many of those, and it is that clock in which kernels run. The result has the
    whole part of their sum added; `c` is 0.
    """
    lanes = lanes_of(target)
    vector = f"<{lanes} x float>"
    fma = f"call {vector} @llvm.fmuladd.v{lanes}f32"
    count = chain_count(target) // 2 if target.vector_bits > _NARROW_BITS else 0
    chain, latest = [], [f"%w{i}" for i in range(count)]
    for i in range(CLOCK_STEPS):
        operation, operand = ("add", "%a") if i % 2 == 0 else ("xor", "%b")
        chain.append(f"  %x{i + 1} = {operation} i64 %x{i}, {operand}")
        if count:
            before, latest[i % count] = latest[i % count], f"%u{i}"
            chain.append(f"  %u{i} = {fma}({vector} {before}, {vector} %c.v, {vector} %c.v)")
    phis = [
        f"  %w{i} = phi {vector} [ %c.v, %entry ], [ {x}, %loop ]" for i, x in enumerate(latest)
    ]
    wide = [*_sum(latest, lanes), "  %whole = fptosi float %sum to i64"] if latest else []
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            *_declarations(lanes),
            "define i64 @kernel(i64 %n, i64 %a, i64 %b, float %c) #0 {",
            "entry:",
            *_splat("c", lanes),
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
            f"  %x0 = phi i64 [ %b, %entry ], [ %x{CLOCK_STEPS}, %loop ]",
            *phis,
            *chain,
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *wide,
            f"  %found = add i64 %x{CLOCK_STEPS}, {'%whole' if wide else 0}",
            "  ret i64 %found",
            "}",
            _attributes(target),
        ]
    )


def chase_kernel(target: Target) -> str:
    """Return ptr kernel(i64 steps, ptr first): reads where to read next, so many times."""
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            "define ptr @kernel(i64 %n, ptr %first) #0 {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
            "  %p = phi ptr [ %first, %entry ], [ %next, %loop ]",
            "  %next = load ptr, ptr %p, align 8",
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret ptr %next",
            "}",
            _attributes(target),
        ]
    )
