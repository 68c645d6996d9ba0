# SPDX-License-Identifier: Apache-2.0
"""Convolutions in the layout of the model: what every call can do."""

from __future__ import annotations

from math import prod

from treadle.dtype import bits
from treadle.ops.conv import conv
from treadle.ops.schedules.estimates import PlainConvShape, plain_conv_cycles
from treadle.optimize.methods.convolution import FLOATS, ConvSite
from treadle.optimize.methods.method import Method, always


def plain_shape(site: ConvSite) -> PlainConvShape:
    """Return the sizes of the convolution as it is written."""
    images, rows, columns = site.image
    if len(site.kernel) == 1:  # the template has the only axis last
        rows, columns = 1, rows
    return PlainConvShape(
        images,
        rows,
        columns,
        site.filters,
        site.filters // site.groups,
        site.per_group,
        prod(site.kernel),
        site.kernel[-1],
        site.window[-1].stride,
        bits(site.data.dtype),
    )


def _estimate(site: ConvSite) -> float:
    layouts = site.unblocking_cycles() if site.data.dtype in FLOATS else 0.0
    return plain_conv_cycles(plain_shape(site), site.target) + site.padding_cycles() + layouts


conv_plain = Method("plain", conv, always, _estimate, ConvSite.as_in_model)
