# SPDX-License-Identifier: Apache-2.0
"""1x1 convolutions of images that grow are computed before they do."""

from __future__ import annotations

import pytest

from tests.optimize.cases import assert_same, constant, function, var
from treadle.graph.nodes import Call, Function, Node, Var, topological
from treadle.graph.types import tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.image import resize
from treadle.ops.movement import concat
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.resizes import convolve_before_resizing


def moved(body: Node, *params: Var) -> Function:
    """Return the function with convolutions moved; the meaning must be kept."""
    before = canonicalize(function(body, params=list(params)))
    after = convolve_before_resizing(before)
    assert_same(before, after, rtol=1e-5)
    return after


def positions(f: Function) -> list[int]:
    """Return of how many positions every convolution makes its results, in order."""
    nodes = [n for n in topological([f.body]) if isinstance(n, Call) and n.op is conv]
    return [tensor_type(n.type).static_shape[2] for n in nodes]


def grown(x: Node, size: int, mode: str = "linear", **attrs: object) -> Call:
    made = tensor_type(x.type).static_shape
    return resize(x, sizes=(*made[:2], size, size), mode=mode, **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_image_is_convolved_before_it_grows(mode: str) -> None:
    x = var("x", 1, 40, 3, 3)
    body = ew.relu(conv(grown(x, 7, mode), constant(16, 40, 1, 1)))
    after = moved(body, x)
    assert positions(after) == [3]


@pytest.mark.parametrize("last", [True, False])
def test_grown_parts_of_a_concatenation_are_convolved_apart(last: bool) -> None:
    x, y, z = var("x", 1, 40, 3, 3), var("y", 1, 6, 6, 6), var("z", 1, 48, 2, 2)
    w = var("w", 1, 5, 6, 6)
    parts = [grown(x, 6), y, w, grown(z, 6)]
    body = conv(
        concat(*(parts if last else parts[:-1]), axis=1), constant(16, 99 if last else 51, 1, 1)
    )
    after = moved(body, x, y, w, *([z] if last else []))
    assert sorted(positions(after)) == ([2, 3, 6] if last else [3, 6])


def test_a_concatenation_of_grown_parts_only() -> None:
    x, y = var("x", 1, 40, 3, 3), var("y", 1, 48, 2, 2)
    body = conv(concat(grown(x, 6), grown(y, 6), axis=1), constant(8, 88, 1, 1))
    assert sorted(positions(moved(body, x, y))) == [2, 3]


def test_what_would_not_pay_or_is_another_thing_stays() -> None:
    x = var("x", 1, 40, 4, 4)
    few = var("few", 1, 8, 4, 4)
    large = grown(x, 8)
    stays = [
        conv(grown(few, 8), constant(4, 8, 1, 1)),  # little is saved
        conv(grown(x, 8), constant(200, 40, 1, 1)),  # more filters than channels
        conv(grown(x, 2), constant(16, 40, 1, 1)),  # smaller
        conv(grown(x, 8), constant(16, 40, 3, 3)),
        conv(grown(x, 8), constant(16, 40, 1, 1), strides=(2, 2)),
        conv(grown(x, 8), constant(16, 40, 1, 1), pads_before=(1, 1)),
        conv(grown(x, 8), constant(16, 20, 1, 1), groups=2),
        ew.multiply(conv(large, constant(40, 40, 1, 1)), large),  # read twice
    ]
    for body in stays:
        before = canonicalize(function(body, params=[few if few in topological([body]) else x]))
        assert convolve_before_resizing(before) is before
