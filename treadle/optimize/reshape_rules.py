# SPDX-License-Identifier: Apache-2.0
"""Rules that bring reshapes past other moves and products, so that they meet and cancel.

A reshape splits axes into factors and merges factors into axes. Splits go up, to where a value is
made, and merges go down; both are free there, and what stood between them is read directly.

1. reshape(transpose(reshape(x))), the last one splitting what the first merged
                                              -> transpose(reshape(x)) of the factors
2. matmul(R(a), R(b)), R a merge of the axes before the last two -> R(matmul(a, b)); a factor
   may be a transpose of R(a) that swaps the last two axes; softmax(R(a)) -> R(softmax(a))
3. matmul(O(a), b), O a reshape that drops axes of 1 before the others, b no matrix
                                              -> O(matmul(a, b)); a factor may be as in 2
4. gather of one index of a reshape that merges other axes -> reshape of the gather
5. reshape of a gather of one index, splitting other axes  -> gather of the reshape
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from treadle.graph.nodes import Call, Node
from treadle.graph.types import TensorType, tensor_type
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.ops.norm import SoftmaxAttrs, softmax
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.movement_rules import reshaped
from treadle.optimize.rule import Rule, Uses, attrs_of

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Factors:
    """A reshape as factors longer than 1; `old` and `new` give the factors of every axis."""

    sizes: Shape
    old: tuple[Shape, ...]
    new: tuple[Shape, ...]

    @property
    def has_merges(self) -> bool:
        """True when an axis of the result is made of several factors."""
        return any(len(axis) > 1 for axis in self.new)

    @property
    def has_splits(self) -> bool:
        """True when an axis of the operand is cut into several factors."""
        return any(len(axis) > 1 for axis in self.old)


def factors_of(old: Shape, new: Shape) -> Factors | None:
    """Return the factors that two shapes of one size share, None where there are none.

    (2, 128) and (8, 32) -> sizes (2, 4, 32), old ((0,), (1, 2)), new ((0, 1), (2,))
    """
    if 0 in old or 0 in new:
        return None
    ends = sorted({*_ends(old), *_ends(new)} | {1})
    if any(b % a for a, b in pairwise(ends)):
        return None
    sizes = tuple(b // a for a, b in pairwise(ends))
    place = {end: k for k, end in enumerate(ends)}
    return Factors(sizes, _places(old, place), _places(new, place))


def _ends(shape: Shape) -> list[int]:
    total, found = 1, []
    for extent in shape:
        total *= extent
        found.append(total)
    return found


def _places(shape: Shape, place: dict[int, int]) -> tuple[Shape, ...]:
    ends = [1, *_ends(shape)]
    return tuple(tuple(range(place[a], place[b])) for a, b in pairwise(ends))


def _shape(node: Node) -> Shape | None:
    type_ = node.type
    return type_.static_shape if isinstance(type_, TensorType) and type_.is_static else None


def _reshape_factors(node: Node) -> Factors | None:
    if not isinstance(node, Call) or node.op is not reshape:
        return None
    old, new = _shape(node.args[0]), _shape(node)
    return None if old is None or new is None else factors_of(old, new)


def _cancel_around_transpose(call: Call, uses: Uses) -> Node | None:
    moved = call.args[0]
    if not isinstance(moved, Call) or moved.op is not transpose:
        return None
    first = _reshape_factors(moved.args[0])
    if first is None or not first.has_merges:
        return None
    order = [f for axis in attrs_of(moved).perm for f in first.new[axis]]
    made = tuple(first.sizes[f] for f in order)
    wanted = _shape(call)
    if wanted is None or tuple(d for d in wanted if d != 1) != made:
        return None
    inner = moved.args[0]
    assert isinstance(inner, Call)
    cut = reshaped(inner.args[0], first.sizes, inner.origin)
    return reshaped(transpose(cut, perm=tuple(order), origin=moved.origin), wanted, call.origin)


def _sink_below_product(call: Call, uses: Uses) -> Node | None:
    parts = [_stack(a) for a in call.args]
    shapes = [_shape(a) for a in call.args]
    if any(p is None for p in parts) or any(s is None for s in shapes):
        return None
    values = [p for p in parts if p is not None]
    before, after = ([s[:-2] for s in map(_shape, nodes) if s] for nodes in (values, call.args))
    if before[0] != before[1] or after[0] != after[1]:
        return None
    made = matmul.call(call.attrs, values, origin=call.origin)
    return reshaped(made, tensor_type(call.type).shape, call.origin)


def _sink_ones_below_product(call: Call, uses: Uses) -> Node | None:
    if any(tensor_type(a.type).ndim < 3 for a in call.args):
        return None
    values = [_with_ones(a) for a in call.args]
    if all(v is a for v, a in zip(values, call.args, strict=True)):
        return None
    made = matmul.call(call.attrs, values, origin=call.origin)
    return reshaped(made, tensor_type(call.type).shape, call.origin)


def _with_ones(node: Node) -> Node:
    """Return the value whose axes of 1 before all others are dropped, else the node itself."""
    value, shape = _stack(node), _shape(node)
    whole = None if value is None else _shape(value)
    if value is None or shape is None or whole is None:
        return node
    count = len(whole) - len(shape)
    return value if whole == (1,) * count + shape else node


def _sink_below_softmax(call: Call, uses: Uses) -> Node | None:
    value, attrs = _stack(call.args[0]), attrs_of(call)
    last = tensor_type(call.type).ndim - 1
    if value is None or attrs.axis != last or swapped_operand(call.args[0]) is not None:
        return None
    made = softmax.call(
        SoftmaxAttrs(tensor_type(value.type).ndim - 1), (value,), origin=call.origin
    )
    return reshaped(made, tensor_type(call.type).shape, call.origin)


def swapped_operand(node: Node) -> Node | None:
    """Return the operand of a transpose that swaps the last two axes."""
    if not isinstance(node, Call) or node.op is not transpose:
        return None
    perm = list(attrs_of(node).perm)
    last = len(perm) - 1
    is_swap = last >= 1 and perm == [*range(last - 1), last, last - 1]
    return node.args[0] if is_swap else None


def _stack(node: Node) -> Node | None:
    """Return the value whose axes before the last two are merged; transposed, where it is."""
    merged = swapped_operand(node)
    if merged is not None:
        value = _stack(merged) if _reshape_factors(merged) is not None else None
        if value is None:
            return None
        last = tensor_type(value.type).ndim - 1
        return transpose(value, perm=(*range(last - 1), last, last - 1), origin=node.origin)
    factors = _reshape_factors(node)
    if factors is None or factors.has_splits:
        return None
    assert isinstance(node, Call)
    old, new = _shape(node.args[0]), _shape(node)
    if old is None or new is None or not 3 <= len(new) < len(old) or old[-2:] != new[-2:]:
        return None
    return node.args[0]


def _gather_axis(call: Call) -> int | None:
    """Return the axis of a gather of one index."""
    if call.op is not gather or tensor_type(call.args[1].type).ndim:
        return None
    axis: int = attrs_of(call).axis
    return axis


def _gather_before_merge(call: Call, uses: Uses) -> Node | None:
    axis, value = _gather_axis(call), call.args[0]
    factors = _reshape_factors(value)
    if axis is None or factors is None or factors.has_splits:
        return None
    assert isinstance(value, Call)
    source = next((k for k, f in enumerate(factors.old) if f and f == factors.new[axis]), None)
    wanted = _shape(call)
    if source is None or wanted is None:
        return None
    picked = gather(value.args[0], call.args[1], axis=source, origin=call.origin)
    return reshaped(picked, wanted, value.origin)


def _split_before_gather(call: Call, uses: Uses) -> Node | None:
    picked = call.args[0]
    axis = _gather_axis(picked) if isinstance(picked, Call) else None
    factors = _reshape_factors(call)
    if axis is None or factors is None or not factors.has_splits or factors.has_merges:
        return None
    assert isinstance(picked, Call)
    whole, wanted = _shape(picked.args[0]), _shape(call)
    if whole is None or wanted is None:
        return None
    before = [f for k in range(axis) for f in factors.old[k]]
    place = next((k for k, f in enumerate(factors.new) if f and f[0] >= len(before)), len(wanted))
    cut = reshaped(picked.args[0], (*wanted[:place], whole[axis], *wanted[place:]), call.origin)
    return gather(cut, picked.args[1], axis=place, origin=picked.origin)


RULES = (
    Rule("cancel_around_transpose", (reshape,), _cancel_around_transpose),
    Rule("split_before_gather", (reshape,), _split_before_gather),
    Rule("gather_before_merge", (gather,), _gather_before_merge),
    Rule("sink_below_product", (matmul,), _sink_below_product),
    Rule("sink_ones_below_product", (matmul,), _sink_ones_below_product),
    Rule("sink_below_softmax", (softmax,), _sink_below_softmax),
)
