# SPDX-License-Identifier: Apache-2.0
"""Cycles of loops whose accumulators stay in registers.

What bounds a loop of fused multiply-adds: the units that compute them, the latency of a chain of
dependent sums, and the loads of broadcast values and of weight vectors. Whole loops are counted,
remainders included, so a tile that divides its axis wins over one that leaves a thin rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

from treadle.target.base import Target
from treadle.target.machine import SHUFFLED_STRIDE

_BODY_SHARE = 0.02
"""What one more body of code counts as, in the whole time: of two choices that take about as long,
the one with fewer kinds of remainders is shorter, to compile and in the cache of instructions."""
LOADED = 0.85
"""The share of a core's loads that a tile gets: lines that arrive in the first cache, and loads
that are repeated, take the rest."""
_ISSUED = 0.9
"""The share of a core's vector operations that a tile gets: fitted to those of a loop of broadcasts
and multiply-adds on Zen, 0.88 to 0.98 by the shape of the tile."""
_UNITS_OF_PAIRS = 512
"""Bits from which on a unit takes the places of two smaller ones: of three, two units are left."""
_FUNCTION_REGISTERS = 6
"""Registers of a transcendental function: argument, parts of it, the polynomial, a coefficient."""


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` output positions times `vectors` output vectors held in registers."""

    rows: int
    vectors: int


@dataclass(frozen=True, slots=True)
class WindowTile:
    """`high` times `wide` output positions times `vectors` output vectors held in registers."""

    high: int
    wide: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Taps:
    """`count` taps of a window along one axis, `gap` apart, over `size` places.

    Position i of the window begins at place i * stride - before; other places hold zeros.
    """

    count: int
    size: int
    before: int
    stride: int = 1
    gap: int = 1

    def live(self, first: int, positions: int) -> int:
        """Return how many taps meet a place at any of `positions` positions from `first` on."""
        low = first * self.stride - self.before
        high = low + (positions - 1) * self.stride
        return sum(high + k * self.gap >= 0 > low + k * self.gap - self.size
                   for k in range(self.count))  # fmt: skip


def fma_cycles(vectors: float, target: Target) -> float:
    """Return the cycles of so many multiply-adds of whole vectors that do not wait for another."""
    return vectors / target.machine.fmas_per_cycle(target.vector_bits)


def load_cycles(vectors: float, target: Target) -> float:
    """Return the cycles in which so many whole vectors are read from level 1."""
    return vectors / target.machine.loads_of(target.vector_bits)


def shuffle_cycles(vectors: float, target: Target) -> float:
    """Return the cycles that so many shuffles of whole vectors take from multiply-adds.

    Next to theirs another unit shuffles vectors of up to 256 bits; of units that take 512 bits at
    once there are two, one of which shuffles.
    """
    alone = target.machine.fma_bits < _UNITS_OF_PAIRS
    return 0.0 if alone else vectors / target.machine.fmas_per_cycle(target.vector_bits)


def issue_cycles(operations: float, target: Target) -> float:
    """Return the cycles in which so many operations on whole vectors are issued."""
    return operations / target.machine.issued_per_cycle(target.vector_bits)


def vectors_in_flight(target: Target) -> int:
    """Return how many accumulators keep the units busy without waiting: a power of two, no more."""
    most = target.machine.fma_units * target.machine.fma_latency
    return 1 << (most.bit_length() - 1)


def function_registers() -> int:
    """Return how many registers a transcendental function in an epilogue takes for its own."""
    return _FUNCTION_REGISTERS


def cycles_with_bodies(cycles: float, bodies: int) -> float:
    """Return what cycles of a choice count as that takes so many bodies of code."""
    return cycles * (1 + _BODY_SHARE * bodies)


def tile_cycles(
    rows: int, vectors: float, target: Target, loaded: float = 1.0, written_out: int = 1
) -> float:
    """Return the cycles of one step of the reduction for a tile of rows times registers.

    `loaded` loads bring a vector: more than one where its elements lie apart. An iteration of the
    innermost loop has `written_out` steps.
    """
    machine, sums = target.machine, rows * vectors
    compute = max(fma_cycles(sums, target), machine.fma_latency if sums else 0)
    loads = tile_load_cycles(rows, vectors * loaded, target) / LOADED
    issue = issue_cycles(sums + rows + vectors * loaded, target) / _ISSUED
    return max(compute, loads, issue) + machine.iteration_cycles / written_out


