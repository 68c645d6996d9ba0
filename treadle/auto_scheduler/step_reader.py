# SPDX-License-Identifier: Apache-2.0
"""Steps of Ansor's records read as steps of Treadle's schedules; every value is checked first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from treadle.auto_scheduler.steps import ANNOTATIONS, CODES, HINTS, OWN, Replay
from treadle.errors import ConfigError, TreadleError
from treadle.expr.nodes import int_value
from treadle.te.operations import IterVar, Operation
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.steps import Plain, Step, argument_from_json
from treadle.tune.foreign_records import NoMeaning

MOST_STEPS = 10_000
"""Of one record."""
_THREADS = range(4, 12)
"""The annotations that bind a loop to threads of a GPU."""
_SCOPES = ("global", "local", "shared")
_LARGEST = 1 << 40
_MOST_PARTS = 64
_MOST_ALIGNED = 1 << 24
_LONGEST_PRAGMA = 1000


def script_steps(
    schedule: Schedule, outputs: Sequence[Operation], rows: Sequence[object]
) -> tuple[Step, ...]:
    """Return the steps of Treadle's that rows of a record stand for.

    Raises:
        NoMeaning: a step does what Treadle, or a CPU, does not have, or does not fit the schedule.
        ConfigError: a row is no step of a record.
    """
    if len(rows) > MOST_STEPS:
        raise ConfigError(f"a record has {len(rows)} steps, at most {MOST_STEPS} are read")
    reader = _Reader(Replay(schedule, outputs))
    for number, row in enumerate(rows):
        try:
            reader.read(row)
        except NoMeaning as why:
            raise NoMeaning(f"step {number}, {_shown(row)}: {why}") from None
        except ConfigError as error:
            raise ConfigError(f"step {number}, {_shown(row)}: {error.problem}") from None
        except TreadleError as error:
            raise NoMeaning(f"step {number}, {_shown(row)}: {error.problem}") from None
    return tuple(reader.replay.schedule.steps)


def _shown(row: object) -> str:
    return repr(row)[:80]


class _Reader:
    """Applies rows one after the other."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.rows: list[Sequence[object]] = []
        self.readers: dict[str, Callable[[Stage, Sequence[object]], None]] = {
            "AN": self._annotate, "FU": self._fuse, "PR": self._pragma, "RE": self._reorder,
            "SP": self._split, "FSP": self._follow, "FFSP": self._follow_fused, "SA": self._align,
            "CA": self._compute_at, "CI": self._inline, "CR": self._root, "CHR": self._cache_read,
            "CHW": self._cache_write, "RF": self._rfactor,
        }  # fmt: skip

    def read(self, row: object) -> None:
        """Apply a row."""
        if not isinstance(row, list) or len(row) < 2 or not isinstance(row[0], str):
            raise ConfigError("it is no list of a code, a stage and more")
        if row[0] not in self.readers:
            raise ConfigError(f"the code is none of {', '.join(CODES)}")
        self.readers[row[0]](self._stage(row[1]), row[2:])
        self.rows.append(row)

    # what rows hold

    def _stage(self, value: object) -> Stage:
        return self.replay.stages[_whole(value, len(self.replay.stages), "a stage")]

    def _axis(self, stage: Stage, value: object) -> int:
        """Return the number among all axes of a stage of a loop that is named by its place."""
        leaves = stage.leaf_iter_vars
        return _number(stage, leaves[_whole(value, len(leaves), "a loop")])

    def _do(self, stage: Stage, primitive: str, *args: Plain) -> None:
        self.replay.apply(Step(stage.number, primitive, args))

    # one function for each code

    def _annotate(self, stage: Stage, args: Sequence[object]) -> None:
        loop, kind = _exactly(args, 2)
        code = _whole(kind, 12, "an annotation")
        axis = self._axis(stage, loop)
        names = {number: name for name, number in ANNOTATIONS.items()}
        if code in names:
            self._do(stage, names[code], axis)
        elif code in _THREADS:
            raise NoMeaning("the threads of a GPU have no meaning on a CPU")

    def _fuse(self, stage: Stage, args: Sequence[object]) -> None:
        (loops,) = _exactly(args, 1)
        axes = tuple(self._axis(stage, k) for k in _list(loops))
        last = stage.all_iter_vars[axes[-1]] if axes else None
        inside = [s for s in self.replay.stages if last is not None and s.attach.axis is last]
        for moved in inside:  # in Ansor what is computed at the last loop moves to the fused one
            self._do(moved, "compute_root")
        self._do(stage, "fuse", axes)
        for moved in inside:
            self._do(moved, "compute_at", (stage.number, len(stage.all_iter_vars) - 1))

    def _reorder(self, stage: Stage, args: Sequence[object]) -> None:
        (loops,) = _exactly(args, 1)
        order = [_whole(k, len(stage.leaf_iter_vars), "a loop") for k in _list(loops)]
        if sorted(order) != list(range(len(stage.leaf_iter_vars))):
            raise ConfigError("the order does not name every loop once")
        moved = sorted(k for k, loop in enumerate(order) if k != loop)
        if moved:
            self._do(stage, "reorder", tuple(self._axis(stage, order[k]) for k in moved))

    def _split(self, stage: Stage, args: Sequence[object]) -> None:
        loop, extent, lengths, inner = _exactly(args, 4)
        _optional_size(extent)
        is_inner = _whole(inner, 2, "a direction") == 1
        self._cut(stage, self._axis(stage, loop), [_length(n) for n in _list(lengths)], is_inner)

    def _cut(self, stage: Stage, axis: int, lengths: Sequence[int], is_inner: bool) -> None:
        """Split a loop into one more than there are lengths: of the inner ones, or the outer."""
        extent = int_value(stage.extents()[stage.all_iter_vars[axis]])
        if extent is not None and prod(lengths) > 2 * extent:
            raise NoMeaning(f"the factors are larger than the loop, which has {extent} iterations")
        for length in reversed(lengths) if is_inner else lengths:
            made = len(stage.all_iter_vars)
            if is_inner:
                self._do(stage, "split", axis, length)
            else:
                self._do(stage, "split", axis, None, length)
            axis = made if is_inner else made + 1

    def _source(self, value: object) -> list[int]:
        """Return the lengths of an earlier split."""
        row = self.rows[_whole(value, len(self.rows), "an earlier step")]
        if row[0] != "SP":
            raise ConfigError("the step that it follows is no split")
        return [_length(n) for n in _list(row[4])]

    def _follow(self, stage: Stage, args: Sequence[object]) -> None:
        loop, source, count = _exactly(args, 3)
        lengths = self._source(source)
        levels = _whole(count, len(lengths) + 1, "a number of levels")
        if levels < 1:
            raise ConfigError("it follows no level")
        kept = [*lengths[: levels - 1], prod(lengths[levels - 1 :])]
        self._cut(stage, self._axis(stage, loop), kept, is_inner=True)

    def _follow_fused(self, stage: Stage, args: Sequence[object]) -> None:
        loop, sources, level, is_factor = _exactly(args, 4)
        found = [self._source(s) for s in _list(sources)]
        at = _whole(level, _MOST_PARTS, "a level")
        if not found or any(at >= len(lengths) for lengths in found):
            raise ConfigError("the steps that it follows have no such level")
        length = prod(lengths[at] for lengths in found)
        is_inner = _whole(is_factor, 2, "a direction") == 1
        self._cut(stage, self._axis(stage, loop), [length], is_inner)

    def _align(self, stage: Stage, args: Sequence[object]) -> None:
        loop, factor, offset = _exactly(args, 3)
        numbers = [_whole(n, _MOST_ALIGNED, "a number of elements") for n in (factor, offset)]
        self._do(stage, "storage_align", self._axis(stage, loop), *numbers)

    def _compute_at(self, stage: Stage, args: Sequence[object]) -> None:
        parent, loop = _exactly(args, 2)
        target = self._stage(parent)
        self._do(stage, "compute_at", (target.number, self._axis(target, loop)))

    def _inline(self, stage: Stage, args: Sequence[object]) -> None:
        _exactly(args, 0)
        self._do(stage, "compute_inline")

    def _root(self, stage: Stage, args: Sequence[object]) -> None:
        _exactly(args, 0)
        self._do(stage, "compute_root")

    def _cache_read(self, stage: Stage, args: Sequence[object]) -> None:
        scope, readers = _exactly(args, 2)
        stages = tuple(self._stage(r).number for r in _list(readers))
        self._do(stage, "cache_read", 0, _scope(scope), stages)

    def _cache_write(self, stage: Stage, args: Sequence[object]) -> None:
        (scope,) = _exactly(args, 1)
        self._do(stage, "cache_write", 0, _scope(scope))

    def _rfactor(self, stage: Stage, args: Sequence[object]) -> None:
        loop, place = _exactly(args, 2)
        at = _whole(place, _MOST_PARTS, "an axis")
        self._do(stage, "rfactor", 0, self._axis(stage, loop), *((at,) if at else ()))

    def _pragma(self, stage: Stage, args: Sequence[object]) -> None:
        loop, text = _exactly(args, 2)
        if not isinstance(text, str):
            raise ConfigError("a pragma is text")
        name, *numbers = text.split("$")
        axis = self._axis(stage, loop)
        if name == f"{OWN}prefetch_panel":
            self._prefetch_panel(stage, axis, numbers)
            return
        values = [_decimal(n) for n in numbers]
        if name.startswith(OWN):
            self._hint(stage, name.removeprefix(OWN), axis, values)
        elif name == "auto_unroll_max_step" and len(values) == 1:
            self._do(stage, "pragma", axis, name, values[0])
        else:
            raise NoMeaning(f"the pragma {name!r:.40} is not known")

    def _prefetch_panel(self, stage: Stage, axis: int, words: Sequence[str]) -> None:
        if len(words) != 3 or len(words[2]) > _LONGEST_PRAGMA:
            raise ConfigError("fetching panels has a stage, an output and a list")
        source, rest = self._stage(_decimal(words[0])), argument_from_json(words[2])
        if not isinstance(rest, tuple):
            raise ConfigError(f"{words[2]!r:.40} is no list")
        self._do(stage, "prefetch_panel", (source.number, _decimal(words[1])), axis, *rest)

    def _hint(self, stage: Stage, name: str, axis: int, values: Sequence[int]) -> None:
        if name not in HINTS:
            raise NoMeaning(f"the pragma {name!r:.40} is not known")
        if name != "prefetch":
            self._do(stage, name, axis, *values)
            return
        if len(values) != 3:
            raise ConfigError("a prefetch has a stage, an output and an offset")
        source = self._stage(values[0])
        self._do(stage, name, (source.number, values[1]), axis, values[2])


