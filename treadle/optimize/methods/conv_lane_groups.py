# SPDX-License-Identifier: Apache-2.0
"""Convolutions in groups of few channels, as they lie side by side in the lanes of a block.

Nothing is multiplied by zeros, and the channels keep the order of their neighbours: `conv_grouped`
fills the lanes with groups that are taken together, zeros between them, and `conv_plain` takes
images that are no blocks.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.cost.depthwise import WindowTaps
from treadle.dtype import bits
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_lane_groups import lane_groups_conv2d_nchwc
from treadle.ops.schedules.estimates import lane_group_nchwc_cycles
from treadle.optimize.blocked import Blocked
from treadle.optimize.channel_order import pack_lane_groups, packed_constant
from treadle.optimize.methods.convolution import (
    ConvSite,
    padded,
    why_not_in_blocks,
    why_not_in_groups,
)
from treadle.optimize.methods.method import Method


def _applies(site: ConvSite) -> str | None:
    if site.groups == 1:
        return "there is one group"
    against = why_not_in_blocks(site) or why_not_in_groups(site)
    if against is not None:
        return against
    size, order = site.per_group, site.input_order
    if site.target.kind != "llvm":
        return "its shuffles are for machine code of LLVM's"
    if not order.is_natural or order.block != site.block:
        return "it is for whole blocks of channels in their order"
    if size < 2 or site.filters != site.groups * size or site.block % size or size == site.block:
        return "it is for groups of as many inputs as filters, several of which fill a block"
    return None


def _estimate(site: ConvSite) -> float:
    images, rows, columns = site.image
    down, across = site.kernel
    last = site.window[-1]
    taps = WindowTaps((down, site.per_group, across), last.stride, last.dilation)
    lanes = site.target.lanes(bits(site.data.dtype))
    registers = site.input_order.chunks * max(1, site.block // lanes)
    cycles = lane_group_nchwc_cycles((rows, columns), taps, site.target)
    return site.blocking_cycles() + images * registers * cycles


def _build(site: ConvSite) -> Blocked:
    source = site.values.as_blocked(site.x)
    alone = replace(site.attrs, groups=1)
    data, attrs = padded(source.node, alone, site.window, site.origin)
    weights = site.known_weights
    packed = packed_constant(pack_lane_groups(weights.value, source.order), weights)
    call = lane_groups_conv2d_nchwc.call(attrs, (data, packed), origin=site.origin)
    return Blocked(call, source.order)


conv_lane_groups = Method(
    "lane-groups", conv, _applies, _estimate, _build, knobs=("block",), layout="NCHWc"
)
