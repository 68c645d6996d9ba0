# SPDX-License-Identifier: Apache-2.0
"""Convolutions in which every channel has one filter of its own, in blocks of channels."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from treadle.cost.depthwise import WindowTaps
from treadle.cost.rewrites import outweighs_edges
from treadle.dtype import bits
from treadle.graph.types import known_sizes
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_nchwc import depthwise_conv2d_nchwc
from treadle.ops.schedules.estimates import depthwise_nchwc_cycles
from treadle.optimize.blocked import Blocked, has_known_image
from treadle.optimize.channel_order import pack_depthwise, packed_constant
from treadle.optimize.methods.convolution import ConvSite, padded, why_not_in_blocks
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
    data, attrs = source.node, replace(site.attrs, groups=1)
    if not _reads_border(site):
        data, attrs = padded(data, attrs, site.window, site.origin)
    weights = site.known_weights
    packed = packed_constant(pack_depthwise(weights.value, source.order), weights)
    call = depthwise_conv2d_nchwc.call(attrs, (data, packed), origin=site.origin)
    return Blocked(call, source.order)


def _reads_border(site: ConvSite) -> bool:
    """True where a kernel reads zeros around the image itself, as code for its edges.

    Else the kernel that makes the image writes it with its zeros.
    """
    if not site.is_padded_by_its_kernel:
        return True
    if not has_known_image(site.data):
        return False
    sizes = known_sizes(site.data.shape[2:])
    whole = prod(a.before + n + a.after for a, n in zip(site.window, sizes, strict=True))
    return outweighs_edges(whole - prod(sizes), prod(sizes))


conv_depthwise = Method(
    "depthwise", conv, _applies, _estimate, _build, knobs=("block",), layout="NCHWc"
)
