# SPDX-License-Identifier: Apache-2.0
"""What a method is: one of several ways to compute calls of an operator, and how one is chosen.

All methods of the operator are asked about a call. Those that apply say how many cycles they take;
the cheapest one is built, or the one that the user or a record names. `treadle explain` prints what
each said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Generic, Literal, TypeVar

from treadle.errors import ChoiceError
from treadle.graph.nodes import Call, Node, with_operands
from treadle.graph.operator import Operator
from treadle.graph.text import call_text
from treadle.optimize.blocked import Blocked, Flat, Values
from treadle.optimize.methods.phases import Phased
from treadle.optimize.methods.shared import Shared
from treadle.passes import Candidate, decided
from treadle.target.base import Family, Target


def _ignore(call: str, problem: str) -> None:
    pass


Source = Literal["asked", "record", "estimates", "unfit"]
"""Who says by which method a call is computed: the user, a record, the estimates, or the estimates
where a record names a method that does not apply."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A method that applies to a call: its cycles as methods are compared by them, and by how many
    bytes its weights are larger than the model's."""

    cycles: float
    growth: int


@dataclass(frozen=True, slots=True)
class MethodCall:
    """A call that methods compute, as it stood in its graph: what could compute it, what does.

    `reads` and `gives` are the blocks of channels in which its first operand arrives and its result
    is read by all that read it; 0 where that is in the layout of the model.
    """

    node: Call
    text: str
    method: str
    source: Source
    offers: Mapping[str, Offer]
    reads: int = 0
    gives: int = 0


@dataclass(frozen=True, slots=True)
class Choices:
    """Names of methods by `call_text` of the calls: what the user asks for, what records keep.

    What is asked for must apply. Of a record that does not apply any more `on_unfit(call, problem)`
    is told, and the estimates decide. `measured` are the seconds of a call that records tell of
    their methods. `on_call` is told of every call that methods compute.
    """

    asked: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    on_unfit: Callable[[str, str], None] = _ignore
    measured: Mapping[str, float] = field(default_factory=dict)
    on_call: Callable[[MethodCall], None] | None = None


NO_CHOICES = Choices()


class Site:
    """A call and what surrounds it: the target, and the values of the new graph.

    `node` is the call in the graph that is rewritten; `values` has its operands' forms in the new
    one; `shared` is what calls have in common. Subclasses add what methods of one operator ask for.
    """

    def __init__(self, node: Call, values: Values, shared: Shared) -> None:
        self.node = node
        self.values = values
        self.shared = shared

    @property
    def target(self) -> Target:
        """The machine that code is made for."""
        return self.values.target

    @property
    def origin(self) -> str:
        """The name of the model's node."""
        return self.node.origin

    def padding_bytes(self) -> int:
        """Return by how many bytes packed weights are larger than the model's for what is added to
        fill blocks, whatever the method."""
        return 0

    def as_in_model(self) -> Node:
        """Return the call itself in the new graph, on operands in the layout of the model."""
        return with_operands(self.node, [self.values.as_plain(a) for a in self.node.args])


S = TypeVar("S", bound=Site)


def always(site: Site) -> str | None:
    """Return that a method applies, whatever the call."""
    return None


def _any_gain(site: Site) -> float:
    return 1.0


def _no_growth(site: Site) -> int:
    return 0


