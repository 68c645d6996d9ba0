# SPDX-License-Identifier: Apache-2.0
"""Configurations of knobs as rows of numbers: what is known of a candidate without lowering it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treadle.te.knobs import Value
from treadle.tune.paths import Ints, entries, size_number
from treadle.tune.space import Floats

_SHARED = 4
"""Columns that knobs share which became known later."""


class KnobColumns:
    """The columns of the features of a space: laid out once, by the knobs and values then known.

    Of every knob: a column per number of its values (yes is 1; log2 of what counts something), one
    per text, where there are several numbers their product, and the logarithm of the value's
    analytic cost over the least. Then the sum of these logarithms over all knobs. Knobs that became
    known later have no columns of their own: they share four, and one for their costs. What a path
    has no knob for is 0.
    """

    def __init__(self, knobs: Sequence[str], values: Sequence[tuple[str, Value]]) -> None:
        self._knobs = list(knobs)
        self._layouts = [
            _Layout([value for name, value in values if name == knob]) for knob in knobs
        ]
        self._tables: list[Floats] = []
        self._weights = np.zeros(1, np.float32)
        self._known = 0

    @property
    def names(self) -> list[str]:
        """The name of every column."""
        own = [
            f"{knob}.{name}"
            for knob, layout in zip(self._knobs, self._layouts, strict=True)
            for name in (*layout.names, "cost")
        ]
        others = [f"other knobs {i}" for i in range(_SHARED)]
        return [*own, "cost", *others, "cost of other knobs"]

    def rows(
        self,
        values: Sequence[tuple[str, Value]],
        choices: Ints,
        excess: NDArray[np.float64],
    ) -> Floats:
        """Return the features of paths.

        `choices` are ids among `values`, in columns of knobs (-1: no such knob), `excess` the
        logarithms of their costs over the least.
        """
        if self._known != len(values):
            self._tables = [layout.table(values) for layout in self._layouts]
            self._weights = np.array([*(_weight(value) for _, value in values), 0.0], np.float32)
            self._known = len(values)
        count = len(self._knobs)
        parts: list[NDArray[np.generic]] = []
        for k, table in enumerate(self._tables):
            parts += [table[choices[:, k]], excess[:, k : k + 1]]
        parts.append(excess.sum(axis=1, keepdims=True))
        others = self._weights[choices[:, count:]]
        parts += [others[:, i::_SHARED].sum(axis=1, keepdims=True) for i in range(_SHARED)]
        parts.append(excess[:, count:].sum(axis=1, keepdims=True))
        return np.concatenate(parts, axis=1).astype(np.float32)


class _Layout:
    """The columns of one knob."""

    def __init__(self, values: Sequence[Value]) -> None:
        rows = [entries(value) for value in values]
        self.width = max(map(len, rows), default=0)
        words = {e for row in rows for e in row if isinstance(e, str)}
        self.words = {word: self.width + i for i, word in enumerate(sorted(words))}
        self.has_product = self.width > 1

    @property
    def names(self) -> list[str]:
        own = [str(i) for i in range(self.width)]
        return [*own, *self.words, *(["product"] if self.has_product else [])]

    def table(self, values: Sequence[tuple[str, Value]]) -> Floats:
        """Return a row for each of all choices, and a last one of zeros (what -1 picks)."""
        width = self.width + len(self.words) + self.has_product
        table = np.zeros((len(values) + 1, width), np.float32)
        for row, (_, value) in zip(table, values, strict=False):
            for column, entry in enumerate(entries(value)[: self.width]):
                if not isinstance(entry, str):
                    row[column] = size_number(entry)
                elif entry in self.words:
                    row[self.words[entry]] = 1.0
            if self.has_product:
                row[-1] = row[: self.width].sum()
        return table


def _weight(value: Value) -> float:
    """Return a value as one number that is not 0."""
    numbers = (0.5 * len(e) if isinstance(e, str) else size_number(e) for e in entries(value))
    return 1.0 + sum(numbers)
