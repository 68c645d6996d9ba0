# SPDX-License-Identifier: Apache-2.0
"""Movement operators against onnxruntime and NumPy, their types, guards and error texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.oracle import run_onnx_node, te_result
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Call, Var
from treadle.graph.operator import Operator
from treadle.graph.types import Dim, TensorType, as_dim
from treadle.ops import indexing, reshaping
from treadle.ops import movement as m


def variable(*shape: object, dtype: str = "float32") -> Var:
    return Var("x", TensorType(shape, dtype))  # type: ignore[arg-type]


def count(*shape: int) -> np.ndarray:
    """Return an array whose elements are all different."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def run(op: Operator, *arrays: np.ndarray, **attrs: object) -> np.ndarray:  # type: ignore[type-arg]
    """Return what the te compute gives, after checking that the reference gives the same."""
    record = op.make_attrs(attrs)
    found = te_result(op, record, list(arrays))
    np.testing.assert_array_equal(found, op.reference(record, *arrays))
    return found


def reads(tensor: te.Tensor) -> str:
    """Return the body of a compute as text."""
    assert isinstance(tensor.op, te.ComputeOp)
    return str(tensor.op.body[0])


# reshape


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


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_is_what_onnxruntime_computes(axis: int) -> None:
    x, at = count(3, 4, 5), np.array([[0, -1], [2, -3]], np.int64)
    expected = run_onnx_node("Gather", [x, at], {"axis": axis})
    np.testing.assert_array_equal(run(indexing.gather, x, at, axis=axis), expected)


def test_gather_elements_is_what_onnxruntime_computes() -> None:
    x, at = count(3, 4), np.array([[0, -1, 2], [1, 1, -4]], np.int64)
    expected = run_onnx_node("GatherElements", [x, at], {"axis": 1})
    np.testing.assert_array_equal(run(indexing.gather_elements, x, at, axis=1), expected)


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_gather_nd_is_what_onnxruntime_computes(batch_dims: int) -> None:
    x, at = count(2, 3, 4), np.array([[[0, 1], [1, -1]], [[-2, 2], [0, 0]]], np.int64)
    expected = run_onnx_node("GatherND", [x, at], {"batch_dims": batch_dims})
    np.testing.assert_array_equal(run(indexing.gather_nd, x, at, batch_dims=batch_dims), expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.uint64])
def test_no_index_reads_outside(dtype: type) -> None:
    info = np.iinfo(dtype)
    at = np.array([info.min, info.max, 4, 5], dtype)  # the evaluator rejects reads outside
    assert run(indexing.gather, count(5, 2), at, axis=0)[2:].tolist() == [[8, 9], [8, 9]]


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [-3, -1, 0, 2])
def test_trilu_is_what_onnxruntime_computes(upper: bool, k: int) -> None:
    x = count(2, 4, 3) + 1
    expected = run_onnx_node("Trilu", [x, np.array(k, np.int64)], {"upper": int(upper)})
    np.testing.assert_array_equal(run(m.trilu, x, upper=upper, k=k), expected)


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
    "do not concatenate along axis 0": lambda: m.concat(variable(2, 3), variable(2, 4), axis=0),
    "concat takes at least one": lambda: m.concat(axis=0),
    "a scalar has no axes": lambda: m.concat(variable(), axis=0),
    "axis 2 is out of range for 2 dimensions": lambda: indexing.gather(
        variable(2, 3), variable(dtype="int64"), axis=2
    ),
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
    "the index has element type float32": lambda: indexing.gather(variable(2), variable(2), axis=0),
    "do not fit float32\\[2, 3\\] along axis 1": lambda: indexing.gather_elements(
        variable(2, 3), variable(3, 3, dtype="int64"), axis=1
    ),
    "too deep": lambda: indexing.gather_nd(variable(2), variable(2, 2, dtype="int64")),
    "differ in their 1 batch": lambda: indexing.gather_nd(
        variable(3, 4), variable(2, 5, 1, dtype="int64"), batch_dims=1
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_wrong(text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        ERRORS[text]()
