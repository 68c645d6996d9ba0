# SPDX-License-Identifier: Apache-2.0
"""Convolutions on blocks of channels, every product as the formula has it.

Groups are computed as one, with zeros between them: that is for few groups, or a single one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod

from treadle.cost.registers import Taps
from treadle.cost.rewrites import skips_padding
from treadle.dtype import bits
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import known_sizes, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.ops.reshaping import reshape
from treadle.ops.schedules.estimates import BlockedConvShape, conv2d_nchwc_cycles
from treadle.optimize.blocked import Blocked
from treadle.optimize.channel_order import ChannelOrder, merge_groups, pack_weights, packed_constant
from treadle.optimize.methods.convolution import (
    ConvSite,
    leaving_out,
    padded,
    why_not_in_blocks,
)
from treadle.optimize.methods.method import Method

cycles_of = lru_cache(maxsize=4096)(conv2d_nchwc_cycles)
"""`conv2d_nchwc_cycles`, which several methods and calls ask for the same sizes."""


def direct_cycles(site: ConvSite) -> float:
    """Return the cycles of the products, all groups taken as one."""
    images, height, width = site.image
    order = site.input_order
    shape = BlockedConvShape(
        images,
        height,
        width,
        (len(order.places) - order.unused) * prod(site.kernel[:-2]),
        prod(site.kernel[-2:]),
        -(-site.filters // site.block),
        site.block,
        taps=skipped_taps(site),
        dtype_bits=bits(site.data.dtype),
        inner=order.block,
    )
    return cycles_of(shape, site.target)


def skipped_taps(site: ConvSite) -> tuple[Taps, Taps] | None:
    """Return the window on an image, where enough of it meets padding to skip that."""
    sizes = site.data.shape[2:]
    if len(sizes) != 2 or not all(isinstance(d, int) for d in sizes):
        return None
    high, wide = (
        Taps(axis.kernel, size, axis.before, axis.stride, axis.dilation)
        for axis, size in zip(site.window, known_sizes(sizes), strict=True)
    )
    outputs = known_sizes(a.out for a in site.window)
    share = prod(
        sum(t.live(i, 1) for i in range(n)) / max(1, n * t.count)
        for t, n in zip((high, wide), outputs, strict=True)
    )
    return (high, wide) if skips_padding(share) else None


def _estimate(site: ConvSite) -> float:
    return site.blocking_cycles() + direct_cycles(site)


def merged_weights(site: ConvSite) -> Constant:
    """Return the weights of all groups as those of one."""
    weights = site.known_weights
    if site.groups == 1:
        return weights
    merged = merge_groups(weights.value, site.groups, site.groups)
    return Constant.of(merged, origin=weights.origin)


def _build(site: ConvSite) -> Blocked:
    return build_direct(site, site.blocked_input())


def build_direct(site: ConvSite, source: Blocked, scale: tuple[Node, str] | None = None) -> Blocked:
    """Return a convolution of `source`; `scale` multiplies the weights per input channel.

    It is a value [1, ic/ib, 1, 1, ib] in the order of the source, and where it comes from.
    """
    weights, attrs, data = merged_weights(site), replace(site.attrs, groups=1), source.node
    if skipped_taps(site) is None:  # to skip padding a kernel must know of it
        data, attrs = padded(data, attrs, site.window, site.origin)

    def make(order: ChannelOrder) -> Node:
        packed: Node = packed_constant(pack_weights(weights.value, source.order, order), weights)
        if scale is not None:
            packed = _scaled(packed, *scale)
        how = leaving_out(attrs, source.order)
        return conv2d_nchwc.call(how, (data, packed), origin=site.origin)

    order = ChannelOrder.natural(site.filters, site.block)
    return Blocked(make(order), order, make)


conv_direct = Method(
    "direct", conv, why_not_in_blocks, _estimate, _build, knobs=("block",), layout="NCHWc"
)


def _scaled(packed: Node, factor: Node, origin: str) -> Node:
    """Return weights [oc/ob, ic/ib, kh, kw, ib, ob] times a factor [1, ic/ib, 1, 1, ib]."""
    along = reshape(factor, shape=(*tensor_type(factor.type).shape, 1), origin=origin)
    return ew.multiply(packed, along, origin=origin)


def scaling_of(site: ConvSite) -> tuple[Call, Node, Node] | None:
    """Return the product that scales the channels of the input, its value and its factor.

    None where there is none, or where a convolution has no fewer weights than data.
    """
    x = site.x
    if not isinstance(x, Call) or x.op is not ew.multiply:
        return None
    type_ = tensor_type(x.type)
    if not type_.is_static or type_.ndim != 4 or type_.shape[0] != 1:
        return None
    shape = type_.static_shape
    if site.filters * prod(site.kernel) >= prod(shape[2:]):
        return None
    for value, factor in (x.args, x.args[::-1]):
        both = tensor_type(value.type).shape, tensor_type(factor.type).shape
        is_there = value in site.values.blocked and factor in site.values.blocked
        if both == (shape, (1, shape[1], 1, 1)) and is_there:
            return x, value, factor
    return None
