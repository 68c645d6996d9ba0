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

from treadle.graph.nodes import Call, Constant, DeferredConstant, Node
from treadle.optimize.methods.method import Choices, Site, cycles_and_growth, is_named

LEAST_BYTES = 8 << 20
"""By how much the weights of any model may grow: a process needs as much for itself."""
PART_SAVED = 0.5
"""The part of all cycles that must be saved for each part of the weights that is added beyond what
any model may grow by: a tenth more weights for a twentieth less time."""


@dataclass(frozen=True, slots=True)
class Granted:
    """By how many bytes the weights of each call may grow, and of all others together."""

    by_call: Mapping[Call, int]
    spare_bytes: int


@dataclass(frozen=True, slots=True)
class _Step:
    """The next larger weights of a call: what they add to the last ones, and save."""

    call: Call
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


def grant(sites: Sequence[Site], choices: Choices, held: int, share: float) -> Granted:
    """Return by how much the weights of calls may grow in a model of `held` bytes of weights.

    Altogether by a `share` of them, or by LEAST_BYTES. Beyond that may grow what saves as large a
    part of the cycles that all calls take at least as PART_SAVED says. With a share of 0 nothing
    grows. Calls whose method is named are left out: who names one accepts its weights.
    """
    if share <= 0:
        return Granted({}, 0)
    free = [site for site in sites if not is_named(site, choices)]
    found = [_steps(site) for site in free]
    price = PART_SAVED * sum(cycles for cycles, _ in found) / max(1, held)
    granted: dict[Call, int] = {site.node: 0 for site in free}
    spare = max(LEAST_BYTES, int(share * held))
    # Of equal ones the first call wins.
    for step in sorted((s for _, steps in found for s in steps), key=lambda s: -s.density):
        # Where smaller weights of the call did not fit, these do not either.
        is_next = granted[step.call] == step.total - step.added
        if is_next and (step.added <= spare or step.density >= price):
            granted[step.call] = step.total
            spare -= step.added
    return Granted(granted, max(0, spare))


def _steps(site: Site) -> tuple[float, list[_Step]]:
    """Return the least cycles with any weights, and what each larger form adds and saves."""
    answers = list(cycles_and_growth(site))
    at, least = 0, min((cycles for cycles, growth in answers if growth <= 0), default=0.0)
    steps: list[_Step] = []
    while better := [(c, growth) for c, growth in answers if growth > at and c < least]:
        cycles, growth = max(better, key=lambda f: ((least - f[0]) / (f[1] - at), f[1]))
        steps.append(_Step(site.node, growth, growth - at, least - cycles))
        at, least = growth, cycles
    return least, steps
