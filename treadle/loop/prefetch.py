# SPDX-License-Identifier: Apache-2.0
"""What stands at the start of an iteration: hints to fetch memory, tests that skip the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product as cartesian
from itertools import starmap
from math import prod

from treadle.expr import nodes as ex
from treadle.expr.conditions import all_of
from treadle.expr.intervals import FAR
from treadle.expr.nodes import Const, Expr, Var, int_value
from treadle.expr.simplify import Simplifier
from treadle.expr.traversal import reads_memory, rewrite, substitute, walk
from treadle.expr.vocabulary import DIVISIONS, HAS_DIVISION
from treadle.limits import PANELS_WITH_LAST, TILES_OF_PANEL, UNROLLED_PREFETCHES
from treadle.loop import nodes as lp
from treadle.loop.domains import ZERO, Nest, relax
from treadle.loop.memory import Memory
from treadle.loop.nodes import Buffer, For, If, Prefetch, Stmt
from treadle.loop.regions import Box, Span, index_span, step_of
from treadle.te.loops import AxisNote, Panel, Tiles, ceil_div, position, product
from treadle.te.operations import ComputeOp, IterVar, Tensor
from treadle.te.stage import Stage


def matters(stage: Stage, note: AxisNote | None, nest: Nest, known: Simplifier) -> Expr:
    """Return when an iteration of the loop just opened does anything at all."""
    checks: list[Expr] = []
    ranges = note.ranges if note is not None else ()
    box = relax(stage, nest, known) if ranges else {}
    for index, begin, end in ranges:
        span = index_span(index, box, Const.of(end), known)
        last = span.start + span.extent
        checks += [known.run(span.start < end), known.run(last > begin)]
    return _defined(all_of(checks), known)


def prefetches(
    stage: Stage,
    note: AxisNote | None,
    nest: Nest,
    var: Var,
    memory: Memory,
    known: Simplifier,
) -> list[Stmt]:
    """Return the hints that stand at the start of an iteration of loop `var`."""
    if note is None or nest.phase == "init":
        return []
    if not (note.prefetches or note.spread or note.panels):
        return []
    box = relax(stage, nest, known)
    made = [h for panel in note.panels for h in _panel(stage, panel, box, memory, known)]
    made += _regions(stage, note, nest, box, var, memory, known)
    return made + _shares_of_regions(stage, note, nest, box, var, memory, known)


def _panel(stage: Stage, panel: Panel, box: Box, memory: Memory, known: Simplifier) -> list[Stmt]:
    """Return the hints of `prefetch_panel`."""
    source = memory.schedule[panel.tensor]
    found = _complete_buffer(source, panel.tensor, memory)
    if found is None or not found[0].shape:
        return []
    buffer, start = found
    assert isinstance(stage.op, ComputeOp)
    first: dict[Expr, Expr] = {axis: span.start for axis, span in box.items()}
    tile, count = _tile_number(panel.tiles)
    made: list[Stmt] = []
    memo: dict[Expr, Expr] = {}
    done: list[dict[Expr, Expr]] = [{} for _ in start]  # by dimension: places differ in one or two

    def element(d: int, index: Expr) -> Expr:
        if index not in done[d]:
            at = known.run(substitute(index, first, memo) - start[d])
            done[d][index] = _defined(at, known)
        return done[d][index]

    reads = dict.fromkeys(memory.reads(stage, source))
    if not reads:
        for place in _share_of_rows(stage, panel, tile, count, box, memory):
            made.append(Prefetch(buffer, tuple(starmap(element, enumerate(place))), panel.level))
    for read in reads:
        if any(map(reads_memory, read)):  # past the end nothing says where the next tile reads
            continue
        counting = read if panel.once else read[: _inner(stage.op, read)]
        moving = [d for d, i in enumerate(counting) if _uses(i, panel.ahead)]
        for place in _shares(stage, panel, read, tile, count, box, memory, known):
            at = _inside(list(starmap(element, enumerate(place))), buffer, moving, known)
            made.append(Prefetch(buffer, tuple(at), panel.level))
    if not panel.once:
        return made
    needed = known.run(substitute(ex.binary("eq", tile, 0), first))
    if known.prove(needed) is False:
        return []
    return made if known.prove(needed) else [If(needed, line) for line in made]


def _defined(number: Expr, known: Simplifier) -> Expr:
    """Return a number that has a value also where loops inside have no iterations.

    A read by n stands in loops that run only where n is not 0; what is asked and hinted for it
    stands outside.
    """

    def guarded(e: Expr) -> Expr | None:
        if not isinstance(e, ex.Binary) or e.op not in DIVISIONS or known.prove(e.b > 0):
            return None
        return ex.binary(e.op, e.a, ex.maximum(e.b, 1))

    return rewrite(number, guarded, traits=HAS_DIVISION)


def _tile_number(groups: Sequence[Tiles]) -> tuple[Expr, int]:
    """Return which of the tiles that read the same this is, and how many there are; 0: unknown."""
    number: Expr = ZERO
    count = 1
    for group in groups:
        at: Expr = position(group.axes)
        if group.wrap is not None:
            at = at % group.wrap
        number = number * max(1, group.count) + at // group.size
        count *= group.count
    return number, count


def _shares(
    stage: Stage,
    panel: Panel,
    read: Sequence[Expr],
    tile: Expr,
    count: int,
    box: Box,
    memory: Memory,
    known: Simplifier,
) -> list[tuple[Expr, ...]]:
    """Return the places that one iteration of a tile fetches, for a read of this tile."""
    op, shape = stage.op, panel.tensor.shape
    assert isinstance(op, ComputeOp)
    place = [substitute(i, _advanced(panel.ahead, panel.step)) for i in read]
    spans = [index_span(i, box, d, known) for i, d in zip(read, shape, strict=True)]
    line = memory.line_of(panel.tensor.dtype)
    if panel.once:
        apart_by = _steps_of_lines(line, shape, spans)
        rows = (range(0, int_value(x.extent) or 1, n) for x, n in zip(spans, apart_by, strict=True))
        return [_moved(place, each) for each in cartesian(*rows)]
    inner = _inner(op, read)
    outer = panel.ahead[0]
    next_step: dict[Expr, Expr] = {outer: outer + panel.step}
    apart = [int_value(known.run(substitute(i, next_step) - i)) or 0 for i in read[:inner]]
    side = next((d for d, n in enumerate(apart) if n > 1 and _uses(read[d], (outer,))), None)
    if side is None and not any(_uses(i, panel.ahead) for i in read[:inner]):
        return []  # not made of panels: what the next tile reads lies between what this one does
    if side is None:
        # a block of a reduction that is cut begins somewhere along it
        begin = substitute(place[inner], dict.fromkeys(op.reduce_axis, ZERO))
        steps = {**box, **{a: Span(ZERO, a.extent) for a in op.reduce_axis}}
        length = index_span(read[inner], steps, shape[inner], known).extent
        elements = prod(int_value(d) or 0 for d in (length, *shape[inner + 1 :]))
        part = _part_of_run(stage, panel.tensor, place[:inner], elements, tile, count, box, memory)
        by = [begin if d == inner else ZERO for d in range(len(read))]
        return [_moved(at, by) for at in part]
    lines = -(-_run_of(spans, shape) // line)
    every = apart[side] * lines
    share = -(-every // (count or TILES_OF_PANEL))
    zeros = [ZERO] * (len(place) - 1)
    made: list[tuple[Expr, tuple[Expr, ...]]] = []
    for own in (tile * share + k for k in range(share)):
        panels, at = (own, ZERO) if lines == 1 else (own // lines, own % lines * line)
        made.append((own, _moved(place, (*zeros[:side], panels, *zeros[side + 1 :], at))))
    if 0 < count * share <= every:
        return [at for _, at in made]
    # a tile without a share asks for what it reads itself, which is there
    return [_where(own < every, at, read) for own, at in made]


def _run_of(spans: Sequence[Span], shape: Sequence[Expr]) -> int:
    """Return how many elements, one after the other in memory, spans cover from their start on."""
    run = 1
    for span, size in zip(reversed(spans), reversed(shape), strict=True):
        extent = int_value(span.extent)
        run *= extent or 1
        if extent is None or extent != int_value(size):
            break
    return run


def _inner(op: ComputeOp, read: Sequence[Expr]) -> int:
    """Return the dimension that a reduction reads along: those before it count panels."""
    return next((d for d, i in enumerate(read) if _uses(i, op.reduce_axis)), len(read) - 1)


def _inside(
    place: Sequence[Expr], buffer: Buffer, moving: Sequence[int], known: Simplifier
) -> Sequence[Expr]:
    """Return a place that does not lie past the end of a buffer; in `moving` dimensions it may.

    Past the end of an inner dimension comes what is next in memory. Past the end of all may lie a
    page that does not exist, and to find that out takes up to 170 cycles for each hint (Zen, in a
    virtual machine): what is read last is fetched instead, which is there. What a kernel made for
    itself lies in memory that goes on.
    """
    if not moving or buffer.scope != "global":
        return place
    last = max(moving)
    number = ex.minimum(_number(place, buffer.shape, last), _count(buffer.shape, last) - 1)
    return *[ZERO] * last, known.run(number), *place[last + 1 :]


def _number(place: Sequence[Expr], shape: Sequence[Expr], last: int) -> Expr:
    """Return which of the positions in dimensions up to the `last` a place is in."""
    number: Expr = ZERO
    for at, size in zip(place[: last + 1], shape, strict=False):
        number = number * size + at
    return number


def _count(shape: Sequence[Expr], last: int) -> Expr:
    """Return how many positions there are in dimensions up to the `last`."""
    return reduce(product, shape[: last + 1])


def _where(is_so: Expr, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return place `a` where it is so, else place `b`."""
    return tuple(i if i is j else ex.select(is_so, i, j) for i, j in zip(a, b, strict=True))


