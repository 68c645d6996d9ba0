# SPDX-License-Identifier: Apache-2.0
"""The roofline: kernels joined by name, the table, the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from benchmarks import roofline
from treadle.cli.roofline import Layer, Limits

LIMITS = Limits(gflops=100.0, gigabytes=10.0)
LAYERS = [
    Layer("a", "dense", 1_000_000, 10_000, 2e-5),
    Layer("b", "move", 0, 1_000, 1e-6),
    Layer("c", "dense", 1_000_000, 10_000, 3e-5),
]


def test_calls_of_one_kernel_are_joined() -> None:
    first, second = roofline.merged(LAYERS)
    assert (first.origin, first.flops, first.bytes) == ("a", 2_000_000, 20_000)
    assert first.seconds == pytest.approx(5e-5)
    assert second.kernel == "move"


def test_table() -> None:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(roofline.table_of("net", roofline.merged(LAYERS), LIMITS, top=5))
    text = capture.get()
    assert "net: 0.05 ms in kernels" in text
    assert "40.0" in text
    assert "40%" in text
    assert "memory" in text


def test_picture_has_a_dot_per_kernel_with_work() -> None:
    svg = roofline.picture({"<net>": roofline.merged(LAYERS)}, LIMITS, "here & now")
    circles = ET.fromstring(svg).findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 1
    # At 100 operations per byte the roof is the peak; the dot at 40 of 100 GFLOP/s lies below it.
    plane = roofline._Plane(LIMITS)
    assert float(circles[0].attrib["cx"]) == pytest.approx(plane.place(100.0, 40.0)[0], abs=0.1)
    assert float(circles[0].attrib["cy"]) > plane.place(100.0, 100.0)[1]
