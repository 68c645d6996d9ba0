# SPDX-License-Identifier: Apache-2.0
"""Channel orders and packed weights, by enumeration."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from treadle.optimize.channel_order import (
    PADDING,
    ChannelOrder,
    arranged,
    merge_groups,
    pack_channels,
    pack_depthwise,
    pack_panels,
    pack_weights,
    runs_of,
    take_per_group,
)


@pytest.mark.parametrize("channels", range(1, 20))
@pytest.mark.parametrize("block", [1, 4, 8])
def test_natural_order(channels: int, block: int) -> None:
    order = ChannelOrder.natural(channels, block)
    assert order.channels == channels
    assert len(order.places) == order.chunks * block
    assert order.is_natural
    assert order.has_padding_lanes == bool(channels % block)
    assert order.position_of().tolist() == list(range(channels))


def orders() -> list[ChannelOrder]:
    """Every way to join, rename and join again that a few steps make."""
    chance = random.Random(0)
    found = [ChannelOrder.natural(n, 4) for n in (1, 3, 4, 5, 8)]
    for _ in range(40):
        a, b = chance.choice(found), chance.choice(found)
        joined = a.followed_by(b)
        picked = list(range(joined.channels))
        chance.shuffle(picked)
        found += [joined, joined.renamed(np.array(picked))]
        found = [o for o in found if o.channels <= 30]
    return found


def held(order: ChannelOrder, value: np.ndarray) -> np.ndarray:
    """The blocked form of a vector of channels, written place by place."""
    return np.array([0 if p == PADDING else value[p] for p in order.places])


@pytest.mark.parametrize("order", orders(), ids=lambda o: "".join(map(str, o.places))[:30])
def test_orders_are_permutations_with_gaps(order: ChannelOrder) -> None:
    values = np.arange(1, order.channels + 1)
    packed = held(order, values)
    np.testing.assert_array_equal(packed[order.position_of()], values)
    assert sorted(p for p in order.places if p != PADDING) == list(range(order.channels))
    np.testing.assert_array_equal(arranged(values, 0, order), packed)
    assert order.has_padding_lanes == (len(order.places) > order.channels)
    assert order.is_natural == (list(order.places[: order.channels]) == list(range(order.channels)))


def test_followed_by_is_concatenation() -> None:
    for a, b in itertools.product(orders()[:12], repeat=2):
        x, y = np.arange(a.channels) + 1, np.arange(b.channels) + 100
        joined = a.followed_by(b)
        np.testing.assert_array_equal(
            held(joined, np.concatenate([x, y])), np.concatenate([held(a, x), held(b, y)])
        )


def test_places_and_runs_move_every_channel() -> None:
    for a, b in itertools.product(orders()[-20:], repeat=2):
        if a.channels != b.channels:
            continue
        values = np.arange(1, a.channels + 1)
        source = held(a, values)
        places = a.places_of(b)
        moved = source[places]
        np.testing.assert_array_equal(moved[b.position_of()], values)
        for row, runs in zip(places.reshape(-1, b.block), runs_of(places, b.block), strict=True):
            start, found = 0, []
            for first, end in runs.tolist():
                assert first // a.block == (first + max(end - start, 1) - 1) // a.block
                found += range(first, first + end - start)
                start = max(start, end)
            assert found == row.tolist()


def test_a_gap_starts_no_run() -> None:
    order = ChannelOrder((PADDING, 0, 1, PADDING, PADDING, PADDING, 2, 3), 4)
    natural = ChannelOrder.natural(4, 4)
    assert natural.places_of(order).tolist() == [0, 0, 1, 2, 3, 0, 2, 3]
    assert natural.places_of(natural).tolist() == [0, 1, 2, 3]
    assert runs_of(np.array([0, 1, 2, 5, 4, 5, 6, 7]), 4).tolist() == [
        [[0, 3], [5, 4]],
        [[4, 4], [4, 4]],
    ]


def test_renamed_moves_nothing() -> None:
    for order in orders():
        picked = np.random.default_rng(order.channels).permutation(order.channels)
        values = np.arange(1, order.channels + 1)
        shuffled = values[picked]  # what a gather of channels gives
        np.testing.assert_array_equal(held(order.renamed(picked), shuffled), held(order, values))


def test_pack_channels_and_depthwise() -> None:
    for order in orders()[:20]:
        c = order.channels
        x = np.arange(2 * c * 3 * 2, dtype="float32").reshape(2, c, 3, 2) + 1
        packed = pack_channels(x, order)
        assert packed.shape == (2, order.chunks, 3, 2, order.block)
        w = np.arange(c * 6, dtype="float32").reshape(c, 1, 3, 2) + 1
        filters = pack_depthwise(w, order)
        assert filters.shape == (order.chunks, 3, 2, order.block)
        for place, channel in enumerate(order.places):
            chunk, lane = divmod(place, order.block)
            want = 0 if channel == PADDING else x[:, channel]
            np.testing.assert_array_equal(packed[:, chunk, :, :, lane], want)
            want = 0 if channel == PADDING else w[channel, 0]
            np.testing.assert_array_equal(filters[chunk, :, :, lane], want)


def test_pack_weights_gives_the_same_product() -> None:
    numbers = np.random.default_rng(0)
    for ins, outs in itertools.product(orders()[::9], orders()[::7]):
        w = numbers.integers(-3, 4, (outs.channels, ins.channels, 1, 1)).astype("float32")
        x = numbers.integers(-3, 4, (1, ins.channels, 1, 1)).astype("float32")
        packed = pack_weights(w, ins, outs)
        assert packed.shape == (outs.chunks, ins.chunks, 1, 1, ins.block, outs.block)
        data = pack_channels(x, ins)[0, :, 0, 0]
        found = np.einsum("oiab,ia->ob", packed[:, :, 0, 0], data).reshape(-1)
        np.testing.assert_array_equal(found, held(outs, w[:, :, 0, 0] @ x[0, :, 0, 0]))


@pytest.mark.parametrize(("groups", "merged"), [(4, 2), (4, 4), (6, 3), (2, 1), (8, 2)])
def test_merged_groups_compute_the_same(groups: int, merged: int) -> None:
    numbers = np.random.default_rng(groups)
    per_group, outputs = 3, 2
    w = numbers.integers(-3, 4, (groups * outputs, per_group, 2, 2)).astype("float32")
    whole = merge_groups(w, groups, merged)
    assert whole.shape == (groups * outputs, per_group * merged, 2, 2)
    x = numbers.integers(-3, 4, (groups * per_group, 2, 2)).astype("float32")

    def product(weights: np.ndarray, count: int) -> np.ndarray:
        split = weights.reshape(count, -1, *weights.shape[1:])
        return np.einsum("goikl,gikl->go", split, x.reshape(count, -1, 2, 2)).reshape(-1)

    np.testing.assert_array_equal(product(w, groups), product(whole, groups // merged))


def test_channels_are_picked_within_their_group() -> None:
    w = np.arange(4 * 3 * 2).reshape(4, 3, 2, 1)
    picked = np.array([[2, 0, 1], [1, 2, 0]])
    taken = take_per_group(w, picked)
    for filter_, row in enumerate(taken):
        np.testing.assert_array_equal(row, w[filter_, picked[filter_ // 2]])


@pytest.mark.parametrize(("rows", "columns", "width"), [(5, 16, 8), (3, 17, 8), (1, 3, 16)])
def test_panels(rows: int, columns: int, width: int) -> None:
    w = np.arange(rows * columns, dtype="float32").reshape(rows, columns) + 1
    panels = pack_panels(w, width)
    assert panels.shape == (-(-columns // width), rows, width)
    for j in range(panels.shape[0] * width):
        want = w[:, j] if j < columns else np.zeros(rows)
        np.testing.assert_array_equal(panels[j // width, :, j % width], want)


def test_spread_puts_every_group_in_blocks_of_its_own() -> None:
    order = ChannelOrder.spread(2, 3, 4)
    assert order.places == (0, 1, 2, PADDING, 3, 4, 5, PADDING)
    assert ChannelOrder.spread(2, 4, 4) == ChannelOrder.natural(8, 4)
    assert ChannelOrder.spread(1, 5, 4) == ChannelOrder.natural(5, 4)
