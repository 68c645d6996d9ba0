# SPDX-License-Identifier: Apache-2.0
"""Products of int32 factors that are small by value: which instruction sums several at once.

Quantised models multiply bytes less their zero points: int32 by type, nine bits by value. Of the
ways to multiply them, the first that the target has an instruction for is taken:

1. bytes: the data as they are, the zero point taken off the sums. With data x - z and weights w,
   sum((x - z) * w) = sum(x * w) - z * sum(w), and the last sum is known when compiled. Where the
   instruction takes bytes of the other sign, x is moved by 128, and z with it.
2. pairs: both factors as 16-bit integers.

Both give the sums of int32 factors, bit by bit: additions wrap alike. Factors of bfloat16 are
multiplied in pairs, too, where there is an instruction; the sums are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from treadle.dtype import bits, is_integer, is_signed, max_value, min_value
from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import known_sizes, tensor_type
from treadle.limits import RANGE_DEPTH
from treadle.ops import elementwise as ew
from treadle.ops.conv import ConvAttrs
from treadle.ops.lowered.dot import conv_dot, grouped, steps_in_word
from treadle.ops.movement import pad, slice_
from treadle.ops.reshaping import broadcast_to, reshape, transpose
from treadle.optimize.channel_order import packed_constant
from treadle.target.base import Target
from treadle.target.intrinsics.dots import dot_for

_BYTES = ("int8", "uint8")
_MOVES = (reshape, transpose, slice_, broadcast_to)


@dataclass(frozen=True, slots=True)
class Factors:
    """Two factors as small numbers: the data are `data` less `zero`.

    `zero` is a number, or a value of one element. `weights` are in the order they had.
    """

    data: Node
    zero: int | Node
    weights: np.ndarray

    @property
    def method(self) -> str:
        """What the method is called in explanations."""
        return "bytes" if self.data_type in _BYTES else "pairs"

    @property
    def is_zero_known(self) -> bool:
        """True where the data can stand for their zero, as around images."""
        low, high = (int(f(self.data_type)) for f in (min_value, max_value))
        return isinstance(self.zero, int) and low <= self.zero <= high

    @property
    def data_type(self) -> str:
        """The element type of the data."""
        return tensor_type(self.data.type).dtype

    @property
    def steps(self) -> int:
        """How many steps of the reduction are multiplied at once."""
        return steps_in_word(self.data_type)

    def less_zero(self, total: Node, axes: tuple[int, ...], trailing: int, origin: str) -> Node:
        """Return the sums of the data less their zero.

        `axes` of the weights are those that are summed over; `trailing` axes of the sums come after
        those that are left.
        """
        if self.zero == 0:
            return total
        columns = self.weights.sum(axis=axes, dtype="int64")
        columns = columns.reshape(*columns.shape, *(1,) * trailing)
        if isinstance(self.zero, int):
            taken: Node = Constant.of((self.zero * columns).astype("int32"))
        else:
            sums = Constant.of(columns.astype("int32"))
            taken = ew.multiply(reshape(self.zero, shape=(), origin=origin), sums, origin=origin)
        return ew.subtract(total, taken, origin=origin)


def small_factors(
    x: Node,
    w: Node,
    steps: int,
    target: Target,
    fits: Callable[[Factors], bool] = lambda _: True,
) -> Factors | None:
    """Return the factors of a sum of `steps` products as small numbers; None: as they are.

    `fits` tells whether factors of bytes can be used.
    """
    dtype = tensor_type(x.type).dtype
    if steps < 2 or not isinstance(w, Constant):
        return None
    if dtype == "bfloat16" and dot_for(dtype, dtype, target) is not None:
        return Factors(x, 0, w.value)
    if not is_integer(dtype) or bits(dtype) > 32:
        return None
    limits = _range(w, RANGE_DEPTH)
    if limits is None:
        return None
    if limits[0] >= -128 and limits[1] <= 127:
        found = _byte_factors(x, w, target)
        if found is not None and fits(found):
            return found
    if dot_for("int16", "int16", target) is None:
        return None
    if not _is_small(limits) or not _is_small(_range(x, RANGE_DEPTH)):
        return None
    data = ew.cast(x, dtype="int16", origin=x.origin)
    return Factors(data, 0, w.value.astype("int16"))


def _byte_factors(x: Node, w: Constant, target: Target) -> Factors | None:
    parts = _bytes_less_zero(x, RANGE_DEPTH)
    if parts is None:
        return None
    data, zero = parts
    dtype = tensor_type(data.type).dtype
    other = _BYTES[dtype == "int8"]
    weights = w.value.astype("int8")
    if dot_for(dtype, "int8", target) is not None:
        return Factors(data, zero, weights)
    if dot_for(other, "int8", target) is None:
        return None
    flipped = ew.bitwise_xor(
        ew.cast(data, dtype="uint8", origin=x.origin), Constant.of(128, "uint8"), origin=x.origin
    )
    moved = ew.cast(flipped, dtype=other, origin=x.origin)
    by = 128 if dtype == "int8" else -128
    if isinstance(zero, int):
        return Factors(moved, zero + by, weights)
    return Factors(moved, ew.add(zero, Constant.of(by, "int32"), origin=x.origin), weights)


def _bytes_less_zero(x: Node, depth: int) -> tuple[Node, int | Node] | None:
    """Return bytes and what is taken off them where an integer value is made so."""
    if tensor_type(x.type).dtype in _BYTES:
        return x, 0
    if not isinstance(x, Call) or not depth:
        return None
    dtype, source = (tensor_type(n.type).dtype for n in (x, x.args[0]))
    if x.op is ew.cast:
        keeps = is_signed(dtype) or not is_signed(source)
        return (x.args[0], 0) if source in _BYTES and keeps else None
    if x.op in _MOVES:
        inner = _bytes_less_zero(x.args[0], depth - 1)
        if inner is None:
            return None
        return g.with_operands(x, [inner[0], *x.args[1:]]), inner[1]
    if x.op is not ew.subtract or dtype != "int32":
        return None
    inner, zero = _bytes_less_zero(x.args[0], depth - 1), _one_number(x.args[1])
    if inner is None or zero is None or inner[1] != 0 or x.type != x.args[0].type:
        return None
    return inner[0], zero


def _one_number(x: Node) -> int | Node | None:
    """Return a value of one element: the number where it is known; None for several."""
    type_ = tensor_type(x.type)
    if not type_.is_static or type_.size != 1:
        return None
    return int(x.value.reshape(-1)[0]) if isinstance(x, Constant) else x


def in_whole_steps(x: Node, axis: int, extent: int, steps: int, origin: str) -> Node:
    """Return data with zeros after an axis of `extent` up to a multiple of `steps`."""
    missing = -extent % steps
    if not missing:
        return x
    none = (0,) * tensor_type(x.type).ndim
    after = tuple(missing if k == axis else 0 for k in range(len(none)))
    return pad(x, before=none, after=after, origin=origin)


def conv_factors(node: Call, x: Node, target: Target) -> Factors | None:
    """Return the factors of a convolution of data `x` as small integers; None: as they are."""
    w, attrs = node.args[1], node.attrs
    assert isinstance(attrs, ConvAttrs)
    if not isinstance(w, Constant):
        return None
    has_pads = any((*attrs.pads_before, *attrs.pads_after))

    def fits(factors: Factors) -> bool:
        return not has_pads or factors.is_zero_known

    return small_factors(x, w, w.value.shape[1], target, fits)


def conv_of_steps(node: Call, factors: Factors, *, in_one_row: bool = False) -> Node:
    """Return the convolution `node` with several channels side by side.

    `in_one_row`: vectors of an image whose sizes are known walk across the ends of rows.
    """
    w, attrs, origin = node.args[1], node.attrs, node.origin
    assert isinstance(w, Constant)
    assert isinstance(attrs, ConvAttrs)
    x = _whole_words(factors, attrs.groups, w.value.shape[1], origin)
    if factors.zero != 0 and any((*attrs.pads_before, *attrs.pads_after)):
        x, attrs = _padded_by_zero(x, attrs, factors, origin)
    weights = packed_constant(grouped(factors.weights, 1), w)
    how = {f.name: getattr(attrs, f.name) for f in fields(attrs)}
    how |= {"data": factors.data_type, "one_row": in_one_row}
    total = conv_dot(_words(x, origin), weights, **how, origin=origin)
    summed = tuple(range(1, weights.type.ndim - 1))
    made = factors.less_zero(total, summed, tensor_type(total.type).ndim - 2, origin)
    return reshape(made, shape=tensor_type(node.type).shape, origin=origin) if in_one_row else made


def _whole_words(factors: Factors, groups: int, channels: int, origin: str) -> Node:
    """Return data [n, c, *spatial] with zeros after the `channels` of every group, to whole words.

    Those of groups one after the other.
    """
    x, steps = factors.data, factors.steps
    if groups == 1 or channels % steps == 0:
        return in_whole_steps(x, 1, channels, steps, origin)
    n, _, *spatial = tensor_type(x.type).shape
    apart = reshape(x, shape=(n, groups, channels, *spatial), origin=origin)
    whole = in_whole_steps(apart, 2, channels, steps, origin)
    filled = -(-channels // steps) * steps
    return reshape(whole, shape=(n, groups * filled, *spatial), origin=origin)


def _words(x: Node, origin: str) -> Node:
    """Return [n, c, *spatial] small integers as words of neighbouring channels, lowest first."""
    dtype, (channels,) = tensor_type(x.type).dtype, known_sizes(tensor_type(x.type).shape[1:2])
    steps, plain = steps_in_word(dtype), dtype if dtype.startswith("u") else f"u{dtype}"
    made: Node | None = None
    for k in range(steps):
        at = {"begin": (k,), "end": (channels,), "strides": (steps,), "axes": (1,)}
        part: Node = slice_(x, **at, origin=origin)
        for wide in (plain, "uint32"):
            part = ew.cast(part, dtype=wide, origin=origin)
        if made is not None:
            by = Constant.of(k * bits(dtype), "uint32")
            part = ew.bitwise_or(made, ew.shift_left(part, by, origin=origin), origin=origin)
        made = part
    assert made is not None
    return made


def _padded_by_zero(
    x: Node, attrs: ConvAttrs, factors: Factors, origin: str
) -> tuple[Node, ConvAttrs]:
    """Return data with their zero point around them, and a convolution that adds no zeros."""
    rest = (0,) * (tensor_type(x.type).ndim - 2)
    before, after = (attrs.pads_before or rest), (attrs.pads_after or rest)
    around = pad(x, before=(0, 0, *before), after=(0, 0, *after), value=factors.zero, origin=origin)
    return around, replace(attrs, pads_before=(), pads_after=())


def _is_small(limits: tuple[int, int] | None) -> bool:
    return limits is not None and limits[0] >= -(1 << 15) and limits[1] < 1 << 15


def _range(x: Node, depth: int) -> tuple[int, int] | None:
    """Return numbers between which all elements of an integer value are; None: not known."""
    dtype = tensor_type(x.type).dtype
    if not is_integer(dtype) or not depth:
        return None
    if isinstance(x, Constant):
        values = np.asarray(x.value)
        return (int(values.min()), int(values.max())) if values.size else (0, 0)
    limits = int(min_value(dtype)), int(max_value(dtype))
    found = _call_range(x, depth - 1) if isinstance(x, Call) else None
    if found is None or found[0] < limits[0] or found[1] > limits[1]:
        return limits
    return found


def _call_range(x: Call, depth: int) -> tuple[int, int] | None:
    if x.op is ew.cast or x.op in _MOVES:
        return _range(x.args[0], depth)
    if x.op is not ew.subtract:
        return None
    a, b = (_range(arg, depth) for arg in x.args)
    return None if a is None or b is None else (a[0] - b[1], a[1] - b[0])
