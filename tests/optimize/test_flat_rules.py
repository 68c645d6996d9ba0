# SPDX-License-Identifier: Apache-2.0
"""Convolutions of single pixels take an image as one row, and so does what follows them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, function, var
from tests.targets import AVX512
from treadle.expr.nodes import Var as Size
from treadle.graph.nodes import Call, Constant, Function, Node, Var, topological
from treadle.graph.text import call_text
from treadle.graph.types import TensorType, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.norm import batch_norm
from treadle.ops.pool import max_pool
from treadle.ops.sizes import checked
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.fuse import fuse
from treadle.optimize.layout import choose_layouts
from treadle.optimize.methods.method import Choices


def plain(*outputs: Node, params: list[Var]) -> Function:
    """Return a function whose convolutions run in the layout of the model; the meaning is kept."""
    before = canonicalize(function(*outputs, params=params))
    asked = {
        call_text(n): "plain"
        for n in topological([before.body])
        if isinstance(n, Call) and n.op is conv
    }
    after = canonicalize(choose_layouts(before, AVX512, Choices(asked=asked)))
    assert_same(before, after, rtol=1e-5)
    return after


def ranks(f: Function, *names: str) -> list[int]:
    """Return of how many axes the results of the calls of some operators are."""
    found = (n for n in topological([f.body]) if isinstance(n, Call) and n.op.name in names)
    return [tensor_type(n.type).ndim for n in found]


def pixelwise(x: Node, filters: int, channels: int, **attrs: object) -> Call:
    rank = tensor_type(x.type).ndim - 2
    return conv(x, constant(filters, channels, *(1,) * rank), **attrs)


@pytest.mark.parametrize("image", [(7, 9), (1, 5), (3, 4, 5)])
def test_an_image_is_one_row(image: tuple[int, ...]) -> None:
    x = var("x", 2, 6, *image)
    made = plain(pixelwise(x, 4, 6), params=[x])
    assert ranks(made, "conv") == [3]
    assert ranks(made, "reshape") == [3, len(image) + 2]


@pytest.mark.parametrize("how", [{"strides": (2, 1)}, {"pads_before": (0, 1)}, {"groups": 2}])
def test_not_where_pixels_differ_or_channels_are_in_groups(how: dict[str, object]) -> None:
    x = var("x", 1, 6, 5, 6)
    channels = 3 if "groups" in how else 6
    assert ranks(plain(pixelwise(x, 4, channels, **how), params=[x]), "conv") == [4]


def test_nor_of_an_image_of_open_size() -> None:
    x = Var("x", TensorType((1, 6, Size("h", "index"), 4), "float32"))
    before = canonicalize(function(pixelwise(x, 4, 6), params=[x]))
    assert ranks(choose_layouts(before, AVX512), "conv") in ([], [4])


def test_what_follows_is_computed_on_the_row() -> None:
    x, other = var("x", 2, 6, 7, 9), var("other", 2, 4, 7, 9)
    sums = ew.add(pixelwise(x, 4, 6), constant(4, 1, 1))
    scaled = ew.multiply(ew.relu(sums), constant(1, 1, 7, 9))
    made = plain(ew.add(scaled, other), params=[x, other])
    assert ranks(made, "conv", "add", "relu", "multiply") == [3, 3, 3, 3, 3]
    assert [len(c) for c in _groups(fuse(made))] == [5]


def test_whatever_else_reads_it_first() -> None:
    x = var("x", 1, 6, 7, 9)
    sums = pixelwise(x, 4, 6)
    pooled = max_pool(sums, kernel=(2, 2), strides=(2, 2))
    made = plain(pooled, ew.add(sums, constant(4, 1, 1)), params=[x])
    assert ranks(made, "add") == [3]


def test_what_lies_as_in_the_model_stays_there() -> None:
    x = var("x", 1, 6, 7, 9)
    made = plain(pixelwise(x, 4, 6), ew.relu(x), params=[x])
    assert ranks(made, "relu") == [4]


def test_two_in_a_row_share_the_row() -> None:
    x = var("x", 1, 6, 7, 9)
    first = ew.relu(pixelwise(x, 4, 6))
    made = plain(pixelwise(first, 5, 4), params=[x])
    assert ranks(made, "reshape") == [3, 4]


@pytest.mark.parametrize("shape", [(7, 1), (1, 1, 1, 9)])
def test_an_operand_that_repeats_rows_or_columns_takes_the_image(shape: tuple[int, ...]) -> None:
    x = var("x", 1, 6, 7, 9)
    made = plain(ew.multiply(pixelwise(x, 4, 6), constant(*shape)), params=[x])
    assert ranks(made, "multiply") == [4]


@pytest.mark.parametrize("channels", [1, 9])
def test_values_of_one_axis_are_of_channels_or_columns(channels: int) -> None:
    x = var("x", 2, 6, 1, 9)
    sums = pixelwise(x, channels, 6)
    given = [var(name, channels) for name in ("scale", "bias", "mean")]
    normal = batch_norm(sums, *given, Constant.of(np.full(channels, 2.0, np.float32)))
    plain(normal, ew.maximum(sums, constant(9)), params=[x, *given])  # the meaning is kept
    assert ranks(plain(ew.maximum(sums, constant(1)), params=[x]), "maximum") == [3]


def test_not_where_an_axis_is_named() -> None:
    x = var("x", 1, 6, 7, 9)
    made = plain(checked(pixelwise(x, 4, 6), rule="within", a=7, b=9, axis=3), params=[x])
    assert ranks(made, "checked") in ([4], [])


def test_a_sum_with_what_is_in_blocks_is_in_blocks() -> None:
    x = var("x", 1, 32, 12, 12)
    in_blocks = conv(ew.relu(x), constant(32, 32, 3, 3), pads_before=(1, 1), pads_after=(1, 1))
    alone = pixelwise(x, 32, 32)
    before = canonicalize(function(ew.add(alone, in_blocks), params=[x]))
    asked = {call_text(alone): "plain", call_text(in_blocks): "direct"}
    after = choose_layouts(before, AVX512, Choices(asked=asked))
    assert_same(before, after, rtol=1e-5)
    assert ranks(after, "add") == [5]


def _groups(f: Function) -> list[list[Call]]:
    """Return the calls of each kernel that computes anything."""
    calls = [n for n in topological([f.body]) if isinstance(n, Call)]
    bodies = [c.op.body for c in calls if isinstance(c.op, Function)]
    inside = [[n for n in topological([b]) if isinstance(n, Call)] for b in bodies]
    return [c for c in inside if [n.op.name for n in c] != ["reshape"]]
