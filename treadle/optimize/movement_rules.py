# SPDX-License-Identifier: Apache-2.0
"""Rules about operators that only move elements: what cancels, merges or turns into a reshape.

1. reshape of a reshape          -> one reshape
2. reshape to the same shape     -> its operand
3. transpose of a transpose      -> one transpose
4. transpose that keeps the order of all axes longer than 1 -> reshape (or its operand)
5. slice of everything           -> its operand
6. pad by nothing                -> its operand
7. concat of one value           -> its operand
8. concat of a concat on the same axis, used once -> one concat
9. split                         -> a tuple of slices
10. broadcast to the same shape  -> its operand
11. an operand broadcast for an operator that broadcasts -> the operand itself
12. element-wise operator of a concat -> concat of the operator's values, where each of them can
    join the kernel of the value it is applied to
13. reshape, transpose, reshape that only permute one axis (a channel shuffle) -> gather
14. gather of one index of a transpose -> transpose of the gather
15. reshape that cuts the axis a slice was taken along -> slice of the reshape, where the slice
    takes whole pieces: several slices of one value then differ in their begin alone
16. concat of one value, many times, along an axis of length 1 -> broadcast
17. element-wise operator of a moved value -> the moved value of the operator, which can join the
    kernel of the value
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from treadle.graph.broadcasting import stretches
from treadle.graph.nodes import Call, Constant, Node, Tuple
from treadle.graph.operator import Fusion, Operator
from treadle.graph.types import Dim, same_dim, tensor_type
from treadle.ops import activation, elementwise
from treadle.ops.indexing import gather
from treadle.ops.movement import SliceAttrs, concat, pad, slice_, split
from treadle.ops.reshaping import broadcast_to, reshape, transpose
from treadle.optimize.rule import Rule, Uses, attrs_of, with_arguments


def shape_of(node: Node) -> tuple[Dim, ...]:
    """Return the shape of a tensor value."""
    return tensor_type(node.type).shape


def has_same_shape(a: Node, b: Node) -> bool:
    """True when two tensors certainly have one shape."""
    x, y = shape_of(a), shape_of(b)
    return len(x) == len(y) and all(map(same_dim, x, y))


def reshaped(value: Node, shape: tuple[Dim, ...], origin: str) -> Node:
    """Return `value` with another shape: a constant, the value itself, or a reshape."""
    known = tuple(d for d in shape if isinstance(d, int))
    if isinstance(value, Constant) and len(known) == len(shape):
        return Constant.of(value.value.reshape(known), origin=value.origin)
    result = reshape(value, shape=shape, origin=origin)
    return value if has_same_shape(result, value) else result


def _merge_reshapes(call: Call, uses: Uses) -> Node | None:
    inner = call.args[0]
    if isinstance(inner, Call) and inner.op is reshape:
        return reshape(inner.args[0], shape=shape_of(call), origin=call.origin)
    return None


def _drop_same_shape(call: Call, uses: Uses) -> Node | None:
    return call.args[0] if has_same_shape(call, call.args[0]) else None


def _merge_transposes(call: Call, uses: Uses) -> Node | None:
    inner = call.args[0]
    if not isinstance(inner, Call) or inner.op is not transpose:
        return None
    first, second = attrs_of(inner).perm, attrs_of(call).perm
    return transpose(inner.args[0], perm=tuple(first[k] for k in second), origin=call.origin)


def _transpose_to_reshape(call: Call, uses: Uses) -> Node | None:
    value = call.args[0]
    perm = attrs_of(call).perm
    if list(perm) == sorted(perm):
        return value
    shape = shape_of(value)
    moved = [k for k in perm if not (isinstance(shape[k], int) and shape[k] == 1)]
    if moved != sorted(moved):
        return None
    return reshaped(value, shape_of(call), call.origin)


def _drop_full_slice(call: Call, uses: Uses) -> Node | None:
    value = call.args[0]
    taken = attrs_of(call).ranges().values()
    if not has_same_shape(call, value) or any(r.step != 1 and len(r) > 1 for r in taken):
        return None
    return value


def _drop_empty_pad(call: Call, uses: Uses) -> Node | None:
    attrs = attrs_of(call)
    return None if any(attrs.before) or any(attrs.after) else call.args[0]


def _drop_single_concat(call: Call, uses: Uses) -> Node | None:
    return call.args[0] if len(call.args) == 1 else None


def _repeat_to_broadcast(call: Call, uses: Uses) -> Node | None:
    value, axis = call.args[0], attrs_of(call).axis
    if len(call.args) == 1 or shape_of(value)[axis] != 1 or any(a is not value for a in call.args):
        return None
    return broadcast_to(value, shape=tensor_type(call.type).shape, origin=call.origin)


def _merge_concats(call: Call, uses: Uses) -> Node | None:
    axis = attrs_of(call).axis
    flat: list[Node] = []
    for arg in call.args:
        same = isinstance(arg, Call) and arg.op is concat and attrs_of(arg).axis == axis
        flat.extend(arg.args if isinstance(arg, Call) and same and uses.is_single(arg) else (arg,))
    if len(flat) == len(call.args):
        return None
    return concat(*flat, axis=axis, origin=call.origin)


def _split_to_slices(call: Call, uses: Uses) -> Node | None:
    attrs, begin = attrs_of(call), 0
    parts: list[Node] = []
    for size in attrs.sections:
        taken = SliceAttrs((begin,), (begin + size,), axes=(attrs.axis,))
        parts.append(slice_.call(taken, call.args, origin=call.origin))
        begin += size
    return Tuple.of(parts, call.origin)


def _is_certain_broadcast(call: Call) -> bool:
    """True for a broadcast of which it is known at every size what it repeats."""
    return call.op is broadcast_to and not stretches(shape_of(call.args[0]), shape_of(call))


def _drop_operand_broadcast(call: Call, uses: Uses) -> Node | None:
    bare = tuple(
        a.args[0] if isinstance(a, Call) and _is_certain_broadcast(a) else a for a in call.args
    )
    if not isinstance(call.op, Operator) or all(map(lambda a, b: a is b, bare, call.args)):
        return None
    for count in range(len(bare)):
        mixed = tuple(bare[k] if k <= count else a for k, a in enumerate(call.args))
        if all(map(lambda a, b: a is b, mixed, call.args)):
            continue
        fresh = with_arguments(call, mixed)
        if fresh is not None:
            return fresh
    return None


def _sink_concat(call: Call, uses: Uses) -> Node | None:
    value = call.args[0]
    if not isinstance(value, Call) or value.op is not concat or not uses.is_single(value):
        return None
    if not isinstance(call.op, Operator) or not all(_takes_tail(a, uses) for a in value.args):
        return None
    parts = [call.op.call(call.attrs, (a,), origin=call.origin) for a in value.args]
    return concat(*parts, axis=attrs_of(value).axis, origin=call.origin)


def _lift_above_movement(call: Call, uses: Uses) -> Node | None:
    value, moves = call.args[0], []
    while isinstance(value, Call) and value.op in (transpose, reshape) and uses.is_single(value):
        moves.append(value)
        value = value.args[0]
    is_transposed = any(move.op is transpose for move in moves)
    if not is_transposed or not isinstance(call.op, Operator) or not _takes_tail(value, uses):
        return None
    made: Node = call.op.call(call.attrs, (value,), origin=call.origin)
    for move in reversed(moves):
        assert isinstance(move.op, Operator)
        made = move.op.call(move.attrs, (made,), origin=move.origin)
    return made


def _takes_tail(node: Node, uses: Uses) -> bool:
    """True for a value whose kernel an element-wise user can join."""
    if not isinstance(node, Call) or not isinstance(node.op, Operator):
        return False
    kinds = (Fusion.ANCHOR, Fusion.REDUCE, Fusion.ELEMENTWISE, Fusion.BROADCAST)
    return uses.is_single(node) and node.op.fusion in kinds


def _elementwise_of(kind: Fusion) -> tuple[Operator[Any], ...]:
    families = (*vars(elementwise).values(), *vars(activation).values())
    found = (v for v in families if isinstance(v, Operator))
    return tuple(op for op in found if op.fusion is kind)


def _shuffle_to_gather(call: Call, uses: Uses) -> Node | None:
    moved = call.args[0]
    if not isinstance(moved, Call) or moved.op is not transpose:
        return None
    split_up = moved.args[0]
    if not isinstance(split_up, Call) or split_up.op is not reshape:
        return None
    value = split_up.args[0]
    before, after = shape_of(value), shape_of(call)
    parts, perm = shape_of(split_up), attrs_of(moved).perm
    if len(before) != len(after) or len(parts) != len(before) + 1:
        return None
    axis = next((k for k in range(len(perm)) if perm[k] != k), 0)
    swapped = (*range(axis), axis + 1, axis, *range(axis + 2, len(parts)))
    rows, columns = parts[axis], parts[axis + 1] if axis + 1 < len(parts) else 0
    if tuple(perm) != swapped or not isinstance(rows, int) or not isinstance(columns, int):
        return None
    merged = (*parts[:axis], rows * columns, *parts[axis + 2 :])
    if not all(
        same_dim(a, b) and same_dim(a, c) for a, b, c in zip(merged, before, after, strict=True)
    ):
        return None
    picked = np.arange(rows * columns).reshape(rows, columns).T.reshape(-1)
    return gather(value, Constant.of(picked), axis=axis, origin=call.origin)


def _pick_before_transpose(call: Call, uses: Uses) -> Node | None:
    moved, index = call.args
    if not isinstance(moved, Call) or moved.op is not transpose or tensor_type(index.type).ndim:
        return None
    perm = list(attrs_of(moved).perm)
    axis = perm.pop(attrs_of(call).axis)
    picked = gather(moved.args[0], index, axis=axis, origin=call.origin)
    left = tuple(k - (k > axis) for k in perm)
    return transpose(picked, perm=left, origin=call.origin) if left else picked


def _cut_before_slice(call: Call, uses: Uses) -> Node | None:
    taken = call.args[0]
    if not isinstance(taken, Call) or taken.op is not slice_:
        return None
    value, after = taken.args[0], shape_of(call)
    cut = _cut_axis(shape_of(taken), after)
    kept = attrs_of(taken).ranges()
    if cut is None:
        return None
    axis, pieces = cut
    longer = [k for k, r in kept.items() if not same_dim(shape_of(value)[k], len(r))]
    extent = shape_of(value)[axis]
    if longer != [axis] or not isinstance(extent, int) or kept[axis].step != 1:
        return None
    width = prod(pieces[1:])
    if extent % width or kept[axis].start % width:
        return None
    shape = (*after[:axis], extent // width, *after[axis + 1 :])
    begin = kept[axis].start // width
    whole = reshape(value, shape=shape, origin=call.origin)
    made = SliceAttrs((begin,), (begin + pieces[0],), axes=(axis,))
    return slice_.call(made, (whole,), origin=taken.origin)


def _cut_axis(old: tuple[Dim, ...], cut: tuple[Dim, ...]) -> tuple[int, tuple[int, ...]] | None:
    """Return the one axis a reshape cuts and the extents of its pieces, None for another one."""
    axis = next((k for k, (a, b) in enumerate(zip(old, cut, strict=False)) if a != b), None)
    if axis is None or len(cut) <= len(old):
        return None
    end = len(cut) - (len(old) - axis - 1)
    pieces = cut[axis:end]
    if cut[end:] != old[axis + 1 :] or not all(isinstance(p, int) and p for p in pieces):
        return None
    return axis, tuple(p for p in pieces if isinstance(p, int))


RULES = (
    Rule("shuffle_to_gather", (reshape,), _shuffle_to_gather),
    Rule("cut_before_slice", (reshape,), _cut_before_slice),
    Rule("pick_before_transpose", (gather,), _pick_before_transpose),
    Rule("merge_reshapes", (reshape,), _merge_reshapes),
    Rule("drop_reshape", (reshape,), _drop_same_shape),
    Rule("merge_transposes", (transpose,), _merge_transposes),
    Rule("transpose_to_reshape", (transpose,), _transpose_to_reshape),
    Rule("drop_full_slice", (slice_,), _drop_full_slice),
    Rule("drop_empty_pad", (pad,), _drop_empty_pad),
    Rule("drop_single_concat", (concat,), _drop_single_concat),
    Rule("repeat_to_broadcast", (concat,), _repeat_to_broadcast),
    Rule("merge_concats", (concat,), _merge_concats),
    Rule("split_to_slices", (split,), _split_to_slices),
    Rule("drop_broadcast", (broadcast_to,), _drop_same_shape),
    Rule("drop_operand_broadcast", _elementwise_of(Fusion.BROADCAST), _drop_operand_broadcast),
    Rule("sink_concat", _elementwise_of(Fusion.ELEMENTWISE), _sink_concat),
    Rule("lift_above_moves", _elementwise_of(Fusion.ELEMENTWISE), _lift_above_movement),
)
