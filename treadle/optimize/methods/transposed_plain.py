# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions in the layout of the model: what every call can do."""

from __future__ import annotations

from math import prod

from treadle.cost.unknown import IMAGE_EXTENT
from treadle.dtype import bits
from treadle.ops.conv import conv_transpose
from treadle.ops.schedules.estimates import PlainConvShape, plain_conv_cycles
from treadle.optimize.methods.convolution import FLOATS
from treadle.optimize.methods.layout_moves import move_cycles
from treadle.optimize.methods.method import Method, always
from treadle.optimize.methods.transposed import TransposedSite


def _estimate(site: TransposedSite) -> float:
    """All phases as filters of their own, which are put in order afterwards."""
    steps = [a.steps if isinstance(a.steps, int) else IMAGE_EXTENT for a in site.axes]
    *deep, rows, columns = [1, *steps] if len(steps) == 1 else steps
    images = site.data.shape[0] if isinstance(site.data.shape[0], int) else 1
    channels, per_group = site.weights.static_shape[:2]
    shape = PlainConvShape(
        images * prod(deep) * prod(a.stride for a in site.axes),
        rows,
        columns,
        site.filters,
        per_group,
        channels // site.attrs.groups,
        prod(a.taps for a in site.axes),
        site.axes[-1].taps,
        dtype_bits=bits(site.data.dtype),
    )
    strided = any(a.stride > 1 for a in site.axes)
    ordering = site.interleaving_cycles() if strided else 0.0
    return plain_conv_cycles(shape, site.target) + ordering + _layouts(site)


def _layouts(site: TransposedSite) -> float:
    """Return what it takes to leave blocks of channels and to enter them again."""
    if site.data.dtype not in FLOATS:
        return 0.0
    leaves = site.values.is_blocked(site.x) * move_cycles(site.data, site.target)
    return leaves + site.interleaving_cycles()


transposed_plain = Method(
    "plain",
    conv_transpose,
    always,
    _estimate,
    TransposedSite.as_in_model,
    families=("cpu", "gpu"),
)
