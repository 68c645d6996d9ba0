# SPDX-License-Identifier: Apache-2.0
"""What the calls of a function share: packed weights, sums of Strassen's algorithm, a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from treadle.graph.nodes import Node

MOST_BYTES = 256 << 20
"""By how much the weights of a model may grow."""

T = TypeVar("T")


class Shared:
    """What methods have made so far that several calls may use.

    `readers` counts the products that read a value; `spare_bytes` is by how much the weights of
    the model may still grow.
    """

    def __init__(self) -> None:
        self.readers: Counter[Node] = Counter()
        self.spare_bytes = MOST_BYTES
        self._made: dict[Hashable, Any] = {}  # what a key stands for is known to who gives it

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
        self._made.clear()
