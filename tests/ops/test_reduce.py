# SPDX-License-Identifier: Apache-2.0
"""Reductions against onnxruntime and NumPy, the rounding error of sums, stages and error texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.oracle import run_onnx_node, te_result
from tests.te_eval import evaluate
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Var as Symbol
from treadle.expr.traversal import walk
from treadle.graph.nodes import Call, Var
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType
from treadle.ops import reduce as r

ONNX = {
    "ReduceSum": r.sum_,
    "ReduceMean": r.mean,
    "ReduceProd": r.prod,
    "ReduceMax": r.max_,
    "ReduceMin": r.min_,
}


def variable(*shape: object, dtype: str = "float32") -> Var:
    return Var("x", TensorType(shape, dtype))  # type: ignore[arg-type]


def both(op: Operator, x: np.ndarray, **attrs: object) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Return what the reference and the te compute of an operator give."""
    record = op.make_attrs(attrs)
    return [op.reference(record, x), te_result(op, record, [x])]


def stages_of(op: Operator, *shape: int, **attrs: object) -> list[te.Tensor]:  # type: ignore[type-arg]
    assert op.compute is not None
    made = op.compute(op.make_attrs(attrs), te.placeholder(shape, name="x"))
    return [made] if isinstance(made, te.Tensor) else list(made)


@pytest.mark.parametrize("kind", ONNX)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2), (2,)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_reductions_are_what_onnxruntime_computes(
    kind: str, keepdims: bool, axes: tuple[int, ...], dtype: type
) -> None:
    x = np.random.default_rng(5).uniform(-3, 3, (3, 4, 5)).astype(dtype)
    inputs: list[np.ndarray | None] = [x, np.array(axes, np.int64)]
    expected = run_onnx_node(kind, inputs, {"keepdims": int(keepdims)}, opset=18)
    for found in both(ONNX[kind], x, axes=axes, keepdims=keepdims):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("select_last", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_arg_reductions_are_what_onnxruntime_computes(
    kind: str, select_last: bool, axis: int
) -> None:
    x = np.random.default_rng(5).integers(-2, 3, (70, 80)).astype(np.float32)
    attrs: dict[str, object] = {"axis": axis, "select_last_index": int(select_last)}
    expected = run_onnx_node(kind, [x], {**attrs, "keepdims": 0}, result_type=7)
    op = r.argmax if kind == "ArgMax" else r.argmin
    for found in both(op, x, axis=axis, select_last=select_last):
        np.testing.assert_array_equal(found, expected)


def test_a_nan_wins_like_in_numpy() -> None:
    x = np.float32([[1, np.nan, 3], [np.nan, np.nan, np.inf], [3, 2, 1]])
    for found in both(r.max_, x, axes=(1,)):
        np.testing.assert_array_equal(found, [np.nan, np.nan, 3])
    for found in both(r.argmin, x, axis=1):
        assert found.tolist() == [1, 0, 2]


def test_rows_of_infinity_have_a_position() -> None:
    for sign, op in ((-1, r.argmax), (1, r.argmin)):
        for found in both(op, np.full((2, 100), sign * np.inf, np.float32), axis=1):
            assert found.tolist() == [0, 0]


def test_integer_means_truncate_and_do_not_overflow() -> None:
    x = np.array([[-3, -4], [3, 4], [127, 127], [-128, -128]], np.int8)
    for found in both(r.mean, x, axes=(1,)):
        assert found.tolist() == [-3, 3, 127, -128]


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [
        (r.sum_, np.float32, 0),
        (r.prod, np.int32, 1),
        (r.max_, np.float32, -np.inf),
        (r.max_, np.uint8, 0),
        (r.min_, np.int8, 127),
        (r.min_, np.bool_, True),
        (r.mean, np.int32, 0),
        (r.mean, np.float32, np.nan),
    ],
)
def test_reductions_of_nothing(op: Operator, dtype: type, value: float) -> None:  # type: ignore[type-arg]
    for found in both(op, np.zeros((2, 0), dtype), axes=(1,)):
        np.testing.assert_array_equal(found, np.full(2, value, dtype))


