# SPDX-License-Identifier: Apache-2.0
"""Random programs over symbolic sizes, randomly scheduled, against NumPy at many sizes.

By hand: python -m tests.te.differential --count 10000 --seed 0
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

import treadle
from tests import loop_eval, te_eval
from tests.te.fuzz import FACTORS, _Steps
from tests.te.programs import SYMBOLS, Program, make_program, random_arrays
from tests.te.round_trip import check_again
from treadle.errors import ScheduleError
from treadle.expr.nodes import int_value
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import PrimFunc, func_text, verify
from treadle.lower.pipeline import LOOPS, LOWER
from treadle.te.operations import ComputeOp
from treadle.te.schedule import Schedule, create_schedule
from treadle.te.stage import Stage

SIZES = (0, 1, 1, 2, 3, 5, 7)
LARGE = (11, 13, 16, 17)
READABLE = [step for step in LOWER.passes if step.name != "expand_math"]
"""The passes whose result the interpreter runs."""
WRITTEN_EVERY = 10
"""Of so many programs one has its schedule written down and made again."""
PLACES = 5
"""Tuples of sizes a program is run at."""


@dataclass
class Outcome:
    """What became of one program: built, refused (why), or wrong (how)."""

    kind: str
    text: str = ""
    refused_steps: Counter[str] = field(default_factory=Counter)


class Steps(_Steps):
    """Random steps of every primitive; a step that is refused is left out and counted."""

    def __init__(self, schedule: Schedule, chance: random.Random, keeping: random.Random) -> None:
        super().__init__(schedule, chance, keeping)
        self.refused: Counter[str] = Counter()

    def run(self) -> None:
        self._tried(self._caches)
        for stage in reversed(list(self.schedule.stages)):
            if not isinstance(stage.op, ComputeOp):
                continue
            self._tried(lambda stage=stage: self._place(stage))
            if stage.attach.kind != "inline":
                self._tried(lambda stage=stage: self._borders(stage))
                self._tried(lambda stage=stage: self._loops(stage))

    def _tried(self, steps: object) -> None:
        try:
            steps()  # type: ignore[operator]
        except ScheduleError as error:
            self.refused[error.problem] += 1

    def _borders(self, stage: Stage) -> None:
        chance = self.chance
        if stage.op.axis and stage.attach.kind == "root" and chance.random() < 0.12:
            axis = chance.choice(stage.op.axis)
            begin = chance.randint(0, 2)
            stage.peel(axis, begin, axis.extent - chance.randint(0, 2))
        if stage.op.axis and stage.attach.kind == "at" and chance.random() < 0.15:
            stage.round_up(chance.choice(stage.op.axis))
        if not stage.is_output and chance.random() < 0.1:
            stage.set_scope(chance.choice(("local", "workspace", "global")))
        if stage.op.axis and not stage.is_output and chance.random() < 0.1:
            factor = chance.choice((4, 8, 24))
            stage.storage_align(chance.choice(stage.op.axis), factor, chance.randrange(factor))

    def _split(self, stage: Stage) -> None:
        chance = self.chance
        axis = chance.choice(stage.leaf_iter_vars)
        tail = chance.choice(("cut", "cut", "shorten", "guard"))
        if chance.random() < 0.3:
            parts = stage.split(axis, nparts=chance.choice(FACTORS), tail=tail)
        else:
            parts = stage.split(axis, factor=chance.choice(FACTORS), tail=tail)
        if chance.random() < 0.25:
            stage.split(chance.choice(parts), factor=chance.choice((2, 3, 5)), tail=tail)
        elif chance.random() < 0.2:
            stage.fuse(*parts)

    def _kinds(self, stage: Stage) -> None:
        """Kinds of loops; where an extent is open, mostly one that needs no bound."""
        extents, chance = stage.extents(), self.chance
        for axis in list(stage.leaf_iter_vars):
            roll = chance.random()
            is_bounded = int_value(extents[axis]) is not None or chance.random() < 0.1
            if roll < 0.15 and axis.kind == "data" and is_bounded:
                stage.vectorize(axis)
            elif roll < 0.27 and is_bounded:
                stage.unroll(axis)
            elif roll < 0.4 and axis.kind == "data":
                stage.parallel(axis)
            elif roll < 0.43:
                stage.pragma(axis, "unroll", 4)
            if not stage.op.input_tensors or chance.random() > 0.08:
                continue
            tensor = chance.choice(stage.op.input_tensors)
            if chance.random() < 0.6 or not stage.op.axis:  # type: ignore[union-attr]
                stage.prefetch(tensor, axis, chance.randint(0, 9))
            else:
                own = chance.choice(stage.op.axis)  # type: ignore[union-attr]
                self._panel(stage, tensor, axis, own)


def random_steps(program: Program, seed: int) -> tuple[Schedule, Counter[str]]:
    """Return a schedule of random steps, and the steps that were refused."""
    schedule = create_schedule([t.op for t in program.outputs])
    steps = Steps(schedule, random.Random(seed), random.Random(~seed))
    steps.run()
    return schedule, steps.refused


def places(seed: int) -> list[tuple[int, ...]]:
    """Return the sizes that program `seed` is run at: small ones, and one larger."""
    chance = random.Random(~seed)
    found = [tuple(chance.choice(SIZES) for _ in range(SYMBOLS)) for _ in range(PLACES - 1)]
    large = list(found[0])
    large[chance.randrange(SYMBOLS)] = chance.choice(LARGE)
    return [*found, tuple(large)]


def stages(func: PrimFunc) -> list[tuple[str, PrimFunc]]:
    """Return a loop nest as built, as people read it, and as targets take it."""
    found = [("schedule", func), ("loops", LOOPS.run(func, label=func.name))]
    lowered = found[-1][1]
    for step in READABLE:
        lowered = step.run(lowered)
        verify(lowered)
    return [*found, ("lowered", lowered)]


def check_program(seed: int, *, compiled: bool = False) -> Outcome:
    """Build program `seed`, run it in the interpreter (and as machine code), and compare."""
    program = make_program(seed)
    refused: Counter[str] = Counter()
    try:
        schedule, refused = random_steps(program, seed + 1)
        func = schedule_to_func(schedule, program.args, f"program_{seed}")
        made = stages(func)
        if seed % WRITTEN_EVERY == 0:
            check_again(schedule, program.args)
    except ScheduleError as error:
        return Outcome("refused", error.problem, refused)
    except Exception as error:  # what no user should see: it is the finding
        return Outcome("wrong", f"seed {seed}: {type(error).__name__}: {error}", refused)
    module = treadle.build(made[1][1]) if compiled else None
    for k, numbers in enumerate(places(seed)):
        static = make_program(seed, numbers)
        arrays = random_arrays(static, seed)
        with np.errstate(all="ignore"):
            wanted = te_eval.evaluate(static.outputs, dict(zip(static.inputs, arrays, strict=True)))
        for which in made[:2] if k == 0 else made[1 + k % 2 : 2 + k % 2]:
            problem = _run(which, program, numbers, arrays, wanted, seed)
            if problem:
                return Outcome("wrong", problem, refused)
        if module is not None:
            outputs = [np.full(w.shape, 99, w.dtype) for w in wanted]
            module(*arrays, *outputs)
            problem = _difference(outputs, wanted)
            if problem:
                return Outcome("wrong", f"seed {seed}, compiled, at {numbers}: {problem}", refused)
    return Outcome("built", refused_steps=refused)


def _run(
    stage: tuple[str, PrimFunc],
    program: Program,
    numbers: Sequence[int],
    arrays: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    seed: int,
) -> str:
    name, func = stage
    outputs = [np.full(w.shape, 99, w.dtype) for w in wanted]
    sizes = dict(zip(program.sizes, numbers, strict=True))
    try:
        with np.errstate(all="ignore"):
            loop_eval.run(func, [*arrays, *outputs], sizes, seed)
        problem = _difference(outputs, wanted)
    except (AssertionError, ArithmeticError, LookupError) as error:
        problem = f"{type(error).__name__}: {error}"
    return problem and f"seed {seed}, {name}, at {tuple(numbers)}: {problem}\n{func_text(func)}"


def _difference(made: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
    for mine, theirs in zip(made, wanted, strict=True):
        if not np.allclose(mine, theirs, rtol=1e-5, atol=1e-5, equal_nan=True):
            return f"{mine.tolist()} is not {theirs.tolist()}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check many programs and print what became of them; 1 where one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.te.differential", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first program")
    parser.add_argument("--compile-every", type=int, default=10, metavar="N")
    options = parser.parse_args(arguments)
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for k, seed in enumerate(range(options.seed, options.seed + options.count), 1):
        outcome = check_program(seed, compiled=seed % options.compile_every == 0)
        kinds[outcome.kind] += 1
        if outcome.kind == "wrong":
            print(outcome.text, flush=True)
        elif outcome.kind == "refused":
            reasons[outcome.text] += 1
        if k % 100 == 0 or k == options.count:
            print(f"{k}: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items()), flush=True)
    for reason, count in reasons.most_common(20):
        print(f"{count:6} {reason}")
    return 1 if kinds["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
