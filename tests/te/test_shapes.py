# SPDX-License-Identifier: Apache-2.0
"""Shapes as users write them, and the names of the axes over them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treadle.dtype import INDEX
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var, int_value
from treadle.te.shapes import as_shape, axis_names

pytestmark = pytest.mark.tiny


def test_numbers_and_sizes_become_extents() -> None:
    n = Var("n", "int32")
    shape = as_shape((2, n), "A")
    assert int_value(shape[0]) == 2
    assert all(e.dtype == INDEX for e in shape)
    assert [int_value(e) for e in as_shape(3, "A")] == [3]
    assert as_shape((), "A") == ()


@pytest.mark.parametrize("dim", [-1, 2.5, Var("x", "float32")], ids=str)
def test_what_is_no_extent_is_refused(dim: object) -> None:
    with pytest.raises(TypeMismatch, match="dimension 1 of A is"):
        as_shape((2, dim), "A")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "names"),
    [(lambda y, x: 0, ["y", "x"]), (lambda *i: 0, ["i0", "i1"]), (lambda n, *i: 0, ["n", "i1"]),
     (lambda y, x, scale=2: 0, ["y", "x"])],
)  # fmt: skip
def test_axes_are_named_by_the_arguments(function: Callable[..., object], names: list[str]) -> None:
    assert axis_names(function, 2) == names
    assert axis_names(function, 2, ("oc", "oh")) == ["oc", "oh"]


def test_another_number_of_arguments_or_names_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="2 dimensions takes 1 arguments"):
        axis_names(lambda i: 0, 2)
    for given in (("a",), ("a", "")):
        with pytest.raises(TypeMismatch, match="the axes of a compute over 2 dimensions"):
            axis_names(lambda *i: 0, 2, given)
