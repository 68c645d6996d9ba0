# SPDX-License-Identifier: Apache-2.0
"""Choose memory layouts: image networks in channel blocks, weights of products in panels.

Convolutions run on [n, c/block, h, w, block] (NCHWc: Liu et al., "Optimizing CNN Model Inference
on CPUs", USENIX ATC 2019). The layout is carried through every operator that can work on it, so
that no transform stands between two convolutions; weights are packed here, once. Padding becomes
a `pad` of its own, which fusion lets the producer write.

Channels may lie in any order with gaps between them (`ChannelOrder`): concatenations of any widths
join whole blocks, a channel shuffle only renames, and padding lanes hold finite values of no
meaning that only ever meet zero weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np

from treadle.dtype import bits
from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import Dim, TensorType, Type, known_sizes, same_dim, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import ConvAttrs, ConvTransposeAttrs, conv, conv_transpose
from treadle.ops.image import ResizeAttrs, resize
from treadle.ops.lowered.channel_blocks import (
    element_of,
    pack_nchwc,
    reorder_nchwc,
    splice_nchwc,
    unpack_nchwc,
)
from treadle.ops.lowered.conv_grouped import grouped_conv2d_nchwc
from treadle.ops.lowered.conv_nchwc import BlockedConvAttrs, conv2d_nchwc, depthwise_conv2d_nchwc
from treadle.ops.lowered.conv_phased import phased_conv_nchwc
from treadle.ops.lowered.conv_winograd import conv2d_winograd_nchwc
from treadle.ops.lowered.interleave_phases import interleave_phases
from treadle.ops.movement import concat, gather, pad, reshape, slice_
from treadle.ops.pool import avg_pool, max_pool
from treadle.ops.reduce import max_, mean, min_, sum_
from treadle.optimize.channels import (
    ChannelOrder,
    merge_groups,
    pack_channels,
    pack_depthwise,
    pack_weights,
    packed_constant,
    runs_of,
    take_per_group,
)
from treadle.optimize.conv_strassen import PointwiseStrassen
from treadle.optimize.dense import DenseLayouts
from treadle.optimize.dots import conv_factors, conv_of_steps
from treadle.optimize.phases import Phases, in_turn, phases_of
from treadle.optimize.winograd import (
    taps_of,
    transform_weights,
    why_winograd,
    winograd_attrs,
    winograd_in_groups,
    winograd_pads,
    winograd_tile,
)
from treadle.passes import decided
from treadle.target.base import Target

_UNSAFE = frozenset(
    {
        ew.divide,
        ew.reciprocal,
        ew.log,
        ew.sqrt,
        ew.rsqrt,
        ew.power,
        ew.mod,
        ew.exp,
        ew.sinh,
        ew.cosh,
    }
    | {ew.asin, ew.acos, ew.acosh, ew.atanh}
)
"""Element-wise operators that can make infinities or NaN out of what padding lanes hold."""

_IMAGES = (3, 4, 5)
"""Dimensions of signals, images and volumes, batch and channels included."""
_FLOATS = ("float32", "float64")
MOST_WASTE = 8
"""How many times its arithmetic a convolution in groups may cost before it stays plain."""
MOST_SPARSE = {True: 4, False: 2}
"""How many lanes there may be per phase and filter of a transposed convolution, by whether its
input is in blocks: one that is not would have to be packed."""
MOST_RUNS = 6
"""Runs of neighbouring channels up to which a block is spliced of them by whole vectors: looking up
each of sixteen lanes takes about as long as reading this many vectors under a mask."""
TILE_STEPS = 4
"""What a tile costs besides its reduction, in steps of that."""


def block_of(target: Target, dtype: str) -> int:
    """Return the channel block for a target: a vector register, at least 8 elements."""
    return max(8, target.lanes(bits(dtype)))


def choose_layouts(function: Function, target: Target) -> Function:
    """Return `function` with convolutions and products in their fast layouts.

    Parameters and results keep their layout: what leaves the function is converted back.
    """
    return _Layouts(target).run(function)


@dataclass(frozen=True, slots=True, eq=False)
class _Blocked:
    """A value in blocks. `again`, where there is one, makes it in another order at no cost."""

    node: Node
    order: ChannelOrder
    again: Callable[[ChannelOrder], Node] | None = None

    def reordered(self, order: ChannelOrder) -> Node | None:
        """Return the value in `order`; None where that would move data."""
        if self.order == order:
            return self.node
        return None if self.again is None else self.again(order)


@dataclass(frozen=True, slots=True, eq=False)
class _Scaled:
    """A product of `value` and a factor per channel, and where it comes from."""

    value: Node
    factor: Node
    origin: str


@dataclass(frozen=True, slots=True, eq=False)
class _Phased:
    """A value whose phases `made` [n, phases * c, *steps] holds, in blocks."""

    made: Call
    phases: Phases


class _Layouts:
    """The plain and the blocked form of every value of the new graph, each made when needed."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.plain: dict[Node, Node] = {}
        self.blocked: dict[Node, _Blocked] = {}
        self.phased: dict[Node, _Phased] = {}
        self.moved: dict[tuple[Node, ChannelOrder], Node] = {}
        self.dense = DenseLayouts(target)
        self.pointwise = PointwiseStrassen(target, self.dense.budget)

    def run(self, function: Function) -> Function:
        nodes = list(g.topological([function.body]))
        self.dense.count_readers(nodes)
        for node in nodes:
            self._node(node)
        body = self._plain(function.body)
        self.blocked.clear()  # what makes values again refers to this object: no cycle may
        self.plain.clear()  # keep the old weights in memory
        self.phased.clear()
        self.moved.clear()
        self.dense.clear()
        self.pointwise.clear()
        return Function(function.params, body, function.name, dict(function.attrs))

    # -- the two forms -------------------------------------------------------------------------

    def _plain(self, node: Node) -> Node:
        if node not in self.plain and _is_grown(node):
            assert isinstance(node, Call)
            self.plain[node] = _resized(node, self._plain(node.args[0]))
        elif node not in self.plain:
            self.plain[node] = _unpacked(self.blocked[node], tensor_type(node.type), node.origin)
        return self.plain[node]

    def _blocked(self, node: Node) -> _Blocked:
        if node not in self.blocked and _is_grown(node):
            assert isinstance(node, Call)
            grown = self._resize(node)
            if grown is not None:
                self.blocked[node] = grown
        if node not in self.blocked:
            type_ = tensor_type(node.type)
            block = block_of(self.target, type_.dtype)
            order = ChannelOrder.natural(_channels(type_), block)
            packed = pack_nchwc(self.plain[node], block=block, origin=node.origin)
            self.blocked[node] = _Blocked(packed, order)
        return self.blocked[node]

    def _is_blocked(self, node: Node) -> bool:
        return node in self.blocked and node not in self.plain

    def _node(self, node: Node) -> None:
        if isinstance(node, Call):
            factors = None
            if node.op is conv and tensor_type(node.type).dtype == "int32":
                factors = conv_factors(node, self._plain(node.args[0]), self.target)
            if factors is not None:
                self.plain[node] = conv_of_steps(node, factors)
                return
            made = self._blocked_call(node)
            if made is not None:
                self.blocked[node] = made
            if made is not None or node in self.plain:
                return
        operands = [self._plain(o) for o in g.operands(node)]
        fresh = g.with_operands(node, operands)
        self.plain[node] = self.dense.packed(node, fresh)

    # -- operators that run blocked --------------------------------------------------------------

    def _blocked_call(self, node: Call) -> _Blocked | None:
        operator = node.op
        if isinstance(operator, Function) or not isinstance(node.type, TensorType):
            return None
        if operator is conv:
            return self._conv(node)
        if operator is conv_transpose:
            return self._conv_transpose(node)
        if any(a in self.phased for a in node.args) and self._in_phases(node, operator):
            return self._interleaved(node)
        if not any(self._is_blocked(a) for a in node.args):
            return None
        if operator.fusion in POINTWISE:
            return self._pointwise(node, operator)
        if operator is max_pool or operator is avg_pool:
            return self._pool(node, operator)
        if operator in (mean, sum_, max_, min_):
            return self._reduce(node, operator)
        moves = {
            concat: self._concat,
            pad: self._pad,
            slice_: self._slice,
            gather: self._gather,
            resize: self._resize,
        }
        return moves[operator](node) if operator in moves else None

    def _conv(self, node: Call) -> _Blocked | None:
        x, w = node.args
        data, weights = tensor_type(x.type), tensor_type(w.type)
        attrs = node.attrs
        assert isinstance(attrs, ConvAttrs)
        if not isinstance(w, Constant) or data.dtype not in _FLOATS or data.ndim not in _IMAGES:
            kinds = f"images of {' or '.join(_FLOATS)} with weights known when compiled"
            return self._stays(node, f"blocks of channels are for {kinds}")
        if not isinstance(data.shape[1], int):
            return self._stays(node, "the number of channels is not known")
        block = block_of(self.target, data.dtype)
        filters, per_group = weights.static_shape[:2]
        if attrs.groups == data.shape[1] == filters and per_group == 1:
            _runs_blocked(node, block)
            decided(node.origin, "method", "depthwise", "each channel has a filter of its own")
            return self._depthwise(node)
        merged = _groups_to_merge(attrs, weights, block)
        if merged is None or (merged < attrs.groups and data.ndim != 4):
            reason = f"{attrs.groups} groups would waste most lanes of a block"
            return self._stays(node, reason)
        if merged < attrs.groups and not _has_known_image(data):
            return self._stays(node, "groups are for images of known sizes")
        _runs_blocked(node, block)
        filtered = self._filtered_in_groups(node, w, merged) if attrs.groups > 1 else None
        if filtered is not None:
            return filtered
        groups = attrs.groups // merged
        if merged > 1:
            w = Constant.of(merge_groups(w.value, attrs.groups, merged), origin=w.origin)
        order = ChannelOrder.spread(groups, filters // groups, block)
        if groups > 1:
            return _in_groups(node, self._blocked(x), w, groups, order)
        source = self._conv_input(x)
        attrs, weights = replace(attrs, groups=1), w.type
        tile = winograd_tile(attrs, data, weights, block, self.target)
        tile = tile if source.order.block == block else None
        choice = "direct" if tile is None else f"Winograd F({tile}x{tile},3x3)"
        scaled = self._scaled(x, weights) if data.ndim == 4 and tile is None else None
        if scaled is None and not any(k > 1 for k in weights.static_shape[2:]):
            fast, reasons = self.pointwise.maker(node, source.node, source.order, w)
            decided(node.origin, "method", "direct" if fast is None else "Strassen", reasons)
            if fast is not None:
                return _Blocked(fast(order), order, fast)
            return self._direct_conv(node, source, w, order, None)

        def why() -> str:
            if source.order.block != block:
                return "Winograd's filtering is for inputs of whole blocks of channels"
            return why_winograd(attrs, data, weights, block, self.target)

        decided(node.origin, "method", choice, why)
        if tile is not None:
            again = _winograd(node, attrs, source, w, tile)
            return _Blocked(again(order), order, again)
        return self._direct_conv(node, source, w, order, scaled)

    def _direct_conv(
        self, node: Call, source: _Blocked, w: Constant, order: ChannelOrder, scaled: _Scaled | None
    ) -> _Blocked:
        attrs, data = node.attrs, tensor_type(node.args[0].type)
        assert isinstance(attrs, ConvAttrs)
        if scaled is not None:
            decided(scaled.origin, "method", "scales the weights", "they are fewer than the data")
            source = self._blocked(scaled.value)
        padded, rest = source.node, replace(attrs, groups=1)
        if taps_of(attrs, data, w.type) is None:  # to skip padding a kernel must know of it
            padded, rest = _padded(source.node, rest, w, node.origin)

        def make(order: ChannelOrder) -> Node:
            packed: Node = packed_constant(pack_weights(w.value, source.order, order), w)
            if scaled is not None:
                packed = _times(
                    packed, self._operand(scaled.factor, source.order, 4), scaled.origin
                )
            how = _leaving_out(rest, source.order)
            return conv2d_nchwc.call(how, (padded, packed), origin=node.origin)

        return _Blocked(make(order), order, make)

    def _filtered_in_groups(self, node: Call, w: Constant, merged: int) -> _Blocked | None:
        """Filter in groups where that is faster than `merged` groups as one by the direct way."""
        x, attrs, data = node.args[0], node.attrs, tensor_type(node.args[0].type)
        assert isinstance(attrs, ConvAttrs)
        block, filters = block_of(self.target, data.dtype), w.type.static_shape[0]
        source = self._blocked(x)
        found = winograd_in_groups(attrs, data, w.type, merged, block, self.target)
        if found is None or source.order != ChannelOrder.natural(_channels(data), block):
            return None
        together, tile = found
        decided(node.origin, "method", f"Winograd F({tile}x{tile},3x3)", "of whole blocks")
        joined = Constant.of(merge_groups(w.value, attrs.groups, together), origin=w.origin)
        attrs = replace(attrs, groups=attrs.groups // together)
        make = _winograd(node, attrs, source, joined, tile)
        order = ChannelOrder.natural(filters, block)
        return _Blocked(make(order), order, make if attrs.groups == 1 else None)

    def _conv_transpose(self, node: Call) -> _Blocked | None:
        """The phases one after the other, or all by one convolution, then interleaved."""
        x, w = node.args
        data, attrs = tensor_type(x.type), node.attrs
        assert isinstance(attrs, ConvTransposeAttrs)
        known = isinstance(w, Constant) and data.dtype in _FLOATS and data.is_static
        if not known or data.ndim not in _IMAGES:
            return self._stays(node, "its type, weights or sizes are not for blocks of channels")
        assert isinstance(w, Constant)
        if attrs.groups > 1:
            return self._stays(node, "groups read different channels")
        block = block_of(self.target, data.dtype)
        phases = phases_of(attrs, data, w.type)
        together = isinstance(phases, Phases) and self._is_better_together(
            phases, data, w.type, block
        )
        lanes = block if not isinstance(phases, Phases) else phases.count * w.type.static_shape[1]
        if MOST_SPARSE[self._is_blocked(x)] * lanes < block:
            return self._stays(node, "its phases would waste most lanes of a block")
        if not isinstance(phases, Phases) or not together:
            return self._in_turn(node, w, block)
        decided(
            node.origin, "method", "phases", f"outputs {phases.interleave.strides} apart are alike"
        )
        turned = packed_constant(phases.weights(w.value), w)
        made = conv.call(phases.conv, (x, turned), origin=node.origin)
        blocked = self._conv(made)
        if blocked is None:
            return None
        self.blocked[made] = blocked
        self.phased[node] = _Phased(made, phases)
        return self._interleaved(node)

    def _is_better_together(
        self, phases: Phases, data: TensorType, weights: TensorType, block: int
    ) -> bool:
        """True where one convolution makes all phases with fewer products of whole blocks."""
        if phases.count == 1:
            return True
        filters, *kernel = weights.static_shape[1:]
        taps = tuple(a.taps for a in phases.axes)
        every = phases.count * filters
        whole = TensorType((every, weights.static_shape[0], *taps), weights.dtype)
        if winograd_tile(phases.conv, data, whole, block, self.target) is not None:
            return True
        return -(-every // block) * prod(taps) < -(-filters // block) * prod(kernel)

    def _in_turn(self, node: Call, w: Constant, block: int) -> _Blocked:
        """The phases one after the other, each with the taps it has."""
        x, attrs = node.args[0], node.attrs
        assert isinstance(attrs, ConvTransposeAttrs)
        _runs_blocked(node, block)
        decided(node.origin, "method", "phases in turn", "each is written where its outputs lie")
        how = in_turn(attrs, tensor_type(x.type), w.type)
        source = self._blocked(x)
        amounts = {"before": (0, 0, *how.before, 0), "after": (0, 0, *how.after, 0)}
        padded = pad(source.node, **amounts, origin=node.origin)
        turned = how.weights(w.value)
        rank = len(how.axes)

        def make(order: ChannelOrder) -> Node:
            packed = pack_weights(turned, source.order, order)  # [oc, ic, *strides, *taps, ib, ob]
            moved = np.ascontiguousarray(np.moveaxis(packed, 1, 1 + rank))
            operands = (padded, packed_constant(moved, w))
            return phased_conv_nchwc.call(how.conv, operands, origin=node.origin)

        order = ChannelOrder.natural(w.type.static_shape[1], block)
        return _Blocked(make(order), order, make)

    def _in_phases(self, node: Call, operator: Operator[Any]) -> bool:
        """Compute an element-wise operator before its operand is interleaved, where that can be."""
        source = next(self.phased[a] for a in node.args if a in self.phased)
        out = tensor_type(node.type)
        if operator.fusion not in POINTWISE:
            return False
        operands: list[Node] = []
        for x in node.args:
            if x in self.phased:
                if self.phased[x].phases != source.phases or tensor_type(x.type).shape != out.shape:
                    return False
                operands.append(self.phased[x].made)
            elif isinstance(x, Constant) and _is_per_channel(x, out):
                repeated = packed_constant(source.phases.repeated(x.value, out.ndim), x)
                self.plain[repeated] = repeated
                operands.append(repeated)
            else:
                return False
        made = operator.call(node.attrs, operands, origin=node.origin)
        blocked = self._pointwise(made, operator)
        if blocked is None:
            return False
        self.blocked[made] = blocked
        self.phased[node] = _Phased(made, source.phases)
        return True

    def _interleaved(self, node: Node) -> _Blocked | None:
        """Put the phases of a value in order: in whole blocks, else in plain layout at once."""
        found = self.phased[node]
        channels = tensor_type(node.type).static_shape[1]
        phases = self.blocked[found.made]
        block = phases.order.block
        if phases.order.is_natural and channels % block == 0:
            made = interleave_phases.call(
                found.phases.interleave, (phases.node,), origin=node.origin
            )
            return _Blocked(made, ChannelOrder.natural(channels, block))
        apart = self._plain(found.made)
        self.plain[node] = interleave_phases.call(
            found.phases.interleave, (apart,), origin=node.origin
        )
        return None

    def _scaled(self, x: Node, weights: TensorType) -> _Scaled | None:
        """Return value and factor where `x` scales channels and a convolution has fewer weights.

        conv(value * factor[1, c, 1, 1], w)  ->  conv(value, w * factor)
        """
        if not isinstance(x, Call) or x.op is not ew.multiply:
            return None
        type_ = tensor_type(x.type)
        filters, _, *kernel = weights.static_shape
        if not type_.is_static or type_.shape[0] != 1:
            return None
        shape = type_.static_shape
        if filters * prod(kernel) >= prod(shape[2:]):
            return None
        for value, factor in (x.args, x.args[::-1]):
            both = tensor_type(value.type).shape, tensor_type(factor.type).shape
            if both == (shape, (1, shape[1], 1, 1)) and {value, factor} <= self.blocked.keys():
                return _Scaled(value, factor, x.origin)
        return None

    def _stays(self, node: Call, reason: str) -> _Blocked | None:
        """Record why a convolution runs on the layout it has."""
        decided(node.origin, "layout", "NCHW", reason)
        return None

    def _conv_input(self, x: Node) -> _Blocked:
        """The blocked input; of few channels (an image) each is a block: nothing moves."""
        type_ = tensor_type(x.type)
        channels = _channels(type_)
        block = block_of(self.target, type_.dtype)
        if channels < block and not self._is_blocked(x):
            apart = _reshaped(self._plain(x), (*type_.shape, 1))
            return _Blocked(apart, ChannelOrder.natural(channels, 1))
        return self._blocked(x)

    def _depthwise(self, node: Call) -> _Blocked:
        x, w = node.args
        assert isinstance(w, Constant)
        assert isinstance(node.attrs, ConvAttrs)
        source = self._blocked(x)
        padded, rest = _padded(source.node, replace(node.attrs, groups=1), w, node.origin)
        packed = packed_constant(pack_depthwise(w.value, source.order), w)
        call = depthwise_conv2d_nchwc.call(rest, (padded, packed), origin=node.origin)
        return _Blocked(call, source.order)

    def _pointwise(self, node: Call, operator: Operator[Any]) -> _Blocked | None:
        out = tensor_type(node.type)
        if out.ndim not in _IMAGES or not isinstance(out.shape[1], int):
            return None
        order = self._common_order(node, out.shape[1])
        if order is None or (order.has_gaps and operator in _UNSAFE):
            return None
        if not all(self._can_follow(a, out.shape) for a in node.args):
            return None

        def make(wanted: ChannelOrder) -> Node:
            operands = [self._operand(a, wanted, out.ndim) for a in node.args]
            return operator.call(node.attrs, operands, origin=node.origin)

        wide = [self.blocked[a] for a in node.args if a in self.blocked]
        flexible = all(b.again is not None for b in wide)
        return _Blocked(make(order), order, make if flexible else None)

    def _common_order(self, node: Call, channels: int) -> ChannelOrder | None:
        """The order of the operand that cannot change its own, else of the first."""
        wide = [
            self.blocked[a]
            for a in node.args
            if a in self.blocked and tensor_type(a.type).shape[1] == channels
        ]
        fixed = [b for b in wide if b.again is None]
        chosen = fixed or wide
        return chosen[0].order if chosen else None

    def _can_follow(self, x: Node, shape: tuple[Dim, ...]) -> bool:
        """True when an operand can broadcast with a blocked result of plain shape `shape`."""
        type_ = tensor_type(x.type)
        if type_.ndim > len(shape):
            return False
        full = (1,) * (len(shape) - type_.ndim) + type_.shape
        if same_dim(full[1], 1):
            return True
        is_whole = isinstance(x, Constant) or type_.ndim == len(shape)
        return same_dim(full[1], shape[1]) and is_whole

    def _operand(self, x: Node, order: ChannelOrder, ndim: int) -> Node:
        """Return an operand that broadcasts with a result of `ndim` dimensions in `order`."""
        type_ = tensor_type(x.type)
        full = (1,) * (ndim - type_.ndim) + type_.shape
        is_single = order.channels == 1 and x in self.blocked
        if same_dim(full[1], 1) and not is_single:
            return _reshaped(self._plain(x), (*full, 1))
        if isinstance(x, Constant):
            return packed_constant(pack_channels(_with_ndim(x.value, ndim), order), x)
        found = self._blocked(x)
        made = found.reordered(order)
        return made if made is not None else self._moved(x, order)

    def _moved(self, x: Node, order: ChannelOrder) -> Node:
        """Return a value in another order by moving its channels, once for all its users."""
        if (x, order) not in self.moved:
            self.moved[x, order] = self._move(x, order)
        return self.moved[x, order]

    def _move(self, x: Node, order: ChannelOrder) -> Node:
        if isinstance(x, Call) and x in self.blocked and _is_grown(x):
            smaller = self._operand(x.args[0], order, tensor_type(x.type).ndim)
            return _resized(x, smaller)
        if x in self.blocked and tensor_type(x.type).ndim == 4 and _has_known_image(x.type):
            return _reordered(self.blocked[x], order, x.origin)
        plain = self._plain(x)
        if not order.is_natural:
            places = np.maximum(np.asarray(order.places), 0)
            plain = gather(plain, Constant.of(places.astype(np.int64)), axis=1, origin=x.origin)
        return pack_nchwc(plain, block=order.block, origin=x.origin)

    def _pool(self, node: Call, operator: Operator[Any]) -> _Blocked | None:
        if tensor_type(node.type).ndim not in _IMAGES:
            return None
        source = self._blocked(node.args[0])
        attrs: Any = replace(node.attrs, layout="NCc")  # type: ignore[type-var]
        return _Blocked(operator.call(attrs, (source.node,), origin=node.origin), source.order)

    def _reduce(self, node: Call, operator: Operator[Any]) -> _Blocked | None:
        """Reduce over the image; without `keepdims` the result [n, c] is plain at once."""
        attrs: Any = node.attrs
        ndim = tensor_type(node.args[0].type).ndim
        spatial = tuple(range(2, ndim))
        if ndim not in _IMAGES or tuple(sorted(attrs.axes)) != spatial:
            return None
        source = self._blocked(node.args[0])
        call = operator(source.node, axes=spatial, keepdims=True, origin=node.origin)
        kept = _Blocked(call, source.order)
        if attrs.keepdims:
            return kept
        out = tensor_type(node.type)
        whole = TensorType((*out.shape, *(1 for _ in spatial)), out.dtype)
        self.plain[node] = reshape(_unpacked(kept, whole, node.origin), shape=out.shape)
        return None

    def _concat(self, node: Call) -> _Blocked | None:
        axis: int = node.attrs.axis  # type: ignore[union-attr]
        if tensor_type(node.type).ndim not in _IMAGES:
            return None
        parts = [self._blocked(a) for a in node.args]
        order = parts[0].order
        if axis == 1:
            for part in parts[1:]:
                order = order.followed_by(part.order)
            nodes = [p.node for p in parts]
        else:
            again = [p.reordered(order) for p in parts]
            nodes = [n for n in again if n is not None]
            if len(nodes) != len(parts):
                return None
        return _Blocked(concat(*nodes, axis=axis, origin=node.origin), order)

    def _pad(self, node: Call) -> _Blocked | None:
        attrs: Any = node.attrs
        if len(attrs.before) not in _IMAGES or any((*attrs.before[:2], *attrs.after[:2])):
            return None
        made = replace(attrs, before=(*attrs.before, 0), after=(*attrs.after, 0))
        source = self._blocked(node.args[0])
        return _Blocked(pad.call(made, (source.node,), origin=node.origin), source.order)

    def _resize(self, node: Call) -> _Blocked | None:
        """Resize images whose channels stay; each block is a vector of every position."""
        attrs, ndim = node.attrs, tensor_type(node.type).ndim
        assert isinstance(attrs, ResizeAttrs)
        changed = attrs.changed(tensor_type(node.args[0].type).shape)
        if ndim not in _IMAGES or any(axis < 2 for axis in changed):
            return None
        source = self._blocked(node.args[0])
        return _Blocked(_resized(node, source.node), source.order)

    def _slice(self, node: Call) -> _Blocked | None:
        """Slices of the image, and of channels where they are whole blocks in their order."""
        attrs: Any = node.attrs
        source = self._blocked(node.args[0])
        axes = attrs.axes or tuple(range(len(attrs.begin)))
        strides = attrs.strides or (1,) * len(axes)
        begin, end = list(attrs.begin), list(attrs.end)
        order, block = source.order, source.order.block
        for i, axis in enumerate(axes):
            if axis != 1:
                continue
            first, last = begin[i], end[i]
            begin[i], end[i] = first // block, -(-last // block)
            held = order.places[begin[i] * block :][: last - first]
            if strides[i] != 1 or first % block or held != tuple(range(first, last)):
                return None
            order = ChannelOrder.natural(last - first, block)
        made = replace(attrs, begin=tuple(begin), end=tuple(end), axes=axes, strides=strides)
        return _Blocked(slice_.call(made, (source.node,), origin=node.origin), order)

    def _gather(self, node: Call) -> _Blocked | None:
        """A permutation of channels renames them; nothing moves."""
        data, indices = node.args
        axis: int = node.attrs.axis  # type: ignore[union-attr]
        if axis != 1 or not isinstance(indices, Constant) or tensor_type(data.type).ndim != 4:
            return None
        channels = tensor_type(data.type).shape[1]
        if not isinstance(channels, int):
            return None
        picked = indices.value
        if picked.ndim != 1 or sorted(picked.tolist()) != list(range(channels)):
            return None
        source = self._blocked(data)
        return _Blocked(source.node, source.order.renamed(picked))


def _channels(type_: TensorType) -> int:
    """Return the extent of the channels, which must be known."""
    return known_sizes(type_.shape[1:2])[0]


def _has_known_image(type_: Type) -> bool:
    """True when all extents but that of the batch are known."""
    return all(isinstance(d, int) for d in tensor_type(type_).shape[1:])


def _is_grown(x: Node) -> bool:
    """True for a resize that makes more elements of an image: moves come before it."""
    if not isinstance(x, Call) or x.op is not resize:
        return False
    source, out = tensor_type(x.args[0].type), tensor_type(x.type)
    return source.is_static and out.is_static and out.size > source.size


def _resized(x: Call, source: Node) -> Node:
    """Return what the resize `x` of channels in order makes of `source` in blocks of them."""
    attrs = x.attrs
    assert isinstance(attrs, ResizeAttrs)
    blocked = tensor_type(source.type).ndim - tensor_type(x.type).ndim == 1
    made = attrs.in_blocks() if blocked else attrs
    return resize.call(made, (source,), origin=x.origin)


def _with_ndim(value: np.ndarray, ndim: int) -> np.ndarray:
    return value.reshape((1,) * (ndim - value.ndim) + value.shape)


def _is_per_channel(x: Constant, out: TensorType) -> bool:
    """True when `x` has at most one value per channel of a result."""
    full = (1,) * (out.ndim - x.type.ndim) + x.type.static_shape
    return len(full) == out.ndim and full[0] == 1 and all(d == 1 for d in full[2:])


def _runs_blocked(node: Call, block: int) -> None:
    decided(node.origin, "layout", f"NCHW{block}c", "a vector register holds a block")


def _groups_to_merge(attrs: ConvAttrs, weights: TensorType, block: int) -> int | None:
    """Return how many groups to compute as one, with zeros between them; None: too wasteful.

    Counted are the products of whole blocks of output channels. Where that is equal, blocks
    without gaps win: all that follows works on them.
    """
    groups = attrs.groups
    filters, inputs, *kernel = weights.static_shape
    outputs, taps = filters // groups, prod(kernel)

    def cost(merged: int) -> tuple[int, int]:
        blocks = groups // merged * -(-outputs * merged // block)
        return (inputs * merged * taps + (TILE_STEPS if groups > 1 else 0)) * blocks, blocks

    merged = min((m for m in range(1, groups + 1) if groups % m == 0), key=cost)
    useful = inputs * taps * filters / block
    return merged if cost(merged)[0] <= MOST_WASTE * useful else None


def _in_groups(
    node: Call, source: _Blocked, w: Constant, groups: int, order: ChannelOrder
) -> _Blocked:
    """A convolution in groups with weights `w` [oc, ic/groups, kh, kw] from any order of channels.

    Where every group has blocks of its own it reads those, else it looks the channels up.
    """
    attrs = node.attrs
    assert isinstance(attrs, ConvAttrs)
    padded, rest = _padded(source.node, replace(attrs, groups=groups), w, node.origin)
    per_group, block = w.type.static_shape[1], order.block
    if source.order == ChannelOrder.spread(groups, per_group, block):
        inputs = ChannelOrder.natural(per_group, block)
        packed = packed_constant(pack_weights(w.value, inputs, order), w)
        how = _leaving_out(rest, inputs)
        return _Blocked(conv2d_nchwc.call(how, (padded, packed), origin=node.origin), order)
    places = source.order.position_of().reshape(groups, per_group)
    along = np.argsort(places, axis=1)  # in the order of memory
    picked = take_per_group(w.value, along)
    alone = pack_weights(picked, ChannelOrder.natural(per_group, 1), order)
    packed = packed_constant(alone[:, :, :, :, 0], w)
    at = _places(_Blocked(padded, source.order), np.take_along_axis(places, along, 1))
    call = grouped_conv2d_nchwc.call(rest, (padded, packed, at), origin=node.origin)
    return _Blocked(call, order)


def _leaving_out(attrs: ConvAttrs, inputs: ChannelOrder) -> BlockedConvAttrs:
    """Return the attributes of a convolution that skips the gaps at the end of its input."""
    given = {f.name: getattr(attrs, f.name) for f in fields(attrs)}
    return BlockedConvAttrs(**given, unused=inputs.unused)


def _times(packed: Node, factor: Node, origin: str) -> Node:
    """Return weights [oc/ob, ic/ib, kh, kw, ib, ob] times a factor [1, ic/ib, 1, 1, ib]."""
    along = reshape(factor, shape=(*tensor_type(factor.type).shape, 1), origin=origin)
    return ew.multiply(packed, along, origin=origin)


def _winograd(
    node: Call, attrs: ConvAttrs, source: _Blocked, w: Constant, tile: int
) -> Callable[[ChannelOrder], Node]:
    """Return what makes a convolution by Winograd's filtering in a channel order."""
    data = tensor_type(node.args[0].type)
    filled = replace(attrs, pads_after=winograd_pads(attrs, data, w.type, tile))
    padded, _ = _padded(source.node, filled, w, node.origin)
    how = winograd_attrs(attrs, data, w.type, tile)
    inputs = source.order
    if attrs.groups > 1:
        inputs = ChannelOrder.natural(w.type.static_shape[1], inputs.block)
    elif data.ndim == 4:
        how = replace(how, unused=inputs.unused)

    def make(order: ChannelOrder) -> Node:
        packed = transform_weights(pack_weights(w.value, inputs, order), tile, how.stride)
        return conv2d_winograd_nchwc.call(
            how, (padded, packed_constant(packed, w)), origin=node.origin
        )

    return make


def _padded(x: Node, attrs: ConvAttrs, w: Constant, origin: str) -> tuple[Node, ConvAttrs]:
    """Return the input with its padding as an operator of its own, and attributes without it."""
    none = (0,) * (w.type.ndim - 2)
    before, after = attrs.pads_before or none, attrs.pads_after or none
    if not any(before) and not any(after):
        return x, attrs
    made = pad(x, before=(0, 0, *before, 0), after=(0, 0, *after, 0), origin=origin)
    return made, replace(attrs, pads_before=none, pads_after=none)


def _reordered(value: _Blocked, order: ChannelOrder, origin: str) -> Node:
    """A blocked value moved into another order; gaps hold copies."""
    places = value.order.places_of(order)
    found = runs_of(places, order.block)
    if value.order.block != order.block or found.shape[1] > MOST_RUNS:
        places = places.reshape(order.chunks, order.block)
        return reorder_nchwc(value.node, _places(value, places), origin=origin)
    begins, ends = found[..., 0], found[..., 1]
    starts = np.pad(ends[:, :-1], ((0, 0), (1, 0)))
    firsts = _places(value, begins).value - starts
    table = np.stack([firsts, ends], axis=-1).astype(np.int32)
    return splice_nchwc(value.node, Constant.of(table), origin=origin)


def _places(value: _Blocked, places: np.ndarray) -> Constant:
    """Return places in a blocked value (block * b + lane) as operators look them up."""
    type_ = tensor_type(value.node.type)
    height, width = known_sizes(type_.shape[2:4])
    return Constant.of(element_of(places, height, width, value.order.block).astype(np.int32))


def _unpacked(value: _Blocked, type_: TensorType, origin: str) -> Node:
    shape = tensor_type(value.node.type).shape
    order = value.order
    if order.is_natural and not order.has_gaps and all(same_dim(d, 1) for d in shape[2:-1]):
        return reshape(value.node, shape=type_.shape, origin=origin)
    if order.is_natural:
        return unpack_nchwc(value.node, channels=order.channels, origin=origin)
    natural = value.reordered(ChannelOrder.natural(order.channels, order.block))
    if natural is not None:
        return unpack_nchwc(natural, channels=order.channels, origin=origin)
    whole = unpack_nchwc(value.node, channels=len(order.places), origin=origin)
    return gather(whole, Constant.of(order.position_of()), axis=1, origin=origin)


def _reshaped(x: Node, shape: tuple[Dim, ...]) -> Node:
    if isinstance(x, Constant):
        known = TensorType(shape, x.type.dtype).static_shape
        return packed_constant(x.value.reshape(known), x)
    return reshape(x, shape=shape, origin=x.origin)
