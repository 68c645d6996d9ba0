# SPDX-License-Identifier: Apache-2.0
"""By how much faster methods may enlarge the weights of a model, and which calls that goes to.

Winograd's and Strassen's algorithms multiply less and have more weights. Before any method is
chosen, all calls are looked at as they stand: what the methods with larger weights save over the
best of the others, and what they add. The bytes that there are go where a byte saves most cycles,
whatever the order of the calls: a knapsack of several choices per call, filled greedily along the
convex hull of each (Sinha and Zoltners, "The multiple-choice knapsack problem", 1979).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from treadle.graph.nodes import Call, Constant, DeferredConstant, Node
from treadle.graph.text import call_text
from treadle.limits import CALL_BYTES, FREE_GROWTH_BYTES, KERNEL_BYTES
from treadle.optimize.methods.method import Choices, Offer, Site, is_named, offers_of

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Granted(Generic[K]):
    """By how many bytes the weights of each call may grow, and of all others together."""

    by_call: Mapping[K, int]
    spare_bytes: int


@dataclass(frozen=True, slots=True)
class _Step(Generic[K]):
    """The next larger weights of a call: what they add to the last ones, and save."""

    call: K
    total: int
    added: int
    saved: float

    @property
    def density(self) -> float:
        return self.saved / self.added


def weight_bytes(nodes: Iterable[Node]) -> int:
    """Return the bytes of the constants of a graph; what lies at one place counts once."""
    places: dict[object, int] = {}
    for node in nodes:
        if isinstance(node, Constant):
            is_made = not isinstance(node, DeferredConstant)
            place = node.value.__array_interface__["data"][0] if is_made else node
            places[place] = max(places.get(place, 0), node.type.nbytes)
    return sum(places.values())


def grant(sites: Sequence[Site], choices: Choices, held: int, share: float) -> Granted[Call]:
    """Return by how much the weights of calls may grow in a model of `held` bytes of weights.

    As `deal`, by the estimates. Calls whose method is named are left out: who names one accepts its
    weights. What the artifact is larger by in any case comes off what there is: zeros in blocks of
    channels, and code where it takes more than half the share, which is for models of few weights.
    """
    if share <= 0:
        return Granted({}, 0)
    free = [site for site in sites if not is_named(site, choices)]
    kernels = len({call_text(site.node) for site in sites})
    code = KERNEL_BYTES * kernels + CALL_BYTES * len(sites)
    taken = sum(site.padding_bytes() for site in sites) + max(0, code - int(share * held / 2))
    return deal({site.node: list(offers_of(site)) for site in free}, held, share, taken)


def deal(
    offers: Mapping[K, Sequence[Offer]], held: int, share: float, taken: int = 0
) -> Granted[K]:
    """Return by how much the weights of calls may grow in a model of `held` bytes of weights.

    `offers` are what could compute each call; their cycles may be any time, of all in one unit.
    Altogether weights may grow by a `share` of them of which `taken` bytes are gone, or by
    FREE_GROWTH_BYTES. With a share of 0 nothing grows.
    """
    if share <= 0:
        return Granted({}, 0)
    found = [_steps(call, methods) for call, methods in offers.items()]
    granted: dict[K, int] = dict.fromkeys(offers, 0)
    spare = max(FREE_GROWTH_BYTES, int(share * held) - taken)
    # Of equal ones the first call wins.
    for step in sorted((s for steps in found for s in steps), key=lambda s: -s.density):
        # Where smaller weights of the call did not fit, these do not either.
        is_next = granted[step.call] == step.total - step.added
        if is_next and step.added <= spare:
            granted[step.call] = step.total
            spare -= step.added
    return Granted(granted, max(0, spare))


def _steps(call: K, offers: Sequence[Offer]) -> list[_Step[K]]:
    """Return what each larger form of a call's weights adds and saves."""
    at, least = 0, min((o.cycles for o in offers if o.growth <= 0), default=0.0)
    steps: list[_Step[K]] = []
    while better := [o for o in offers if o.growth > at and o.cycles < least]:
        best = max(better, key=lambda o: ((least - o.cycles) / (o.growth - at), o.growth))
        steps.append(_Step(call, best.growth, best.growth - at, least - best.cycles))
        at, least = best.growth, best.cycles
    return steps
