# SPDX-License-Identifier: Apache-2.0
"""Converters of pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from treadle import dtype as dt
from treadle.frontend.builders import pool
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.windows import Window, window_of
from treadle.frontend.torch.node import AtenNode, aten, operand, sum_dtype
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, product_of
from treadle.ops import elementwise as ew


def _with_batch(x: Node, rank: int) -> Node:
    """Return data of `rank` spatial axes with the axis of the batch, which it may lack."""
    return reshaped(x, (1, *dims_of(x))) if len(dims_of(x)) == rank + 1 else x


def _spatial(node: AtenNode) -> int:
    """Return how many spatial axes a pool has, by its name: max_pool2d."""
    return int(node.op[node.op.index("pool") + 4])


def _window(rank: int, *given: Sequence[int]) -> Window:
    """Return a window from kernel, strides, padding and dilations, one number or one per axis."""
    kernel, stride, padding, dilation = (
        tuple(v) * rank if len(v) == 1 else tuple(v) for v in given
    )
    return window_of(kernel, stride or kernel, dilation, padding)


@aten("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    node: AtenNode,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[Node]:
    """Convert the largest element of each window, and its place in the image."""
    rank = _spatial(node)
    window = _window(rank, kernel, stride, padding, dilation)
    data = _with_batch(x, rank)
    made = pool.max_pooled(data, window, ceil_mode=ceil_mode)
    return [reshaped(made, node.dims(0)), _places(node, data, window, ceil_mode)]


def _places(node: AtenNode, x: Node, window: Window, ceil_mode: bool) -> Node:
    """Return the places of the largest elements within one image of a channel.

    The pool gives them within all of the data, [n, c, ...].
    """
    _, found = pool.max_pooled_with_indices(x, window, ceil_mode=ceil_mode)
    size = operand(product_of(dims_of(x)[2:]), "int64")
    return reshaped(ew.mod(found, size), node.dims(1))


@aten("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    node: AtenNode,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Node:
    """Convert the largest element of each window."""
    rank = _spatial(node)
    window = _window(rank, kernel, stride, padding, dilation)
    made = pool.max_pooled(_with_batch(x, rank), window, ceil_mode=ceil_mode)
    return reshaped(made, node.dims())


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    node: AtenNode,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Node:
    """Convert the mean of each window; of integers it is cut towards zero."""
    rank, kind = _spatial(node), node.dtype()
    window = _window(rank, kernel, stride, padding, (1,))
    data = converted(_with_batch(x, rank), kind if dt.is_float(kind) else "float64")
    if divisor_override is None:
        made = pool.average_pooled(
            data, window, ceil_mode=ceil_mode, count_include_pad=count_include_pad
        )
    else:
        made = _sums_over(data, window, ceil_mode, divisor_override)
    return reshaped(converted(made, kind), node.dims())


def _sums_over(x: Node, window: Window, ceil_mode: bool, divisor: int) -> Node:
    """Return the sum of each window over a number: its mean times how many elements it has."""
    if not ceil_mode:
        means = pool.average_pooled(x, window, count_include_pad=True)
        return ew.multiply(means, scalar_like(prod(window.kernel) / divisor, means))
    means = pool.average_pooled(x, window, ceil_mode=True)
    inside = pool.elements_inside(x, window, dims_of(means)[2:])
    return ew.multiply(means, Constant.of(inside / divisor, element_type(means)))


def _adaptive(pooled: Callable[[Node, Sequence[Dim]], Node]) -> Callable[..., Node]:
    def convert(node: AtenNode, x: Node, sizes: Sequence[Dim]) -> Node:
        wide = converted(_with_batch(x, _spatial(node)), sum_dtype(node.dtype()))
        return reshaped(converted(pooled(wide, sizes), node.dtype()), node.dims())

    return convert


_MEANS = ("adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
aten(*_MEANS)(_adaptive(pool.adaptive_average_pooled))


@aten("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(node: AtenNode, x: Node, sizes: Sequence[Dim]) -> list[Node | None]:
    """Convert the largest element of windows that cover the image evenly, and its place.

    Nobody can read places in an image of open sizes.
    """
    data = _with_batch(x, _spatial(node))
    made = pool.adaptive_max_pooled(data, sizes)
    if not all(isinstance(d, int) for d in (*dims_of(data)[2:], *sizes)):
        return [reshaped(made, node.dims(0)), None]
    places = pool.adaptive_max_places(data, known_sizes(sizes))
    return [reshaped(made, node.dims(0)), reshaped(places, node.dims(1))]
