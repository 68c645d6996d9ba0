# SPDX-License-Identifier: Apache-2.0
"""How sketches are made of a te graph alone: rules, asked stage by stage, outputs before producers.

The idea is Ansor's (Zheng et al., OSDI 2020): a rule looks at one stage and says which structures
it may have; what all rules say together is the list of sketches, whose open choices come later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from treadle.errors import ScheduleError
from treadle.expr.nodes import int_value
from treadle.loop.bodies import inline_bodies
from treadle.ops.schedules.stages import (
    border_box,
    compute_of,
    is_costly,
    is_inlined,
    is_reduction,
    is_step,
    joint_axes,
    lanes_of,
    peel_border,
    transposed_axis,
)
from treadle.target.base import Target
from treadle.te.operations import ComputeOp
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.tune.sketch_digits import digits_of
from treadle.tune.sketch_nest import Nest, Read, nests_of
from treadle.tune.sketch_plans import (
    BELOW,
    CPU_REUSE,
    CPU_STREAM,
    Blocks,
    Levels,
    Plan,
    Simple,
    Sketch,
    Tiled,
)
from treadle.tune.sketch_reads import (
    MUCH_WORK,
    consumer,
    has_reuse,
    is_along,
    repeated_work,
    vector_axis,
)

MOST_SKETCHES = 16
"""Structures of one te graph beyond which no alternatives are added."""
_CHUNKS_PER_CORE = 8
"""Of a reduction that has few results: how many partial ones are made for each core."""
_MOST_GROUPS = 4
"""Partial sums in lanes pay where they are longer than so many vectors together."""


@dataclass(frozen=True, slots=True, eq=False)
class SketchRule:
    """A rule of a user, asked before all others: where it applies, it schedules the stage alone.

    `applies(schedule, stage)` says whether; `apply(schedule, stage)` calls primitives, which become
    the steps that all candidates share. It may return the other stages that it has scheduled too.
    """

    name: str
    applies: Callable[[Schedule, Stage], bool]
    apply: Callable[[Schedule, Stage], Sequence[Stage] | None]


@dataclass(frozen=True, eq=False)
class State:
    """A sketch in the making: a schedule with its shared steps, plans so far, stages dealt with."""

    schedule: Schedule
    plans: tuple[Plan, ...] = ()
    done: frozenset[int] = frozenset()
    name: tuple[str, ...] = ()

    def stage(self, number: int) -> Stage:
        """Return a stage by its number."""
        found = self.schedule.numbered(number)
        assert found is not None
        return found

    def next(self) -> Stage | None:
        """Return the last stage that no rule has dealt with."""
        return next((s for s in reversed(self.schedule.stages) if s.number not in self.done), None)

    def fork(self) -> State:
        """Return the same state with a schedule of its own."""
        return replace(self, schedule=self.schedule.fresh().replay(self.schedule.steps))

    def with_done(self, *stages: Stage, plan: Plan | None = None, name: str = "") -> State:
        """Return the state with stages dealt with, and what is done with them."""
        plans = self.plans if plan is None else (*self.plans, plan)
        names = (*self.name, name) if name else self.name
        return replace(self, done=self.done | {s.number for s in stages}, plans=plans, name=names)


Rule = Callable[[State, Stage, Target], list[State]]
"""rule(state, stage, target) -> the states that may follow; [] where it does not apply."""


def sketches_of(
    schedule: Schedule, target: Target, rules: Sequence[SketchRule] = ()
) -> tuple[Sketch, ...]:
    """Return the sketches of a te graph, whose steps fit a fresh schedule of its tensors.

    Raises: ScheduleError where the target or the sizes are none that sketches are made for.
    """
    _check(schedule, target)
    every: tuple[Rule, ...] = (*map(_custom, rules), *RULES)
    queue = [State(schedule.fresh())]
    finished: list[State] = []
    while queue:
        state = queue.pop(0)
        stage = state.next()
        if stage is None:
            finished.append(state)
            continue
        made = next(made for rule in every if (made := rule(state, stage, target)))
        room = MOST_SKETCHES - len(queue) - len(finished)
        queue += made[: max(1, room)]
    return tuple(_sketch(state, target) for state in finished)


def _check(schedule: Schedule, target: Target) -> None:
    if target.family != "cpu":
        raise ScheduleError(
            f"there are no sketches for targets of the family {target.family}",
            hint="write a template, or schedule by hand; blocks and threads are bound by s.bind",
        )
    for tensor in (t for s in schedule.stages for t in s.op.outputs):
        if any(int_value(d) is None for d in tensor.shape):
            raise ScheduleError(
                f"tensor {tensor.name} has a size that is not known: sketches need all of them",
                hint="give the model fixed input shapes",
            )


# -- rules ------------------------------------------------------------------------------------


def _custom(rule: SketchRule) -> Rule:
    def run(state: State, stage: Stage, target: Target) -> list[State]:
        if not rule.applies(state.schedule, stage):
            return []
        made = state.fork()
        own = made.stage(stage.number)
        besides = rule.apply(made.schedule, own) or ()
        return [made.with_done(own, *besides, name=rule.name)]

    return run


def keep_as_written(state: State, stage: Stage, target: Target) -> list[State]:
    """Inputs, and stages written by hand, have no loops to schedule."""
    return [] if isinstance(stage.op, ComputeOp) else [state.with_done(stage)]


def inline(state: State, stage: Stage, target: Target) -> list[State]:
    """Evaluate where it is read what costs no more there."""
    if not is_inlined(state.schedule, stage) or repeated_work(state.schedule, stage):
        return []
    made = state.fork()
    made.stage(stage.number).compute_inline()
    return [made.with_done(stage)]


def inline_or_not(state: State, stage: Stage, target: Target) -> list[State]:
    """What a reduction reads is computed before or at each read: a padding, a little arithmetic."""
    readers = state.schedule.readers(stage)
    if stage.is_output or is_step(stage) or not any(map(is_reduction, readers)):
        return []
    if is_costly(stage) or not all(isinstance(r.op, ComputeOp) for r in readers):
        return []
    kept = alone(state, stage, target)
    if repeated_work(state.schedule, stage) >= MUCH_WORK:
        return kept
    made = state.fork()
    made.stage(stage.number).compute_inline()
    return [*kept, made.with_done(stage, name=f"inline {stage.name}")]


def split_long_sums(state: State, stage: Stage, target: Target) -> list[State]:
    """A reduction with few results is summed in chunks, which threads share (rfactor)."""
    nest = _nest(state, stage)
    if nest is None or len(stage.op.outputs) > 1 or stage.name.endswith(".rf"):
        return []
    chunks = _CHUNKS_PER_CORE * target.cores
    lanes = lanes_of(stage, target)
    axis = max(range(nest.data, len(nest.extents)), key=lambda a: nest.extents[a])
    few = nest.size < 2 * target.cores and nest.extents[axis] >= 2 * chunks
    if not few or nest.reduction < 16 * chunks * lanes:
        return []
    made = state.fork()
    own = made.stage(stage.number)
    reduced = compute_of(own).reduce_axis[axis - nest.data]
    outer, _ = own.split(reduced, nparts=chunks)
    made.schedule.rfactor(own.op.output(0), outer, 0)
    plan = _simple(made, own, target)
    parted = made.with_done(own, plan=plan, name=f"chunks of {stage.name}")
    return [parted, *(sum_in_lanes(state, stage, target) or alone(state, stage, target))]


def sum_in_lanes(state: State, stage: Stage, target: Target) -> list[State]:
    """Lanes hold partial sums where terms are neighbours in memory, results are not (rfactor)."""
    nest = _nest(state, stage)
    if nest is None or len(stage.op.outputs) > 1 or not nest.data:
        return []
    vector = vector_axis(nest)
    last = next((a for a in reversed(range(nest.data, len(nest.extents)))
                 if nest.extents[a] > 1), None)  # fmt: skip
    lanes = lanes_of(stage, target)
    if last is None or nest.extents[last] < 2 * lanes or not is_along(nest, last):
        return []
    if vector is not None and is_along(nest, vector):
        return []
    return [
        _in_lanes(state, stage, nest, last, count, target)
        for count in (lanes, _MOST_GROUPS * lanes)
        if count == lanes or nest.extents[last] % count == 0
    ]


def tile(state: State, stage: Stage, target: Target) -> list[State]:
    """A reduction runs in tiles: in several levels where operands are read again."""
    nest = _nest(state, stage)
    if nest is None or len(stage.op.outputs) > 1 or nest.size == 1:
        return []
    made = state.fork()
    own = made.stage(stage.number)
    found = consumer(made.schedule, own)
    if found is not None and any(p.stages == (found[0].number,) for p in made.plans):
        result, places = found
        if result.is_output and border_box(result):
            peel_border(result)
        kept = tuple(p for p in made.plans if p.owner != result.number)
        plan = _tiled(made, own, result, places, target)
        return [replace(made, plans=(*kept, plan)).with_done(own, name=f"tile {stage.name}")]
    sums = made.schedule[made.schedule.cache_write(own.op.output(0), "local")]
    plan = _tiled(made, sums, own, tuple(range(nest.data)), target)
    return [made.with_done(own, sums, plan=plan, name=f"tile {stage.name}")]


def alone(state: State, stage: Stage, target: Target) -> list[State]:
    """What is left has plain loops of its own."""
    return [state.with_done(stage, plan=_simple(state, stage, target))]


RULES: tuple[Rule, ...] = (
    keep_as_written,
    inline,
    inline_or_not,
    split_long_sums,
    sum_in_lanes,
    tile,
    alone,
)
"""In the order in which they are asked; the first that applies decides."""


# -- plans ------------------------------------------------------------------------------------


def _simple(state: State, stage: Stage, target: Target) -> Simple:
    op = compute_of(stage)
    lanes = lanes_of(stage, target)
    extents = tuple(int_value(a.extent) or 1 for a in op.axis)
    transposed = None if is_reduction(stage) else transposed_axis(stage, state.schedule, lanes)
    joint = 0 if is_reduction(stage) or not op.axis else len(joint_axes(stage, state.schedule))
    square = -1 if transposed is None else op.axis.index(transposed.axis)
    size = 0 if transposed is None else transposed.size
    return Simple(stage.number, extents, is_reduction(stage), joint, square, size, lanes)


def _in_lanes(
    state: State, stage: Stage, nest: Nest, last: int, lanes: int, target: Target
) -> State:
    """Return the state in which lanes hold partial sums along a reduction axis."""
    made = state.fork()
    own = made.stage(stage.number)
    _, lane = own.split(compute_of(own).reduce_axis[last - nest.data], factor=lanes)
    partial = made.schedule.rfactor(own.op.output(0), lane, nest.data)
    sums = made.schedule[partial]
    plan = _tiled(made, sums, own, (*range(nest.data), -1), target, lanes=lanes)
    return made.with_done(own, sums, plan=plan, name=f"{lanes} lanes of {stage.name}")


def _tiled(
    state: State,
    sums: Stage,
    result: Stage,
    places: tuple[int, ...],
    target: Target,
    *,
    lanes: int = 0,
) -> Tiled:
    nest = nests_of(state.schedule)[sums.number]
    vector = nest.data - 1 if lanes else vector_axis(nest, places)
    direct = {state.schedule[t].number for t in compute_of(sums).input_tensors}
    reads = [r for r in nest.reads if r.source in direct and vector is not None]
    along = [r for r in reads if vector is not None and r.step_in_memory(vector) == 1]
    last = len(nest.extents) - 1
    line = target.machine.line_bytes
    apart = [r for r in along if abs(r.step_in_memory(last)) * r.itemsize > line]
    is_reused = has_reuse(nest)
    return Tiled(
        sums.number,
        result.number,
        nest,
        places,
        Levels(CPU_REUSE if is_reused else CPU_STREAM),
        -1 if vector is None else vector,
        lanes or lanes_of(result, target),
        target,
        _sources(apart) if is_reused and not lanes else (),
        _sources(along) if is_reused else (),
    )


def _sources(reads: Sequence[Read]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(r.source for r in reads))


# -- the end ----------------------------------------------------------------------------------


def _sketch(state: State, target: Target) -> Sketch:
    nests = nests_of(state.schedule)
    owner = {s: p.owner for p in state.plans for s in p.stages}
    readers: dict[int, tuple[int, ...]] = {}
    for plan in state.plans:
        who = [n.stage for n in nests.values() if any(r.source == plan.owner for r in n.reads)]
        readers[plan.owner] = tuple(dict.fromkeys(owner.get(n, -1) for n in who))
    place = {s.number: k for k, s in enumerate(state.schedule.stages)}
    ordered = [_as_inlined(state, p, nests, target)
               for p in sorted(state.plans, key=lambda p: -place[p.owner])]  # fmt: skip
    nests = nests_of(state.schedule)
    plans = tuple(replace(p, insides=_insides(state, p, ordered, readers, nests)) for p in ordered)
    steps = tuple(state.schedule.steps)
    return Sketch(", ".join(state.name) or "plain", steps, plans, nests, readers)


def _as_inlined(state: State, plan: Plan, nests: Mapping[int, Nest], target: Target) -> Plan:
    """Return a plan for what its stages are now that all that is inlined has its place."""
    if not isinstance(plan, Tiled):
        return _by_digits(state, plan, target)
    nest = nests[plan.stage]
    read = {r.source for r in nest.reads}
    packable, fetchable = (
        tuple(n for n in numbers if n in read) for numbers in (plan.packable, plan.fetchable)
    )
    return replace(plan, nest=nest, packable=packable, fetchable=fetchable)


def _by_digits(state: State, plan: Plan, target: Target) -> Plan:
    """Return the plan of a stage by the digits of its axes, if they have several."""
    stage = state.stage(plan.owner)
    if not isinstance(plan, Simple) or plan.is_reduction:
        return plan
    lanes = lanes_of(stage, target)
    found = digits_of(stage, compute_of(stage), inline_bodies(state.schedule)[id(stage)], lanes)
    if found is None:
        return plan
    if stage.is_output and border_box(stage):
        peel_border(stage)
    return Blocks(plan.stage, found, lanes)


def _insides(
    state: State,
    plan: Plan,
    plans: Sequence[Plan],
    readers: Mapping[int, tuple[int, ...]],
    nests: Mapping[int, Nest],
) -> tuple[int, ...]:
    """Return the loops in which a plan may be computed, as far as its readers tell."""
    if not _is_movable(state.stage(plan.owner), readers[plan.owner], nests):
        return ()
    by_owner = {p.owner: p for p in plans}
    direct = {r for r in readers[plan.owner]}
    further: set[int] = set()
    queue = [r for d in direct for r in readers[d]]
    while queue:
        reader = queue.pop()
        if reader not in further:
            further.add(reader)
            queue += readers.get(reader, ())
    around = direct if len(direct) == 1 else direct | further
    near = max(by_owner[r].depth for r in around if r in by_owner)
    far = max((by_owner[r].depth for r in further if r in by_owner), default=0)
    return (0, *range(1, near + 1), *range(BELOW + 1, BELOW + 1 + far))


def _is_movable(stage: Stage, readers: tuple[int, ...], nests: Mapping[int, Nest]) -> bool:
    """True when tasks of what reads a stage need parts of it, not all of it each time."""
    if stage.is_output or not readers or -1 in readers:
        return False
    for nest in nests.values():
        long = [a for a in range(nest.data) if nest.extents[a] > 1]
        for read in nest.reads:
            if read.source == stage.number and not (long and any(map(read.uses, long[:2]))):
                return False
    return True


def _nest(state: State, stage: Stage) -> Nest | None:
    """Return a reduction as numbers; None for other stages."""
    if not is_reduction(stage):
        return None
    nest = nests_of(state.schedule).get(stage.number)
    return nest if nest is not None and nest.points else None
