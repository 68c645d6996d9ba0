# SPDX-License-Identifier: Apache-2.0
"""The instructions of a plan with their work and time, and the one table that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from treadle.cli.text import console, count_text, print_table, printable

_HEADINGS = ("ms", "share", "GFLOP/s", "GB/s", "bound by", "of roofline", "kernel", "layer")
_NUMBERS = 6
_LEAST_LAYER = 16
"""Characters of a layer's name that a terminal shows at least."""


@dataclass(frozen=True)
class Limits:
    """What the machine can do at most: 10^9 operations, and 10^9 bytes from memory, per second."""

    gflops: float
    gigabytes: float


@dataclass(frozen=True)
class Layer:
    """One instruction: where it comes from, its work, and its time in seconds."""

    origin: str
    kernel: str
    flops: int
    bytes: int
    seconds: float

    @classmethod
    def of(cls, instruction: Mapping[str, object], seconds: float) -> Layer:
        """Return an instruction of a plan with the time it took."""
        return cls(
            origin=str(instruction.get("origin") or ""),
            kernel=str(instruction.get("kernel") or instruction.get("op") or ""),
            flops=_number(instruction.get("flops")),
            bytes=_number(instruction.get("bytes")),
            seconds=seconds,
        )

    @property
    def gflops(self) -> float:
        """Operations per second, in 10^9."""
        return 1e-9 * self.flops / self.seconds if self.seconds else 0.0

    @property
    def gigabytes(self) -> float:
        """Bytes of inputs and results per second, in 10^9."""
        return 1e-9 * self.bytes / self.seconds if self.seconds else 0.0

    def bound(self, limits: Limits) -> Literal["compute", "memory", ""]:
        """Return which limit of the machine this work meets first; nothing where it has none."""
        if not self.flops and not self.bytes:
            return ""
        computing, moving = self.flops / limits.gflops, self.bytes / limits.gigabytes
        return "compute" if computing >= moving else "memory"

    def roofline(self, limits: Limits) -> float:
        """Return the time at that limit over the time taken; data in caches may exceed 1."""
        least = max(self.flops / limits.gflops, self.bytes / limits.gigabytes) * 1e-9
        return least / self.seconds if self.seconds else 0.0

    def json(self, limits: Limits, total: float) -> dict[str, object]:
        """Return the row as data: milliseconds, rates in 10^9 per second, shares of 1."""
        return {
            "layer": self.origin,
            "kernel": self.kernel,
            "ms": round(self.seconds * 1e3, 6),
            "share": round(self.seconds / total, 6),
            "flops": self.flops,
            "bytes": self.bytes,
            "gflops": round(self.gflops, 3),
            "gigabytes_per_second": round(self.gigabytes, 3),
            "bound_by": self.bound(limits) or None,
            "of_roofline": round(self.roofline(limits), 4),
        }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def print_layers(layers: Sequence[Layer], limits: Limits | None = None, top: int = 0) -> None:
    """Print a row per instruction: all in the order they run, or the `top` slowest.

    Numbers come first, so that no kernel's name is cut or wrapped. On a terminal columns of numbers
    give way to names, and then layers are shortened; a file gets all.
    """
    total = sum(layer.seconds for layer in layers) or 1.0
    shown = sorted(layers, key=lambda layer: -layer.seconds)[:top] if top else layers
    rows = [_cells(layer, limits, total) for layer in shown]
    out = console()
    columns = [k for k in range(len(_HEADINGS)) if any(row[k] for row in rows)]
    if out.is_terminal:
        columns = _fitting(rows, columns, out.width)
    table = [[row[k] for k in columns] for row in rows]
    numbers = sum(k < _NUMBERS for k in columns)
    print_table(out, [_HEADINGS[k] for k in columns], table, numbers=range(numbers))
    if len(shown) < len(layers):
        rest = 1 - sum(layer.seconds for layer in shown) / total
        left = len(layers) - len(shown)
        out.print(f"… and {count_text(left, 'more instruction')}, {rest:.1%} (--top 0 shows all)")


def _cells(layer: Layer, limits: Limits | None, total: float) -> list[str]:
    bound = layer.bound(limits) if limits is not None else ""
    return [
        f"{layer.seconds * 1e3:.4f}",
        f"{layer.seconds / total:.1%}",
        f"{layer.gflops:.1f}" if layer.flops else "",
        f"{layer.gigabytes:.1f}" if layer.bytes else "",
        bound,
        f"{layer.roofline(limits):.0%}" if limits is not None and bound else "",
        printable(layer.kernel),
        printable(layer.origin),
    ]


def _fitting(rows: list[list[str]], columns: list[int], width: int) -> list[int]:
    """Return the columns that fit beside the kernels' names, and shorten the layers in `rows`."""
    widths = [max(len(h), *(len(row[k]) for row in rows)) for k, h in enumerate(_HEADINGS)]
    kept, layer = list(columns), len(_HEADINGS) - 1
    for column in (4, 3, 5, 2):  # the least telling first
        if _room(kept, widths, width) < min(_LEAST_LAYER, widths[layer]) and column in kept:
            kept.remove(column)
    room = max(_LEAST_LAYER, _room(kept, widths, width))
    for row in rows:
        row[layer] = _short(row[layer], room)
    return kept


def _room(columns: Sequence[int], widths: Sequence[int], width: int) -> int:
    """Return how many characters of a line the other columns leave to the layer."""
    return width - sum(widths[k] + 2 for k in columns if k != len(_HEADINGS) - 1)


def _short(text: str, width: int) -> str:
    """Return a name without its middle: the beginning says where, the end which one."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
