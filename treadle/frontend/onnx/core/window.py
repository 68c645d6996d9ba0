# SPDX-License-Identifier: Apache-2.0
"""Reading the attributes that convolutions and pools share: kernel, strides, pads, auto_pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of
from treadle.frontend.builders.windows import Window, padded_to_same, window_of
from treadle.frontend.onnx.node import OnnxNode
from treadle.graph.nodes import Node

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def read_window(node: OnnxNode, x: Node, weights: Sequence[int] | None = None) -> Window:
    """Return the window of a convolution or pool over x [n, c, ...].

    `weights` is the kernel's shape where there are weights. Padding that `auto_pad` asks for
    depends on the extents of `x`, which may be symbolic.
    """
    spatial = dims_of(x)[2:]
    window = read_steps(node, read_kernel(node, weights))
    if len(spatial) != len(window.kernel):
        raise ModelError(
            f"a window of {len(window.kernel)} axes on data of {len(spatial)} spatial axes"
        )
    mode, before, after = read_pads(node, len(spatial))
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return padded_to_same(window, spatial, odd_first=mode == "SAME_LOWER")
    return replace(window, before=before, after=after)


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


def read_steps(node: OnnxNode, kernel: Sequence[int]) -> Window:
    """Return an unpadded window with the strides and dilations of the node."""
    return window_of(kernel, node.integers("strides"), node.integers("dilations"))


def read_pads(node: OnnxNode, n: int) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return auto_pad, and the explicit pads before and after."""
    mode, pads = node.text("auto_pad", "NOTSET"), node.integers("pads")
    if mode not in AUTO_PADS:
        raise ModelError(f"auto_pad is {mode!r}, not one of {', '.join(AUTO_PADS)}")
    if pads is None or mode == "VALID":
        return mode, (0,) * n, (0,) * n
    if len(pads) != 2 * n:
        raise ModelError(f"pads {list(pads)} must have two entries for each of {n} axes")
    return mode, pads[:n], pads[n:]
