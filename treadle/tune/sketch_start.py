# SPDX-License-Identifier: Apache-2.0
"""The candidates of sketches that are tried first: what the analytic model likes, of many kinds.

A model that is not exact likes its best candidate and hundreds that hardly differ from it; if it is
wrong about one, it is wrong about all. So kinds of candidates compete: those with the same tiles in
registers, computed in the same loops, are one kind, of which only the best goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from treadle.tune.space import SearchSpace

Candidate = TypeVar("Candidate", bound=Hashable)
Kind = Callable[[Candidate], tuple[Hashable, Hashable]]
"""kind(candidate) -> (its tiles in registers, the loops its stages are computed in)."""

_DRAWN = 1024
"""Candidates that are drawn to begin with."""
_KINDS = 32
"""The best kinds, which have children."""
_CHILDREN = 8
"""Mutations of each in a generation; as many again are crossed with another one."""
_GENERATIONS = 20
_PATIENCE = 4
"""Generations without a better one that end it."""


def first_candidates(
    space: SearchSpace[Candidate], kind: Kind[Candidate], count: int
) -> list[Candidate]:
    """Return up to `count` candidates that the estimates of a space like, the best first.

    They have evolved from some drawn with a fixed seed. In turn: the best of each tile in
    registers, and the best of all; then, where there are few kinds, the best that were drawn.
    """
    random = np.random.default_rng(0)
    drawn = space.sample(_DRAWN, random)
    found = _best_kinds(space, drawn, kind)
    best, waited = np.inf, 0
    for _ in range(_GENERATIONS if found else 0):
        parents = [p for p in found for _ in range(_CHILDREN)]
        mates = [found[k] for k in random.integers(len(found), size=len(parents)).tolist()]
        children = [*space.mutate(parents, random), *space.cross(parents, mates, random)]
        found = _best_kinds(space, [*found, *children], kind)
        least = float(space.estimate(found[:1])[0])
        waited = 0 if least < best else waited + 1
        best = min(best, least)
        if waited == _PATIENCE:
            break
    others = [drawn[k] for k in np.argsort(space.estimate(drawn), kind="stable").tolist()]
    return list(dict.fromkeys([*_in_turn(found, kind), *others]))[:count]


def _best_kinds(
    space: SearchSpace[Candidate], candidates: Sequence[Candidate], kind: Kind[Candidate]
) -> list[Candidate]:
    """Return the best candidate of each of the best kinds, the best first.

    Those with the same estimate differ in choices alone that make no difference: one is kept.
    """
    different = list(dict.fromkeys(candidates))
    by_kind: dict[object, Candidate] = {}
    estimates, known = space.estimate(different), set[float]()
    for k in np.argsort(estimates, kind="stable").tolist():
        own = kind(different[k])
        if own in by_kind or float(estimates[k]) in known:
            continue
        by_kind[own] = different[k]
        known.add(float(estimates[k]))
        if len(by_kind) == _KINDS:
            break
    return list(by_kind.values())


def _in_turn(found: Sequence[Candidate], kind: Kind[Candidate]) -> list[Candidate]:
    """Return candidates anew: the best, then by turns that of another tile and the next of all."""
    by_tile: dict[Hashable, Candidate] = {}
    for candidate in found:
        by_tile.setdefault(kind(candidate)[0], candidate)
    pairs = zip_longest(by_tile.values(), found)
    return list(dict.fromkeys(c for pair in pairs for c in pair if c is not None))
