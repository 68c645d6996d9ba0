# SPDX-License-Identifier: Apache-2.0
"""Reshapes read with few divisions, and find what the other extents leave; error texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.moved import count, reads, run, variable
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Call
from treadle.graph.types import Dim, as_dim
from treadle.ops import reshaping


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((2, 3, 4), (4, 3, 2)),
        ((6, 4), (2, 3, 2, 2)),
        ((8, 9), (3, 24)),
        ((1, 2, 1, 3), (2, 1, 1, 3, 1)),
        ((5,), (1, 5, 1)),
        ((2, 2, 2, 9), (8, 3, 3)),
        ((4, 1, 6), (1, 24, 1)),
    ],
)
def test_reshape_keeps_the_order(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    x = count(*old)
    np.testing.assert_array_equal(run(reshaping.reshape, x, shape=new), x.reshape(new))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (("b*4", "n", 16), ("b", 4, "n", 16), "x[((i0 * 4) + i1), i2, i3]"),
        (("b", "n", 64), ("b", "n", 4, 16), "x[i0, i1, ((i2 * 16) + i3)]"),
        (("n", "b", 4, 16), ("b*n", 64), "x[(i0 // b), (i0 % b), (i1 // 16), (i1 % 16)]"),
        (("n", "b*4", 16), ("b", "n*4", 16), "x[(((i0 * (n * 4)) + i1) // (b * 4)), "
         "(((i0 * (n * 4)) + i1) % (b * 4)), i2]"),
    ],
)  # fmt: skip
def test_reshape_matches_axes_by_their_symbolic_sizes(
    old: tuple[object, ...], new: tuple[object, ...], text: str
) -> None:
    b, n = Symbol("b"), Symbol("n")
    sizes = {"b": b, "n": n, "b*4": b * 4, "n*4": n * 4, "b*n": b * n}

    def shape(dims: tuple[object, ...]) -> tuple[Dim, ...]:
        return tuple(as_dim(sizes.get(d, d)) for d in dims)  # type: ignore[call-overload]

    x = te.placeholder(shape(old), "float32", "x")
    assert reshaping.reshape.compute is not None
    made = reshaping.reshape.compute(reshaping.reshape.make_attrs({"shape": shape(new)}), x)
    assert isinstance(made, te.Tensor)
    assert reads(made) == text


@pytest.mark.parametrize(
    ("old", "new", "index"),
    [
        ((2, 3, 4), (2, 12), "x[i0, (i1 // 4), (i1 % 4)]"),
        ((2, 12), (2, 3, 4), "x[i0, ((i1 * 4) + i2)]"),
        ((2, 3), (2, 1, 3), "x[i0, i2]"),
        ((2, 3, 1, 1), (2, 3), "x[i0, i1, 0, 0]"),
    ],
)
def test_reshape_divides_only_where_axes_merge(
    old: tuple[int, ...], new: tuple[int, ...], index: str
) -> None:
    assert reshaping.reshape.compute is not None
    made = reshaping.reshape.compute(reshaping.ShapeAttrs(new), te.placeholder(old, name="x"))
    assert isinstance(made, te.Tensor)
    assert reads(made) == index


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ((2, 3, 4), (-1, 4), "[6, 4]"),
        ((0, 4), (2, -1), "[2, 0]"),
        (("n", 3, 4), ("n", -1), "[n, 12]"),
        (("n", 3, 4), (-1, 12), "[n, 12]"),
        (("n", 3, 4), (-1, 4), "[(n * 3), 4]"),
        (("n", "m"), ("m", -1), "[m, n]"),
        (("n", "m"), (-1, 8), "[((m * n) // 8), 8]"),
    ],
)
def test_reshape_finds_the_missing_extent(
    old: tuple[object, ...], new: tuple[object, ...], result: str
) -> None:
    symbols = {name: Symbol(name) for name in "nm"}
    old, new = (tuple(symbols.get(d, d) for d in s) for s in (old, new))  # type: ignore[call-overload]
    assert str(reshaping.reshape(variable(*old), shape=new).type) == f"float32{result}"


def test_reshape_with_symbolic_rows_reads_them_directly() -> None:
    n = Symbol("n")
    assert reshaping.reshape.compute is not None
    made = reshaping.reshape.compute(
        reshaping.ShapeAttrs((n, 6)), te.placeholder((n, 2, 3), name="x")
    )
    assert isinstance(made, te.Tensor)
    assert reads(made) == "x[i0, (i1 // 3), (i1 % 3)]"


ERRORS: dict[str, Callable[[], Call]] = {
    "more than one -1": lambda: reshaping.reshape(variable(4), shape=(-1, -1)),
    "cannot be reshaped to \\[5\\]: 4 elements against 5": lambda: reshaping.reshape(
        variable(4), shape=(5,)
    ),
    "4 elements do not divide by 3": lambda: reshaping.reshape(variable(4), shape=(-1, 3)),
    "the -1 may be anything": lambda: reshaping.reshape(variable(0), shape=(0, -1)),
    "does not order the 2 axes": lambda: reshaping.transpose(variable(2, 3), perm=(0, 0)),
    "does not broadcast to \\[3\\]": lambda: reshaping.broadcast_to(variable(2, 3), shape=(3,)),
    "the shapes \\[2\\] and \\[3\\] do not broadcast": lambda: reshaping.broadcast_to(
        variable(2), shape=(3,)
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_wrong(text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        ERRORS[text]()
