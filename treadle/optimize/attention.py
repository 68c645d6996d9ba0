# SPDX-License-Identifier: Apache-2.0
"""Bring attention into the form that runs as one kernel, and make that kernel.

before:  matmul(softmax(f(matmul(q, k')), axis=-1), v)            k' is k with its last axes swapped
after:   attend(g(matmul(k, q')), v)

or matmul(v', softmax(...)'), whose result is transposed; weights that are no number may become 0
before they are used. f are any element-wise operators, such as a
scale, a mask, a choice; g are the same with their operands transposed, so that scores lie with the
keys outside and the rows inside. The scores, what moves the operands and a transpose of the result
become part of the kernel; a number that scales the keys scales the queries instead. Scores are
never stored whole. It is done where the arithmetic on vectors of rows costs no more than what it
saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from treadle.cost.attention import block_vectors, has_rows_for_lanes, most_scores
from treadle.cost.gpu import is_attention_worth
from treadle.dtype import bits, itemsize
from treadle.graph.nodes import Call, Constant, Function, Node, topological, users
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import tensor_type
from treadle.limits import ATTENTION_CALLS, LEAST_DEVICE_ROWS
from treadle.ops.attention import attend
from treadle.ops.elementwise import isnan, multiply, where
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.ops.movement import slice_
from treadle.ops.norm import softmax
from treadle.ops.reshaping import broadcast_to, reshape, transpose
from treadle.optimize.attention_masks import PRODUCTS, keys_ahead
from treadle.optimize.methods.convolution import FLOATS
from treadle.optimize.movement_rules import reshaped, shape_of
from treadle.optimize.outline import is_embedded, outline
from treadle.optimize.reshape_rules import swapped_operand
from treadle.optimize.rule import Rule, Uses, apply_rules, attrs_of
from treadle.target.base import Target
from treadle.target.gpu_machine import Gpu


def fuse_attention(function: Function, target: Target) -> Function:
    """Return `function` with every attention that pays as one call of a function.

    Unchanged for targets without a schedule for it.
    """
    if target.family not in attend.schedule:
        return function
    rule = Rule("attention", PRODUCTS, lambda call, uses: _attention(call, uses, target))
    rewritten = apply_rules(function, [rule])
    return function if rewritten is function else _outlined(rewritten, target)


def _outlined(function: Function, target: Target) -> Function:
    """Return the function with a function for each attention.

    Threads of a GPU read masks as they lie; a CPU reads vectors of rows, and moves them first.
    """
    return outline(function, _groups(function, moves_masks=target.gpu is not None))


# What attention is.


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of one attention: products of `depth`, results of `width` elements a row."""

    heads: int
    rows: int
    keys: int
    depth: int
    width: int


def _attention(call: Call, uses: Uses, target: Target) -> Node | None:
    weights, values = call.args
    if call.type != tensor_type(values.type).with_shape(tensor_type(call.type).shape):
        return None  # sums of halves as float32: attend gives what it is given
    transposed_weights = swapped_operand(values)
    if transposed_weights is not None and uses.is_single(values):
        made = _attended(call, transposed_weights, _transposed(weights), uses, target)
        if made is not None:
            return _transposed(made)
    return _attended(call, weights, values, uses, target)


def _attended(call: Call, weights: Node, values: Node, uses: Uses, target: Target) -> Node | None:
    """Return the sum of values by weights as `attend`, where it can be and pays."""
    guarded = _without_nan(weights, uses)
    weights = weights if guarded is None else guarded
    if not isinstance(weights, Call) or weights.op is not softmax:
        return None
    if guarded is None and not uses.is_single(weights):
        return None
    scores, last = weights.args[0], tensor_type(weights.type).ndim - 1
    if attrs_of(weights).axis != last or not uses.is_single(scores):
        return None
    steps = _steps_of_scores(scores, uses)
    if steps is None or not _is_worth(steps[0], values, target):
        return None
    transposed: dict[Node, Node] = {}
    for step in steps:
        transposed[step] = _transposed_step(step, transposed)
    ahead = keys_ahead(steps)
    return attend(
        transposed[scores],
        values,
        nan_is_zero=guarded is not None,
        ahead=ahead,
        origin=call.origin,
    )


def _without_nan(node: Node, uses: Uses) -> Node | None:
    """Return x where `node` is x with 0 for what is no number, and x has no other use.

    where(isnan(x), 0, x)
    """
    if not isinstance(node, Call) or node.op is not where or not uses.is_single(node):
        return None
    test, zero, x = node.args
    is_test = isinstance(test, Call) and test.op is isnan and test.args[0] is x
    is_zero = isinstance(zero, Constant) and not np.any(zero.value)
    inside = uses.counts.get(x, 2) == 2 and uses.is_single(test)
    return x if is_test and is_zero and inside else None


def _is_call(node: Node, operator: Operator[Any]) -> bool:
    return isinstance(node, Call) and node.op is operator


def _is_product(node: Node) -> bool:
    return isinstance(node, Call) and node.op in PRODUCTS


