# SPDX-License-Identifier: Apache-2.0
"""Convolutions in groups, each with blocks of output channels of its own.

Neighbouring groups are taken together, with zeros between them, until they fill the lanes of a
block as well as the estimate says. A group that has whole blocks of inputs reads those, one that
has not looks its channels up.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from treadle.dtype import bits
from treadle.graph.nodes import Constant
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_grouped import grouped_conv2d_nchwc
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.ops.schedules.estimates import BlockedConvShape
from treadle.optimize.blocked import Blocked, element_offsets
from treadle.optimize.channel_order import (
    ChannelOrder,
    merge_groups,
    pack_weights,
    packed_constant,
    take_per_group,
)
from treadle.optimize.methods.conv_direct import cycles_of
from treadle.optimize.methods.convolution import (
    ConvSite,
    leaving_out,
    padded,
    why_not_in_blocks,
    why_not_in_groups,
)
from treadle.optimize.methods.method import Method


def _applies(site: ConvSite) -> str | None:
    if site.groups == 1:
        return "there is one group"
    return why_not_in_blocks(site) or why_not_in_groups(site)


def _together(site: ConvSite) -> tuple[float, int]:
    """Return the fewest cycles, and how many groups are taken as one for them.

    Of equal ones blocks without gaps win: all that follows works on them.
    """
    found = [
        (round(_cycles(site, t), 3), -(-site.filters // site.groups * t // site.block) / t, t)
        for t in range(1, site.groups)
        if site.groups % t == 0
    ]
    cycles, _, together = min(found)
    return cycles, together


def _cycles(site: ConvSite, together: int) -> float:
    outputs = site.filters // site.groups * together
    shape = BlockedConvShape(
        *site.image,
        inputs=site.per_group * together,
        positions=prod(site.kernel),
        vectors=-(-outputs // site.block),
        block=site.block,
        groups=site.groups // together,
        dtype_bits=bits(site.data.dtype),
        inner=site.input_order.block,
    )
    return cycles_of(shape, site.target)


def _estimate(site: ConvSite) -> float:
    return site.blocking_cycles() + _together(site)[0]


def _build(site: ConvSite) -> Blocked:
    _, together = _together(site)
    groups, weights = site.groups // together, site.known_weights
    if together > 1:
        merged = merge_groups(weights.value, site.groups, together)
        weights = Constant.of(merged, origin=weights.origin)
    source = site.values.as_blocked(site.x)
    order = ChannelOrder.spread(groups, site.filters // groups, site.block)
    apart = replace(site.attrs, groups=groups)
    data, attrs = padded(source.node, apart, site.window, site.origin)
    per_group = site.per_group * together
    if source.order == ChannelOrder.spread(groups, per_group, site.block):
        inputs = ChannelOrder.natural(per_group, site.block)
        packed = packed_constant(pack_weights(weights.value, inputs, order), weights)
        how = leaving_out(attrs, inputs)
        return Blocked(conv2d_nchwc.call(how, (data, packed), origin=site.origin), order)
    places = source.order.position_of().reshape(groups, per_group)
    along = np.argsort(places, axis=1)  # in the order of memory
    picked = take_per_group(weights.value, along)
    alone = pack_weights(picked, ChannelOrder.natural(per_group, 1), order)[:, :, :, :, 0]
    at = element_offsets(Blocked(data, source.order), np.take_along_axis(places, along, 1))
    operands = (data, packed_constant(alone, weights), at)
    return Blocked(grouped_conv2d_nchwc.call(attrs, operands, origin=site.origin), order)


conv_grouped = Method(
    "grouped",
    conv,
    _applies,
    _estimate,
    _build,
    knobs=("block", "groups taken as one"),
    layout="NCHWc",
)
