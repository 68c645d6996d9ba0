# SPDX-License-Identifier: Apache-2.0
"""What a space of candidates is to a search: drawn from, varied, described by numbers.

Templates (`template.py`) and sketches (`sketch.py`) are such spaces; a search knows no more of them
than what stands here. All functions take many candidates at once, so that a space may compute with
arrays; a candidate is hashable and equal to another one of the same choice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from treadle.te.choice import Choice

Floats = NDArray[np.float32]

Candidate = TypeVar("Candidate", bound=Hashable)


class SearchSpace(Protocol[Candidate]):
    """The candidates of one task."""

    kind: str
    """"template" or "sketch": what stands in a record."""

    @property
    def size(self) -> int:
        """The number of candidates, or an estimate of it."""

    def start(self) -> list[Candidate]:
        """Return what to try first, best guess first: the default schedule where there is one."""

    def __iter__(self) -> Iterator[Candidate]:
        """Give every candidate once, in an order that is the same in every run."""

    def sample(self, count: int, random: np.random.Generator) -> list[Candidate]:
        """Return up to `count` candidates, drawn at random; the same one may come twice."""

    def mutate(self, parents: Sequence[Candidate], random: np.random.Generator) -> list[Candidate]:
        """Return a child of every parent, which differs from it in one or a few choices."""

    def cross(
        self, first: Sequence[Candidate], second: Sequence[Candidate], random: np.random.Generator
    ) -> list[Candidate]:
        """Return a child of every pair of parents, which has choices of both."""

    def features(self, candidates: Sequence[Candidate]) -> Floats:
        """Return what a cost model learns from: a row per candidate, columns always the same."""

    def estimate(self, candidates: Sequence[Candidate]) -> Floats:
        """Return how long each takes by the analytic model, in any one unit; NaN if unknown."""

    def choice(self, candidate: Candidate) -> Choice | None:
        """Return what the schedule is made by; None where the candidate turns out to be invalid.

        The one function that may be slow (a run of a template, milliseconds).
        """

    def to_json(self, candidate: Candidate) -> object:
        """Return plain data that `from_json` makes the candidate of; it stands in records."""

    def from_json(self, data: object) -> Candidate | None:
        """Return the candidate of a record; None where it is not one of this space."""