def _is_pointwise(node: Node) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Operator) and node.op.fusion in POINTWISE


def _steps_of_scores(scores: Node, uses: Uses) -> list[Call] | None:
    """Return the product of queries and keys and what is applied to it, in order; the scores last.

    None where they are not made from one such product by element-wise operators.
    """
    found: dict[Call, None] = {}
    pending = [scores]
    while pending:
        node = pending.pop()
        if node in found or not isinstance(node, Call) or node.type != scores.type:
            continue
        if _is_product(node):
            found[node] = None
        elif _is_pointwise(node) and len(found) < ATTENTION_CALLS:
            found[node] = None
            pending += node.args
    return _in_order(scores, found, uses)


def _in_order(scores: Node, found: Mapping[Call, None], uses: Uses) -> list[Call] | None:
    """Keep of `found` what depends on the product; None unless there is exactly one product."""
    order = [n for n in topological([scores]) if n in found]
    products = [n for n in order if _is_product(n)]
    if len(products) != 1:
        return None
    chain: dict[Node, None] = {products[0]: None}
    for node in order:
        if isinstance(node, Call) and any(a in chain for a in node.args):
            chain[node] = None
    calls = [n for n in chain if isinstance(n, Call)]
    counted = [uses.counts.get(n, 1) for n in calls[:-1]]
    inside = [sum(a is n for c in calls for a in c.args) for n in calls[:-1]]
    return calls if calls[-1] is scores and counted == inside else None


def _is_worth(product: Call, values: Node, target: Target) -> bool:
    """True where vectors of rows cost no more than vectors of keys and storing the scores."""
    types = [tensor_type(t.type) for t in (*product.args, values)]
    dtype = types[0].dtype
    if dtype not in FLOATS or not all(t.dtype == dtype for t in types):
        return False
    if target.gpu is not None:
        return _is_worth_on_gpu(product, values, target.gpu)
    if not all(t.is_static for t in types):
        return _is_worth_dynamic(product, values, target)
    *lead, rows, keys = tensor_type(product.type).static_shape
    sizes = _Sizes(
        int(np.prod(lead)), rows, keys, types[0].static_shape[-1], types[2].static_shape[-1]
    )
    lanes = target.lanes(bits(dtype))
    if min(rows, keys, sizes.depth, sizes.width, sizes.heads) < 1:
        return False
    if rows == 1:  # lanes along what is summed
        inside = _is_depth_inside(product.args[1]) and sizes.depth % lanes == 0
        return inside and keys <= most_scores(itemsize(dtype), target)
    if block_vectors(keys, lanes, itemsize(dtype), target) == 0:
        return False
    return has_rows_for_lanes(rows, keys, sizes.depth, lanes)


def _is_worth_on_gpu(product: Call, values: Node, gpu: Gpu) -> bool:
    """True where one launch takes less time than several, and has rows to fill a tile."""
    depth, width = shape_of(product.args[0])[-1], shape_of(values)[-1]
    *lead, rows, keys = shape_of(product)
    if tensor_type(values.type).dtype != "float32":
        return False
    if not isinstance(depth, int) or not isinstance(width, int) or min(depth, width) < 1:
        return False
    if any(n == 0 for n in (*lead, rows, keys)):
        return False
    if isinstance(rows, int) and rows < LEAST_DEVICE_ROWS:
        return False
    rows, keys, *others = (n if isinstance(n, int) else 0 for n in (rows, keys, *lead))
    heads = prod(others)
    return is_attention_worth(heads, rows, keys, depth, width, gpu)


def _is_worth_dynamic(product: Call, values: Node, target: Target) -> bool:
    """True for dynamic sizes unless there may be few rows; widths must be known."""
    depth, width = shape_of(product.args[0])[-1], shape_of(values)[-1]
    *_, rows, keys = shape_of(product)
    if not isinstance(depth, int) or not isinstance(width, int) or min(depth, width) < 1:
        return False
    dtype = tensor_type(values.type).dtype
    lanes = target.lanes(bits(dtype))
    if isinstance(keys, int) and block_vectors(keys, lanes, itemsize(dtype), target) == 0:
        return False
    return not isinstance(rows, int) or rows == 1 or rows >= lanes // 2


def _is_depth_inside(keys: Node) -> bool:
    """True where [..., depth, keys] are read from memory in which depth runs fastest."""
    if not isinstance(keys, Call) or keys.op is not transpose:
        return False
    perm = attrs_of(keys).perm
    return bool(perm[-2] == len(perm) - 1)


# The transposed form.


def _transposed_step(step: Call, transposed: dict[Node, Node]) -> Node:
    if _is_product(step):
        queries, keys = step.args
        factor = _factor_of(keys)
        if factor is not None and isinstance(keys, Call):
            keys = next(a for a in keys.args if a is not factor)
            queries = multiply(queries, factor, origin=step.origin)
        return matmul.call(
            step.attrs, (_transposed(keys), _transposed(queries)), origin=step.origin
        )
    assert isinstance(step.op, Operator)
    args = [transposed[a] if a in transposed else _transposed(a) for a in step.args]
    return step.op.call(step.attrs, args, origin=step.origin)