@dataclass(frozen=True, slots=True, eq=False)
class Method(Generic[S]):
    """One way to compute calls of an operator.

    applies(site) -> None where it can compute the call; else a sentence for a person why not
    estimate(site) -> cycles of one core for all the work; asked only where it applies
    build(site) -> the result: a plain node, a value in channel blocks, one whose pixels are one
        row, or the phases of one
    """

    name: str
    operator: Operator[Any]
    applies: Callable[[S], str | None]
    estimate: Callable[[S], float]
    build: Callable[[S], Node | Blocked | Flat | Phased]
    worthwhile: Callable[[S], float] = _any_gain
    """worthwhile(site) -> the share of another method's cycles that it may take at most, below 1
    where more must be gained than time: for larger rounding errors, for larger weights."""
    growth: Callable[[S], int] = _no_growth
    """growth(site) -> by how many bytes its weights are larger than those of the model; asked only
    where it applies. A method of the estimates' choice must have them granted (`growth.py`)."""
    objects: Callable[[S], str | None] = always
    """As `applies`, of what takes long to find out (it looks at the weights): asked only of the
    method that would be chosen."""
    knobs: tuple[str, ...] = ()
    """What it decides above the template of its kernel: sizes that layouts and packed weights
    have."""
    layout: str = "NCHW"
    """"NCHWc" where it runs on blocks of channels."""
    families: tuple[Family, ...] = ("cpu",)
    """The families of targets it is for: layouts and packed weights are made for their memory."""


class MethodTable:
    """The methods by operator, in the order in which equal estimates win."""

    def __init__(self) -> None:
        self._by_operator: dict[Operator[Any], list[Method[Any]]] = {}

    def register(self, method: Method[S]) -> Method[S]:
        """Add a method and return it. One of the same name and operator is replaced."""
        methods = self._by_operator.setdefault(method.operator, [])
        for place, earlier in enumerate(methods):
            if earlier.name == method.name:
                methods[place] = method
                return method
        methods.append(method)
        return method

    def remove(self, method: Method[Any]) -> None:
        """Take a method out again."""
        self._by_operator[method.operator].remove(method)

    def of(self, operator: Operator[Any]) -> Sequence[Method[Any]]:
        """Return the methods that compute an operator."""
        return tuple(self._by_operator.get(operator, ()))


METHODS = MethodTable()
register = METHODS.register


@dataclass(frozen=True, slots=True)
class Chosen(Generic[S]):
    """The method that computes a call, and who says so; `asked` is what all methods answered."""

    method: Method[S]
    source: Source
    call: str
    asked: Sequence[_Answer[S]]

    def offers(self, site: S) -> dict[str, Offer]:
        """Return the methods that apply by name; asked before the chosen one is built."""
        able = [a for a in self.asked if a.against is None or a.method is self.method]
        return {a.method.name: Offer(a.rank, a.method.growth(site)) for a in able}


def choose(site: S, choices: Choices = NO_CHOICES) -> Chosen[S]:
    """Return the method that computes a call: the one asked for or recorded, else the cheapest.

    The decision is recorded with what every method said.

    Raises:
        ChoiceError: a method is asked for that there is not, or that does not apply.
    """
    asked = [_ask(method, site) for method in METHODS.of(site.node.op)]  # type: ignore[arg-type]
    call = call_text(site.node)
    source: Source = "estimates"
    if call in choices.asked:
        answer, why, source = _named(choices.asked[call], asked, site), "it is asked for", "asked"
    elif (recorded := _recorded(call, asked, site, choices)) is not None:
        answer, why, source = recorded, _record_text(call, choices), "record"
    else:
        answer, why = _cheapest(asked, site), _why(asked)
        source = "unfit" if call in choices.recorded else "estimates"
    table = _table(asked, answer, is_named=source in ("asked", "record"))
    decided(site.origin, "method", answer.method.name, why, table, call)
    return Chosen(answer.method, source, call, asked)


def _record_text(call: str, choices: Choices) -> str:
    seconds = choices.measured.get(call)
    return "from a record" + ("" if seconds is None else f", measured: {seconds * 1e3:.3f} ms")


def _cheapest(asked: Sequence[_Answer[S]], site: S) -> _Answer[S]:
    """Return the first of the methods that apply, by their cycles, that has no objection."""
    for answer in sorted((a for a in asked if a.against is None), key=lambda a: a.rank):
        answer.against = _why_too_large(answer.method, site) or answer.method.objects(site)
        if answer.against is None:
            return answer
    raise AssertionError(f"no method computes {call_text(site.node)}")


