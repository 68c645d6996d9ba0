# SPDX-License-Identifier: Apache-2.0
"""Converters that move blocks of pixels to channels or to the batch, diagonals and bands."""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import dims_of, reshaped, scalar_like, transposed
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.movement import cut, depth_to_space, padded, space_to_depth
from treadle.frontend.builders.ranges import check_size
from treadle.frontend.tensorflow.node import TfNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, normal_size
from treadle.ops import elementwise


@converter("SpaceToDepth")
def space_to_depth_blocks(node: TfNode) -> Node:
    """Convert blocks of pixels to channels."""
    block = node.attributes.integer("block_size")
    if _is_channels_first(node):
        return space_to_depth(node.input(0), block, "DCR")
    return channels_last(space_to_depth(channels_first(node.input(0)), block, "DCR"))


@converter("DepthToSpace")
def depth_to_space_blocks(node: TfNode) -> Node:
    """Convert channels to blocks of pixels."""
    block = node.attributes.integer("block_size")
    if _is_channels_first(node):
        return depth_to_space(node.input(0), block, "DCR")
    return channels_last(depth_to_space(channels_first(node.input(0)), block, "DCR"))


def _is_channels_first(node: TfNode) -> bool:
    layout = node.attributes.text("data_format", "NHWC")
    if layout not in ("NHWC", "NCHW"):
        raise ModelError(f"images in the layout {layout} are not supported")
    return layout == "NCHW"


@converter("SpaceToBatchND")
def space_to_batch(node: TfNode) -> Node:
    """Convert every block-th pixel to an image of its own in the batch, after padding."""
    blocks, pads = node.constant_ints(1, "block"), node.constant_ints(2, "padding")
    n, rest = len(blocks), node.rank(0) - len(blocks) - 1
    _check_blocks(node, blocks, pads)
    zeros = (0,) * rest
    x = padded(node.input(0), (0, *pads[::2], *zeros), (0, *pads[1::2], *zeros))
    batch, *dims = dims_of(x)
    split: list[Dim] = [batch]
    for d, b in zip(dims[:n], blocks, strict=True):
        split += [_quotient(d, b), b]
    x = reshaped(x, (*split, *dims[n:]))
    ndim = len(split) + rest
    order = (*range(2, 2 * n + 1, 2), 0, *range(1, 2 * n + 1, 2), *range(2 * n + 1, ndim))
    whole = normal_size(batch * int(np.prod(blocks)))
    parts = [_quotient(d, b) for d, b in zip(dims[:n], blocks, strict=True)]
    return reshaped(transposed(x, order), (whole, *parts, *dims[n:]))


@converter("BatchToSpaceND")
def batch_to_space(node: TfNode) -> Node:
    """Convert images of the batch to every block-th pixel of larger ones, which are cropped."""
    blocks, crops = node.constant_ints(1, "block"), node.constant_ints(2, "crops")
    n = len(blocks)
    _check_blocks(node, blocks, crops)
    batch, *dims = node.dims(0)
    count = _quotient(batch, int(np.prod(blocks)))
    x = reshaped(node.input(0), (*blocks, count, *dims))
    order = [n]
    for k in range(n):
        order += [n + 1 + k, k]
    x = transposed(x, (*order, *range(2 * n + 1, n + 1 + len(dims))))
    wide = [normal_size(d * b) for d, b in zip(dims[:n], blocks, strict=True)]
    x = reshaped(x, (count, *wide, *dims[n:]))
    sizes = known_sizes(wide)
    bounds = [(crops[2 * k], sizes[k] - crops[2 * k + 1]) for k in range(n)]
    return cut(x, bounds, (1,) * n, tuple(range(1, n + 1)))


def _check_blocks(node: TfNode, blocks: tuple[int, ...], pairs: tuple[int, ...]) -> None:
    if min(blocks, default=1) < 1 or min(pairs, default=0) < 0:
        raise ModelError(f"the blocks {list(blocks)} of {node.op} or {list(pairs)} are none")
    if len(pairs) != 2 * len(blocks) or len(blocks) >= node.rank(0):
        raise ModelError(f"the blocks {list(blocks)} of {node.op} do not fit {node.type(0)}")


def _quotient(size: Dim, divisor: int) -> Dim:
    if isinstance(size, int) and size % divisor:
        raise ModelError(f"{size} does not divide into blocks of {divisor}")
    return normal_size(convert(size) // divisor)


@converter("MatrixDiag", "MatrixDiagV3")
def matrix_diag(node: TfNode) -> Node:
    """Convert vectors to square matrices that hold them on their diagonal."""
    if node.has_input(1) and node.constant_ints(1, "diagonal") != (0,):
        raise ModelError("matrices of other than the main diagonal are not supported")
    if node.has_input(2) and any(node.constant_number(k, "size") != -1 for k in (2, 3)):
        raise ModelError("diagonals of matrices that are not square are not supported")
    x = node.input(0)
    (size,) = node.shape(0)[-1:]
    check_size((size, size), 1)
    rows = reshaped(x, (*dims_of(x)[:-1], 1, size))
    fill = reshaped(node.input(4), ()) if node.has_input(4) else scalar_like(0, x)
    return elementwise.where(Constant.of(np.eye(size, dtype="bool")), rows, fill)


@converter("MatrixBandPart")
def matrix_band(node: TfNode) -> Node:
    """Convert matrices of which all but a band around the diagonal becomes 0; -1 is everything."""
    below, above = (int(node.constant_number(k, "band")) for k in (1, 2))
    rows, columns = known_sizes(node.dims(0)[-2:])
    check_size((rows, columns), 1)
    offset = np.arange(rows)[:, None] - np.arange(columns)[None, :]
    kept = ((below < 0) | (offset <= below)) & ((above < 0) | (-offset <= above))
    return elementwise.where(Constant.of(kept), node.input(0), scalar_like(0, node.input(0)))