def tile_load_cycles(rows: int, vectors: float, target: Target) -> float:
    """Return the cycles in which a step reads a value of every row and so many whole vectors."""
    return rows / target.machine.loads_per_cycle + load_cycles(vectors, target)


@lru_cache(maxsize=1 << 6)
def tile_steps(target: Target) -> Callable[..., float]:
    """Return `tile_cycles` of a target, a function of its other arguments that keeps its answers.

    For those who compare many tiles: there are few pairs of rows and vectors that fit registers.
    """
    return cache(partial(_tile_step, target))


def _tile_step(
    target: Target, rows: int, vectors: float, loaded: float = 1.0, written_out: int = 1
) -> float:
    return tile_cycles(rows, vectors, target, loaded, written_out)


def steps_written_out(steps: int, row_bytes: int, registers: int, target: Target) -> int:
    """Return how many of so many steps of a reduction one iteration of its innermost loop has.

    All where a vector of weights, of `row_bytes`, is shorter than a line: what is done once for a
    line is then done once for all of them. A tile of one of the `registers` loads a value for each
    multiply-add; written out, its loads would take those that hold its sums.
    """
    return steps if row_bytes < target.machine.line_bytes and registers > 1 else 1


def loads_of_vector(stride: int, lanes: int) -> int:
    """Return how many loads bring a vector of elements `stride` apart."""
    return stride if stride <= SHUFFLED_STRIDE else lanes


def vectors_of(elements: int, lanes: int, target: Target) -> float:
    """Return how many whole vectors of `lanes` take as long as those of so many elements.

    Of the last one only as many parts are computed as it has elements for, where the units of the
    machine are narrower than its vectors.
    """
    parts = max(1, target.vector_bits // target.machine.fma_bits)
    full, rest = divmod(elements, lanes)
    return full + -(-rest * parts // lanes) / parts


def tile_set_cycles(
    rows: int,
    vectors: int,
    tile: Tile,
    width: int,
    target: Target,
    wait: float = 0.0,
    written_out: int = 1,
) -> float:
    """Return the cycles of one reduction step over the whole output, remainders included.

    A vector takes `width` registers; `wait`: cycles to read a vector of weights. An iteration of
    the innermost loop has `written_out` steps.
    """
    cycles, step_of = 0.0, tile_steps(target)
    columns = parts_of(vectors, tile.vectors)
    for tile_rows, row_count in parts_of(rows, tile.rows):
        for tile_vectors, vector_count in columns:
            held = tile_vectors * width
            step = max(step_of(tile_rows, held, 1.0, written_out), held * wait)
            cycles += step * row_count * vector_count
    return cycles


def image_cycles(
    image: tuple[int, int, int],
    tile: WindowTile,
    registers: int,
    target: Target,
    taps: tuple[Taps, Taps] | None = None,
    wait: float = 0.0,
    written_out: int = 1,
) -> float:
    """Return the cycles of one reduction step over the whole output, remainders included.

    With `taps`: of a step for each of them that does not meet zeros only. `wait`: cycles to read a
    vector of weights. An iteration of the innermost loop has `written_out` steps.
    """
    cycles, step_of = 0.0, tile_steps(target)
    along = (None, None) if taps is None else taps
    for high, high_count in _parts_with_taps(image[0], tile.high, along[0]):
        for wide, wide_count in _parts_with_taps(image[1], tile.wide, along[1]):
            for v, count in parts_of(image[2], tile.vectors):
                held = v * registers
                step = max(step_of(high * wide, held, 1.0, written_out), held * wait)
                cycles += step * high_count * wide_count * count
    return cycles


@lru_cache(maxsize=1 << 10)
def _parts_with_taps(extent: int, factor: int, taps: Taps | None) -> Sequence[tuple[int, int]]:
    """Return (size, count), every part counted once for each of its live taps."""
    if taps is None:
        return parts_of(extent, factor)
    found: dict[int, int] = {}
    for first in range(0, extent, factor):
        size = min(factor, extent - first)
        found[size] = found.get(size, 0) + taps.live(first, size)
    return list(found.items())


def parts_of(extent: int, factor: int) -> list[tuple[int, int]]:
    """Return (size, count) of full tiles and of the remainder."""
    full, rest = divmod(extent, factor)
    return [(factor, full)] * (full > 0) + [(rest, 1)] * (rest > 0)
