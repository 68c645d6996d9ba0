# SPDX-License-Identifier: Apache-2.0
"""The direct convolution of channels that are scaled: the scale goes into the weights.

conv(value * factor[1, c, 1, 1], w)  ->  conv(value, w * factor)
"""

from __future__ import annotations

from math import prod

from treadle.cost.memory import level_cycles
from treadle.dtype import itemsize
from treadle.ops.conv import conv
from treadle.optimize.blocked import Blocked
from treadle.optimize.methods.conv_direct import build_direct, direct_cycles, scaling_of
from treadle.optimize.methods.convolution import ConvSite, why_not_in_blocks
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.moves import move_cycles
from treadle.passes import decided


def _applies(site: ConvSite) -> str | None:
    against = why_not_in_blocks(site)
    if against is not None:
        return against
    if scaling_of(site) is None:
        return "no factor per channel scales the input, or the weights are no fewer than the data"
    return None


def _estimate(site: ConvSite) -> float:
    """The weights are scaled once more, the data is not: it is read and written once less."""
    weights = site.data.static_shape[1] * site.filters * prod(site.kernel)
    scaling = level_cycles(2 * weights * itemsize(site.data.dtype), 3, site.target)
    saved = move_cycles(site.data, site.target)
    return max(0.0, direct_cycles(site) + scaling - saved)


def _build(site: ConvSite) -> Blocked:
    found = scaling_of(site)
    assert found is not None
    scaled, value, factor = found
    decided(scaled.origin, "method", "scales the weights", "they are fewer than the data")
    source = site.values.as_blocked(value)
    along = site.values.operand(factor, source.order, 4)
    return build_direct(site, source, (along, scaled.origin))


conv_scaled = Method(
    "scaled-weights", conv, _applies, _estimate, _build, knobs=("block",), layout="NCHWc"
)
