# SPDX-License-Identifier: Apache-2.0
"""Convolutions in which every channel has one filter of its own, in blocks of channels."""

from __future__ import annotations

from dataclasses import replace

from treadle.cost.depthwise import WindowTaps
from treadle.dtype import bits
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_nchwc import depthwise_conv2d_nchwc
from treadle.ops.schedules.estimates import depthwise_nchwc_cycles
from treadle.optimize.blocked import Blocked
from treadle.optimize.channel_order import pack_depthwise, packed_constant
from treadle.optimize.methods.convolution import ConvSite, why_not_in_blocks
from treadle.optimize.methods.method import Method


def _applies(site: ConvSite) -> str | None:
    against = why_not_in_blocks(site)
    if against is not None:
        return against
    if site.groups != site.data.shape[1] or site.filters != site.groups or site.per_group != 1:
        return "a channel has not one filter of its own"
    return None


def _estimate(site: ConvSite) -> float:
    images, rows, columns = site.image
    if len(site.kernel) == 1:  # the template has the only axis last
        rows, columns = 1, rows
    last = site.window[-1]
    taps = WindowTaps(site.kernel, last.stride, last.dilation)
    registers = site.values.order_of(site.x).chunks * max(
        1, site.block // site.target.lanes(bits(site.data.dtype))
    )
    return site.blocking_cycles() + images * registers * depthwise_nchwc_cycles(
        (rows, columns), taps, site.target
    )


def _build(site: ConvSite) -> Blocked:
    source = site.values.as_blocked(site.x)
    alone = replace(site.attrs, groups=1)
    weights = site.known_weights
    packed = packed_constant(pack_depthwise(weights.value, source.order), weights)
    call = depthwise_conv2d_nchwc.call(alone, (source.node, packed), origin=site.origin)
    return Blocked(call, source.order)


conv_depthwise = Method(
    "depthwise", conv, _applies, _estimate, _build, knobs=("block",), layout="NCHWc"
)
