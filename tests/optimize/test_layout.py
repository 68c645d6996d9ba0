# SPDX-License-Identifier: Apache-2.0
"""What runs in channel blocks, what stays plain, and that no transform is left in between."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, function, var
from tests.optimize.in_blocks import in_blocks  # noqa: F401  # for every test here
from tests.targets import AVX2 as NARROW
from tests.targets import AVX512 as WIDE
from tests.targets import SSE
from treadle.expr.nodes import Var as Size
from treadle.graph.nodes import Call, Constant, Function, Node, Var, topological
from treadle.graph.operator import Operator
from treadle.graph.types import Dim, TensorType
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.image import resize
from treadle.ops.indexing import gather
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.ops.matmul import matmul
from treadle.ops.movement import concat, pad, slice_
from treadle.ops.pool import avg_pool, max_pool
from treadle.ops.reduce import mean
from treadle.ops.reshaping import reshape
from treadle.optimize.blocked import block_of
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.layout import choose_layouts


def laid_out(*outputs: Node, params: list[Node], target: object = NARROW) -> Counter[str]:
    """Return how many calls of each operator there are after the pass; the meaning must be kept."""
    before = function(*outputs, params=params)  # type: ignore[arg-type]
    after = canonicalize(choose_layouts(canonicalize(before), target))  # type: ignore[arg-type]
    assert_same(before, after, rtol=1e-5)
    return Counter(names(after))


def names(f: Function) -> list[str]:
    nodes = topological([f.body])
    return [n.op.name for n in nodes if isinstance(n, Call) and isinstance(n.op, Operator)]


def conv_of(x: Node, filters: int, channels: int, size: int = 1, **attrs: object) -> Call:
    return conv(x, constant(filters, channels, size, size), **attrs)


def test_blocks_are_as_wide_as_vectors() -> None:
    assert block_of(NARROW, "float32") == 8
    assert block_of(WIDE, "float32") == 16
    assert block_of(NARROW, "float64") == 8
    assert block_of(SSE, "float32") == 8


def test_no_transform_between_two_convolutions() -> None:
    x = var("x", 1, 16, 6, 6)
    made = ew.relu(conv_of(x, 24, 16, 3, pads_before=(1, 1), pads_after=(1, 1)))
    made = conv_of(ew.add(made, constant(1, 24, 1, 1)), 8, 24)
    found = laid_out(made, params=[x])
    assert found["pack_nchwc"] == 1
    assert found["unpack_nchwc"] == 1
    assert found["conv2d_nchwc"] == 2


def test_the_channels_of_an_image_are_blocks_of_one() -> None:
    x = var("x", 1, 3, 6, 6)
    found = laid_out(conv_of(x, 16, 3, 3, pads_before=(1, 1)), params=[x])
    assert found["conv2d_nchwc"] == 1
    assert found["pack_nchwc"] == 0


def test_residuals_pools_pads_and_means_stay_in_blocks() -> None:
    x = var("x", 1, 16, 8, 8)
    a = conv_of(x, 16, 16)
    b = max_pool(ew.add(a, conv_of(a, 16, 16)), kernel=(2, 2), strides=(2, 2))
    c = avg_pool(pad(b, before=(0, 0, 1, 1), after=(0, 0, 0, 0)), kernel=(2, 2))
    d = mean(ew.multiply(conv_of(c, 16, 16), Constant.of(0.5, "float32")), axes=(2, 3))
    found = laid_out(d, params=[x])
    assert found["pack_nchwc"] == 1
    assert found["unpack_nchwc"] == 0


@pytest.mark.parametrize("widths", [(8, 16), (5, 9), (3, 3, 3), (12, 20)])
def test_concatenations_of_any_widths_join_blocks(widths: tuple[int, ...]) -> None:
    x = var("x", 1, 16, 4, 4)
    parts = [ew.relu(conv_of(x, w, 16)) for w in widths]
    joined = concat(*parts, axis=1)
    found = laid_out(conv_of(joined, 8, sum(widths), 3), params=[x])
    assert found["pack_nchwc"] == 1
    assert found["unpack_nchwc"] == 1
    assert found["gather"] == 0


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(), (1.0, 1.0, 2.0, 1.5)])
def test_images_are_resized_in_blocks(mode: str, scales: tuple[float, ...]) -> None:
    x = var("x", 1, 16, 6, 4)
    grown = resize(conv_of(x, 20, 16), sizes=(1, 20, 12, 6), scales=scales, mode=mode)
    found = laid_out(ew.add(conv_of(grown, 8, 20), constant(1, 8, 1, 1)), params=[x])
    assert (found["pack_nchwc"], found["unpack_nchwc"], found["resize"]) == (1, 1, 1)


def test_an_image_changes_its_layout_before_it_grows() -> None:
    x = var("x", 1, 16, 4, 4)
    sizes = (1, 20, 8, 8)
    result = resize(conv_of(x, 20, 16), sizes=sizes)
    after = canonicalize(choose_layouts(function(result, params=[x]), NARROW))
    assert names(after)[-2:] == ["unpack_nchwc", "resize"]
    enlarged = resize(x, sizes=(1, 16, 8, 8))
    after = canonicalize(choose_layouts(function(conv_of(enlarged, 8, 16, 3), params=[x]), NARROW))
    assert names(after)[:2] == ["pack_nchwc", "resize"]


def test_channels_are_moved_before_an_image_grows() -> None:
    x = var("x", 1, 16, 6, 6)
    small = max_pool(conv_of(x, 12, 16), kernel=(2, 2), strides=(2, 2))
    gate = resize(ew.sigmoid(small), sizes=(1, 12, 6, 6))
    joined = concat(conv_of(x, 6, 16), conv_of(x, 6, 16), axis=1)
    function_ = function(ew.multiply(joined, gate), params=[x])
    after = canonicalize(choose_layouts(canonicalize(function_), NARROW))
    assert_same(function_, after, rtol=1e-5)
    order = names(after)
    assert order.index("splice_nchwc") < order.index("resize")


def test_channels_that_are_resized_stay_plain() -> None:
    x = var("x", 1, 16, 6, 6)
    found = laid_out(resize(conv_of(x, 8, 16), sizes=(1, 16, 6, 6)), params=[x])
    assert found["unpack_nchwc"] == 1


def test_a_shuffle_of_channels_costs_nothing() -> None:
    x = var("x", 1, 12, 4, 4)
    order = Constant.of(np.arange(12).reshape(3, 4).T.reshape(-1).copy())
    shuffled = gather(conv_of(x, 12, 12), order, axis=1)
    found = laid_out(conv_of(shuffled, 8, 12), params=[x])
    assert found["gather"] == 0
    assert found["pack_nchwc"] == 1


def test_a_residual_of_two_orders() -> None:
    """A convolution follows the order of what it is added to."""
    x = var("x", 1, 12, 4, 4)
    order = Constant.of(np.random.default_rng(0).permutation(12))
    shuffled = gather(max_pool(conv_of(x, 12, 12), kernel=(1, 1)), order, axis=1)
    total = ew.add(shuffled, conv_of(x, 12, 12))
    found = laid_out(conv_of(total, 8, 12), params=[x])
    assert found["gather"] == 0


@pytest.mark.parametrize(("channels", "size"), [(24, 56), (32, 16), (48, 28)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_groups_taken_as_one_are_filtered_as_one(channels: int, size: int, shuffled: bool) -> None:
    x = var("x", 1, channels, size, size)
    source = ew.relu(conv_of(x, channels, channels))
    if shuffled:
        source = gather(source, Constant.of(np.arange(channels)[::-1].copy()), axis=1)
    made = conv_of(source, 16, channels // 2, 3, groups=2, pads_before=(1, 1), pads_after=(1, 1))
    laid_out(made, params=[x], target=WIDE)


def test_channels_that_only_fill_the_last_block_are_not_read() -> None:
    x = var("x", 1, 13, 6, 6)
    first = conv_of(x, 24, 13)
    parts = [conv_of(first, 20, 24), conv_of(first, 16, 24)]
    ends = [conv_of(concat(*p, axis=1), 8, 36) for p in (parts, parts[::-1])]
    laid_out(*ends, params=[x], target=WIDE)
    body = choose_layouts(canonicalize(function(*ends, params=[x])), WIDE).body
    calls = [n for n in topological([body]) if isinstance(n, Call) and n.op is conv2d_nchwc]
    unused = [(c.args[1].type.shape[0], c.attrs.unused) for c in calls]  # type: ignore[union-attr, attr-defined]
    assert unused == [(2, 0), (2, 8), (1, 8), (1, 0), (1, 12)]


def test_operators_that_make_infinities_stay_plain_where_there_are_gaps() -> None:
    x = var("x", 1, 9, 4, 4)
    positive = ew.add(ew.abs(conv_of(x, 9, 9)), Constant.of(1.0, "float32"))
    for operator in (ew.log, ew.sqrt, ew.rsqrt, ew.reciprocal, ew.exp):
        found = laid_out(conv_of(operator(positive), 4, 9), params=[x])
        assert found["unpack_nchwc"] == 2
    wide = var("x", 1, 16, 4, 4)
    positive = ew.add(ew.abs(conv_of(wide, 16, 16)), Constant.of(1.0, "float32"))
    found = laid_out(conv_of(ew.log(positive), 8, 16), params=[wide])
    assert found["unpack_nchwc"] == 1


@pytest.mark.parametrize(
    ("begin", "end", "step", "is_blocked"),
    [(0, 8, 1, True), (8, 20, 1, True), (16, 24, 1, True), (4, 12, 1, False), (0, 24, 2, False)],
)
def test_slices_of_whole_blocks(begin: int, end: int, step: int, is_blocked: bool) -> None:
    x = var("x", 1, 8, 4, 4)
    made = conv_of(x, 24, 8)
    part = slice_(made, begin=(begin,), end=(end,), strides=(step,), axes=(1,))
    channels = part.type.shape[1]  # type: ignore[union-attr]
    found = laid_out(conv_of(part, 8, channels), params=[x])  # type: ignore[arg-type]
    assert found["unpack_nchwc"] == (1 if is_blocked else 2)


@pytest.mark.parametrize("groups", [1, 2, 4, 8, 16, 32])
def test_groups(groups: int) -> None:
    x = var("x", 1, 32, 4, 4)
    made = conv(x, constant(32, 32 // groups, 3, 3), groups=groups)
    found = laid_out(made, params=[x])
    ways = ("conv2d_nchwc", "depthwise_conv2d_nchwc", "lane_groups_conv2d_nchwc")
    assert sum(found[way] for way in ways) == 1
    assert not found["conv"]


def test_groups_of_odd_width_are_spread_over_blocks() -> None:
    x = var("x", 1, 68, 3, 3)
    first = conv(x, constant(68, 17, 1, 1), groups=4)
    second = conv(first, constant(68, 17, 1, 1), groups=4)
    found = laid_out(second, params=[x])
    # The first look their channels up, the second find them apart; the result is put together.
    assert found["grouped_conv2d_nchwc"] == 1
    assert found["conv2d_nchwc"] == 1
    assert found["gather"] == 1


def test_a_shuffle_between_groups_moves_nothing() -> None:
    x = var("x", 1, 60, 3, 3)
    first = ew.relu(conv(x, constant(60, 20, 1, 1), groups=3))
    order = Constant.of(np.arange(60).reshape(3, 20).T.reshape(-1).copy())
    shuffled = gather(first, order, axis=1)
    depthwise = conv(shuffled, constant(60, 1, 3, 3), groups=60, pads_before=(1, 1))
    found = laid_out(conv(depthwise, constant(48, 20, 1, 1), groups=3), params=[x])
    assert found["gather"] == 0
    assert found["grouped_conv2d_nchwc"] == 2
    assert found["pack_nchwc"] == found["unpack_nchwc"] == 1


BORDER = {"pads_before": (1, 1), "pads_after": (1, 1)}


def test_what_a_depthwise_convolution_and_others_read_is_not_padded() -> None:
    x = var("x", 1, 16, 40, 40)
    made = ew.relu(conv(x, constant(32, 16, 1, 1)))
    depthwise = conv(made, constant(32, 1, 3, 3), groups=32, **BORDER)
    found = laid_out(concat(made, depthwise, axis=1), params=[x])
    assert found["depthwise_conv2d_nchwc"] == 1
    assert found["pad"] == 0


@pytest.mark.parametrize(("size", "pads"), [(40, 1), (9, 0)])
def test_the_kernel_that_makes_a_large_image_pads_it(size: int, pads: int) -> None:
    x = var("x", 1, 16, size, size)
    made = ew.relu(conv(x, constant(32, 16, 1, 1)))
    depthwise = conv(made, constant(32, 1, 3, 3), groups=32, **BORDER)
    assert laid_out(depthwise, params=[x])["pad"] == pads


def test_winograd_reads_the_border_of_what_a_residual_sum_reads() -> None:
    x = var("x", 1, 64, 28, 28)
    made = ew.relu(conv(x, constant(64, 64, 1, 1)))
    filtered = conv(made, constant(64, 64, 3, 3), **BORDER)
    found = laid_out(ew.add(made, ew.relu(filtered)), params=[x])
    assert found["conv2d_winograd_nchwc"] == 1
    assert found["pad"] == 0
    assert laid_out(filtered, params=[x])["pad"] == 1


def test_channels_are_moved_once_for_all_users() -> None:
    x = var("x", 1, 12, 4, 4)
    parts = concat(conv_of(x, 12, 12), conv_of(x, 12, 12), axis=1)
    grouped = conv(x, constant(24, 4, 1, 1), groups=3)
    found = laid_out(ew.add(grouped, parts), ew.multiply(grouped, parts), params=[x])
    assert found["splice_nchwc"] == 1
    assert found["gather"] == 0


def test_channels_in_no_runs_are_looked_up() -> None:
    x = var("x", 1, 32, 4, 4)
    first = conv(x, constant(32, 8, 1, 1), groups=4)
    order = Constant.of(np.arange(32).reshape(4, 8).T.reshape(-1).copy())
    shuffled = gather(first, order, axis=1)
    found = laid_out(ew.add(conv(x, constant(32, 8, 1, 1), groups=4), shuffled), params=[x])
    assert found["reorder_nchwc"] == 1
    assert found["splice_nchwc"] == found["gather"] == 0


@pytest.mark.parametrize(("filters", "is_scaled"), [(8, True), (40, False)])
def test_factors_of_channels_scale_what_is_smaller(filters: int, is_scaled: bool) -> None:
    x = var("x", 1, 12, 6, 6)
    data = ew.relu(conv_of(x, 12, 12))
    gate = ew.sigmoid(conv_of(mean(data, axes=(2, 3), keepdims=True), 12, 12))
    gated = ew.multiply(gate, data)
    f = function(conv_of(gated, filters, 12), params=[x])
    after = canonicalize(choose_layouts(canonicalize(f), NARROW))
    assert_same(f, after, rtol=1e-5)
    calls = [n for n in topological([after.body]) if isinstance(n, Call)]
    (product,) = (n for n in calls if n.op is ew.multiply)
    assert any(isinstance(a, Constant) for a in product.args) == is_scaled


def test_a_value_used_plain_and_blocked() -> None:
    x = var("x", 1, 16, 4, 4)
    a = conv_of(x, 16, 16)
    found = laid_out(conv_of(a, 8, 16), reshape(a, shape=(1, 256)), a, params=[x])
    assert found["conv2d_nchwc"] == 2
    assert found["unpack_nchwc"] == 2


@pytest.mark.parametrize("shape", [(), (1,), (16, 1, 1), (1, 16, 1, 1), (4, 4), (1, 1, 4, 1)])
def test_constants_follow(shape: tuple[int, ...]) -> None:
    x = var("x", 1, 16, 4, 4)
    made = ew.multiply(constant(*shape), conv_of(x, 16, 16))
    found = laid_out(conv_of(made, 8, 16), params=[x])
    assert found["pack_nchwc"] == 1


def test_what_cannot_be_blocked_stays() -> None:
    x, w = var("x", 1, 16, 4, 4), var("w", 8, 16, 3, 3)
    assert laid_out(conv(x, w), params=[x, w])["conv"] == 1
    x = var("x", 1, 16, 4, 4)
    assert laid_out(ew.relu(x), params=[x]) == {"relu": 1}


def test_a_convolution_of_no_channels_stays() -> None:
    x = var("x", 5, 0, 8, 8)
    assert laid_out(conv_of(x, 24, 0, 3), params=[x]) == {"conv": 1}


@pytest.mark.parametrize("size", [1, 3])
def test_what_computes_nothing_for_a_batch_that_is_open_stays(size: int) -> None:
    x, rows = var("x", Size("n"), 16, Size("h"), 8), var("rows", Size("n"), 20)
    for made in (conv_of(x, 0, 16, size), matmul(rows, constant(20, 0))):
        before = function(made, params=[made.args[0]])  # type: ignore[list-item]
        assert names(choose_layouts(before, NARROW)) == names(before)


def test_products_read_panels() -> None:
    x = var("x", 5, 20)
    found = laid_out(ew.relu(matmul(x, constant(20, 33))), params=[x])
    assert found["dense_packed"] == 1
    x, y = var("x", 5, 20), var("y", 20, 7)
    assert laid_out(matmul(x, y), params=[x, y])["matmul"] == 1


@pytest.mark.parametrize("image", [(9, 7), (Size("h"), Size("w")), (Size("h"), 7)])
def test_batch_and_image_may_be_open(image: tuple[Dim, Dim]) -> None:
    x = Var("x", TensorType((Size("n"), 16, *image), "float32"))
    made = ew.relu(conv_of(x, 24, 16, 3, pads_before=(1, 1), pads_after=(1, 1)))
    made = max_pool(conv_of(made, 24, 24), kernel=(2, 2), strides=(2, 2))
    body = mean(ew.multiply(made, constant(1, 24, 1, 1)), axes=(2, 3))
    found = Counter(names(canonicalize(choose_layouts(Function((x,), body), NARROW))))
    assert found["conv2d_nchwc"] + found["conv2d_winograd_dynamic_nchwc"] == 2
    assert found["pack_nchwc"] == 1
    assert found["unpack_nchwc"] == 0


def test_integer_products_with_known_weights_read_panels() -> None:
    x = var("x", 3, 40, dtype="int32")
    before = function(matmul(x, constant(40, 70, dtype="int32")), params=[x])
    after = choose_layouts(before, WIDE)
    assert_same(before, after)
    assert "dense_packed" in names(after)
