# SPDX-License-Identifier: Apache-2.0
"""How much of a model records speak of, and what is nearest to them for the rest."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.build.kernel import Kernel
from treadle.build.records import Records


@dataclass(frozen=True, slots=True)
class Missing:
    """A kernel that no record is of; `nearest` says in words what there is, "" if nothing."""

    kernel: str
    nearest: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the kernels of a model records are of, and what is said of the others."""

    tuned: int
    total: int
    missing: tuple[Missing, ...]

    def __str__(self) -> str:
        """Return it in a line: "48 of 51 kernels are in the records"."""
        return f"{self.tuned} of {self.total} kernels are in the records"


def coverage_of(kernels: Sequence[Kernel], records: Records) -> Coverage:
    """Return which kernels of a model have a record for their target.

    A record of another kernel or another target is never applied; what the nearest one differs in
    is said.
    """
    known = records.kernels()
    missing = [
        Missing(k.name, _nearest(k, known))
        for k in kernels
        if records.best(k.name, k.target) is None
    ]
    return Coverage(len(kernels) - len(missing), len(kernels), tuple(missing))


def _nearest(kernel: Kernel, known: Sequence[tuple[str, str]]) -> str:
    """Return in words which record is nearest to a kernel: its own of another target first."""
    target = str(kernel.target)
    elsewhere = [t for name, t in known if name == kernel.name and t != target]
    if elsewhere:
        close = max(elsewhere, key=lambda t: difflib.SequenceMatcher(None, t, target).ratio())
        return f"the same kernel for {_difference(close, target)}"
    label = kernel.name.rpartition("_")[0]
    alike = [name for name, t in known if name.rpartition("_")[0] == label and t == target]
    return f"{alike[0]}: other shapes or attributes" if alike else ""


def _difference(other: str, target: str) -> str:
    """Return the words of one target that another does not have."""
    own = set(target.split())
    words = [word for word in other.split() if word not in own]
    return " ".join(words) or other
