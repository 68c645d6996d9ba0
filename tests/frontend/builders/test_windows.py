# SPDX-License-Identifier: Apache-2.0
"""Windows: what is left out is written out once, and padding may depend on symbolic sizes."""

from __future__ import annotations

import pytest

from treadle.errors import ModelError, TypeMismatch
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.windows import (
    padded_to_same,
    padded_where_symbolic,
    window_of,
    with_total_padding,
)
from treadle.graph.nodes import Var
from treadle.graph.types import TensorType

pytestmark = pytest.mark.tiny


def test_what_is_left_out_is_written_out() -> None:
    window = window_of((3, 2), before=(1, 0))
    assert (window.strides, window.dilations) == ((1, 1), (1, 1))
    assert (window.before, window.after) == ((1, 0), (1, 0))
    assert window.extents == (3, 2)
    assert window_of((3, 2), dilations=(2, 3)).extents == (5, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strides": (1,)}, r"strides \[1\] must be one positive number for each of 2 axes"),
        ({"dilations": (1, 0)}, r"dilations \[1, 0\] must be one positive"),
        ({"before": (1, 1, 1)}, r"pads \[1, 1, 1\] must have an entry for each of 2 axes"),
    ],
)
def test_windows_that_do_not_fit_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        window_of((3, 2), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd_first", [False, True])
@pytest.mark.parametrize("total", range(-3, 4))
def test_padding_is_halved_exactly(total: int, odd_first: bool) -> None:
    window = with_total_padding(window_of((3,)), [total], odd_first=odd_first)
    (before,), (after,) = window.known_pads
    assert before + after == total
    assert before - after == total % 2 * (1 if odd_first else -1)


def test_padding_of_a_symbolic_size_becomes_data() -> None:
    size = SizeVar("n", "int64")
    x = Var("x", TensorType((1, 1, size), "float32"))
    window = padded_to_same(window_of((3,), strides=(2,)), (size,), odd_first=True)
    assert not window.has_known_pads
    with pytest.raises(TypeMismatch, match="the padding must be known here"):
        _ = window.known_pads
    data, inner = padded_where_symbolic(x, window, 0.0)
    assert data is not x
    assert inner.known_pads == ((0,), (0,))
    known = window_of((3,), before=(1,))
    assert padded_where_symbolic(x, known, 0.0) == (x, known)
