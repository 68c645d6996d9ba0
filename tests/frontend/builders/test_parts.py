# SPDX-License-Identifier: Apache-2.0
"""Parts by positions and lengths are NumPy's; what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.frontend.builders.functions import values_of
from treadle.errors import ModelError
from treadle.frontend.builders.parts import (
    padding_of_pairs,
    permuted,
    reversed_axes,
    sequences_reversed_along,
    sliced_by_lengths,
    split_with_rest,
)
from treadle.graph.nodes import Constant, Node

pytestmark = pytest.mark.tiny

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda x: permuted(x, (2, 0, -2), "op"), X.transpose(2, 0, 1)),
        (lambda x: sliced_by_lengths(x, (0, 1, 2), (1, -1, 1)), X[:1, 1:, 2:3]),
        (lambda x: split_with_rest(x, 2, (1, -1, 1))[1], X[:, :, 1:3]),
        (lambda x: reversed_axes(x, (0, -1), "op"), X[::-1, :, ::-1]),
    ],
)
def test_parts_are_numpys(build: Callable[[Node], Node], wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(values_of(build, X), wanted)


def test_sequences_of_any_two_axes_are_reversed() -> None:
    lengths = Constant.of(np.array([1, 3, 2]))
    found = values_of(lambda x: sequences_reversed_along(x, lengths, 2, 1, "op"), X)
    wanted = X.copy()
    for row, length in enumerate((1, 3, 2)):
        wanted[:, row, :length] = X[:, row, :length][:, ::-1]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda x: permuted(x, (0, 1), "op"), r"\[0, 1\] is no permutation of 3 axes"),
        (lambda x: split_with_rest(x, 2, (-1, -1))[0], "more than one part has the size -1"),
        (lambda x: sliced_by_lengths(x, (0,), (1,)), "the slice does not fit"),
        (lambda x: padding_of_pairs(x, (1, 2)), r"the padding \[1, 2\] does not fit"),
        (lambda x: padding_of_pairs(x, (0, 0, 0, 0, 0, -1)), "does not fit"),
        (
            lambda x: sequences_reversed_along(x, Constant.of(np.array([1])), 1, 1, "op"),
            "the axes of time and batch are one",
        ),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[[Node], Node], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        values_of(build, X)
