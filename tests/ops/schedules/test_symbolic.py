# SPDX-License-Identifier: Apache-2.0
"""Schedules of operators whose batch, or whose every extent, is only known at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle.ops  # registers the operators
from tests.ops.test_operators import function_of
from tests.target.kernel import native, run
from treadle.build.kernel import Kernel
from treadle.expr.nodes import Var as ExprVar
from treadle.graph.nodes import Function, Var
from treadle.graph.operator import OPERATORS
from treadle.graph.types import TensorType
from treadle.loop.nodes import func_text
from treadle.ops import elementwise
from treadle.target.base import Target
from treadle.target.parse import parse_target

assert treadle.ops

CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("softmax", [(5, 197)], {"axis": 2}),
    ("mean", [(5, 7, 7)], {"axes": (2, 3)}),
    ("sum", [(3, 40)], {"axes": (1,)}),
    ("max_pool", [(3, 9, 20)], {"kernel": (3, 3), "strides": (2, 2), "pads_before": (1, 1)}),
    ("transpose", [(18, 20)], {"perm": (0, 2, 1)}),
    ("relu", [(3, 5)], {}),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("batch", [1, 3])
def test_symbolic_batch(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], batch: int
) -> None:
    op = OPERATORS.get(name)
    assert op is not None
    n = ExprVar("n")
    places = [Var(f"x{k}", TensorType((n, *s), "float32")) for k, s in enumerate(shapes)]
    call = op(*places, **attrs)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((batch, *s)).astype(np.float32) for s in shapes]
    expected = op.reference(call.attrs, *inputs)
    output = np.zeros(expected.shape, np.float32)
    lowered = Kernel(function_of(call), native()).lowered
    run(lowered, [*inputs, output], [batch], workspace=lowered.workspace_bytes)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


Dims = tuple[str | int, ...]
OPEN: list[tuple[str, list[Dims], dict[str, Any], str]] = [
    ("relu", [("n", "s")], {}, "float32"),
    ("relu", [("n", "s")], {}, "int8"),
    ("divide", [("n", "s"), ("n", "s")], {}, "int32"),
    ("softmax", [("n", "s")], {"axis": 1}, "float32"),
    ("sum", [("n", 3, "s", "m")], {"axes": (2, 3)}, "float32"),
    ("sum", [("n", "s", "m")], {"axes": (1,)}, "float32"),
    ("max", [("n", "m", "s")], {"axes": (2,)}, "float32"),
    ("transpose", [("n", "s", 20)], {"perm": (0, 2, 1)}, "float32"),
    ("transpose", [("n", "s", "m")], {"perm": (2, 1, 0)}, "float32"),
    ("matmul", [("n", "s", 8), ("n", 8, "m")], {}, "float64"),
    ("matmul", [("n", "s", "m"), ("n", "m", 20)], {}, "float32"),
    ("max_pool", [(1, "n", "s", "m")],
     {"kernel": (3, 3), "strides": (2, 2), "pads_before": (1, 1), "pads_after": (1, 1)},
     "float32"),
]  # fmt: skip
SIZES = [
    {"n": n, "s": s, "m": m}
    for n, s, m in [
        (1, 1, 1),
        (2, 2, 1),
        (1, 15, 2),
        (3, 16, 7),
        (2, 17, 16),
        (1, 31, 33),
        (1, 61, 5),
    ]
]
EMPTY = [{"n": 0, "s": 5, "m": 3}, {"n": 2, "s": 0, "m": 3}]


def _lesser() -> Target:
    """Return this machine, or one whose masks are those of AVX2 where it has AVX-512."""
    here = native()
    return parse_target("llvm -mcpu=haswell") if here.has("avx512f") else here


@pytest.mark.parametrize("lesser", [False, True], ids=["host", "lesser"])
@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "dtype"), OPEN, ids=[f"{c[0]}-{c[1][0]}-{c[3]}" for c in OPEN]
)
def test_every_extent_open(
    name: str, shapes: list[Dims], attrs: dict[str, Any], dtype: str, lesser: bool
) -> None:
    op = OPERATORS.get(name)
    assert op is not None
    symbols = {c: ExprVar(c) for c in "nsm"}
    places = [
        Var(f"x{k}", TensorType(tuple(symbols.get(str(d), d) for d in s), dtype))  # type: ignore[misc]
        for k, s in enumerate(shapes)
    ]
    call = op(*places, **attrs)
    target = _lesser() if lesser else native()
    kernel = Kernel(function_of(call), target)
    is_reduction = name in ("softmax", "sum", "max", "max_pool")
    for sizes in SIZES + ([] if is_reduction else EMPTY):
        rng = np.random.default_rng(sizes["s"])
        arrays = [
            (1 + 9 * rng.random([sizes.get(str(d), d) for d in s])).astype(dtype)  # type: ignore[misc]
            for s in shapes
        ]
        expected = op.reference(call.attrs, *arrays)
        output = np.zeros(expected.shape, expected.dtype)
        kernel(*arrays, output, sizes={v.name: sizes[v.name] for v in kernel.sizes})
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5, err_msg=str(sizes))


def test_a_costly_element_that_is_read_once_is_evaluated_where_it_is_read() -> None:
    """Of open sizes too: y = sigmoid(x * z) + x is one loop over vectors in order."""
    type_ = TensorType((ExprVar("n"), ExprVar("m")), "float32")
    x, z = Var("x", type_), Var("z", type_)
    body = elementwise.add(elementwise.sigmoid(elementwise.multiply(x, z)), x)
    kernel = Kernel(Function((x, z), body), parse_target("llvm"))
    assert kernel.loop_text().count("parallel(") == 1
    inside = func_text(kernel.lowered).split("parallel(")[1].partition(":\n")[2]
    assert "//" not in inside
    assert " % " not in inside


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_everything_of_a_row_of_symbolic_length_is_in_one_loop(name: str) -> None:
    op = OPERATORS.get(name)
    assert op is not None
    n, length = ExprVar("n"), ExprVar("s")
    call = op(Var("x", TensorType((n, 3, length), "float32")), axis=2)
    kernel = Kernel(function_of(call), native())
    text = kernel.loop_text()
    assert text.count("parallel(") == 1
    assert "vectorized(" in text
    assert "workspace" not in text  # what is computed of a row lies where the result will be
    rng = np.random.default_rng(0)
    for rows, size in ((1, 1), (2, 15), (1, 16), (4, 17), (2, 300)):
        x = rng.standard_normal((rows, 3, size)).astype(np.float32)
        expected = op.reference(call.attrs, x)
        output = np.zeros_like(expected)
        kernel(x, output, sizes={"n": rows, "s": size})
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


def test_a_padded_image_is_walked_row_by_row() -> None:
    """No position asks by division where it is: only a row does."""
    n, h, w = (ExprVar(c) for c in "nhw")
    op = OPERATORS.get("pad")
    assert op is not None
    x = Var("x", TensorType((n, 4, h, w, 16), "float32"))
    sides = (0, 0, 1, 1, 0)
    kernel = Kernel(function_of(op(x, before=sides, after=sides)), parse_target("llvm"))
    text = kernel.loop_text()
    assert "for i3 in range((w + 2))" in text
    assert "// (w + 2)" not in text
    assert "% (w + 2)" not in text


def test_a_matrix_of_open_rows_is_turned_to_the_last_row() -> None:
    x = Var("x", TensorType((ExprVar("n"), ExprVar("s"), 64), "float32"))
    op = OPERATORS.get("transpose")
    assert op is not None
    kernel = Kernel(function_of(op(x, perm=(0, 2, 1))), parse_target("llvm -mcpu=znver4"))
    assert "masked.gather" not in kernel.source()


def test_the_mean_of_an_open_image_is_one_pass_in_order() -> None:
    """Height and width are one long row, whose places in the image nobody asks for."""
    op = OPERATORS.get("mean")
    assert op is not None
    n, h, w = (ExprVar(c) for c in "nhw")
    call = op(Var("x", TensorType((n, 8, h, w), "float32")), axes=(2, 3), keepdims=True)
    kernel = Kernel(function_of(call), native())
    assert kernel.loop_text().count("parallel(") == 1
    assert "workspace" not in kernel.loop_text()
    inside = func_text(kernel.lowered).split("parallel(")[1].partition(":\n")[2]
    assert "// w" not in inside
    assert "% w" not in inside
    rng = np.random.default_rng(0)
    for shape in ((1, 8, 1, 1), (2, 8, 3, 5), (1, 8, 28, 57), (1, 8, 16, 1)):
        x = rng.standard_normal(shape).astype(np.float32)
        output = np.zeros((*shape[:2], 1, 1), np.float32)
        sizes = {"n": shape[0], "h": shape[2], "w": shape[3]}
        kernel(x, output, sizes={v.name: sizes[v.name] for v in kernel.sizes})
        np.testing.assert_allclose(output, x.mean((2, 3), keepdims=True), rtol=1e-5, atol=1e-6)
