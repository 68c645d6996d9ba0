# SPDX-License-Identifier: Apache-2.0
"""What a compute may say, and the meaning of reducers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import treadle
from tests.te.scripts import check, data
from treadle import te
from treadle.errors import TypeMismatch
from treadle.te.operations import Tensor

N = te.var("n")
A = te.placeholder((N,), name="A")
B = te.placeholder((10, 4), name="B")


@pytest.mark.parametrize(
    ("shape", "problem"),
    [((2.5,), "dimension 0 of Z is 2.5"), ((3, -1), "dimension 1 of Z is -1")],
)
def test_shapes_are_integers_of_0_or_more(shape: tuple[float, ...], problem: str) -> None:
    for make in (te.placeholder, lambda s, name: te.compute(s, lambda *i: 1.0, name=name)):
        with pytest.raises(treadle.TypeMismatch) as caught:
            make(shape, name="Z")  # type: ignore[operator]
        assert str(caught.value) == f"{problem}\n  hint  extents are integers of 0 or more"


def test_an_index_is_an_integer() -> None:
    with pytest.raises(treadle.TypeMismatch, match=r"A is indexed by float32\(1.5\), a float32"):
        _ = A[te.const(1.5)]


OUTSIDE: dict[str, tuple[Callable[[], object], str]] = {
    "past a symbolic end": (
        lambda: te.compute((N,), lambda i: A[i + 1], name="C"),
        "C reads A[(i + 1)], outside of A[n]: in dimension 0 the index (i + 1) runs from 1 to n",
    ),
    "before the begin": (
        lambda: te.compute((10,), lambda i: B[i - 1, 0], name="C"),
        "C reads B[(i - 1), 0], outside of B[10, 4]: in dimension 0 the index (i - 1) runs from "
        "-1 to 8",
    ),
    "in a reduction": (
        lambda: te.compute((10,), lambda i: te.sum(B[i, K], axis=K), name="C"),
        "C reads B[i, k], outside of B[10, 4]: in dimension 1 the index k runs from 1 to 4",
    ),
    "backwards": (
        lambda: te.compute((N,), lambda i: A[N - i], name="C"),
        "C reads A[(n - i)], outside of A[n]: in dimension 0 the index (n - i) runs from 1 to n",
    ),
}
K = te.reduce_axis((1, 5), "k")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_read_that_is_outside_for_certain(name: str) -> None:
    make, problem = OUTSIDE[name]
    with pytest.raises(treadle.TypeMismatch) as caught:
        make()
    assert caught.value.problem == problem


def test_reads_that_may_be_inside() -> None:
    te.compute((N,), lambda i: te.if_then_else(i < N - 1, A[i + 1], 0.0))
    te.compute((N - 1,), lambda i: A[i + 1])
    te.compute((te.var("m"),), lambda i: A[i + 1])
    te.compute((N,), lambda i: A[(i + 1) % N])
    te.compute((0,), lambda i: B[i + 20, 0])
    k = te.reduce_axis((0, 9), "k")
    te.compute((10,), lambda i: te.sum(B[i, k], axis=k, where=k < 4))


def reduced(function: Callable[..., object]) -> tuple[list[Tensor], str]:
    x, y = te.placeholder((3, 7), name="X"), te.placeholder((3, 7), name="Y")
    k = te.reduce_axis((0, 7), "k")
    c = te.compute((3,), lambda i: function(x[i, k] * y[i, k], axis=k), name="C")
    assert isinstance(c, Tensor)
    schedule = te.create_schedule(c)
    check(schedule, [x, y, c])
    return [x, y, c], str(treadle.lower(schedule, [x, y, c]))


def test_a_maximum_that_is_named_sum() -> None:
    largest = te.comm_reducer(te.max, te.min_value, name="sum")
    (x, y, c), text = reduced(largest)
    assert "fma" not in text
    out = np.zeros(3, "float32")
    treadle.build(te.create_schedule(c), [x, y, c])(data(x), data(y), out)
    np.testing.assert_array_equal(out, (data(x) * data(y)).max(axis=1))


def test_only_the_sum_of_te_contracts() -> None:
    assert "fma" in reduced(te.sum)[1]
    own = te.comm_reducer(lambda p, q: p + q, lambda t: te.const(0, t), name="sum")
    assert "fma" not in reduced(own)[1]
    assert "fma" in str(te.sum.__doc__)


def test_an_empty_tensor_is_read_over_an_axis_that_may_be_empty() -> None:
    a = te.placeholder((0,), name="A")
    b = te.compute((te.var("n"),), lambda i: a[i] * 2.0, name="B")
    assert b.ndim == 1
    with pytest.raises(TypeMismatch, match=r"outside of A\[0\]"):
        te.compute((3,), lambda i: a[i] * 2.0, name="B")


def test_axes_are_called_what_they_are_given() -> None:
    a = te.placeholder((2, 3), name="A")
    named = te.compute(a.shape, lambda *i: a[i] + 1.0, name="B", axes=("row", "column"))
    assert [x.name for x in named.op.axis] == ["row", "column"]
    assert [x.name for x in te.compute(a.shape, lambda i, *j: a[(i, *j)]).op.axis] == ["i", "i1"]
    for axes in (("row",), ("row", "")):
        with pytest.raises(treadle.TypeMismatch) as caught:
            te.compute(a.shape, lambda *i: a[i], name="B", axes=axes)
        assert str(caught.value) == (
            f"the axes of a compute over 2 dimensions are {axes!r}"
            '\n  hint  give one name per dimension: axes=("n", "oc", "oh", "ow")'
        )
