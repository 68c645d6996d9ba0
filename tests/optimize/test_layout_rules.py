# SPDX-License-Identifier: Apache-2.0
"""Channel blocks beside values whose channels stand last: the image is turned once, in blocks."""

from __future__ import annotations

import pytest

from tests.optimize.cases import assert_same, constant, function, var
from tests.targets import AVX2 as TARGET
from treadle.graph.nodes import Call, Function, Node, topological
from treadle.graph.operator import Operator
from treadle.ops.activation import gelu
from treadle.ops.conv import conv
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.norm import layer_norm
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.canonicalize import canonicalize
from treadle.optimize.layout import choose_layouts


def names(f: Function) -> list[str]:
    nodes = topological([f.body])
    return [n.op.name for n in nodes if isinstance(n, Call) and isinstance(n.op, Operator)]


def settled(*outputs: Node, x: Node) -> list[str]:
    before = function(*outputs, params=[x])  # type: ignore[list-item]
    after = canonicalize(before)
    assert_same(before, after)
    return names(after)


def test_a_move_into_blocks_and_the_one_back_cancel() -> None:
    x, blocked = var("x", 1, 16, 3, 4), var("y", 1, 2, 3, 4, 8)
    assert settled(unpack_nchwc(pack_nchwc(x, block=8), channels=16), x=x) == []
    assert settled(pack_nchwc(unpack_nchwc(blocked, channels=16), block=8), x=blocked) == []
    few = var("x", 1, 13, 3, 4)
    assert settled(unpack_nchwc(pack_nchwc(few, block=8), channels=13), x=few) == []


def test_padding_lanes_and_other_blocks_keep_their_moves() -> None:
    x = var("x", 1, 2, 3, 4, 8)
    both = ["unpack_nchwc", "pack_nchwc"]
    assert settled(pack_nchwc(unpack_nchwc(x, channels=13), block=8), x=x) == both
    assert settled(pack_nchwc(unpack_nchwc(x, channels=16), block=16), x=x) == both


def test_tokens_are_packed_in_one_turn() -> None:
    x = var("x", 2, 12, 16)
    image = reshape(transpose(x, perm=(0, 2, 1)), shape=(2, 16, 3, 4))
    assert settled(pack_nchwc(image, block=8), x=x) == ["reshape", "transpose"]


def test_tokens_of_one_image_are_packed_in_one_turn() -> None:
    x = var("x", 3, 4, 16)
    image = reshape(transpose(x, perm=(2, 0, 1)), shape=(1, 16, 3, 4))
    assert settled(pack_nchwc(image, block=8), x=x) == ["reshape", "transpose"]
    turned = reshape(transpose(x, perm=(2, 1, 0)), shape=(1, 16, 4, 3))
    assert "pack_nchwc" in settled(pack_nchwc(turned, block=8), x=x)


@pytest.mark.parametrize("image", [(3, 4), (2, 3, 4)])
def test_images_with_channels_last_are_packed_in_one_turn(image: tuple[int, ...]) -> None:
    x = var("x", 2, *image, 16)
    last = len(image) + 1
    front = transpose(x, perm=(0, last, *range(1, last)))
    assert settled(pack_nchwc(front, block=8), x=x) == ["reshape", "transpose"]


def test_blocks_become_tokens_in_one_turn() -> None:
    x = var("x", 2, 3, 4, 5, 8)
    plain = reshape(unpack_nchwc(x, channels=24), shape=(2, 24, 20))
    made = settled(transpose(plain, perm=(0, 2, 1)), x=x)
    assert made == ["transpose", "reshape"]


def test_axes_of_one_element_may_stand_anywhere() -> None:
    """As heads that are one."""
    x = var("x", 1, 1, 12, 16)
    image = reshape(transpose(x, perm=(0, 1, 3, 2)), shape=(1, 16, 3, 4))
    assert settled(pack_nchwc(image, block=8), x=x) == ["reshape", "transpose"]
    y = var("y", 1, 3, 4, 5, 8)
    tokens = reshape(unpack_nchwc(y, channels=24), shape=(1, 1, 24, 20))
    made = settled(transpose(tokens, perm=(0, 1, 3, 2)), x=y)
    assert made == ["transpose", "reshape"]


@pytest.mark.parametrize("shape", [(2, 12, 4), (1, 8, 4, 3), (8, 3, 4)])
def test_what_only_looks_like_channels_stays(shape: tuple[int, ...]) -> None:
    """Several images, a channel axis that is cut, and channels that are already in front."""
    x, last = var("x", *shape), len(shape) - 1
    swapped = transpose(x, perm=(*range(last - 1), last, last - 1))
    image = reshape(swapped, shape=(1, 8, 3, 4))
    assert "pack_nchwc" in settled(pack_nchwc(image, block=8), x=x)


