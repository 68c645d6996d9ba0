# SPDX-License-Identifier: Apache-2.0
"""Convolutions of integers that are bytes or 16-bit numbers: several channels at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treadle.cost.memory import level_cycles
from treadle.dtype import itemsize
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.conv import conv
from treadle.ops.lowered.dot import copied_words
from treadle.ops.schedules.dot import tiles_target
from treadle.ops.schedules.estimates import plain_conv_cycles
from treadle.optimize.dots import Factors, conv_factors, conv_of_steps
from treadle.optimize.methods.conv_plain import plain_shape
from treadle.optimize.methods.convolution import ConvSite
from treadle.optimize.methods.method import Method
from treadle.target.intrinsics.dots import dot_for


def _factors(site: ConvSite, x: Node) -> Factors | None:
    """Return the small factors of a convolution of `x`, whatever their type."""
    return conv_factors(site.node, x, site.target)


def why_not_small(found: Factors | None, name: str) -> str | None:
    """Return why products are not those of small factors as the method `name` takes them."""
    if found is None:
        return "no instruction of the target sums products of such numbers"
    return None if found.method == name else f"the factors are {found.method}"


def _applies_by(name: str) -> Callable[[ConvSite], str | None]:
    def applies(site: ConvSite) -> str | None:
        if tensor_type(site.node.type).dtype != "int32" or not isinstance(site.w, Constant):
            return "it is for int32 results and weights known when compiled"
        return why_not_small(_factors(site, site.x), name)

    return applies


def _cycles(site: ConvSite, found: Factors, *, in_one_row: bool) -> float:
    """Return the cycles of a kernel that takes so many channels at once.

    In one row it copies words first, and what follows is a kernel of its own, of rows.
    """
    dot = dot_for(found.data_type, found.weights.dtype.name, site.target)
    target = tiles_target(dot, site.target)
    shape = replace(plain_shape(site), inputs=-(-site.per_group // found.steps))
    if not in_one_row:
        return plain_conv_cycles(shape, target)
    moved = shape.images * (
        copied_words(site.window) * shape.inputs * site.groups
        + shape.rows * shape.columns * shape.filters
    )
    in_row = replace(shape, rows=1, columns=shape.rows * shape.columns, stride=1)
    return plain_conv_cycles(in_row, target) + level_cycles(
        2 * itemsize("int32") * moved, 2, target
    )


def _best(site: ConvSite, found: Factors) -> tuple[float, bool]:
    """Return the fewest cycles, and whether all positions are one row for them."""
    by_rows = _cycles(site, found, in_one_row=False)
    if len(site.window) != 2 or not tensor_type(site.node.type).is_static:
        return by_rows, False
    in_row = _cycles(site, found, in_one_row=True)
    return min(by_rows, in_row), in_row < by_rows


def _estimate(site: ConvSite) -> float:
    found = _factors(site, site.x)
    assert found is not None
    return _best(site, found)[0]


def _build(site: ConvSite) -> Node:
    found = _factors(site, site.values.as_plain(site.x))
    assert found is not None
    _, in_one_row = _best(site, found)
    return conv_of_steps(site.node, found, in_one_row=in_one_row)


conv_bytes = Method(
    "bytes",
    conv,
    _applies_by("bytes"),
    _estimate,
    _build,
    knobs=("positions in one row",),
)
conv_pairs = Method(
    "pairs",
    conv,
    _applies_by("pairs"),
    _estimate,
    _build,
    knobs=("positions in one row",),
)
