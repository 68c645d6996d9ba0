# SPDX-License-Identifier: Apache-2.0
"""Users' own templates in AutoTVM's words: splits, orders, annotations and plain knobs.

A template defines what may be chosen and applies it. All of it stands on `te.knobs`: what is
defined is asked for at once, so the choices of a run are its configuration, and the space is what
a run asks for.

>>> def template(group, target, knobs):
...     config = Definitions(knobs)
...     s, out = group.schedule, group.outputs[0]
...     y, x = s[out].op.axis
...     config.define_split("tile_x", x, num_outputs=2)
...     config.define_annotate("inner", [x], policy="try_unroll_vec")
...     outer, inner = config["tile_x"].apply(s, out, x)
...     config["inner"].apply(s, out, [inner])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, permutations, product
from math import prod
from typing import Any, Literal

from treadle.errors import ConfigError, UsageError
from treadle.expr.nodes import int_value
from treadle.te.knobs import Knobs, Value
from treadle.te.operations import IterVar, Tensor
from treadle.te.schedule import Schedule
from treadle.tune.sketch_slots import divisors

SplitPolicy = Literal["factors", "power2", "verbose"]
OrderPolicy = Literal["all", "interleave", "candidate"]
NotePolicy = Literal["unroll", "vec", "parallel", "try_unroll", "try_vec", "try_unroll_vec"]

_MOST_CANDIDATES = 50_000
_LONGEST = 1 << 31
"""An axis to be split; arguments of a template may come from a record."""


@dataclass(frozen=True, slots=True)
class Split:
    """An axis cut into loops; `size` are their extents from outside to inside.

    The outermost has what the others leave, rounded up.
    """

    size: tuple[int, ...]

    def apply(self, schedule: Schedule, tensor: Tensor, axis: IterVar) -> list[IterVar]:
        """Split the axis of a stage; return the loops from outside to inside."""
        inner: list[IterVar] = []
        for factor in reversed(self.size[1:]):
            axis, last = schedule[tensor].split(axis, factor=factor)
            inner.insert(0, last)
        return [axis, *inner]


@dataclass(frozen=True, slots=True)
class Order:
    """An order of axes: `perm` are their places before, from outside to inside."""

    perm: tuple[int, ...]

    def apply(self, schedule: Schedule, tensor: Tensor, axes: Sequence[IterVar]) -> list[IterVar]:
        """Reorder the axes of a stage; return them in their order."""
        ordered = [axes[place] for place in self.perm]
        schedule[tensor].reorder(*ordered)
        return ordered


@dataclass(frozen=True, slots=True)
class Annotation:
    """How axes run: `anns` has "none", "unroll", "vec" or "parallel" for each."""

    anns: tuple[str, ...]

    def apply(
        self,
        schedule: Schedule,
        tensor: Tensor,
        axes: Sequence[IterVar],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: Definitions | None = None,
    ) -> list[IterVar]:
        """Annotate the axes of a stage; return them.

        Of loops whose extents are given as `axis_lens`, unrolling more than `max_unroll` and
        vectorizing others than those of `vec_size` is no configuration. `cfg` is not needed; it is
        taken because AutoTVM's templates give it.

        Raises: ConfigError where it is no configuration.
        """
        self._check(axis_lens, max_unroll, vec_size)
        stage = schedule[tensor]
        run: dict[str, Callable[[IterVar], None]] = {
            "unroll": stage.unroll, "vec": stage.vectorize, "parallel": stage.parallel,
            "none": lambda _: None,
        }  # fmt: skip
        for axis, how in zip(axes, self.anns, strict=True):
            run[how](axis)
        return list(axes)

    def _check(
        self, lengths: Sequence[int] | None, most: int | None, lanes: Sequence[int] | None
    ) -> None:
        for length, how in zip(lengths or (), self.anns, strict=False):
            if how == "unroll" and most is not None and length > most:
                raise ConfigError(f"a loop of {length} is not unrolled: more than {most}")
            if how == "vec" and lanes is not None and length not in lanes:
                raise ConfigError(f"a loop of {length} is not vectorized: not one of {list(lanes)}")


@dataclass(frozen=True, slots=True)
class Plain:
    """A value without more to it."""

    val: Any  # what the template's author gave


Entity = Split | Order | Annotation | Plain


@dataclass(frozen=True, slots=True, eq=False)
class VirtualAxis:
    """A loop that a template defines choices for before there is one; `length` is its extent."""

    length: int
    name: str = ""


class Definitions:
    """What a template defines, and what was chosen of it: `config[name]`, `len(config)`.

    The first candidate is the default: an axis that is not split, the order of the axes as they
    are, no annotation, the first value.

    Raises (all `define_`): UsageError where a policy or a candidate is none; ScheduleError where a
        name is defined twice; ConfigError where the configuration has another value.
    """

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self._chosen: dict[str, Entity] = {}
        self._size = 1
        self.descriptions: dict[str, str] = {}
        """How each was defined, in a few words."""
        self.flop = 0
        """The operations of a call, where the template says it (`add_flop`)."""

    def __len__(self) -> int:
        """The number of configurations of what is defined so far."""
        return self._size

    def __getitem__(self, name: str) -> Any:  # the kind of entity that was defined
        if name not in self._chosen:
            raise UsageError(
                f"the template has not defined {name!r}",
                hint=f"there is {', '.join(self._chosen) or 'nothing'}",
            )
        return self._chosen[name]

    @property
    def entities(self) -> tuple[tuple[str, Entity], ...]:
        """What was chosen so far, with its names, in order."""
        return tuple(self._chosen.items())

    @property
    def is_fallback(self) -> bool:
        """False: what is not chosen is the first candidate of what is defined, as in a record."""
        return False

    def add_flop(self, flop: float) -> None:
        """Say how many operations a call has, where counting its arithmetic would be wrong."""
        self.flop += int(flop)

    def raise_error(self, msg: str) -> None:
        """Say that what was chosen is no configuration. Raises: ConfigError"""
        raise ConfigError(msg)

    def axis(self, var: IterVar | int) -> VirtualAxis:
        """Return an axis, or a length, to define choices for."""
        return VirtualAxis(_length("an axis", var), str(var))

    def define_knob(self, name: str, candidate: Sequence[Value]) -> None:
        """Let a value be chosen: `config[name].val`."""
        self._define(name, [Plain(value) for value in candidate], lambda e: e.val)
        self.descriptions[name] = f"OtherOption({list(candidate)})"

    def define_split(
        self,
        name: str,
        axis: IterVar | VirtualAxis | int,
        policy: SplitPolicy = "factors",
        *,
        num_outputs: int,
        max_factor: int | None = None,
        filter: Callable[[Split], bool] | None = None,
        candidate: Sequence[Sequence[int]] | None = None,
    ) -> list[VirtualAxis]:
        """Let an axis, or a length, be cut into loops: `config[name].apply(...)`, `.size`.

        The inner loops take factors of the length ("factors"), powers of two ("power2", with a
        rest where they do not divide it) or both ("verbose"), none above `max_factor`. Instead,
        `candidate` lists the splits; in each, -1 (or 0) stands for what the others leave. What is
        returned are the loops that will be, to define an order of them.
        """
        length = _length(name, axis)
        if not 1 <= length <= _LONGEST or num_outputs < 1:
            raise UsageError(f"{name} cannot split a length of {length} into {num_outputs} loops")
        found: Iterable[Split]
        if candidate is not None:
            found = [_completed(name, length, list(sizes), num_outputs) for sizes in candidate]
        else:
            factors = _factors(name, length, policy, max_factor)
            found = _splits(length, num_outputs, factors, is_even=policy == "factors")
        kept = (s for s in found if filter is None or filter(s))
        chosen = self._define(name, kept, lambda e: e.size)
        self.descriptions[name] = (
            f"Split(policy={policy}, product={length}, num_outputs={num_outputs})"
        )
        return [VirtualAxis(size, f"{name}_{k}") for k, size in enumerate(chosen.size)]

    def define_reorder(
        self,
        name: str,
        axes: Sequence[object],
        policy: OrderPolicy = "all",
        *,
        candidate: Sequence[Sequence[object]] | None = None,
    ) -> None:
        """Let an order of axes be chosen: `config[name].apply(...)`, `.perm`.

        "all" are all permutations; "interleave" takes a list of lists in `axes`, of which each
        keeps its order; "candidate" takes the orders in `candidate`. `perm` counts the axes as they
        are given, lists joined.
        """
        orders: Iterable[Sequence[int]]
        if policy == "all":
            orders = permutations(range(len(axes)))
        elif policy == "interleave":
            groups = [list(g) if isinstance(g, (list, tuple)) else [g] for g in axes]
            orders = _interleaved([list(range(s, e)) for s, e in pairwise(_ends(groups))])
        elif policy == "candidate":
            orders = [_places(name, axes, order) for order in candidate or ()]
        else:
            raise _no_policy(name, policy, "all, interleave, candidate")
        self._define(name, (Order(tuple(order)) for order in orders), lambda e: e.perm)
        self.descriptions[name] = f"Reorder(policy={policy}) num_axes={len(axes)}"

    def define_annotate(
        self, name: str, axes: Sequence[object], policy: NotePolicy = "try_unroll_vec"
    ) -> None:
        """Let it be chosen how axes run: `config[name].apply(...)`, `.anns`.

        "unroll", "vec" and "parallel" are done to all, to the last, to the first; "try_unroll" may
        unroll the last ones, one, two or all of them, "try_vec" may vectorize the last one,
        "try_unroll_vec" may do either.
        """
        found = _annotations(name, len(axes), policy)
        self._define(name, [Annotation(anns) for anns in found], lambda e: e.anns)
        self.descriptions[name] = f"Annotate(policy={policy}) num_axes={len(axes)}"

    def check(self, is_valid: bool, problem: str) -> None:
        """Refuse what was chosen unless it is valid: then it is no configuration of the template.

        Raises: ConfigError
        """
        if not is_valid:
            raise ConfigError(problem)

    def _define(self, name: str, found: Iterable[Any], value: Callable[[Any], Value]) -> Any:
        """Ask for one of entities, which is returned; they are known by their plain values."""
        entities = list(islice(found, _MOST_CANDIDATES + 1))
        if not entities:
            raise UsageError(f"{name} has no candidates", hint="is its filter ever true?")
        if len(entities) > _MOST_CANDIDATES:
            raise UsageError(
                f"{name} has more than {_MOST_CANDIDATES} candidates",
                hint="list some as candidate=, or limit them with max_factor",
            )
        values = [value(e) for e in entities]
        chosen = self._knobs.option(name, values[0], values[1:])
        self._chosen[name] = entities[values.index(chosen)]
        self._size *= len({repr(v) for v in values})
        return self._chosen[name]


def _length(name: str, axis: IterVar | VirtualAxis | int) -> int:
    if isinstance(axis, VirtualAxis):
        return axis.length
    length = axis if isinstance(axis, int) else int_value(axis.extent)
    if length is None:
        raise UsageError(
            f"{name} is of {axis}, whose length is known at run time only",
            hint="give the template numbers: there is nothing to choose from",
        )
    return length


def _no_policy(name: str, policy: str, there_is: str) -> UsageError:
    return UsageError(f"{name} cannot be defined by policy {policy!r}", hint=f"there is {there_is}")


def _factors(name: str, length: int, policy: str, most: int | None) -> list[int]:
    """Return what an inner loop may be long, in order."""
    limit = length if most is None else min(length, most)
    even = {n for n in divisors(length) if n <= limit}
    powers = {1 << k for k in range(limit.bit_length()) if 1 << k <= limit}
    if policy not in ("factors", "power2", "verbose"):
        raise _no_policy(name, policy, "factors, power2, verbose")
    found = {"factors": even, "power2": powers, "verbose": even | powers}[policy]
    return sorted(found)


def _splits(length: int, count: int, factors: Sequence[int], *, is_even: bool) -> Iterator[Split]:
    """Yield the splits into `count` loops of which the inner ones are factors: unsplit first."""
    for inner in product(factors, repeat=count - 1):
        size = prod(inner)
        if size <= length and not (is_even and length % size):
            yield Split((-(-length // size), *inner))


def _completed(name: str, length: int, sizes: list[int], count: int) -> Split:
    """Return a split that its user has listed, with what is left in the place of -1."""
    free = [i for i, size in enumerate(sizes) if size in (-1, 0)]
    if len(sizes) != count or min(sizes) < -1 or len(free) > 1:
        raise UsageError(
            f"{sizes} is no split of {name} into {count} loops",
            hint="give an extent for each loop, and -1 for at most one",
        )
    if free:
        sizes[free[0]] = -(-length // prod(s for s in sizes if s > 0))
    if prod(sizes) < length:
        raise UsageError(f"{sizes} of {name} does not cover a length of {length}")
    return Split(tuple(sizes))


def _ends(groups: Sequence[Sequence[object]]) -> list[int]:
    """Return where each group ends when they are joined, after a 0."""
    return list(accumulate(map(len, groups), initial=0))


def _interleaved(chains: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of the places in chains that keep the order within each chain."""
    left = [chain for chain in chains if chain]
    if not left:
        yield ()
    for k, (first, *rest) in enumerate(left):
        for order in _interleaved([*left[:k], rest, *left[k + 1 :]]):
            yield (first, *order)


def _places(name: str, axes: Sequence[object], order: Sequence[object]) -> tuple[int, ...]:
    """Return an order of axes as their places."""
    places = [i for a in order for i, b in enumerate(axes) if b is a]
    if sorted(places) != list(range(len(axes))):
        raise UsageError(f"a candidate of {name} is no order of its axes")
    return tuple(places)


def _annotations(name: str, count: int, policy: str) -> list[tuple[str, ...]]:
    none = ("none",) * count
    unrolled = [(*none[k:], *("unroll",) * k) for k in dict.fromkeys((1, 2, count)) if k <= count]
    vectorized = (*none[1:], "vec")
    found: dict[str, list[tuple[str, ...]]] = {
        "unroll": [("unroll",) * count],
        "vec": [vectorized],
        "parallel": [("parallel", *none[1:])],
        "try_unroll": [none, *unrolled],
        "try_vec": [none, vectorized],
        "try_unroll_vec": [none, *unrolled, vectorized,
                           *((*u[:-1], "vec") for u in unrolled[1:])],
    }  # fmt: skip
    if policy not in found:
        raise _no_policy(name, policy, ", ".join(found))
    if not count:
        raise UsageError(f"{name} has no axes to annotate")
    return found[policy]
