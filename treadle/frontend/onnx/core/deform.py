# SPDX-License-Identifier: Apache-2.0
"""The converter of DeformConv: the elements of a window are sampled where offsets move them to."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    per_channel,
    reshaped,
    transposed,
)
from treadle.frontend.builders.windows import Window
from treadle.frontend.onnx.core.window import read_window
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, as_dim, known_sizes, product_of, shapes_may_agree
from treadle.ops import elementwise, indexing, matmul, movement, vision


@converter("DeformConv", since=(19, 22))
def deformable_convolution(node: OnnxNode) -> Node:
    """Convert a convolution whose positions offsets move (Dai et al., 2017) and a mask scales."""
    batch, channels = node.dims(0)[:2]
    (channels,) = known_sizes((channels,))
    results, depth, *kernel = node.shape(1)
    window = read_window(node, node.input(0), kernel)
    offset_groups, groups = node.integer("offset_group", 1), node.integer("group", 1)
    if min(offset_groups, groups) < 1 or channels % offset_groups or results % groups:
        raise ModelError(f"{groups} groups and {offset_groups} of offsets do not divide channels")
    if depth * groups != channels:
        raise ModelError(f"{node.type(1)} in {groups} groups does not fit {node.type(0)}")
    outer = _extents(node, window, offset_groups)
    count = prod(kernel)
    sampled = _sampled(node, window, offset_groups, outer)
    # [batch * offset groups, channels per group, positions * outer[0], ...]
    apart = (batch, offset_groups, channels // offset_groups, count, *outer)
    sampled = reshaped(sampled, apart)
    if node.has_input(4):
        mask = reshaped(node.input(4), (batch, offset_groups, 1, count, *outer))
        sampled = elementwise.multiply(sampled, mask)
    columns = reshaped(sampled, (batch, groups, depth * count, product_of(outer)))
    weights = reshaped(node.input(1), (1, groups, results // groups, depth * count))
    made = reshaped(matmul.matmul(weights, columns), (batch, results, *outer))
    bias = node.optional(3)
    return made if bias is None else elementwise.add(made, per_channel(bias, made))


def _extents(node: OnnxNode, window: Window, offset_groups: int) -> tuple[Dim, ...]:
    """Return the output's spatial shape, which the offsets must have."""
    batch, _, *spatial = node.dims(0)
    outer = tuple(
        as_dim((d + (b + a - e)) // s + 1)
        for d, b, a, e, s in zip(
            spatial, window.before, window.after, window.extents, window.strides, strict=True
        )
    )
    moves = offset_groups * prod(window.kernel)
    if not shapes_may_agree(node.dims(2), (batch, moves * len(spatial), *outer)):
        raise ModelError(f"the offsets {node.type(2)} do not fit an output of {list(outer)}")
    if node.has_input(4) and not shapes_may_agree(node.dims(4), (batch, moves, *outer)):
        raise ModelError(f"the mask {node.type(4)} does not fit an output of {list(outer)}")
    return outer


def _sampled(node: OnnxNode, window: Window, groups: int, outer: tuple[Dim, ...]) -> Node:
    """Return what every position of every window reads, linear between elements."""
    batch, channels, *spatial = node.dims(0)
    n, count = len(spatial), prod(window.kernel)
    wide = "float64" if node.type(0).dtype == "float64" else "float32"
    moves = reshaped(converted(node.input(2), wide), (batch * groups, count, n, *outer))
    places = elementwise.add(moves, converted(_places(window, outer), wide))
    last = transposed(places, (0, 1, *range(3, 3 + n), 2))
    backwards: Node = indexing.gather(last, Constant.of(np.arange(n)[::-1].copy()), axis=2 + n)
    grid = reshaped(backwards, (batch * groups, count * outer[0], *outer[1:], n))
    image = reshaped(node.input(0), (batch * groups, channels // groups, *spatial))
    return vision.grid_sample(image, grid, absolute=True)


def _places(window: Window, outer: tuple[Dim, ...]) -> Node:
    """Return [positions, axes, *outer]: the elements that windows read without an offset."""
    n = len(outer)
    positions = np.stack(np.meshgrid(*map(np.arange, window.kernel), indexing="ij"), -1).reshape(
        -1, n
    )
    shifts = positions * window.dilations - np.array(window.known_pads[0])
    axes: list[Node] = []
    for k, size in enumerate(outer):
        starts: Node = elementwise.multiply(counted(size), Constant.of(window.strides[k]))
        starts = reshaped(starts, tuple(size if j == k else 1 for j in range(n)))
        shift = Constant.of(shifts[:, k].reshape(-1, 1, *(1,) * n))
        axes.append(broadcast(elementwise.add(shift, starts), (len(positions), 1, *outer)))
    return movement.concat(*axes, axis=1)
