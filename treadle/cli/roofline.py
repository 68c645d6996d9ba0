# SPDX-License-Identifier: Apache-2.0
"""Kernels held against what the machine can do at most: arithmetic, and bytes from each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.build.loaded import Runnable
from treadle.build.sizes import number_of, sizes_of_run
from treadle.cli import peak
from treadle.cli.peak import CacheLevel
from treadle.runtime.array import NDArray
from treadle.runtime.gpu.executor import GpuExecutor
from treadle.target.host import why_not_here
from treadle.target.parse import parse_target
from treadle.target.probes import PROBE_KIND


@dataclass(frozen=True)
class Limits:
    """What the machine can do at most: 10^9 operations, and 10^9 bytes from memory, per second.

    `caches` are the levels of cache, the nearest first.
    """

    gflops: float
    gigabytes: float
    caches: tuple[CacheLevel, ...] = ()

    @property
    def out_of_cache(self) -> Limits:
        """The limits of work whose data no cache holds."""
        return Limits(self.gflops, self.gigabytes)

    def text(self) -> str:
        """Return them in words."""
        levels = "".join(f", {c.gigabytes:.0f} from {c.name}" for c in reversed(self.caches))
        return (
            f"at most {self.gflops:.0f} GFLOP/s and {self.gigabytes:.1f} GB/s from memory{levels}"
        )

    def to_json(self) -> dict[str, object]:
        """Return them as data."""
        return {
            "gflops": self.gflops,
            "gigabytes_per_second": self.gigabytes,
            "caches": {
                level.name: {"bytes": level.bytes, "gigabytes_per_second": level.gigabytes}
                for level in self.caches
            },
        }

    def level(self, size: int) -> tuple[str, float]:
        """Return the nearest level that holds so many bytes, and its 10^9 bytes per second."""
        for cache in self.caches:
            if size <= cache.bytes:
                return cache.name, cache.gigabytes
        return "memory", self.gigabytes


def measured_limits(threads: int, target: str = PROBE_KIND) -> Limits:
    """Measure what this machine can do on so many threads, with the vectors of a target.

    They are the machine's own for a target of another kind, or one that does not run here.
    """
    parsed = parse_target(target)
    is_own = parsed.kind != PROBE_KIND or why_not_here(parsed) is not None
    return Limits(
        peak.fma_gflops(threads, PROBE_KIND if is_own else target),
        peak.read_gigabytes(threads),
        peak.cache_levels(threads),
    )


def limits_of(model: Runnable, threads: int) -> Limits:
    """Return what a model's machine can do: a GPU by its target's facts, this CPU by measuring.

    Of the CPU it is the arithmetic of the vectors that the model was compiled for.
    """
    target = str(model.describe().get("target", PROBE_KIND))
    gpu = parse_target(target).gpu if isinstance(model.executor, GpuExecutor) else None
    if gpu is None:
        return measured_limits(threads, target)
    return Limits(gpu.flops / 1e9, gpu.memory_bytes / 1e9)


@dataclass(frozen=True)
class Layer:
    """One instruction: where it comes from, its work, and its time in seconds.

    With `saves` it multiplies less than `flops` says: those are the operations of the direct
    algorithm, so that its rate compares with that of other ways and may exceed the machine's.
    """

    origin: str
    kernel: str
    flops: int
    bytes: int
    seconds: float
    saves: bool = False

    @property
    def gflops(self) -> float:
        """Operations per second, in 10^9."""
        return 1e-9 * self.flops / self.seconds if self.seconds else 0.0

    @property
    def gigabytes(self) -> float:
        """Bytes of inputs and results per second, in 10^9."""
        return 1e-9 * self.bytes / self.seconds if self.seconds else 0.0

    def bound(self, limits: Limits) -> str:
        """Return which limit of the machine this work meets first; nothing where it has none.

        That is "compute", or the level whose bandwidth limits it: the nearest that could hold its
        data, "L1", "L2", "L3" or "memory".
        """
        if not self.flops and not self.bytes:
            return ""
        level, gigabytes = limits.level(self.bytes)
        return "compute" if self.flops / limits.gflops >= self.bytes / gigabytes else level

    def roofline(self, limits: Limits) -> float:
        """Return the time at that limit over the time taken; above 1 only where it `saves`."""
        _, gigabytes = limits.level(self.bytes)
        least = max(self.flops / limits.gflops, self.bytes / gigabytes) * 1e-9
        return least / self.seconds if self.seconds else 0.0

    def rates(self, limits: Limits) -> dict[str, object]:
        """Return its work and what the limits say of it as data; rates in 10^9 per second."""
        return {
            "flops": self.flops,
            "is_counted_direct": self.saves,
            "bytes": self.bytes,
            "gflops": round(self.gflops, 3),
            "gigabytes_per_second": round(self.gigabytes, 3),
            "bound_by": self.bound(limits) or None,
            "of_roofline": round(self.roofline(limits), 4),
        }


def sizes_of_inputs(model: Runnable, inputs: Mapping[str, NDArray]) -> list[int | None]:
    """Return the sizes in the plan's table for these inputs; of a plan of fixed sizes, none."""
    rows = model.describe().get("sizes", [])
    assert isinstance(rows, list)
    return sizes_of_run(rows, [inputs[name].shape for name in model.input_sizes()])


def layer_of(
    instruction: Mapping[str, object], sizes: Sequence[int | None], seconds: float
) -> Layer:
    """Return an instruction of a plan with its work, where the sizes of the plan are these."""
    dims = instruction.get("dims") or []
    assert isinstance(dims, list)
    own = [sizes[d["size"]] if isinstance(d, dict) else int(d) for d in dims]
    return Layer(
        origin=str(instruction.get("origin") or ""),
        kernel=str(instruction.get("kernel") or instruction.get("op") or ""),
        flops=number_of(instruction.get("flops", 0), own) or 0,
        bytes=number_of(instruction.get("bytes", 0), own) or 0,
        seconds=seconds,
        saves=bool(instruction.get("saves")),
    )
