# SPDX-License-Identifier: Apache-2.0
"""Where channels lie in a blocked tensor, and weights packed to match.

A `ChannelOrder` names the channel held at each place of the blocks, -1 where a place is padding.
Any order will do for an operator that treats channels alike; a convolution reads and writes any
order for free, because its weights are arranged at compile time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle.graph.arrays import LARGE, in_place
from treadle.graph.nodes import Constant, DeferredConstant
from treadle.runtime.pages import release_pages

PADDING = -1
"""The place of a lane that holds no channel."""


@dataclass(frozen=True, slots=True)
class ChannelOrder:
    """`places[p]` is the channel at physical place p (block p // block), or PADDING."""

    places: tuple[int, ...]
    block: int

    @staticmethod
    def natural(channels: int, block: int) -> ChannelOrder:
        """Return channels in order, padding at the end."""
        padding = (PADDING,) * (-channels % block)
        return ChannelOrder((*range(channels), *padding), block)

    @staticmethod
    def spread(groups: int, per_group: int, block: int) -> ChannelOrder:
        """Return channels in order, every group in blocks of its own."""
        padding = (PADDING,) * (-per_group % block)
        starts = range(0, groups * per_group, per_group)
        places = [p for start in starts for p in (*range(start, start + per_group), *padding)]
        return ChannelOrder(tuple(places), block)

    @property
    def chunks(self) -> int:
        """The number of blocks."""
        return len(self.places) // self.block

    @property
    def is_natural(self) -> bool:
        """True when the channels are in order and padding is at the end only."""
        count = self.channels
        return self.places[:count] == tuple(range(count))

    @property
    def channels(self) -> int:
        """The number of channels held."""
        return len(self.places) - self.places.count(PADDING)

    @property
    def has_padding_lanes(self) -> bool:
        """True when some places are padding."""
        return PADDING in self.places

    @property
    def unused(self) -> int:
        """How many places at the end of the last block are padding."""
        last = self.places[-self.block :]
        return next((k for k, p in enumerate(reversed(last)) if p != PADDING), 0)

    def position_of(self) -> np.ndarray:
        """Return the place of every channel: int64[channels]."""
        places = np.asarray(self.places)
        held = np.nonzero(places != PADDING)[0]
        position = np.empty(self.channels, np.int64)
        position[places[held]] = held
        return position

    def places_of(self, order: ChannelOrder) -> np.ndarray:
        """Return where each place of another `order` of these channels is held: int64[places].

        A gap continues the channels before it, round the block they are in.
        """
        position = self.position_of()
        held = np.empty(len(order.places), np.int64)
        last = self.block - 1
        for at, channel in enumerate(order.places):
            block, lane = divmod(last, self.block)
            last = block * self.block + (lane + 1) % self.block
            last = last if channel == PADDING else int(position[channel])
            held[at] = last
        return held

    def renamed(self, picked: np.ndarray) -> ChannelOrder:
        """Return the order in which channel j is what was channel `picked[j]` (a permutation)."""
        new_name = np.empty(len(picked), np.int64)
        new_name[picked] = np.arange(len(picked))
        places = tuple(PADDING if p == PADDING else int(new_name[p]) for p in self.places)
        return ChannelOrder(places, self.block)

    def followed_by(self, other: ChannelOrder) -> ChannelOrder:
        """Return the order of two blocked tensors joined along their channels."""
        shift = self.channels
        moved = tuple(PADDING if p == PADDING else p + shift for p in other.places)
        return ChannelOrder(self.places + moved, self.block)


def runs_of(places: np.ndarray, block: int) -> np.ndarray:
    """Return every block of places as runs of neighbours: int64[blocks, runs, 2].

    A run is the place it begins with and the lane it ends before. Blocks of fewer runs repeat
    their last end.
    """
    rows = places.reshape(-1, block)
    joins = (np.diff(rows, axis=1) == 1) & (rows[:, 1:] % block != 0)
    found = []
    for row, joined in zip(rows, joins, strict=True):
        starts = [0, *(np.nonzero(~joined)[0] + 1).tolist()]
        found.append([(int(row[s]), e) for s, e in zip(starts, [*starts[1:], block], strict=True)])
    most = max(map(len, found))
    return np.array([runs + [(runs[-1][0], block)] * (most - len(runs)) for runs in found])


def arranged(value: np.ndarray, axis: int, order: ChannelOrder) -> np.ndarray:
    """Return `value` with `axis` put into an order, zeros in padding lanes."""
    if order.is_natural and not order.has_padding_lanes:
        return value
    places = np.asarray(order.places)
    shape = list(value.shape)
    shape[axis] = len(places)
    result = np.zeros(shape, value.dtype)
    held = np.nonzero(places != PADDING)[0]
    np.moveaxis(result, axis, 0)[held] = np.moveaxis(value, axis, 0)[places[held]]
    return result


def pack_channels(value: np.ndarray, order: ChannelOrder) -> np.ndarray:
    """Return [n, c, *spatial] as [n, chunks, *spatial, block]."""
    placed = arranged(value, 1, order)
    n, c, *spatial = placed.shape
    return np.moveaxis(placed.reshape(n, c // order.block, order.block, *spatial), 2, -1)


def pack_weights(w: np.ndarray, inputs: ChannelOrder, outputs: ChannelOrder) -> np.ndarray:
    """Return [oc, ic, *kernel] as [oc/ob, ic/ib, *kernel, ib, ob]."""
    placed = arranged(arranged(w, 0, outputs), 1, inputs)
    oc, ic, *kernel = placed.shape
    split = placed.reshape(oc // outputs.block, outputs.block, ic // inputs.block, inputs.block,
                           *kernel)  # fmt: skip
    return np.moveaxis(split, (3, 1), (-2, -1))


def pack_depthwise(w: np.ndarray, order: ChannelOrder) -> np.ndarray:
    """Return [c, 1, *kernel] as [chunks, *kernel, block]."""
    return _lanes_last(w[:, 0], order)


def pack_lane_groups(w: np.ndarray, order: ChannelOrder) -> np.ndarray:
    """Return [c, size, kh, kw] as [chunks, kh, size, kw, block]."""
    return _lanes_last(w, order).swapaxes(1, 2)


def _lanes_last(w: np.ndarray, order: ChannelOrder) -> np.ndarray:
    """Return [c, ...] as [chunks, ..., block]."""
    placed = arranged(w, 0, order)
    c, *rest = placed.shape
    return np.moveaxis(placed.reshape(c // order.block, order.block, *rest), 1, -1)


def merge_groups(w: np.ndarray, groups: int, merged: int) -> np.ndarray:
    """Return weights of `groups` groups as those of groups / `merged`, zeros off the diagonal.

    w: [oc, ic/groups, *kernel] -> [oc, ic/groups * merged, *kernel]
    """
    oc, per_group, *kernel = w.shape
    lead = (groups // merged, merged, oc // groups)
    result = np.zeros((*lead, merged, per_group, *kernel), w.dtype)
    blocks = w.reshape(*lead, per_group, *kernel)
    for k in range(merged):
        result[:, k, :, k] = blocks[:, k]
    return result.reshape(oc, merged * per_group, *kernel)


def take_per_group(w: np.ndarray, picked: np.ndarray) -> np.ndarray:
    """Return weights [oc, ic/groups, kh, kw] with input channels `picked[g]` in group g."""
    groups, per_group = picked.shape
    split = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    index = picked.reshape(groups, 1, per_group, *(1,) * (w.ndim - 2))
    return np.take_along_axis(split, index, 2).reshape(w.shape)


def pack_panels(w: np.ndarray, width: int, multiple: int = 1) -> np.ndarray:
    """Return weights [k, n] as [panels, k, width], zero padded.

    There are ceil(n/width) panels, or so many that their number is a `multiple`.
    """
    k, n = w.shape
    missing = -n % (width * multiple)
    padded = np.pad(w, ((0, 0), (0, missing))) if missing else w
    return padded.reshape(k, -1, width).transpose(1, 0, 2)


def packed_constant(value: np.ndarray, like: Constant) -> Constant:
    """Return weights packed from those of `like`.

    A large view of those stays one until the kernels are compiled (`build.weights`): weights that
    are packed and the compiler are not in memory together. Else the pages of `like` may go.
    """
    if isinstance(like, DeferredConstant):
        return Constant.over(in_place(value), like.origin)
    if value.nbytes >= LARGE and np.may_share_memory(value, like.value):
        return Constant.over(value, like.origin)
    made = Constant.over(in_place(value), like.origin)
    if not np.may_share_memory(made.value, like.value):
        release_pages(like.value)
    return made
