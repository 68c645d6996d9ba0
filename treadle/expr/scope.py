# SPDX-License-Identifier: Apache-2.0
"""What of all that is known decides about an expression, as a key to remember results under.

That are the intervals of its variables and of sums made of them; where relations such as i < n are
known, also those that speak of its variables, of the variables that these speak of, and so on: what
is known of a loop next to it has no part in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache

from treadle.expr.intervals import Interval
from treadle.expr.nodes import Expr

Leaves = frozenset[object]
Fact = tuple[Expr, Interval]


class Scope:
    """Keys for results under fixed bounds, by the variables in an expression."""

    def __init__(
        self, facts: Mapping[Expr, Interval], others: Sequence[Fact], *, has_relations: bool
    ) -> None:
        """`others` are the facts of other nodes than variables; relations may be among them."""
        self._facts = facts
        self._others = others
        self._has_relations = has_relations
        self._found: dict[Leaves, Hashable] = {}
        self._groups: dict[object, Hashable] | None = None

    def of(self, inside: Leaves) -> Hashable:
        """Return the key for expressions with these variables."""
        found = self._found.get(inside)
        if found is None:
            facts = self._facts
            spans = frozenset([(v, facts.get(v)) for v in inside])  # type: ignore[call-overload]
            known = self._related(inside) if self._has_relations else self._made_of(inside)
            found = self._found[inside] = (spans, known)
        return found

    def _made_of(self, inside: Leaves) -> Hashable:
        """Return what is known of other nodes than variables, of those made of these leaves."""
        return tuple([fact for fact in self._others if fact[0].leaves <= inside])

    def _related(self, inside: Leaves) -> Hashable:
        """Return the groups of facts that speak of these leaves; never `()`, as without any."""
        if self._groups is None:
            self._groups = self._grouped()
        groups = self._groups
        return (frozenset([groups[v] for v in inside if v in groups]),)

    def _grouped(self) -> dict[object, Hashable]:
        """Return by leaf the key of all facts that it is related to."""
        facts = self._facts
        made: dict[object, Hashable] = {}
        for leaves, members in _connected(self._others):
            spans = [(v, facts.get(v)) for v in leaves]  # type: ignore[call-overload]
            key = _token(tuple(members), frozenset(spans))
            made |= dict.fromkeys(leaves, key)
        return made


def _connected(facts: Iterable[Fact]) -> list[tuple[set[object], list[Fact]]]:
    """Return facts in groups that share no variable, each in order, with its variables."""
    groups: list[tuple[set[object], list[int]]] = []
    listed = list(facts)
    for place, (about, _) in enumerate(listed):
        leaves, members, apart = set(about.leaves), [place], []
        for group in groups:
            if leaves.isdisjoint(group[0]):
                apart.append(group)
            else:
                leaves |= group[0]
                members += group[1]
        groups = [*apart, (leaves, members)]
    return [(leaves, [listed[k] for k in sorted(members)]) for leaves, members in groups]


@lru_cache(maxsize=1 << 12)
def _token(_facts: tuple[Fact, ...], _spans: frozenset[tuple[object, Interval | None]]) -> object:
    """Return one object for equal facts: it is hashed faster than they are."""
    return object()
