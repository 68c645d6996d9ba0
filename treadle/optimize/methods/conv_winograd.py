# SPDX-License-Identifier: Apache-2.0
"""3x3 convolutions by Winograd's minimal filtering, a method per tile (2, 3 or 4 outputs square).

The estimate is that of the plan by which the kernel runs (`ops/schedules/winograd.py`): the fused
multiply-adds of its register tiles, remainders included; the vectors that the transforms touch; and
that weights are read from memory once per run. There are up to four times as many weights, so it
loses on small images with many channels. A method of its own for each tile leaves the weights as
they are and lets every run transform them: it takes longer, by a few per cent where many tiles
share them, and adds nothing to the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod

from treadle.cost.winograd import WinogradShape, fits_weights
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_winograd import (
    WinogradAttrs,
    border_of,
    conv2d_winograd_nchwc,
    tiles_along,
)
from treadle.ops.lowered.conv_winograd_dynamic import (
    DynamicWinogradAttrs,
    conv2d_winograd_dynamic_nchwc,
)
from treadle.ops.lowered.winograd_transforms import KERNEL, TILES, taps_of_phase
from treadle.ops.schedules.winograd import plan_winograd
from treadle.ops.schedules.winograd_dynamic import plan_winograd_dynamic
from treadle.optimize.blocked import Blocked, has_known_image
from treadle.optimize.channel_order import ChannelOrder, merge_groups, pack_weights, packed_constant
from treadle.optimize.methods.convolution import ConvSite, padded, why_not_in_blocks
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.winograd_weights import plain_weights, transform_weights
from treadle.settings import get

_WORTHWHILE = {1: {2: 1.0, 3: 0.9, 4: 0.9}, 2: {2: 1.0, 3: 0.95, 4: 0.95}}
"""The share of another method's cycles that a tile may take, by stride: more must be gained for a
larger rounding error, and for more weights."""

_plan_of = lru_cache(maxsize=4096)(plan_winograd)
_dynamic_plan_of = lru_cache(maxsize=4096)(plan_winograd_dynamic)


def _applies(site: ConvSite) -> str | None:
    against = why_not_in_blocks(site)
    if against is not None:
        return against
    if site.data.dtype != "float32" or site.kernel[-2:] != (KERNEL, KERNEL):
        return f"it is for float32 and windows of {KERNEL}x{KERNEL}"
    against = _why_no_stride(site)
    if against is None and _is_dynamic(site):
        against = _why_not_dynamic(site)
    elif against is None and min(known_sizes(a.out for a in site.window)) < 1:
        against = "it has no outputs"
    if against is None and not _groups_taken_as_one(site):
        return "no number of groups has whole blocks of channels in their order"
    return against or (None if get().winograd else "it is switched off")


def _is_dynamic(site: ConvSite) -> bool:
    """True for images of a size that only a run knows: see `conv_winograd_dynamic`."""
    return not has_known_image(site.data)


def _why_not_dynamic(site: ConvSite) -> str | None:
    if site.data.ndim != 4 or site.groups > 1 or _gaps(site) != (1, 1):
        return "of dynamic sizes it is for images in one group, without dilation"
    return None


def _why_no_stride(site: ConvSite) -> str | None:
    steps = tuple(a.stride for a in site.window[-2:])
    if steps == (1, 1):
        return None if site.data.ndim == 4 or site.groups == 1 else "groups are for images"
    if steps != (2, 2) or site.data.ndim != 4 or _gaps(site) != (1, 1):
        return "it is for strides of 1, or of 2 by 2 on images without dilation"
    return None


def _gaps(site: ConvSite) -> tuple[int, int]:
    """Return how far apart the rows and the columns of a window are."""
    high, wide = (a.dilation for a in site.window[-2:])
    return high, wide


def _stride(site: ConvSite) -> int:
    return site.window[-1].stride


def _groups_taken_as_one(site: ConvSite) -> list[int]:
    """Return how many groups may be computed as one: all, or those that fill whole blocks."""
    order, groups = site.input_order, site.groups
    found = [groups] if order.block == site.block else []
    if order != ChannelOrder.natural(site.per_group * groups, site.block):
        return found
    widths = site.per_group, site.filters // groups
    return found + [
        t
        for t in range(1, groups)
        if groups % t == 0 and all(w * t % site.block == 0 for w in widths)
    ]


def _applies_at_runtime(site: ConvSite) -> str | None:
    """As `_applies`, for weights that each run transforms."""
    against = _applies(site)
    if against is None and _stride(site) > 1:
        return "at runtime it is for a stride of 1"
    if against is None and not _groups_that_fit(site, max(TILES)):
        return "level 2 does not hold a row of points of the weights of one block of channels"
    return against


def _groups_that_fit(site: ConvSite, tile: int) -> list[int]:
    """Return how many groups may be computed as one where a run transforms the weights."""
    shapes = {t: _shape(site, tile, t, at_runtime=True) for t in _groups_taken_as_one(site)}
    return [t for t, shape in shapes.items() if fits_weights(shape, site.target, 1)]


def _shape(site: ConvSite, tile: int, together: int, *, at_runtime: bool = False) -> WinogradShape:
    groups, stride, gaps = site.groups // together, _stride(site), _gaps(site)
    images, height, width = site.image
    order = site.input_order
    outputs = site.filters // groups
    return WinogradShape(
        tile,
        tiles_along(height, tile, gaps[0]),
        tiles_along(width, tile, gaps[1]),
        len(order.places) * prod(site.kernel[:-2]) * stride**2,  # depths add products as channels
        groups * (outputs + -outputs % site.block),
        site.block,
        images,
        gaps,
        stride,
        order.unused if site.data.ndim == 4 and groups == 1 else 0,
        groups,
        at_runtime,
    )


def _cheapest(site: ConvSite, tile: int, *, at_runtime: bool = False) -> tuple[float, int]:
    """Return the fewest cycles, and how many groups are taken as one for them.

    An image of dynamic sizes counts as one of the size that `ConvSite.image` takes for typical.
    """
    width = max(1, site.block // site.target.lanes())
    if _is_dynamic(site):
        shape = _shape(site, tile, 1, at_runtime=at_runtime)
        return _dynamic_plan_of(shape, site.target, width=width).cycles, 1
    together = _groups_that_fit(site, tile) if at_runtime else _groups_taken_as_one(site)
    shapes = {t: _shape(site, tile, t, at_runtime=at_runtime) for t in together}
    return min((_plan_of(x, site.target, width=width).cycles, t) for t, x in shapes.items())


def _estimate_by(tile: int, *, at_runtime: bool = False) -> Callable[[ConvSite], float]:
    return lambda site: site.blocking_cycles() + _cheapest(site, tile, at_runtime=at_runtime)[0]


def _growth(site: ConvSite, tile: int) -> int:
    """Return by how many bytes weights at all points are larger than those of the window."""
    points = (tile + taps_of_phase(_stride(site)) - 1) * _stride(site)
    given = site.weights.nbytes
    return given * _cheapest(site, tile)[1] * points**2 // KERNEL**2 - given


def _growth_at_runtime(site: ConvSite, tile: int) -> int:
    """Return by how many bytes weights grow that stay plain: by zeros, of groups taken as one."""
    return site.weights.nbytes * (_cheapest(site, tile, at_runtime=True)[1] - 1)


def _growth_by(tile: int, *, at_runtime: bool = False) -> Callable[[ConvSite], int]:
    return lambda site: (_growth_at_runtime if at_runtime else _growth)(site, tile)


def _build_by(tile: int, *, at_runtime: bool = False) -> Callable[[ConvSite], Blocked]:
    return lambda site: _build(site, tile, at_runtime=at_runtime)


def _worthwhile_by(tile: int) -> Callable[[ConvSite], float]:
    return lambda site: _WORTHWHILE[_stride(site)][tile]


def _build(site: ConvSite, tile: int, *, at_runtime: bool) -> Blocked:
    _, together = _cheapest(site, tile, at_runtime=at_runtime)
    site.shared.grow(site.node, _growth_by(tile, at_runtime=at_runtime)(site))
    if _is_dynamic(site):
        return _build_dynamic(site, tile, at_runtime=at_runtime)
    weights, groups = site.known_weights, site.groups // together
    if together > 1:
        merged = merge_groups(weights.value, site.groups, together)
        weights = Constant.of(merged, origin=weights.origin)
    how = replace(_attrs(site, tile), groups=groups, plain_weights=at_runtime)
    source = site.blocked_input()
    inputs = source.order
    if groups > 1:
        inputs = ChannelOrder.natural(weights.type.static_shape[1], site.block)
    elif site.data.ndim == 4:
        how = replace(how, unused=inputs.unused)
    *deep, high, wide = site.window
    unpadded = replace(how, before=(high.before, wide.before))
    border = border_of(unpadded, known_sizes(site.data.shape[-2:]))
    if not site.is_padded_by_its_kernel and not deep and min(map(min, border)) >= 0:
        data, how = source.node, unpadded
    else:
        ends = zip((high, wide), border, strict=True)
        window = (*deep, *(replace(axis, after=after) for axis, (_, after) in ends))
        data, _ = padded(source.node, site.attrs, window, site.origin)

    def make(order: ChannelOrder) -> Node:
        operands = (data, _packed(weights, inputs, order, how))
        return conv2d_winograd_nchwc.call(how, operands, origin=site.origin)

    order = ChannelOrder.natural(site.filters, site.block)
    return Blocked(make(order), order, make if groups == 1 else None)


def _build_dynamic(site: ConvSite, tile: int, *, at_runtime: bool) -> Blocked:
    """Return the filtering of an image that is padded as the convolution says, and no further."""
    weights, source = site.known_weights, site.blocked_input()
    how = DynamicWinogradAttrs(tile, _stride(site), source.order.unused, at_runtime)
    data, _ = padded(source.node, site.attrs, site.window, site.origin)

    def make(order: ChannelOrder) -> Node:
        operands = (data, _packed(weights, source.order, order, how))
        return conv2d_winograd_dynamic_nchwc.call(how, operands, origin=site.origin)

    order = ChannelOrder.natural(site.filters, site.block)
    return Blocked(make(order), order, make)


def _packed(
    weights: Constant,
    inputs: ChannelOrder,
    outputs: ChannelOrder,
    how: WinogradAttrs | DynamicWinogradAttrs,
) -> Constant:
    packed = pack_weights(weights.value, inputs, outputs)
    if how.plain_weights:
        return packed_constant(plain_weights(packed), weights)
    return packed_constant(transform_weights(packed, how.tile, how.stride), weights)


def _attrs(site: ConvSite, tile: int) -> WinogradAttrs:
    """Return the attributes of the filtering that stands for the convolution."""
    height, width = known_sizes(a.out for a in site.window[-2:])
    gaps = _gaps(site)
    if site.data.ndim == 4:
        return WinogradAttrs(tile, height, width, dilations=gaps, stride=_stride(site))
    deep = site.window[0]
    return WinogradAttrs(tile, height, width, deep.stride, deep.dilation, gaps)


def _method(tile: int, *, at_runtime: bool) -> Method[ConvSite]:
    return Method(
        f"winograd-{tile}-runtime" if at_runtime else f"winograd-{tile}",
        conv,
        _applies_at_runtime if at_runtime else _applies,
        _estimate_by(tile, at_runtime=at_runtime),
        _build_by(tile, at_runtime=at_runtime),
        worthwhile=_worthwhile_by(tile),
        growth=_growth_by(tile, at_runtime=at_runtime),
        knobs=("block", "groups taken as one"),
        layout="NCHWc",
    )


conv_winograd = tuple(
    _method(tile, at_runtime=at_runtime) for at_runtime in (False, True) for tile in TILES
)