def _number(stage: Stage, axis: IterVar) -> int:
    return next(k for k, a in enumerate(stage.all_iter_vars) if a is axis)


def _exactly(args: Sequence[object], count: int) -> Sequence[object]:
    if len(args) != count:
        raise ConfigError(f"it has {len(args)} arguments after the stage, not {count}")
    return args


def _list(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) > _MOST_PARTS:
        raise ConfigError(f"{value!r:.40} is no list of numbers")
    return value


def _whole(value: object, end: int, what: str) -> int:
    if type(value) is not int or not 0 <= value < end:
        raise ConfigError(f"{value!r:.40} is not {what}: there are {end}")
    return value


def _length(value: object) -> int:
    if value is None:
        raise NoMeaning("a factor is not decided")
    if type(value) is not int or not 0 < value < _LARGEST:
        raise ConfigError(f"{value!r:.40} is no factor")
    return value


def _optional_size(value: object) -> None:
    if value is not None and (type(value) is not int or not 0 <= value < _LARGEST):
        raise ConfigError(f"{value!r:.40} is no extent")


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise ConfigError(f"{text!r:.40} is no number")
    return int(text)


def _scope(value: object) -> str:
    if not isinstance(value, str) or value not in _SCOPES:
        raise NoMeaning(f"there is no memory {value!r:.40} here")
    return value