def _transposed(x: Node) -> Node:
    """Return a value with its last two axes swapped; a vector becomes a column."""
    shape = shape_of(x)
    if len(shape) == 0:
        return x
    if len(shape) == 1:
        return reshaped(x, (*shape, 1), x.origin)
    swapped = (*shape[:-2], shape[-1], shape[-2])
    if isinstance(x, Constant):
        return Constant.of(x.value.swapaxes(-1, -2), origin=x.origin)
    if 1 in shape[-2:]:
        return reshaped(x, swapped, x.origin)
    if _is_scaled(x):
        assert isinstance(x, Call)
        assert isinstance(x.op, Operator)
        args = [a if is_embedded(a) else _transposed(a) for a in x.args]
        return x.op.call(x.attrs, args, origin=x.origin)
    perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    if isinstance(x, Call) and x.op is transpose:
        inner = attrs_of(x).perm
        perm = [inner[k] for k in perm]
        x = x.args[0]
    return x if perm == sorted(perm) else transpose(x, perm=tuple(perm), origin=x.origin)


def _factor_of(node: Node) -> Constant | None:
    """Return the number that a value is multiplied by."""
    if not isinstance(node, Call) or node.op is not multiply or not _is_scaled(node):
        return None
    return next((a for a in node.args if isinstance(a, Constant)), None)


def _is_scaled(node: Node) -> bool:
    """True for an element-wise operator of one value and numbers."""
    if not isinstance(node, Call) or not _is_pointwise(node):
        return False
    others = [a for a in node.args if not is_embedded(a)]
    return len(others) == 1 and others[0].type == node.type


# The calls of one kernel.


def _groups(function: Function, *, moves_masks: bool) -> dict[Call, list[Call]]:
    """Return the calls of every attention's kernel in order, by the last of them.

    `moves_masks`: what only moves other operands of the scores is in it, too.
    """
    used = users([function.body])
    order = {node: k for k, node in enumerate(topological([function.body]))}
    groups: dict[Call, list[Call]] = {}
    for node in order:
        if isinstance(node, Call) and node.op is attend:
            members = _Members(used, function.body, moves_masks=moves_masks)
            members.add(node)
            last = members.sink(node)
            groups[last] = sorted(members.calls, key=order.__getitem__)
    return groups


class _Members:
    """The calls that join one `attend`: its scores, what moves operands, a transpose after it."""

    def __init__(self, used: dict[Node, list[Node]], root: Node, *, moves_masks: bool) -> None:
        self.used = used
        self.moves_masks = moves_masks
        self.root = root
        self.calls: list[Call] = []

    def add(self, call: Call) -> None:
        scores, values = call.args
        self.calls.append(call)
        self._scores(scores)
        self._moves(values)

    def sink(self, call: Call) -> Call:
        """Return the call whose value leaves the kernel."""
        after = self.used[call]
        if call is self.root or len(after) != 1 or not _is_call(after[0], transpose):
            return call
        moved = after[0]
        assert isinstance(moved, Call)
        perm, last = attrs_of(moved).perm, tensor_type(call.type).ndim - 1
        if perm[-1] != last:
            return call
        self.calls.append(moved)
        return moved

    def _is_free(self, node: Node) -> bool:
        """True for a call whose value is used inside the kernel only."""
        inside = set(self.calls)
        return (
            isinstance(node, Call)
            and node not in inside
            and node is not self.root
            and all(u in inside for u in self.used[node])
        )

    def _scores(self, node: Node) -> None:
        pending, shape = [node], tensor_type(node.type).shape
        while pending:
            step = pending.pop()
            if self.moves_masks and step is not node:
                self._moves(step)
            if not self._is_free(step) or tensor_type(step.type).shape != shape:
                continue
            assert isinstance(step, Call)
            if _is_product(step):
                self.calls.append(step)
                self._moves(step.args[0])
                self._moves(step.args[1], scaled=True)
            elif _is_pointwise(step):
                self.calls.append(step)
                pending += step.args

    def _moves(self, node: Node, *, scaled: bool = False) -> None:
        """Take in what only moves elements, and scales them where they are read once."""
        while self._is_free(node) and (_is_move(node) or (scaled and _is_scaled(node))):
            assert isinstance(node, Call)
            self.calls.append(node)
            node = next(a for a in node.args if not is_embedded(a))


def _is_move(node: Node) -> bool:
    if not isinstance(node, Call) or all(is_embedded(a) for a in node.args):
        return False
    if node.op is gather:
        return is_embedded(node.args[1])
    if node.op is reshape:
        old, new = shape_of(node.args[0]), shape_of(node)
        return len(old) > 2 and len(new) > 2 and old[-2:] == new[-2:]
    return node.op in (transpose, slice_, broadcast_to)
