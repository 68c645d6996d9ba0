# SPDX-License-Identifier: Apache-2.0
"""Choose memory layouts: image networks in channel blocks, weights of products in panels.

Convolutions run on [n, c/block, h, w, block] (NCHWc: Liu et al., "Optimizing CNN Model Inference
on CPUs", USENIX ATC 2019). The layout is carried through every operator that can work on it, so
that no transform stands between two convolutions; weights are packed here, once. Padding becomes
a `pad` of its own, which fusion lets the producer write. Channels that do not fill a block are
padded with zeros; lanes of padding hold finite values of no meaning that only meet zero weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from treadle.dtype import bits
from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.operator import Fusion, Operator
from treadle.graph.types import TensorType, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import ConvAttrs, conv
from treadle.ops.conv_nchwc import (
    conv2d_nchwc,
    depthwise_conv2d_nchwc,
    pack_nchwc,
    unpack_nchwc,
)
from treadle.ops.matmul import dense_packed, matmul
from treadle.ops.movement import concat, pad, reshape, slice_
from treadle.ops.pool import avg_pool, max_pool
from treadle.ops.reduce import max_, mean, min_, sum_
from treadle.target.base import Target

_UNSAFE = frozenset({ew.divide, ew.reciprocal, ew.log, ew.rsqrt, ew.power, ew.mod})
"""Element-wise operators that can make infinities or NaN out of the zeros of padding lanes."""

_POINTWISE = frozenset({Fusion.ELEMENTWISE, Fusion.BROADCAST})
_SPATIAL = (2, 3)


def block_of(target: Target, dtype: str) -> int:
    """Return the channel block for a target: a vector register, at least 8 elements."""
    return max(8, target.lanes(bits(dtype)))


def choose_layouts(function: Function, target: Target) -> Function:
    """Return `function` with convolutions and products in their fast layouts.

    Results keep their layout: what leaves the function is converted back.
    """
    return _Layouts(target).run(function)


class _Layouts:
    """The plain and the blocked form of every value of the new graph, each made when needed."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.plain: dict[Node, Node] = {}
        self.blocked: dict[Node, Node] = {}

    def run(self, function: Function) -> Function:
        for node in g.topological([function.body]):
            self._node(node)
        body = self._plain(function.body)
        return Function(function.params, body, function.name, dict(function.attrs))

    # -- the two forms -------------------------------------------------------------------------

    def _plain(self, node: Node) -> Node:
        if node not in self.plain:
            type_ = tensor_type(node.type)
            block = self.blocked[node]
            self.plain[node] = _unpacked(block, type_, node.origin)
        return self.plain[node]

    def _blocked(self, node: Node) -> Node:
        if node not in self.blocked:
            block = block_of(self.target, tensor_type(node.type).dtype)
            self.blocked[node] = pack_nchwc(self.plain[node], block=block, origin=node.origin)
        return self.blocked[node]

    def _is_blocked(self, node: Node) -> bool:
        return node in self.blocked and node not in self.plain

    def _node(self, node: Node) -> None:
        if isinstance(node, Call):
            made = self._blocked_call(node)
            if made is not None:
                self.blocked[node] = made
            if made is not None or node in self.plain:
                return
        operands = [self._plain(o) for o in g.operands(node)]
        fresh = g.with_operands(node, operands)
        self.plain[node] = self._product(fresh) if isinstance(fresh, Call) else fresh

    # -- operators that run blocked --------------------------------------------------------------

    def _blocked_call(self, node: Call) -> Node | None:
        operator = node.op
        if isinstance(operator, Function) or not isinstance(node.type, TensorType):
            return None
        if operator is conv:
            return self._conv(node)
        if not any(self._is_blocked(a) for a in node.args):
            return None
        if operator.fusion in _POINTWISE:
            return self._pointwise(node, operator)
        if operator is max_pool or operator is avg_pool:
            return self._pool(node, operator)
        if operator in (mean, sum_, max_, min_):
            return self._reduce(node, operator)
        if operator is concat:
            return self._concat(node)
        if operator is pad:
            return self._pad(node)
        return self._slice(node) if operator is slice_ else None

    def _conv(self, node: Call) -> Node | None:
        x, w = node.args
        data, weights = tensor_type(x.type), tensor_type(w.type)
        attrs = node.attrs
        assert isinstance(attrs, ConvAttrs)
        if data.ndim != 4 or not isinstance(w, Constant) or data.dtype not in _FLOATS:
            return None
        if not data.is_static:
            return None
        block = block_of(self.target, data.dtype)
        filters, per_group, kh, kw = weights.static_shape
        channels = data.static_shape[1]
        if attrs.groups == channels == filters and per_group == 1:
            return self._depthwise(node, block)
        if attrs.groups > 1 and (per_group % block or (filters // attrs.groups) % block):
            return None
        source, inner = self._conv_input(x, channels, block)
        packed = pack_weights(w.value, inner, block)
        padded, rest = self._padded(source, attrs, (kh, kw), node.origin)
        return conv2d_nchwc.call(rest, (padded, _constant(packed, w)), origin=node.origin)

    def _conv_input(self, x: Node, channels: int, block: int) -> tuple[Node, int]:
        """The blocked input; few channels (an image) make one small block of all of them."""
        if channels < block and not self._is_blocked(x):
            return pack_nchwc(self._plain(x), block=channels, origin=x.origin), channels
        return self._blocked(x), block

    def _depthwise(self, node: Call, block: int) -> Node:
        x, w = node.args
        assert isinstance(w, Constant)
        assert isinstance(node.attrs, ConvAttrs)
        channels, _, kh, kw = w.value.shape
        packed = _pad_to(w.value.reshape(channels, kh, kw), 0, block)
        packed = packed.reshape(-1, block, kh, kw).transpose(0, 2, 3, 1)
        attrs = replace(node.attrs, groups=1)
        source, rest = self._padded(self._blocked(x), attrs, (kh, kw), node.origin)
        call = (source, _constant(packed, w))
        return depthwise_conv2d_nchwc.call(rest, call, origin=node.origin)

    def _padded(
        self, x: Node, attrs: ConvAttrs, kernel: tuple[int, int], origin: str
    ) -> tuple[Node, ConvAttrs]:
        before, after = attrs.pads_before or (0, 0), attrs.pads_after or (0, 0)
        if not any(before) and not any(after):
            return x, attrs
        made = pad(x, before=(0, 0, *before, 0), after=(0, 0, *after, 0), origin=origin)
        return made, replace(attrs, pads_before=(0, 0), pads_after=(0, 0))

    def _pointwise(self, node: Call, operator: Operator[Any]) -> Node | None:
        out = tensor_type(node.type)
        if out.ndim != 4 or not out.is_static:
            return None
        block = block_of(self.target, _blocked_dtype(node, self.blocked))
        if out.static_shape[1] % block and operator in _UNSAFE:
            return None
        operands = [self._operand(a, out.static_shape, block) for a in node.args]
        if any(o is None for o in operands):
            return None
        return operator.call(node.attrs, [o for o in operands if o is not None], origin=node.origin)

    def _operand(self, x: Node, shape: tuple[int, ...], block: int) -> Node | None:
        """Return an operand in the form that broadcasts with a blocked result."""
        type_ = tensor_type(x.type)
        if not type_.is_static or type_.ndim > 4:
            return None
        full = (1,) * (4 - type_.ndim) + type_.static_shape
        if full[1] == 1:
            if full == (1, 1, 1, 1):
                return _reshaped(self._plain(x), (1,) * 5)
            return _reshaped(self._plain(x), (full[0], 1, full[2], full[3], 1))
        if full[1] != shape[1]:
            return None
        if isinstance(x, Constant):
            return _constant(pack_channels(x.value.reshape(full), block), x)
        if type_.ndim != 4:
            return None
        made = self._blocked(x)
        return made if tensor_type(made.type).shape[-1] == block else None

    def _pool(self, node: Call, operator: Operator[Any]) -> Node | None:
        if tensor_type(node.type).ndim != 4:
            return None
        attrs = replace(node.attrs, layout="NCc")  # type: ignore[type-var]
        return operator.call(attrs, (self._blocked(node.args[0]),), origin=node.origin)

    def _reduce(self, node: Call, operator: Operator[Any]) -> Node | None:
        """Reduce over the image; without `keepdims` the result [n, c] is plain at once."""
        axes: tuple[int, ...] = node.attrs.axes  # type: ignore[union-attr]
        if tensor_type(node.args[0].type).ndim != 4 or tuple(sorted(axes)) != _SPATIAL:
            return None
        x = self._blocked(node.args[0])
        kept = operator(x, axes=_SPATIAL, keepdims=True, origin=node.origin)
        if node.attrs.keepdims:  # type: ignore[union-attr]
            return kept
        out = tensor_type(node.type)
        whole = TensorType((*out.shape, 1, 1), out.dtype)
        self.plain[node] = reshape(_unpacked(kept, whole, node.origin), shape=out.shape)
        return None

    def _concat(self, node: Call) -> Node | None:
        out = tensor_type(node.type)
        axis: int = node.attrs.axis  # type: ignore[union-attr]
        if out.ndim != 4:
            return None
        block = block_of(self.target, out.dtype)
        channels = [tensor_type(a.type).static_shape[1] for a in node.args]
        if axis == 1 and any(c % block for c in channels[:-1]):
            return None
        parts = [self._blocked(a) for a in node.args]
        return concat(*parts, axis=axis, origin=node.origin)

    def _pad(self, node: Call) -> Node | None:
        attrs: Any = node.attrs
        if len(attrs.before) != 4 or any((*attrs.before[:2], *attrs.after[:2])):
            return None
        made = replace(attrs, before=(*attrs.before, 0), after=(*attrs.after, 0))
        return pad.call(made, (self._blocked(node.args[0]),), origin=node.origin)

    def _slice(self, node: Call) -> Node | None:
        attrs: Any = node.attrs
        axes = attrs.axes or tuple(range(len(attrs.begin)))
        strides = attrs.strides or (1,) * len(axes)
        begin, end = list(attrs.begin), list(attrs.end)
        block = block_of(self.target, tensor_type(node.type).dtype)
        for i, axis in enumerate(axes):
            if axis == 1:
                extent = tensor_type(node.args[0].type).static_shape[1]
                whole = end[i] % block == 0 or end[i] == extent
                if strides[i] != 1 or begin[i] % block or not whole:
                    return None
                begin[i], end[i] = begin[i] // block, -(-end[i] // block)
        made = replace(attrs, begin=tuple(begin), end=tuple(end), axes=axes, strides=strides)
        return slice_.call(made, (self._blocked(node.args[0]),), origin=node.origin)

    # -- products ----------------------------------------------------------------------------------

    def _product(self, node: Call) -> Node:
        """A product with constant weights reads them in panels."""
        if node.op is not matmul or not isinstance(node.args[1], Constant):
            return node
        a, b = node.args
        data, weights = tensor_type(a.type), tensor_type(b.type)
        if weights.ndim != 2 or data.dtype not in _FLOATS:
            return node
        assert isinstance(b, Constant)
        rows = data.size // data.static_shape[-1] if data.is_static else 0
        width = panel_width(rows, weights.static_shape[1], self.target.lanes(bits(data.dtype)))
        packed = pack_panels(b.value, width)
        n = weights.static_shape[1]
        return dense_packed(a, _constant(packed, b), n=n, origin=node.origin)


_FLOATS = ("float32", "float64")


def panel_width(rows: int, columns: int, lanes: int) -> int:
    """Return how many columns of weights lie together: more for few rows, which have few sums."""
    vectors = 8 if rows == 1 else 4
    while vectors > 1 and vectors * lanes >= 2 * columns:
        vectors //= 2
    return vectors * lanes


def _blocked_dtype(node: Call, blocked: dict[Node, Node]) -> str:
    return next(tensor_type(a.type).dtype for a in node.args if a in blocked)


def _unpacked(block: Node, type_: TensorType, origin: str) -> Node:
    shape = tensor_type(block.type).shape
    channels = type_.static_shape[1]
    if shape[2:4] == (1, 1) and shape[1] * shape[4] == channels:
        return reshape(block, shape=type_.shape, origin=origin)
    return unpack_nchwc(block, channels=channels, origin=origin)


def _reshaped(x: Node, shape: tuple[int, ...]) -> Node:
    if isinstance(x, Constant):
        return _constant(x.value.reshape(shape), x)
    return reshape(x, shape=shape, origin=x.origin)


def _constant(value: np.ndarray, like: Constant) -> Constant:
    return Constant.of(value, origin=like.origin)


def _pad_to(value: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Return `value` with zeros behind `axis` up to a multiple of `block`."""
    missing = -value.shape[axis] % block
    if not missing:
        return value
    width = [(0, 0)] * value.ndim
    width[axis] = (0, missing)
    return np.pad(value, width)


def pack_channels(value: np.ndarray, block: int) -> np.ndarray:
    """Return [n, c, h, w] as [n, ceil(c/block), h, w, block], zero padded."""
    padded = _pad_to(value, 1, block)
    n, c, h, w = padded.shape
    return padded.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)


def pack_weights(w: np.ndarray, inner: int, outer: int) -> np.ndarray:
    """Return weights [oc, ic, kh, kw] as [oc/outer, ic/inner, kh, kw, inner, outer], zero padded."""
    padded = _pad_to(_pad_to(w, 0, outer), 1, inner)
    oc, ic, kh, kw = padded.shape
    split = padded.reshape(oc // outer, outer, ic // inner, inner, kh, kw)
    return split.transpose(0, 2, 4, 5, 3, 1)


def pack_panels(w: np.ndarray, width: int) -> np.ndarray:
    """Return weights [k, n] as [ceil(n/width), k, width], zero padded."""
    padded = _pad_to(w, 1, width)
    k, n = padded.shape
    return padded.reshape(k, n // width, width).transpose(1, 0, 2)
