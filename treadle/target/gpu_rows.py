# SPDX-License-Identifier: Apache-2.0
"""One row for each kind of GPU, under the name that `-arch=` of a target string takes.

Threads, blocks, registers and shared memory of a compute capability stand in the CUDA C++
Programming Guide, "Compute Capabilities" (technical specifications per compute capability);
multiprocessors, clocks, caches and bandwidths are those of one product of that capability, which
the row names, from the white paper of its architecture. What reads, barriers and launches take was
measured on an H200 by kernels of this package, and stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from treadle.target.gpu_machine import Gpu

K, M = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A kind of GPU, the products it stands for, and where its facts come from."""

    gpu: Gpu
    products: str
    source: str


_SM_75 = Gpu(
    multiprocessors=40, lanes=64, warp=32, threads=1024, blocks=16, registers=65536,
    thread_registers=255, shared_bytes=64 * K, block_threads=1024, block_bytes=48 * K,
    cache_bytes=4 * M, memory_bytes=320e9, clock=1.59e9,
)  # fmt: skip

GPUS: Mapping[str, GpuRow] = {
    "sm_75": GpuRow(_SM_75, "T4", "NVIDIA Turing GPU Architecture white paper, T4 data sheet"),
    "sm_80": GpuRow(
        replace(
            _SM_75, multiprocessors=108, threads=2048, blocks=32, shared_bytes=164 * K,
            cache_bytes=40 * M, memory_bytes=1555e9, clock=1.41e9,
        ),
        "A100 (40 GB)",
        "NVIDIA A100 Tensor Core GPU Architecture white paper",
    ),
    "sm_86": GpuRow(
        replace(
            _SM_75, multiprocessors=82, lanes=128, threads=1536, shared_bytes=100 * K,
            cache_bytes=6 * M, memory_bytes=936e9, clock=1.695e9,
        ),
        "RTX 3090",
        "NVIDIA Ampere GA102 GPU Architecture white paper",
    ),
    "sm_89": GpuRow(
        replace(
            _SM_75, multiprocessors=128, lanes=128, threads=1536, blocks=24,
            shared_bytes=100 * K, cache_bytes=72 * M, memory_bytes=1008e9, clock=2.52e9,
        ),
        "RTX 4090",
        "NVIDIA Ada GPU Architecture white paper",
    ),
    "sm_90": GpuRow(
        replace(
            _SM_75, multiprocessors=132, lanes=128, threads=2048, blocks=32,
            shared_bytes=228 * K, cache_bytes=50 * M, memory_bytes=3350e9, clock=1.98e9,
        ),
        "H100 SXM5 (an H200 reads 4800e9 bytes a second)",
        "NVIDIA H100 Tensor Core GPU Architecture white paper, H100 and H200 data sheets",
    ),
    "generic": GpuRow(
        Gpu(
            multiprocessors=16, lanes=64, warp=32, threads=1024, blocks=16, registers=65536,
            thread_registers=128, shared_bytes=32 * K, block_threads=256, block_bytes=32 * K,
            cache_bytes=1 * M, memory_bytes=100e9, clock=1e9,
        ),
        "any device of OpenCL",
        "OpenCL 1.2 specification, table 4.3: 32 KiB of local memory at least; what most devices "
        "have of the others, estimated",
    ),
}  # fmt: skip
"""By the name of the architecture."""

OPTIONS: Mapping[str, str] = {
    "max_threads_per_block": "block_threads",
    "max_shared_memory_per_block": "block_bytes",
    "thread_warp_size": "warp",
    "num-cores": "multiprocessors",
}
"""Options of a target string (TVM v0.8's names, but for the last), and the facts that they set."""


def gpu_options(arch: str, gpu: Gpu) -> list[str]:
    """Return the options that turn the row of an architecture into these facts."""
    row = GPUS[arch].gpu
    return [
        f"-{option}={getattr(gpu, fact)}"
        for option, fact in OPTIONS.items()
        if getattr(gpu, fact) != getattr(row, fact)
    ]
