# SPDX-License-Identifier: Apache-2.0
"""Schedules of attention: blocks of rows whose scores never leave the caches of the core.

parallel over heads: for every block of rows: pack its queries; their products with all keys, a
register tile at a time, masked and stored; the softmax, a vector of rows at a time; register tiles
of the product with the values, divided and stored. What moves the values is done once per head.

Where the numbers of rows and keys are dynamic, whole tiles are computed: what lies past the last
row or key is made of the last one and not stored. Few rows have a loop nest for one vector of them,
and the scores of so many keys that a block does not fit the caches are stored whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm, prod

from treadle.cost.attention import (
    BLOCK_VECTORS,
    DYNAMIC_KEYS,
    attention_cycles,
    block_vectors,
    most_scores,
    scores_cycles,
    values_cycles,
)
from treadle.cost.forks import HEADS_PER_CORE, is_worth_forking
from treadle.cost.memory import leave_level2, rows_side_by_side, stack_bytes
from treadle.cost.registers import Tile, vectors_in_flight
from treadle.expr.affine import decompose
from treadle.expr.bounds import Bounds, ranges_when
from treadle.expr.conditions import all_of
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, int_value
from treadle.expr.traversal import free_vars, loads
from treadle.graph.operator import Group
from treadle.loop.bodies import inline_bodies
from treadle.ops.schedules.attention_parts import (
    AttentionParts,
    ResultAxes,
    inline_others,
    parts_of,
    result_axes,
)
from treadle.ops.schedules.default import schedule_stage
from treadle.ops.schedules.stages import (
    compute_of,
    is_reduction,
    itemsize_of,
    known,
    lanes_of,
    live_stages,
    size_of,
    transposed_axis,
)
from treadle.ops.schedules.tiles import tiles_in_registers
from treadle.ops.summation import CHAINS
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar, Tensor
from treadle.te.stage import Stage


def attention_cases(group: Group, target: Target) -> list[Expr]:
    """Return conditions for few rows, and for as many keys as a block of scores may have."""
    product = group.schedule[group.anchor[-2]]
    op, lanes = compute_of(product), lanes_of(product, target)
    rows, keys = op.axis[-2].extent, op.reduce_axis[0].extent
    if int_value(rows) is not None and int_value(keys) is not None:
        return []
    itemsize = itemsize_of(product)
    cases = (
        (rows <= 1, keys <= most_scores(itemsize, target) // 2),
        (rows > lanes, keys <= _most_keys(lanes, itemsize, target)),
        (Const.of(True, "bool"), keys <= stack_bytes(target) // (lanes * itemsize)),
    )
    found = [[c for c in case if not isinstance(c, Const)] for case in cases]
    return [
        all_of(open_ones)
        for case, open_ones in zip(cases, found, strict=True)
        if open_ones and not any(int_value(c) == 0 for c in case)
    ]


def _most_keys(lanes: int, itemsize: int, target: Target) -> int:
    """Return for how many keys a block has the most vectors of rows: a power of two.

    It is half of what the scores would leave room for: the values of a head lie in the cache, too.
    """
    most = most_scores(itemsize, target) // lanes
    while most > 1 and block_vectors(most, lanes, itemsize, target) < BLOCK_VECTORS:
        most //= 2
    return max(1, most // 2)


def schedule_attention(group: Group, target: Target, knobs: Knobs) -> None:
    """Compute a block of rows from queries to results, head by head."""
    parts = parts_of(group)
    inline_others(group, parts)
    axes = None if parts is None else result_axes(parts)
    if parts is not None and axes is not None:
        if _has_one_row(group, parts, axes, target):
            _schedule_one_row(parts, axes, lanes_of(parts.product, target), target, knobs)
            return
        if most := _vectors_of(group, parts, axes, target):
            _schedule_blocks(group, parts, axes, most, target, knobs)
            return
    if parts is not None and parts.keys is not None:
        parts.keys.compute_inline()
    for stage in live_stages(group.schedule):
        schedule_stage(group.schedule, stage, target, knobs)


def _schedule_blocks(
    group: Group,
    parts: AttentionParts,
    axes: ResultAxes,
    most: int,
    target: Target,
    knobs: Knobs,
) -> None:
    """Compute blocks of at most so many vectors of rows."""
    lanes = lanes_of(parts.product, target)
    vectors = knobs.option("block", most, range(1, most))
    nest = _place_result(group, parts, axes, vectors, target, knobs)
    _place_softmax(parts, nest, lanes, knobs)
    trims = group.attrs.ahead >= 0 and not _is_dynamic(parts)
    keys_of_tile = _place_scores(parts, nest, vectors, lanes, target, knobs, only_even=trims)
    if _is_dynamic(parts):
        _round_up(parts)
    elif trims and knobs.flag("trim", default=True):
        _trim(parts, group.attrs.ahead, lcm(keys_of_tile, CHAINS))


def _is_dynamic(parts: AttentionParts) -> bool:
    """True where each run decides how many rows or keys there are."""
    op = compute_of(parts.product)
    return not (known(op.axis[-2]) and known(op.reduce_axis[0]))


def _has_one_row(group: Group, parts: AttentionParts, axes: ResultAxes, target: Target) -> bool:
    """True for one row at most, and scores of it that fit the stack."""
    most = _range(compute_of(parts.product).reduce_axis[0], group).hi
    is_one = _range(axes.rows, group).hi == 1
    limit = most_scores(itemsize_of(parts.product), target)
    return is_one and most is not None and most <= limit


def _schedule_one_row(
    parts: AttentionParts, axes: ResultAxes, lanes: int, target: Target, knobs: Knobs
) -> None:
    """Lanes along what is summed, along keys and along columns: a vector of rows would be idle.

    parallel over heads: the products with a few keys at a time, their sums, masked and stored; the
    softmax; the sums of all columns side by side, divided and stored.
    """
    result = parts.result
    vectors = knobs.option("strip", vectors_in_flight(target), (2, 4, 16))
    strip, within = result.split(axes.columns, factor=vectors * lanes)
    vector, lane = result.split(within, factor=lanes)
    result.reorder(*axes.heads, axes.rows, strip, vector, lane)
    result.unroll(vector)
    result.vectorize(lane)
    if axes.heads:
        heads = result.fuse(*axes.heads, name="head")
        is_long = _is_dynamic(parts) or _is_long(parts, lanes, target)
        if knobs.flag("parallel", default=is_long):
            result.parallel(heads)
    parts.product.compute_at(result, strip)
    _in_registers(parts.product, lanes)
    for stage in parts.softmax:
        stage.compute_at(result, axes.rows)
        is_long = len(compute_of(stage).axis) == len(compute_of(parts.product).axis)
        if is_long:
            _along(stage, lanes)
    for moved in (parts.keys, parts.values):
        if moved is not None:
            moved.compute_inline()
    if parts.queries is not None and parts.sums is not None:
        parts.queries.compute_at(result, axes.rows)
        _along(parts.queries, lanes)
    if parts.scores is not None:
        _scores_of_one_row(parts, axes, lanes, knobs)


def _along(stage: Stage, lanes: int) -> None:
    """Let lanes run along the axis before that of the one row."""
    *_, axis, row = compute_of(stage).axis
    _, lane = stage.split(axis, factor=lanes)
    stage.reorder(row, lane)
    stage.vectorize(lane)


def _scores_of_one_row(parts: AttentionParts, axes: ResultAxes, lanes: int, knobs: Knobs) -> None:
    """Compute scores of a few keys at a time, each from a vector of partial sums."""
    scores, sums = parts.scores, parts.sums
    assert scores is not None
    scores.compute_at(parts.result, axes.rows)
    if sums is None:
        return
    *batch, key, row = compute_of(scores).axis
    keys_of_tile = knobs.option("score_rows", DYNAMIC_KEYS, (2, 4, 16))
    step, inner = scores.split(key, factor=keys_of_tile, tail="guard")
    scores.reorder(*batch, step, inner, row)
    scores.unroll(inner)
    (depth,) = compute_of(sums).reduce_axis
    stages = [sums]
    if known(depth) and known(depth) % lanes == 0:
        _, lane = sums.split(depth, factor=lanes)
        s = sums.schedule
        stages.append(s[s.rfactor(compute_of(sums).output(0), lane, len(compute_of(sums).axis))])
    for stage in stages:
        stage.compute_at(scores, step)
        op = compute_of(stage)
        keys = op.axis[len(batch)]
        stage.round_up(keys)
        stage.reorder(*op.reduce_axis, keys)
        stage.unroll(keys)
        if stage is not sums:
            stage.reorder(*op.reduce_axis, *op.axis)
            stage.vectorize(op.axis[-1])


def _round_up(parts: AttentionParts) -> None:
    """Compute whole vectors and tiles of rows, and whole tiles of keys where they are summed."""
    parts.product.round_up(compute_of(parts.product).axis[-2])
    for stage in (*parts.softmax, parts.scores, parts.queries, parts.sums):
        if stage is not None and stage.attach.kind == "at":
            stage.round_up(compute_of(stage).axis[-1])
    if parts.sums is not None:
        parts.sums.round_up(compute_of(parts.sums).axis[-2])


def _vectors_of(group: Group, parts: AttentionParts, axes: ResultAxes, target: Target) -> int:
    """Return the vectors of rows in a block, 0 where the scores of one are not kept."""
    keys, rows = (_range(a, group) for a in (compute_of(parts.product).reduce_axis[0], axes.rows))
    lanes, itemsize = lanes_of(parts.product, target), itemsize_of(parts.product)
    if not keys.hi:  # without bound, or none at all in this case
        return 0
    most = block_vectors(keys.hi, lanes, itemsize, target)
    if not _is_dynamic(parts):
        return min(most, max(1, -(-(rows.hi or 0) // lanes)))
    if rows.lo is not None and rows.lo > lanes and most == BLOCK_VECTORS:
        return most
    return int(keys.hi * lanes * itemsize <= stack_bytes(target))


def _range(axis: IterVar, group: Group) -> Interval:
    """Return how long an axis is in this case."""
    return Bounds(ranges_when(group.when, list(free_vars(axis.extent)))).of(axis.extent)


@dataclass(frozen=True, slots=True, eq=False)
class _Nest:
    """Where things are computed: `head` is None where threads share out blocks of one head."""

    result: Stage
    head: IterVar | None
    block: IterVar


def _is_small(values: Stage, keys: int, target: Target) -> bool:
    """True where the values of one head lie on the stack."""
    size = keys * known(compute_of(values).axis[-1]) * itemsize_of(values)
    return size <= stack_bytes(target)


def _place_result(
    group: Group,
    parts: AttentionParts,
    axes: ResultAxes,
    vectors: int,
    target: Target,
    knobs: Knobs,
) -> _Nest:
    """Divide the result into heads, blocks of rows and register tiles of the last product."""
    result, is_open, lanes = parts.result, _is_dynamic(parts), lanes_of(parts.product, target)
    most_keys = _range(compute_of(parts.product).reduce_axis[0], group).hi or 0
    columns = -(-known(axes.columns) // lanes) or 1
    rows, itemsize = vectors * lanes, itemsize_of(parts.product)

    def cost(tile: Tile) -> tuple[float, float]:
        return values_cycles(rows, columns, tile, most_keys, itemsize, target)

    tile = knobs.pick("tile", _tiles(rows, columns, target, only_even=is_open), cost=cost)
    block, inside = result.split(axes.rows, factor=vectors * lanes)
    strip, within = result.split(axes.columns, factor=tile.vectors * lanes)
    step, row = result.split(inside, factor=tile.rows, tail="guard" if is_open else "cut")
    vector, lane = result.split(within, factor=lanes)
    result.reorder(*axes.heads, block, strip, step, row, vector, lane)
    result.unroll(row)
    result.unroll(vector)
    result.vectorize(lane)
    heads = prod(known(a) or 1 for a in axes.heads)
    head: IterVar | None = None
    by_head = heads >= HEADS_PER_CORE * target.cores
    if axes.heads and knobs.flag("by_head", default=by_head):
        task = head = result.fuse(*axes.heads, name="head")
    else:
        task = block = result.fuse(*axes.heads, block, name="task")
    is_long = is_open or _is_long(parts, lanes, target)
    if knobs.flag("parallel", default=is_long):
        result.parallel(task)
    parts.product.compute_at(result, step)
    _in_registers(parts.product, lanes)
    if parts.values is not None and head is not None and _is_small(parts.values, most_keys, target):
        parts.values.compute_at(result, head)
        _pack(parts.values, lanes)
    elif parts.values is not None:
        _values_of_all_heads(parts.values, lanes, target, knobs)
    return _Nest(result, head, block)


def _is_long(parts: AttentionParts, lanes: int, target: Target) -> bool:
    """True where all heads take long enough to be worth waking other threads."""
    keys = compute_of(parts.product).reduce_axis[0].extent
    products = size_of((*compute_of(parts.result).shape, keys))
    if products is None:
        return True
    return is_worth_forking(attention_cycles(products, lanes, target), target)


def _values_of_all_heads(values: Stage, lanes: int, target: Target, knobs: Knobs) -> None:
    """Transpose the values first where reads run across vectors; else read them where they lie."""
    is_transposed = transposed_axis(values, values.schedule, lanes) is not None
    if is_transposed and size_of(compute_of(values).shape) is not None:
        schedule_stage(values.schedule, values, target, knobs)
    else:
        values.compute_inline()


def _tiles(rows: int, vectors: int, target: Target, *, only_even: bool) -> list[Tile]:
    """Return the tiles that fit the registers, those whose rows divide all of them first.

    `only_even`: no others, as where the number of rows is dynamic.
    """
    even = [t for t in _whole_tiles(vectors, target) if rows % t.rows == 0]
    if only_even:
        return even
    return [*even, *(t for t in tiles_in_registers(rows, vectors, target) if t not in even)]


def _whole_tiles(vectors: int, target: Target) -> list[Tile]:
    """Return the tiles that fit the registers, whatever the number of rows."""
    return [
        Tile(r, v)
        for v in range(1, min(vectors, 4) + 1)
        for r in range(1, (target.vector_registers - 1 - v) // v + 1)
    ]


def _in_registers(sums: Stage, lanes: int) -> None:
    op = compute_of(sums)
    *batch, row, column = op.axis
    vector, lane = sums.split(column, factor=lanes)
    sums.reorder(*batch, *op.reduce_axis, row, vector, lane)
    sums.unroll(row)
    sums.unroll(vector)
    sums.vectorize(lane)


def _in_vectors(stage: Stage, lanes: int) -> None:
    _, lane = stage.split(compute_of(stage).axis[-1], factor=lanes)
    stage.vectorize(lane)


def _place_softmax(parts: AttentionParts, nest: _Nest, lanes: int, knobs: Knobs) -> None:
    """Run the softmax with the rows of a block as lanes; chains side by side in registers."""
    for stage in parts.softmax:
        inner = knobs.within(stage.name)
        stage.compute_at(nest.result, nest.block)
        op = compute_of(stage)
        *outer, row = op.axis
        vector, lane = stage.split(row, factor=lanes)
        if is_reduction(stage):
            stage.reorder(*outer[:-1], *op.reduce_axis, *outer[-1:], vector, lane)
            if outer and inner.flag("unroll", default=known(outer[-1]) <= CHAINS):
                stage.unroll(outer[-1])
            stage.unroll(vector)
        elif op.reduce_axis == ():
            stage.unroll(vector)
        stage.vectorize(lane)


def _place_scores(
    parts: AttentionParts,
    nest: _Nest,
    vectors: int,
    lanes: int,
    target: Target,
    knobs: Knobs,
    *,
    only_even: bool,
) -> int:
    """Compute the scores of a block a register tile at a time; pack its queries before.

    Return how many keys a tile has. `only_even`: no tile that leaves a rest of the keys.
    """
    if parts.scores is None:
        return 1
    scores = parts.scores
    scores.compute_at(nest.result, nest.block)
    *batch, key, row = compute_of(scores).axis
    if parts.sums is None:
        _in_vectors(scores, lanes)
        return 1
    is_open = _is_dynamic(parts)
    count = known(key) or DYNAMIC_KEYS
    _place_keys(parts, nest, lanes, target, knobs)
    apart = _gap_bytes(parts.sums, compute_of(parts.sums).axis[-2])
    most = rows_side_by_side(apart, target) if apart else count
    tiles = _tiles(count, vectors, target, only_even=only_even or is_open)
    tiles = [t for t in tiles if t.rows <= most]
    tile = knobs.pick("score_tile", tiles, cost=lambda t: scores_cycles(count, vectors, t, target))
    step, inner = scores.split(key, factor=tile.rows, tail="guard" if is_open else "cut")
    strip, within = scores.split(row, factor=tile.vectors * lanes)
    vector, lane = scores.split(within, factor=lanes)
    scores.reorder(*batch, step, strip, inner, vector, lane)
    scores.unroll(inner)
    scores.unroll(vector)
    scores.vectorize(lane)
    parts.sums.compute_at(scores, strip)
    _in_registers(parts.sums, lanes)
    if parts.queries is not None:
        parts.queries.compute_at(nest.result, nest.block)
        _pack(parts.queries, lanes)
    return tile.rows


def _trim(parts: AttentionParts, ahead: int, multiple: int) -> None:
    """Leave out the keys that no row of a block sees: whole tiles of them, of known number."""
    keys = known(compute_of(parts.product).reduce_axis[0])
    if keys % multiple:
        return
    ndim = len(compute_of(parts.product).axis)
    for stage in (*parts.softmax, parts.scores, parts.product):
        if stage is None:
            continue
        op = compute_of(stage)
        row = op.axis[-2] if stage is parts.product else op.axis[-1]
        if op.reduce_axis:
            (along_keys,) = op.reduce_axis
        elif len(op.axis) == ndim:
            along_keys = op.axis[-2]
        else:  # one number of a row
            continue
        stage.trim(along_keys, row, ahead, multiple, keys // known(along_keys))


def _place_keys(
    parts: AttentionParts, nest: _Nest, lanes: int, target: Target, knobs: Knobs
) -> None:
    """Gather the keys of a head once, where they lie so that its next block would wait for them."""
    keys = parts.keys
    if keys is None:
        return
    key, depth = compute_of(keys).axis[-2:]
    count, row_bytes = known(key), known(depth) * itemsize_of(keys)
    moved = [x for x in (keys, parts.values) if x is not None]
    size = sum(count * known(compute_of(x).axis[-1]) * itemsize_of(x) for x in moved)
    apart = _gap_bytes(keys, key)
    if nest.head is not None and 0 < size <= stack_bytes(target) and apart > row_bytes:
        leave = leave_level2(count, apart, row_bytes, target)
        if knobs.flag("gather_keys", default=leave):
            keys.compute_at(nest.result, nest.head)
            _pack(keys, lanes)
            return
    keys.compute_inline()


def _gap_bytes(stage: Stage, axis: IterVar) -> int:
    """Return how far apart in memory what a stage reads for neighbours along an axis lies.

    0 where that is not known.
    """
    for body in inline_bodies(stage.schedule)[id(stage)]:
        for n in loads(body):
            if not isinstance(n.source, Tensor):
                continue
            steps = [decompose(i).terms.get(axis, 0) for i in n.indices]
            if any(steps):
                place = next(k for k, step in enumerate(steps) if step)
                gap = prod(int_value(d) or 0 for d in n.source.shape[place + 1 :])
                return abs(steps[place]) * gap * itemsize_of(stage)
    return 0


def _pack(stage: Stage, lanes: int) -> None:
    """Transpose square tiles in registers where reads run across the vectors that are written."""
    transposition = transposed_axis(
        stage, stage.schedule, lanes, least=known(compute_of(stage).axis[-1]) or lanes
    )
    if transposition is None:
        _in_vectors(stage, lanes)
        return
    axes = list(compute_of(stage).axis)
    outer, inner = stage.split(transposition.axis, factor=transposition.size)
    last, lane = stage.split(axes[-1], factor=transposition.size)
    rest = [a for a in axes[:-1] if a is not transposition.axis]
    stage.reorder(*rest, outer, last, inner, lane)
    stage.unroll(inner)
    stage.vectorize(lane)
