# SPDX-License-Identifier: Apache-2.0
"""How much of a model records speak of, and what is nearest to them for the rest."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from treadle.build.kernel import Kernel
from treadle.build.records import Records
from treadle.optimize.methods.method import MethodCall, Source

_SOURCES: Mapping[Source, str] = {
    "record": "by the records",
    "estimates": "by the estimates",
    "asked": "as asked for",
    "unfit": "by the estimates, as the method in the records does not apply",
}
"""Who chose a method, in words."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A kernel that no record makes; `nearest` says in words what there is, "" if nothing."""

    kernel: str
    nearest: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the kernels of a model records are of, and what is said of the others.

    `methods` say of every call that several methods could compute, by its text, who chose.
    """

    tuned: int
    total: int
    missing: tuple[Missing, ...]
    methods: Mapping[str, Source] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return it in a line: "48 of 51 kernels are in the records"."""
        return f"{self.tuned} of {self.total} kernels are in the records"

    @property
    def methods_text(self) -> str:
        """Return in a line who chose the methods: "of 12 calls, 9 by the records, 3 by …"."""
        chosen = [*self.methods.values()]
        found = [f"{chosen.count(s)} {text}" for s, text in _SOURCES.items() if s in chosen]
        noun = "call" if len(chosen) == 1 else "calls"
        return f"methods of {len(chosen)} {noun}: {', '.join(found)}" if found else ""


def coverage_of(
    kernels: Sequence[Kernel], records: Records, calls: Sequence[MethodCall] = ()
) -> Coverage:
    """Return which kernels of a model are made by records, and who chose the methods.

    A record of another kernel or another target is never applied; what the nearest one differs in
    is said.
    """
    known = records.kernels()
    missing: list[Missing] = []
    for kernel in kernels:
        best = records.best(kernel.name, kernel.target)
        if best is None:
            missing.append(Missing(kernel.name, _nearest(kernel, known)))
        elif best.choice != kernel.choice:
            missing.append(Missing(kernel.name, "a record of its own that does not fit it"))
    methods = {call.text: call.source for call in calls if len(call.offers) > 1}
    return Coverage(len(kernels) - len(missing), len(kernels), tuple(missing), methods)


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
