# SPDX-License-Identifier: Apache-2.0
"""Movement operators against onnxruntime and NumPy, their types, guards and error texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.moved import count, reads, run, variable
from tests.ops.oracle import run_onnx_node
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Call
from treadle.ops import movement as m

# concat, split, slice


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8, 13])
def test_concat_of_any_number(parts: int) -> None:
    xs = [count(2, k % 3 + 1, 2) + 100 * k for k in range(parts)]
    np.testing.assert_array_equal(run(m.concat, *xs, axis=1), np.concatenate(xs, 1))


def test_concat_tests_few_bounds() -> None:
    assert m.concat.compute is not None
    made = m.concat.compute(m.AxisAttrs(0), *(te.placeholder((1,), name="x") for _ in range(64)))
    assert isinstance(made, te.Tensor)
    assert isinstance(made.op, te.ComputeOp)
    depth, e = 0, made.op.body[0]
    while isinstance(e, nodes.Select):
        depth, e = depth + 1, e.then
    assert depth == 6


def test_concat_with_symbolic_extents() -> None:
    n = Symbol("n")
    found = m.concat(variable(n, 3), variable(2, 3), axis=0).type
    assert str(found) == "float32[(n + 2), 3]"


def test_split_gives_a_tuple() -> None:
    x = count(7, 2)
    call = m.split(variable(7, 2), sections=(4, 3), axis=0)
    assert str(call.type) == "(float32[4, 2], float32[3, 2])"
    parts = m.split.reference(call.attrs, x)
    np.testing.assert_array_equal(np.concatenate(parts), x)


@pytest.mark.parametrize(
    ("begin", "end", "stride"),
    [(0, 9, 1), (2, 7, 1), (2, 8, 3), (8, -1, -1), (7, 0, -2), (8, 8, 1), (4, 4, -1), (3, 4, 9)],
)
def test_slice_is_a_python_range(begin: int, end: int, stride: int) -> None:
    found = run(m.slice_, count(2, 9), begin=[begin], end=[end], strides=[stride], axes=[1])
    np.testing.assert_array_equal(found, count(2, 9)[:, list(range(begin, end, stride))])


# pad


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("before", "after"), [((0, 1), (0, 2)), ((2, 3), (3, 0)), ((-1, 2), (1, -2)), ((0, 0), (0, 0))]
)
def test_pad_is_what_onnxruntime_computes(
    mode: str, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    if mode == "wrap" and min(before + after) < 0:
        pytest.skip("onnxruntime wraps before it crops; NumPy and Treadle have one rule for all")
    x = count(4, 5)
    pads = np.array(before + after, np.int64)
    inputs: list[np.ndarray | None] = [x, pads]
    if mode == "constant":
        inputs.append(np.array(7, np.float32))
    expected = run_onnx_node("Pad", inputs, {"mode": mode})
    found = run(m.pad, x, before=before, after=after, mode=mode, value=7.0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge"])
@pytest.mark.parametrize("extent", [1, 2, 3, 5])
def test_wide_pads_go_on_periodically(mode: str, extent: int) -> None:
    x = count(extent)
    found = run(m.pad, x, before=(11,), after=(13,), mode=mode)
    np.testing.assert_array_equal(found, np.pad(x, (11, 13), mode=mode))  # type: ignore[call-overload]


def test_crops_meet_no_condition() -> None:
    assert m.pad.compute is not None
    made = m.pad.compute(m.PadAttrs((-1, 0), (0, -2)), te.placeholder((4, 5), name="x"))
    assert isinstance(made, te.Tensor)
    assert reads(made) == "x[(i0 + 1), i1]"


# gather and friends


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [-3, -1, 0, 2])
def test_trilu_is_what_onnxruntime_computes(upper: bool, k: int) -> None:
    x = count(2, 4, 3) + 1
    expected = run_onnx_node("Trilu", [x, np.array(k, np.int64)], {"upper": int(upper)})
    np.testing.assert_array_equal(run(m.trilu, x, upper=upper, k=k), expected)


ERRORS: dict[str, Callable[[], Call]] = {
    "do not concatenate along axis 0": lambda: m.concat(variable(2, 3), variable(2, 4), axis=0),
    "concat takes at least one": lambda: m.concat(axis=0),
    "a scalar has no axes": lambda: m.concat(variable(), axis=0),
    "add up to 5": lambda: m.split(variable(6), sections=(2, 3)),
    "missing 1 required positional argument: 'sections'": lambda: m.split(variable(6)),
    "positions 0 to 7 by 1 are outside axis 0": lambda: m.slice_(variable(6), begin=[0], end=[7]),
    "positions 6 to -1 by -1": lambda: m.slice_(variable(6), begin=[6], end=[-1], strides=[-1]),
    "do not give every axis one value": lambda: m.slice_(
        variable(6, 6), begin=[0, 0], end=[1, 1], axes=[0, 0]
    ),
    "a stride of 0": lambda: m.slice_(variable(6), begin=[0], end=[1], strides=[0]),
    "must be known here": lambda: m.slice_(variable(Symbol("n")), begin=[0], end=[1]),
    "do not match the axes": lambda: m.pad(variable(6, 2), before=[1], after=[0]),
    "'mirror' is not a pad mode": lambda: m.pad(variable(6), before=[1], after=[0], mode="mirror"),
    "1.5 is not an element of int8": lambda: m.pad(
        variable(6, dtype="int8"), before=[1], after=[0], value=1.5
    ),
    "no element to pad with": lambda: m.pad(variable(0), before=[1], after=[0], mode="edge"),
    "a dimension cannot be -1": lambda: m.pad(variable(2), before=[-2], after=[-1]),
    "do not fit the axes": lambda: m.tile(variable(2), repeats=(2, 2)),
    "takes matrices": lambda: m.trilu(variable(2)),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_wrong(text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        ERRORS[text]()