def _why_too_large(method: Method[S], site: S) -> str | None:
    growth = method.growth(site)
    if growth <= 0 or site.shared.may_grow(site.node, growth):
        return None
    return f"the weights of the model would grow too much: here by {growth / 1e6:.1f} MB"


def is_named(site: Site, choices: Choices) -> bool:
    """True where the method of a call is asked for or recorded."""
    if not choices.asked and not choices.recorded:
        return False
    call = call_text(site.node)
    return call in choices.asked or call in choices.recorded


def offers_of(site: Site) -> Iterator[Offer]:
    """Yield the methods that apply: the cycles `choose` compares, and bytes of growth."""
    for method in METHODS.of(site.node.op):  # type: ignore[arg-type]
        answer = _ask(method, site)
        if answer.against is None:
            yield Offer(answer.rank, method.growth(site))


def _recorded(
    call: str, asked: Sequence[_Answer[S]], site: S, choices: Choices
) -> _Answer[S] | None:
    """Return the method that a record names, None where none does or it does not apply."""
    if call not in choices.recorded:
        return None
    try:
        return _named(choices.recorded[call], asked, site)
    except ChoiceError as error:
        choices.on_unfit(call, error.problem)
        return None


def least_cycles(site: Site) -> float:
    """Return the cycles of the cheapest method of a call, as `choose` compares them."""
    answers = (_ask(method, site) for method in METHODS.of(site.node.op))  # type: ignore[arg-type]
    return min((a for a in answers if a.against is None), key=lambda a: a.rank).cycles or 0.0


@dataclass(slots=True)
class _Answer(Generic[S]):
    """What a method says of a call: what is against it, else its cycles."""

    method: Method[S]
    against: str | None
    cycles: float | None = None
    share: float = 1.0

    @property
    def rank(self) -> float:
        """The cycles by which methods are compared."""
        return (self.cycles or 0.0) / self.share


def _ask(method: Method[S], site: S) -> _Answer[S]:
    if site.target.family not in method.families:
        families = " and ".join(method.families)
        return _Answer(method, f"it is for targets of the family {families}")
    against = method.applies(site)
    if against is not None:
        return _Answer(method, against)
    cycles = method.estimate(site)
    return _Answer(method, None, cycles, method.worthwhile(site))


def _named(wanted: str, asked: Sequence[_Answer[S]], site: S) -> _Answer[S]:
    names = [a.method.name for a in asked]
    if wanted not in names:
        near = get_close_matches(wanted, names, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ChoiceError(
            f"no method {wanted!r} computes {site.node.op}",
            at=f"node {site.origin}" if site.origin else call_text(site.node),
            hint=f"{meant}there are {', '.join(names)}",
        )
    found = asked[names.index(wanted)]
    if found.against is None:
        found.against = found.method.objects(site)
    if found.against is not None:
        others = [a.method.name for a in asked if a.against is None]
        raise ChoiceError(
            f"the method {wanted!r} does not apply: {found.against}",
            at=f"node {site.origin}" if site.origin else call_text(site.node),
            hint=f"choose among {', '.join(others)}, or leave this call to the estimates",
        )
    return found


def _why(asked: Sequence[_Answer[Any]]) -> str:
    if sum(a.against is None for a in asked) == 1:
        return "no other method applies"
    return "the least of the estimates"


def _table(
    asked: Sequence[_Answer[S]], chosen: _Answer[S], *, is_named: bool
) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            a.method.name,
            a.cycles,
            "" if a is chosen else a.against or _why_it_lost(a, chosen, is_named=is_named),
        )
        for a in asked
    )


def _why_it_lost(answer: _Answer[Any], chosen: _Answer[Any], *, is_named: bool) -> str:
    if is_named:
        return "another is named"
    mine, least = answer.cycles or 0.0, chosen.cycles or 0.0
    if mine < least:
        gain = 1 - mine / least
        return f"saves {gain:.1%}, and must save {1 - answer.share:.0%}"
    if mine == least:
        return "takes as long, and is asked later"
    return f"takes {mine / max(least, 1.0):.2f} times as long"