def test_blocks_become_an_image_with_channels_last() -> None:
    x = var("x", 1, 2, 4, 5, 8)
    made = settled(transpose(unpack_nchwc(x, channels=16), perm=(0, 2, 3, 1)), x=x)
    assert made == ["transpose", "reshape"]


def test_channels_that_leave_gaps_and_other_turns_stay() -> None:
    x = var("x", 1, 2, 4, 5, 8)
    gaps = transpose(unpack_nchwc(x, channels=13), perm=(0, 2, 3, 1))
    assert settled(gaps, x=x) == ["unpack_nchwc", "transpose"]
    sideways = transpose(unpack_nchwc(x, channels=16), perm=(0, 1, 3, 2))
    assert "unpack_nchwc" in settled(sideways, x=x)
    y = var("y", 1, 12, 13)
    narrow = pack_nchwc(transpose(y, perm=(0, 2, 1)), block=8)
    assert settled(narrow, x=y) == ["transpose", "pack_nchwc"]
    merged = reshape(transpose(var("y", 2, 12, 16), perm=(0, 2, 1)), shape=(1, 32, 3, 4))
    source = merged.args[0].args[0]  # type: ignore[union-attr]
    assert "pack_nchwc" in settled(pack_nchwc(merged, block=8), x=source)


def test_a_convolution_among_tokens_turns_twice_and_takes_its_activation() -> None:
    x = var("x", 1, 12, 16)
    image = reshape(transpose(x, perm=(0, 2, 1)), shape=(1, 16, 3, 4))
    made = conv(image, constant(16, 1, 3, 3), groups=16, pads_before=(1, 1), pads_after=(1, 1))
    tokens = transpose(reshape(made, shape=(1, 16, 12)), perm=(0, 2, 1))
    before = canonicalize(function(gelu(tokens), params=[x]))
    after = canonicalize(choose_layouts(before, TARGET))
    assert_same(before, after, rtol=1e-5)
    found = names(after)
    assert found.count("transpose") == 2
    assert not {"pack_nchwc", "unpack_nchwc"} & set(found)
    assert found.index("gelu") == found.index("depthwise_conv2d_nchwc") + 1


def rows_into_blocks(x: Node, *, activation: bool = True) -> Node:
    """Return normalised tokens as an image in blocks of 8 channels."""
    made: Node = layer_norm(x, constant(16), constant(16), axis=2)
    front = transpose(gelu(made) if activation else made, perm=(0, 2, 1))
    return pack_nchwc(reshape(front, shape=(2, 16, 3, 4)), block=8)


@pytest.mark.parametrize("activation", [False, True])
def test_a_norm_before_blocks_writes_them(activation: bool) -> None:
    x = var("x", 2, 12, 16)
    tail = ["gelu"] if activation else []
    made = settled(rows_into_blocks(x, activation=activation), x=x)
    assert made == ["reshape", "layer_norm_nchwc", *tail]


def test_a_norm_that_others_read_is_made_once() -> None:
    x = var("x", 2, 12, 16)
    norm = layer_norm(x, constant(16), constant(16), axis=2)
    packed = pack_nchwc(transpose(norm, perm=(0, 2, 1)), block=8)
    assert sorted(settled(packed, norm, x=x)) == ["layer_norm", "reshape", "transpose"]


def test_a_norm_of_tokens_and_channels_together_stays() -> None:
    x = var("x", 2, 12, 16)
    norm = layer_norm(x, constant(12, 16), constant(12, 16), axis=1)
    packed = pack_nchwc(transpose(norm, perm=(0, 2, 1)), block=8)
    assert settled(packed, x=x) == ["layer_norm", "reshape", "transpose"]


@pytest.mark.parametrize("is_flat", [False, True])
def test_a_convolution_before_a_move_of_its_channels_to_the_end_gives_blocks(is_flat: bool) -> None:
    """Whole vectors are moved then, not single elements."""
    x = var("x", 1, 3, 400)
    made: Node = conv(x, constant(64, 3, 3), strides=(2,))
    if is_flat:
        x = var("x", 1, 3, 400, 3)
        made = conv(x, constant(64, 3, 3, 3), strides=(2, 1))
        made = reshape(made, shape=(1, 64, 199))
    before = canonicalize(function(transpose(made, perm=(0, 2, 1)), params=[x]))
    after = canonicalize(choose_layouts(before, TARGET))
    assert_same(before, after, rtol=1e-5)
    assert "conv2d_nchwc" in names(after)
    assert "unpack_nchwc" not in names(after)