def _share_of_rows(
    stage: Stage, panel: Panel, tile: Expr, count: int, box: Box, memory: Memory
) -> list[tuple[Expr, ...]]:
    """Return the part of the next rows of a tensor that one iteration of a tile fetches."""
    if len(panel.ahead) != 1:
        return []
    [axis] = panel.ahead
    count_of, positions = int_value(panel.tensor.shape[0]) or 0, int_value(axis.extent) or 1
    each = count_of // positions if count_of % positions == 0 else 1
    rows = each * (int_value(box[axis].extent) or 0)
    elements = rows * prod(int_value(d) or 0 for d in panel.tensor.shape[1:])
    last = axis.extent - box[axis].extent  # past the end may lie a page that does not exist
    at = (ex.minimum(axis + panel.step, last) * each,)
    return _part_of_run(stage, panel.tensor, at, elements, tile, count, box, memory)


def _part_of_run(
    stage: Stage,
    tensor: Tensor,
    place: Sequence[Expr],
    elements: int,
    tile: Expr,
    count: int,
    box: Box,
    memory: Memory,
) -> list[tuple[Expr, ...]]:
    """Return the part of one run of so much memory that this iteration of this tile fetches.

    None where that is more than a line: a panel is used about as fast as memory gives it then, and
    fetching some steps ahead is enough.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    axes = [a for a in op.reduce_axis if int_value(box[a].extent) == 1]  # whose loops are open
    steps = prod(int_value(a.extent) or 0 for a in axes)
    if not elements or not steps or not axes:
        return []
    width = -(-elements // steps)
    part = -(-width // (count or TILES_OF_PANEL))
    if part > memory.line_of(tensor.dtype):
        return []
    shares = -(-width // part)  # a tile without one has the last again, which is there
    at = (ex.minimum(tile, shares - 1) * steps + position(axes)) * part
    if shares * steps * part > elements:
        at = ex.minimum(at, elements - 1)
    return [(*place, *[ZERO] * (tensor.ndim - len(place) - 1), at)]


def _advanced(ahead: Sequence[IterVar], step: int) -> dict[Expr, Expr]:
    """Return the axes of the next tile: after the end of the inner ones a step of the first."""
    outer, *inner = ahead
    if not inner:
        return {outer: outer + step}
    length = reduce(product, (a.extent for a in inner))
    at = position(inner) + 1
    is_past = at >= length
    at = ex.select(is_past, 0, at)
    later: dict[Expr, Expr] = {outer: outer + ex.select(is_past, step, 0)}
    for k, axis in enumerate(inner):
        rest = [a.extent for a in inner[k + 1 :]]
        later[axis] = at // reduce(product, rest) if rest else at
        at = at % reduce(product, rest) if rest else at
    return later


def _uses(index: Expr, axes: Sequence[Expr]) -> bool:
    return not index.leaves.isdisjoint(axes)


def _moved(place: Sequence[Expr], by: Sequence[int | Expr]) -> tuple[Expr, ...]:
    return tuple(i if int_value(n) == 0 else i + n for i, n in zip(place, by, strict=True))


def _regions(
    stage: Stage,
    note: AxisNote,
    nest: Nest,
    box: Box,
    var: Var,
    memory: Memory,
    known: Simplifier,
) -> list[Stmt]:
    """Return the hints of `prefetch`."""
    made: list[Stmt] = []
    for tensor, offset in note.prefetches:
        for buffer, spans, steps in _read_regions(stage, tensor, box, memory, known):
            later: dict[Expr, Expr] = {var: var}
            if offset:
                loops, inner = _reduction(stage, nest, spans)
                spans = _next_panels(loops, inner, buffer, spans, var, known)
                later[var] = var + _distance(loops, inner, buffer, spans, var, offset, known)
            made.append(_lines(tensor.name, buffer, spans, steps, later, memory, known))
    return made


def _distance(
    loops: Mapping[Expr, Expr],
    inner: int,
    buffer: Buffer,
    spans: Sequence[Span],
    var: Var,
    offset: int,
    known: Simplifier,
) -> int | Expr:
    """Return how many iterations ahead `prefetch` asks: 0 along the last panel of a buffer.

    Its end would be passed by a hint in each of the last iterations, see `_inside`. A test in each
    iteration would cost more than it brings; that of the panel stands outside of the reduction.
    Where the last panel is a large part of all, its hints bring more than those that miss cost.
    `loops` and `inner` are those of `_reduction`.
    """
    moving = [d for d, span in enumerate(spans) if _uses(span.start, [var])]
    panels = prod(int_value(d) or PANELS_WITH_LAST for d in buffer.shape[:inner])
    adjacent = prod(int_value(span.extent) or 1 for span in spans[:inner])
    is_few = panels < PANELS_WITH_LAST * adjacent
    if var not in loops or not moving or buffer.scope != "global" or is_few:
        return offset
    ends = {v: extent - 1 + (offset if v is var else 0) for v, extent in loops.items()}
    at = [substitute(span.start + span.extent - 1, ends) for span in spans]
    last = max(moving)
    is_inside = known.run(_number(at, buffer.shape, last) < _count(buffer.shape, last))
    return ex.select(is_inside, offset, 0)


def _reduction(stage: Stage, nest: Nest, spans: Sequence[Span]) -> tuple[dict[Expr, Expr], int]:
    """Return the open loops of a reduction with their extents, and what it first reads along.

    That is a dimension of `spans`: those before it say in which panel.
    """
    extents = stage.extents(nest.roots, nest.overrides)
    inner = [x for x in stage.leaf_iter_vars if x.kind == "reduce" and x in nest.bound]
    loops = {nest.bound[x]: extents[x] for x in inner if nest.bound[x] is not ZERO}
    along = (d for d, x in enumerate(spans) if any(n in loops for n in walk(x.start)))
    return loops, next(along, 0)


def _read_regions(
    stage: Stage, tensor: Tensor, box: Box, memory: Memory, known: Simplifier
) -> Iterator[tuple[Buffer, Sequence[Span], list[int]]]:
    """Yield the regions of a tensor that a stage reads: the buffer, where, how far apart."""
    source = memory.schedule[tensor]
    found = _complete_buffer(source, tensor, memory)
    if found is None:
        return
    buffer, start = found
    for indices in dict.fromkeys(memory.reads(stage, source)):
        spans = [index_span(i, box, d, known) for i, d in zip(indices, tensor.shape, strict=True)]
        inside = [
            Span(known.run(x.start - first), x.extent)
            for x, first in zip(spans, start, strict=True)
        ]
        yield buffer, inside, [step_of(known.run(i), box) for i in indices]


def _complete_buffer(
    source: Stage, tensor: Tensor, memory: Memory
) -> tuple[Buffer, Sequence[Expr]] | None:
    """Return where a tensor lies, and which element is first; None if it is not computed yet."""
    buffer = memory.buffers.get((id(source), tensor.value_index))
    if buffer is None or (source.attach.kind == "at" and id(source) not in memory.computed):
        return None
    return buffer, memory.offsets.get(id(source), (ZERO,) * len(buffer.shape))


def _shares_of_regions(
    stage: Stage,
    note: AxisNote,
    nest: Nest,
    box: Box,
    var: Var,
    memory: Memory,
    known: Simplifier,
) -> list[Stmt]:
    """Return the hints of `prefetch` that this loop shares out among its iterations."""
    if not note.spread:
        return []
    made: list[Stmt] = []
    extents = stage.extents(nest.roots, nest.overrides)
    iterations = next((int_value(extents[a]) for a, v in nest.bound.items() if v is var), None)
    for tensor, axis, offset in note.spread:
        outside = nest.bound.get(axis)
        if not iterations or type(outside) is not Var:
            continue
        later: dict[Expr, Expr] = {outside: outside + offset}
        for buffer, spans, steps in _read_regions(stage, tensor, box, memory, known):
            at, loops = _places(tensor.name, buffer, spans, steps, later, memory, known)
            for chosen in _share_of_lines(loops, var, iterations):
                made.append(Prefetch(buffer, tuple(substitute(i, chosen) for i in at)))
    return made


def _share_of_lines(
    loops: Sequence[tuple[Var, Expr]], var: Var, iterations: int
) -> Iterator[dict[Expr, Expr]]:
    """Yield the positions in `loops` over lines that are the share of an iteration of `var`.

    Where there are fewer lines than iterations, the last ones have the last line again; without a
    known number of lines there are no shares.
    """
    lengths = [int_value(n) or 0 for _, n in loops]
    count = prod(lengths)
    each = -(-count // iterations)
    for k in range(each):
        line: Expr = var if each == 1 else var * each + k
        if iterations * each > count:
            line = ex.minimum(line, count - 1)
        chosen: dict[Expr, Expr] = {}
        for (one, _), length in zip(reversed(loops), reversed(lengths), strict=True):
            chosen[one] = line if len(loops) == 1 else line % length
            line = line // length
        yield chosen


def _next_panels(
    loops: Mapping[Expr, Expr],
    inner: int,
    buffer: Buffer,
    spans: Sequence[Span],
    var: Var,
    known: Simplifier,
) -> Sequence[Span]:
    """Where `var` stands past the end of the reduction, go on with the panels of the next tile.

    A tile reads several panels side by side, each along the reduction. What follows a panel in
    memory is the next of the same tile, which is in cache: as many panels are left out. Not where
    something else follows: of Winograd's weights, the panel of the next point. `loops` and `inner`
    are those of `_reduction`.
    """
    side_by_side = [d for d in range(inner) if (int_value(spans[d].extent) or 0) > 1]
    if var not in loops or not side_by_side:
        return spans
    if any(int_value(d) != 1 for d in buffer.shape[side_by_side[-1] + 1 : inner]):
        return spans
    iteration: Expr = ZERO
    iterations: Expr = Const.of(1)
    for loop, extent in loops.items():
        iteration, iterations = iteration * extent + loop, iterations * extent
    panel = spans[side_by_side[-1]]
    skipped = ex.select(iteration >= known.run(iterations), panel.extent - 1, 0)
    moved = list(spans)
    moved[side_by_side[-1]] = Span(panel.start + skipped, panel.extent)
    return moved


def _steps_of_lines(line: int, shape: Sequence[Expr], spans: Sequence[Span]) -> list[int]:
    """Return how far apart lines of so many elements are along every dimension of a region.

    Where rows are read whole and are shorter than a line, a line holds several of them.
    """
    steps, room = [1] * len(spans), line
    for d in reversed(range(len(spans))):
        steps[d] = max(1, room)
        whole = int_value(shape[d])
        if whole is None or int_value(spans[d].extent) != whole or room % max(whole, 1):
            break
        room //= whole
    return steps


def _lines(
    name: str,
    buffer: Buffer,
    spans: Sequence[Span],
    apart: Sequence[int],
    later: dict[Expr, Expr],
    memory: Memory,
    known: Simplifier,
) -> Stmt:
    """Return loops that prefetch the cache lines of a region of a buffer that are read."""
    at, loops = _places(name, buffer, spans, apart, later, memory, known)
    total = prod(int_value(n) or UNROLLED_PREFETCHES for _, n in loops)
    kind: lp.ForKind = "unrolled" if total < UNROLLED_PREFETCHES else "serial"
    stmt: Stmt = Prefetch(buffer, tuple(at))
    for line, iterations in reversed(loops):
        stmt = For(line, iterations, kind, stmt)
    return stmt


def _places(
    name: str,
    buffer: Buffer,
    spans: Sequence[Span],
    apart: Sequence[int],
    later: dict[Expr, Expr],
    memory: Memory,
    known: Simplifier,
) -> tuple[list[Expr], list[tuple[Var, Expr]]]:
    """Return where a line of a region of a buffer lies, and the loops over all that are read.

    Of a dimension those are read whose distance is a multiple of `apart`.
    """
    of_lines = _steps_of_lines(memory.line_of(buffer.dtype), buffer.shape, spans)
    steps = [max(line, gap) for line, gap in zip(of_lines, apart, strict=True)]
    loops: list[tuple[Var, Expr]] = []
    at: list[Expr] = []
    for span, step in zip(spans, steps, strict=True):
        index = _defined(substitute(span.start, later), known)
        high = known.bounds.reach(span.extent).hi
        most = None if high is None or high >= FAR else Const.of(high)
        extent = _defined(span.extent, known) if most is None else most
        iterations = ceil_div(extent, Const.of(step))
        if int_value(iterations) != 1:
            line = Var(memory.unique(f"{name}.line"))
            loops.append((line, iterations))
            index = index + line * step
        at.append(index)
    return at, loops
