# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions on blocks of channels, the phases of the outputs one after the other."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.dtype import bits
from treadle.graph.nodes import Node
from treadle.ops.conv import conv_transpose
from treadle.ops.lowered.conv_phased import phased_conv_nchwc
from treadle.ops.movement import pad
from treadle.ops.schedules.estimates import BlockedConvShape
from treadle.optimize.blocked import Blocked
from treadle.optimize.channel_order import ChannelOrder, pack_weights, packed_constant
from treadle.optimize.methods.conv_direct import cycles_of
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.phases import by_phase
from treadle.optimize.methods.transposed import TransposedSite, why_no_phases_in_blocks


def _estimate(site: TransposedSite) -> float:
    """Every phase sums the positions of the kernel that it has."""
    order = site.values.order_of(site.x)
    sizes = [-(-out // a.stride) for a, out in zip(site.axes, _outputs(site), strict=True)]
    *deep, height, width = sizes if len(sizes) > 1 else [*sizes, 1]
    count, taps = prod(a.stride for a in site.axes), prod(a.taps for a in site.axes)
    shape = BlockedConvShape(
        images=site.data.static_shape[0] * prod(deep),
        height=height,
        width=width,
        inputs=len(order.places) - order.unused,
        positions=taps,
        vectors=-(-site.filters // site.block),
        block=site.block,
        dtype_bits=bits(site.data.dtype),
        inner=order.block,
    )
    live = prod(site.weights.static_shape[2:]) / (count * taps)
    return site.packing_cycles() + count * live * cycles_of(shape, site.target)


def _outputs(site: TransposedSite) -> list[int]:
    return [out for out in (a.out for a in site.axes) if isinstance(out, int)]


def _build(site: TransposedSite) -> Blocked:
    how = by_phase(site.attrs, site.data, site.weights)
    source = site.values.as_blocked(site.x)
    amounts = {"before": (0, 0, *how.before, 0), "after": (0, 0, *how.after, 0)}
    padded = pad(source.node, **amounts, origin=site.origin)
    flipped = how.weights(site.known_weights.value)
    rank = len(how.axes)

    def make(order: ChannelOrder) -> Node:
        packed = pack_weights(flipped, source.order, order)  # [oc, ic, *strides, *taps, ib, ob]
        moved = np.ascontiguousarray(np.moveaxis(packed, 1, 1 + rank))
        operands = (padded, packed_constant(moved, site.known_weights))
        return phased_conv_nchwc.call(how.conv, operands, origin=site.origin)

    order = ChannelOrder.natural(site.filters, site.block)
    return Blocked(make(order), order, make)


transposed_by_phase = Method(
    "phase-by-phase",
    conv_transpose,
    why_no_phases_in_blocks,
    _estimate,
    _build,
    knobs=("block",),
    layout="NCHWc",
)
