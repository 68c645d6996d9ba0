# SPDX-License-Identifier: Apache-2.0
"""Sizes that would lead a read outside of its tensor are refused before a kernel runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import treadle
from treadle.build.loaded import Runnable
from treadle.errors import InputError

EMPTY = "axis {} of what y reads is empty, its result is not"


def model(text: str) -> onnx.ModelProto:
    """Return a model written as text; its nodes are named after their first result."""
    head = '<ir_version: 8, opset_import: ["" : 20]> m '
    proto = parser.parse_model(head + text)
    for node in proto.graph.node:
        node.name = node.output[0]
    return proto


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[str, list[np.ndarray], list[np.ndarray], str]] = {
    "gather": (
        "(float[n, 3] x, int64[k] i) => (float[k, 3] y) { y = Gather(x, i) }",
        [floats(4, 3), np.array([0, -1])],
        [floats(0, 3), np.array([0, 0])],
        EMPTY.format(0),
    ),
    "gather_elements": (
        "(float[n, m] x, int64[k, m] i) => (float[k, m] y) { y = GatherElements(x, i) }",
        [floats(4, 2), np.array([[0, 1], [3, -1], [2, 2]])],
        [floats(0, 2), np.array([[0, 0]])],
        EMPTY.format(0),
    ),
    "gather_elements_of_few_rows": (
        "(float[n, m] x, int64[k, m2] i) => (float[k, m2] y) { y = GatherElements(x, i) }",
        [floats(4, 3), np.array([[0, 1]])],
        [floats(4, 1), np.array([[0, 1]])],
        "y reads 2 elements along axis 1 of a tensor that has 1",
    ),
    "gather_nd": (
        "(float[n, m] x, int64[k, 2] i) => (float[k] y) { y = GatherND(x, i) }",
        [floats(4, 2), np.array([[0, 1], [3, -1]])],
        [floats(4, 0), np.array([[0, 0]])],
        EMPTY.format(1),
    ),
    "pad": (
        "(float[n, m] x) => (float[n, p] y) { p = Constant<value_ints=[0, 2, 0, 1]>()"
        ' y = Pad<mode="reflect">(x, p) }',
        [floats(2, 5)],
        [floats(2, 0)],
        EMPTY.format(1),
    ),
    "resize": (
        "(float[1, 1, h, w] x) => (float[1, 1, 4, 6] y) { s = Constant<value_ints=[1, 1, 4, 6]>()"
        ' y = Resize<mode="linear">(x, , , s) }',
        [floats(1, 1, 3, 5)],
        [floats(1, 1, 3, 0)],
        EMPTY.format(3),
    ),
    "grid_sample": (
        "(float[1, 2, h, w] x, float[1, p, q, 2] g) => (float[1, 2, p, q] y)"
        ' { y = GridSample<padding_mode="border">(x, g) }',
        [floats(1, 2, 3, 4), floats(1, 2, 2, 2)],
        [floats(1, 2, 0, 4), floats(1, 2, 2, 2)],
        EMPTY.format(2),
    ),
    "regions": (
        "(float[n, 2, h, w] x, float[r, 4] b, int64[r] i) => (float[r, 2, 1, 1] y)"
        " { y = RoiAlign<sampling_ratio=2>(x, b, i) }",
        [floats(2, 2, 4, 4), np.float32([[0, 0, 2, 3]]), np.array([1])],
        [floats(0, 2, 4, 4), np.float32([[0, 0, 2, 3]]), np.array([0])],
        EMPTY.format(0),
    ),
    "split": (
        "(float[n, 2] x) => (float[2, 2] y, float[3, 2] z) { s = Constant<value_ints=[2, 3]>()"
        " y, z = Split(x, s) }",
        [floats(5, 2)],
        [floats(4, 2)],
        "y combines tensors of different sizes: 5 and 4",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_positions_brought_inside_need_an_inside(name: str) -> None:
    text, good, bad, message = CASES[name]
    proto = model(text)
    executable = treadle.compile(proto, dynamic=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [i.name for i in session.get_inputs()]
    expected = session.run(None, dict(zip(names, good, strict=True)))
    for made, wanted in zip(executable.run(good), expected, strict=True):
        np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=message):
        executable.run(bad)


def test_an_empty_result_needs_no_elements() -> None:
    executable = treadle.compile(model(CASES["gather"][0]), dynamic=True)
    (made,) = executable.run([floats(0, 3), np.zeros(0, np.int64)])
    assert made.shape == (0, 3)


def test_one_element_is_its_own_reflection() -> None:
    executable = treadle.compile(model(CASES["pad"][0]), dynamic=True)
    (made,) = executable.run([np.float32([[2], [3]])])
    np.testing.assert_array_equal(made.numpy(), np.float32([[2] * 4, [3] * 4]))


def check_branch(runnable: Runnable) -> None:
    rows, places = floats(3, 2), np.array([1, 2])
    np.testing.assert_array_equal(runnable.run([np.array(True), rows, places])[0], rows[1:])
    runnable.run([np.array(False), floats(0, 2), places])
    with pytest.raises(InputError, match="axis 0 of what z/y reads is empty, its result is not"):
        runnable.run([np.array(True), floats(0, 2), places])


def test_a_branch_checks_its_own_reads(tmp_path: Path) -> None:
    branches = (
        "then_branch = a () => (float[k, 2] y) { y = Gather(x, i) },"
        "else_branch = b () => (float[j, 2] w) { w = Neg(x) }"
    )
    text = f"(bool c, float[n, 2] x, int64[k] i) => (float[o, 2] z) {{ z = If<{branches}>(c) }}"
    proto = model(text)
    for attribute in proto.graph.node[0].attribute:
        for node in attribute.g.node:
            node.name = node.output[0]
    executable = treadle.compile(proto, dynamic=True)
    check_branch(executable)
    executable.save(tmp_path / "model.tar")
    check_branch(treadle.load(tmp_path / "model.tar"))
