# SPDX-License-Identifier: Apache-2.0
"""Holds every kernel of a network against the machine's measured peak and bandwidth.

    python -m benchmarks.roofline resnet50 bert_base [--threads 1] [--svg roofline.svg]

A kernel's best possible rate is the lower of the peak and of bandwidth times its operations per
byte (Williams, Waterman, Patterson, "Roofline", 2009). Bytes are inputs and results, each once;
what already lies in a cache can exceed the bandwidth of memory.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.table import Table

import treadle
from benchmarks import machine
from benchmarks.engines import random_inputs
from treadle.cli.profile import measure
from treadle.cli.roofline import Layer, Limits, measured_limits
from treadle.runtime.array import array
from treadle.settings import use

_BAR = 30
_WIDTH, _HEIGHT, _MARGIN = 760, 460, 60
_COLOURS = ("#0b6e99", "#d9730d", "#6940a5", "#2f7d32", "#ad1a72", "#64473a")


def layers_of(model: Path, threads: int) -> list[Layer]:
    """Return the kernels of a network; those called several times are joined into one."""
    with use(num_threads=threads):
        executable = treadle.compile(model)
        inputs = {name: array(value) for name, value in random_inputs(model).items()}
        layers, _ = measure(executable, inputs)
    return merged(layers)


def merged(layers: Iterable[Layer]) -> list[Layer]:
    """Return one layer per kernel with the sums of its calls, the slowest first."""
    found: dict[str, Layer] = {}
    for layer in layers:
        one = found.get(layer.kernel, Layer(layer.origin, layer.kernel, 0, 0, 0.0))
        sums = (one.flops + layer.flops, one.bytes + layer.bytes, one.seconds + layer.seconds)
        found[layer.kernel] = Layer(one.origin, one.kernel, *sums, saves=layer.saves)
    return sorted(found.values(), key=lambda layer: -layer.seconds)


def table_of(name: str, layers: Sequence[Layer], limits: Limits, top: int) -> Table:
    """Return the slowest kernels as a table with a bar of how much of the roofline each reaches."""
    total = sum(layer.seconds for layer in layers) or 1.0
    table = Table(title=f"{name}: {total * 1e3:.2f} ms in kernels", box=None, pad_edge=False)
    table.add_column("kernel of", no_wrap=True, max_width=34)
    for heading in ("ms", "share", "GFLOP/s", "of peak", "GB/s", "of memory", "bound by"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("of its roofline", no_wrap=True, min_width=_BAR + 5)
    for layer in layers[:top]:
        reached = layer.roofline(limits)
        table.add_row(
            layer.origin,
            f"{layer.seconds * 1e3:.3f}",
            f"{layer.seconds / total:.1%}",
            f"{layer.gflops:.1f}",
            f"{layer.gflops / limits.gflops:.0%}",
            f"{layer.gigabytes:.1f}",
            f"{layer.gigabytes / limits.gigabytes:.0%}",
            layer.bound(limits),
            f"{'█' * round(_BAR * min(1.0, reached))} {reached:.0%}",
        )
    return table


def picture(networks: Mapping[str, Sequence[Layer]], limits: Limits, title: str) -> str:
    """Return an SVG picture: operations per byte across, GFLOP/s up, both logarithmic.

    A dot is a kernel; its area is the kernel's share of the network's time.
    """
    dots = [
        (layer, _COLOURS[i % len(_COLOURS)], sum(one.seconds for one in layers))
        for i, layers in enumerate(networks.values())
        for layer in layers
        if layer.flops and layer.bytes and layer.seconds
    ]
    plane = _Plane(limits)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_MARGIN}" y="24" font-size="14">{escape(title)}</text>',
        *plane.axes(),
        *plane.roof(),
    ]
    for layer, colour, total in dots:
        x, y = plane.place(layer.flops / layer.bytes, layer.gflops)
        radius = 2 + 14 * math.sqrt(layer.seconds / total)
        label = f"{layer.origin}: {layer.gflops:.0f} GFLOP/s, {layer.roofline(limits):.0%}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}" '
            f'fill-opacity="0.45"><title>{escape(label)}</title></circle>'
        )
    for i, name in enumerate(networks):
        y, colour = 44 + 16 * i, _COLOURS[i % len(_COLOURS)]
        parts.append(f'<text x="{_MARGIN + 12}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


class _Plane:
    """Places of points: 10^-1 to 10^3 operations per byte, 10^-1 GFLOP/s to above the peak."""

    LEFT, RIGHT, BOTTOM = -1.0, 3.0, -1.0

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.top = math.ceil(math.log10(limits.gflops) + 0.3)

    def place(self, intensity: float, gflops: float) -> tuple[float, float]:
        across = min(max(math.log10(intensity), self.LEFT), self.RIGHT) - self.LEFT
        up = min(max(math.log10(gflops), self.BOTTOM), self.top) - self.BOTTOM
        x = _MARGIN + across / (self.RIGHT - self.LEFT) * (_WIDTH - 2 * _MARGIN)
        y = _HEIGHT - _MARGIN - up / (self.top - self.BOTTOM) * (_HEIGHT - 2 * _MARGIN)
        return x, y

    def axes(self) -> list[str]:
        parts = []
        for power in range(int(self.LEFT), int(self.RIGHT) + 1):
            x, y = self.place(10.0**power, 10.0**self.BOTTOM)
            parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}">{10.0**power:g}</text>')
        for power in range(int(self.BOTTOM), self.top + 1):
            x, y = self.place(10.0**self.LEFT, 10.0**power)
            parts.append(f'<text x="{x - 40:.0f}" y="{y + 4:.0f}">{10.0**power:g}</text>')
            parts.append(
                f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{_WIDTH - _MARGIN}" y2="{y:.0f}" '
                'stroke="#ddd"/>'
            )
        low = _HEIGHT - _MARGIN + 40
        parts.append(f'<text x="{_WIDTH // 2 - 60}" y="{low}">operations per byte</text>')
        parts.append(f'<text x="8" y="{_MARGIN - 14}">GFLOP/s</text>')
        return parts

    def roof(self) -> list[str]:
        ridge = self.limits.gflops / self.limits.gigabytes
        low = 10.0**self.LEFT
        corners = [
            self.place(low, low * self.limits.gigabytes),
            self.place(ridge, self.limits.gflops),
            self.place(10.0**self.RIGHT, self.limits.gflops),
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        x, y = corners[1]
        text = f"{self.limits.gflops:.0f} GFLOP/s, {self.limits.gigabytes:.1f} GB/s"
        return [
            f'<polyline points="{points}" fill="none" stroke="black" stroke-width="1.5"/>',
            f'<text x="{x:.0f}" y="{y - 8:.0f}">{text}</text>',
        ]


def main() -> None:
    """Profile the networks of the command line; print tables, write the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline")
    parser.add_argument("networks", nargs="+", help="names in the zoo, or .onnx files")
    parser.add_argument("--zoo", type=Path, default=Path(__file__).parent / "zoo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--top", type=int, default=12, help="kernels per table (default: 12)")
    parser.add_argument("--svg", type=Path, help="write the picture here")
    arguments = parser.parse_args()
    paths = [
        Path(n) if n.endswith(".onnx") else arguments.zoo / f"{n}.onnx" for n in arguments.networks
    ]
    if missing := [str(path) for path in paths if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    threads = arguments.threads
    limits = measured_limits(threads)
    networks = {path.stem: layers_of(path, threads) for path in paths}
    console = Console(width=max(150, Console().width))
    for name, layers in networks.items():
        console.print(table_of(name, layers, limits, arguments.top))
    where = f"{machine.describe()['cpu']}, {threads} thread{'s' * (threads != 1)}"
    console.print(f"{where}: {limits.gflops:.0f} GFLOP/s, {limits.gigabytes:.1f} GB/s from memory")
    if arguments.svg:
        arguments.svg.write_text(picture(networks, limits, where), encoding="utf-8")


if __name__ == "__main__":
    main()
