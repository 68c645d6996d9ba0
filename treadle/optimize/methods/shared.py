# SPDX-License-Identifier: Apache-2.0
"""What the calls of a function share: packed weights, sums of Strassen's algorithm, a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from treadle.graph.nodes import Call, Constant, Node
from treadle.optimize.methods.layout_moves import Following

T = TypeVar("T")


class Shared:
    """What methods have made so far that several calls may use.

    `readers` counts the products that read a value, `users` are all that do. `panels` are packed
    matrices by what they are made of, `looked_up` the places of those whose columns are looked up,
    too. `granted` says by how many bytes the weights of a call may grow, `spare_bytes` what is left
    for calls that only come into being. `following` says what moves between layouts after a node,
    by the layout of its result.
    """

    def __init__(self) -> None:
        self.readers: Counter[Node] = Counter()
        self.users: Mapping[Node, Sequence[Node]] = {}
        self.panels: dict[Constant, Constant] = {}
        self.looked_up: frozenset[object] = frozenset()
        self.granted: Mapping[Call, int] = {}
        self.spare_bytes = 0
        self.following: Mapping[Node, Following] = {}
        self._made: dict[Hashable, Any] = {}  # what a key stands for is known to who gives it

    def may_grow(self, call: Call, growth: int) -> bool:
        """True where the weights of a call may take so many bytes more."""
        return growth <= self.granted.get(call, self.spare_bytes)

    def grow(self, call: Call, growth: int) -> None:
        """Take the bytes of a call from what is left, where none were granted to it."""
        if call not in self.granted:
            self.spare_bytes -= growth

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returned when the key was first asked for."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def has(self, key: Hashable) -> bool:
        """True where something was made under the key."""
        return key in self._made

    def clear(self) -> None:
        """Let go of weights and values."""
        self.readers.clear()
        self.panels.clear()
        self.users, self.granted, self.following = {}, {}, {}
        self._made.clear()