@pytest.mark.parametrize("n", [65, 100, 128, 197, 1000, 4099, 65536, 1000003])
@pytest.mark.parametrize("kind", ["positive", "normal", "cancelling"])
def test_long_sums_are_accurate_in_any_loop_order(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    x = rng.uniform(0, 1, n) if kind == "positive" else rng.normal(size=n)
    if kind == "cancelling":
        x[: n // 2] += 1e3
        x[-(n // 2) :] -= 1e3
    x = x.astype(np.float32)
    exact, size = np.sum(x, dtype=np.longdouble), np.sum(np.abs(x), dtype=np.float64)
    found = te_result(r.sum_, r.ReduceAttrs((0,)), [x])
    assert abs(float(found - exact)) <= 2.0**-24 * (8 + np.log2(n)) * size


def test_the_plain_loop_would_not_be_accurate() -> None:
    x = np.random.default_rng(1).uniform(0, 1, 1000000).astype(np.float32)
    naive = float(np.add.accumulate(x)[-1])
    exact = float(np.sum(x, dtype=np.float64))
    assert abs(naive - exact) > 2.0**-24 * (8 + np.log2(x.size)) * exact


@pytest.mark.parametrize("shape", [(3000, 5), (70, 90), (3, 50, 60), (2, 3, 112, 112)])
def test_sums_along_other_axes_are_accurate(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).uniform(0, 1, shape).astype(np.float32)
    for axes in ((0,), tuple(range(1, len(shape))), tuple(range(len(shape)))):
        found = te_result(r.sum_, r.ReduceAttrs(axes), [x])
        exact = x.sum(axes, dtype=np.float64)
        n = np.prod([shape[k] for k in axes])
        assert np.all(np.abs(found - exact) <= 2.0**-24 * (8 + np.log2(n)) * exact)


def test_half_sums_are_rounded_once() -> None:
    x = np.random.default_rng(4).uniform(0, 1, (4, 3000)).astype(np.float16)
    exact = x.sum(1, dtype=np.float64)
    for op, wanted in ((r.sum_, exact), (r.mean, exact / 3000)):
        found = te_result(op, r.ReduceAttrs((1,)), [x])
        np.testing.assert_array_equal(found, wanted.astype(np.float16))


def test_no_accumulator_takes_many_elements() -> None:
    for shape in ((1000000,), (300, 300), (12345, 3), (7, 3, 300, 5)):
        for stage in stages_of(r.sum_, *shape, axes=tuple(range(len(shape)))):
            assert isinstance(stage.op, te.ComputeOp)
            terms = [nodes.int_value(a.extent) or 0 for a in stage.op.reduce_axis]
            assert np.prod(terms) <= 256


def test_a_dividing_row_has_no_condition() -> None:
    stages = stages_of(r.sum_, 2, 768, axes=(1,))
    assert [str(t.shape[-1]) for t in stages[:-1]] == ["64", "16", "8", "4", "2"]
    for stage in stages:
        assert isinstance(stage.op, te.ComputeOp)
        assert not any(isinstance(n, nodes.Select) for n in walk(stage.op.body[0]))


def test_the_last_turn_of_other_rows_is_guarded() -> None:
    part, *_ = stages_of(r.sum_, 2, 197, axes=(1,))
    assert isinstance(part.op, te.ComputeOp)
    assert any(isinstance(n, nodes.Select) for n in walk(part.op.body[0]))


def test_axes_that_lie_together_are_one_run() -> None:
    for op in (r.mean, r.max_):
        assert [str(d) for d in stages_of(op, 1, 8, 7, 7, axes=(2, 3))[0].shape] == [
            *("1", "8", "1", "16")
        ]


def test_small_spatial_axes_of_blocks_are_one_stage() -> None:
    assert len(stages_of(r.mean, 1, 8, 7, 7, 16, axes=(2, 3))) == 2  # the sum, the quotient
    assert len(stages_of(r.max_, 1, 8, 7, 7, 16, axes=(2, 3))) == 1


def test_symbolic_extents_reduce_in_one_stage() -> None:
    n = Symbol("n")
    call = r.mean(variable(n, 3), axes=(0,))
    assert str(call.type) == "float32[3]"
    assert r.mean.compute is not None
    x = te.placeholder((n, 3), name="x")
    stages = r.mean.compute(call.attrs, x)
    assert isinstance(stages, list)
    bodies = [str(s.op.body[0]) for s in stages if isinstance(s.op, te.ComputeOp)]
    assert bodies == ["sum(x[r0, i0], [r0: n])", "(mean[i0] / float32(n))"]


def test_the_evaluator_combines_one_by_one() -> None:
    # The oracle of these tests itself: a plain reduction shows the error of a plain loop.
    x = te.placeholder((9000,), name="x")
    k = te.reduce_axis((0, 9000), "k")
    y = te.compute_one((), lambda: te.sum(x[k], k), "y")
    data = np.full(9000, 0.1, np.float32)
    (found,) = evaluate([y], {x: data})
    assert found == np.add.accumulate(data)[-1]


ERRORS: dict[str, Callable[[], Call]] = {
    "axes=\\(0, 0\\) name an axis twice": lambda: r.sum_(variable(2), axes=(0, 0)),
    "axis 1 is out of range for 1 dimensions": lambda: r.max_(variable(2), axes=(1,)),
    "axis -1 is out of range": lambda: r.mean(variable(2), axes=(-1,)),
    "the input has element type bool": lambda: r.sum_(variable(2, dtype="bool"), axes=(0,)),
    "has no element to find": lambda: r.argmax(variable(2, 0), axis=1),
    "a scalar has no axes": lambda: r.argmin(variable(), axis=0),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_wrong(text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        ERRORS[text]()
