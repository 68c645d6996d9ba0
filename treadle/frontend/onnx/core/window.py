# SPDX-License-Identifier: Apache-2.0
"""Reading the attributes that convolutions and pools share: kernel, strides, pads, auto_pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.errors import ModelError
from treadle.expr.nodes import convert, maximum
from treadle.frontend.builders.basic import dims_of
from treadle.frontend.onnx.core.movement import padded
from treadle.frontend.onnx.node import OnnxNode
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, known_sizes, normal_size
from treadle.ops import sizes

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel slides over the spatial axes, one entry per axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """How many elements the kernel spans per axis, gaps included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def read_kernel(node: OnnxNode, weights: Sequence[int] | None) -> tuple[int, ...]:
    """Return `kernel_shape`, checked against the weights' spatial shape where there are weights."""
    given = node.integers("kernel_shape")
    if weights is None:
        if given is None:
            raise ModelError(f"{node.op} lacks its attribute 'kernel_shape'")
        return given
    if given is not None and given != tuple(weights):
        raise ModelError(
            f"kernel_shape is {list(given)}, the weights have the window {list(weights)}"
        )
    return tuple(weights)


def read_window(node: OnnxNode, kernel: tuple[int, ...], spatial: Sequence[Dim]) -> Window:
    """Return the window of a convolution or pool over `spatial`, its padding worked out."""
    if len(spatial) != len(kernel):
        raise ModelError(f"a window of {len(kernel)} axes on data of {len(spatial)} spatial axes")
    strides = per_axis(node, "strides", len(kernel))
    dilations = per_axis(node, "dilations", len(kernel))
    window = Window(kernel, strides, dilations, (), ())
    mode, pads = read_pads(node, len(kernel))
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = split_pads(known_sizes(_same_totals(window, spatial)), mode)
    n = len(kernel)
    return Window(kernel, strides, dilations, pads[:n], pads[n:])


def _same_totals(window: Window, spatial: Sequence[Dim]) -> list[Dim]:
    """Return how much padding per axis gives ceil(size / stride) windows."""
    return [
        _same_total(d, s, e)
        for d, s, e in zip(spatial, window.strides, window.extents, strict=True)
    ]


def _same_total(size: Dim, stride: int, extent: int) -> Dim:
    if isinstance(size, int):
        return max((-(-size // stride) - 1) * stride + extent - size, 0)
    if stride == 1:
        return extent - 1
    windows = (convert(size) + (stride - 1)) // stride
    return normal_size(maximum((windows - 1) * stride + extent - size, 0))


def padded_window(
    node: OnnxNode, x: Node, kernel: tuple[int, ...], fill: float
) -> tuple[Node, Window]:
    """Return data and the window over it: padded already where each run decides how much."""
    spatial = dims_of(x)[2:]
    mode, _ = read_pads(node, len(kernel))
    if mode not in ("SAME_UPPER", "SAME_LOWER") or len(spatial) != len(kernel):
        return x, read_window(node, kernel, spatial)
    n = len(kernel)
    strides, dilations = per_axis(node, "strides", n), per_axis(node, "dilations", n)
    window = Window(kernel, strides, dilations, (0,) * n, (0,) * n)
    totals = _same_totals(window, spatial)
    if all(isinstance(t, int) for t in totals):
        return x, read_window(node, kernel, spatial)
    most = (0, 0, *(e - 1 for e in window.extents))
    odd = 0 if mode == "SAME_UPPER" else 1
    before = [(convert(t) + odd) // 2 for t in totals]
    whole = sizes.cut(
        padded(x, most, most, value=fill),
        begin=tuple(normal_size(m - b) for m, b in zip(most[2:], before, strict=True)),
        sizes=tuple(normal_size(d + t) for d, t in zip(spatial, totals, strict=True)),
        strides=(1,) * n,
        axes=tuple(range(2, n + 2)),
    )
    return whole, window


def per_axis(node: OnnxNode, name: str, n: int) -> tuple[int, ...]:
    """Return a positive integer per spatial axis, 1 where the attribute is absent."""
    values = node.integers(name)
    if values is None:
        return (1,) * n
    if len(values) != n or min(values, default=1) < 1:
        raise ModelError(f"{name} {list(values)} must be one positive number for each of {n} axes")
    return values


def read_pads(node: OnnxNode, n: int) -> tuple[str, tuple[int, ...]]:
    """Return auto_pad and the explicit pads: all begins, then all ends."""
    mode, pads = node.text("auto_pad", "NOTSET"), node.integers("pads")
    if mode not in AUTO_PADS:
        raise ModelError(f"auto_pad is {mode!r}, not one of {', '.join(AUTO_PADS)}")
    if pads is None or mode == "VALID":
        return mode, (0,) * (2 * n)
    if len(pads) != 2 * n:
        raise ModelError(f"pads {list(pads)} must have two entries for each of {n} axes")
    return mode, pads


def split_pads(totals: Sequence[int], mode: str) -> tuple[int, ...]:
    """Return pads (begins, then ends) of given totals; SAME_UPPER puts the odd one at the end."""
    small = [t // 2 for t in totals]
    large = [t - t // 2 for t in totals]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)
