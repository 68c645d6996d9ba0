# SPDX-License-Identifier: Apache-2.0
"""Networks of 8-bit integers give the integers of the standard's reference, on every target."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import treadle
from treadle.target.host import why_not_here


def number(value: object, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def small(dtype: str, *shape: int) -> np.ndarray:
    limits, chance = np.iinfo(dtype), np.random.default_rng(sum(shape))
    return chance.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    outputs: dict[str, int],
    weights: list[onnx.TensorProto],
) -> onnx.ModelProto:
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    made = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    graph = helper.make_graph(nodes, "g", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def images(dtype: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return three convolutions of integers, the first of an image, and a product at the end.

    The scales are powers of two and the zero points even: so that it makes no difference in which
    order they are multiplied, and whether halves are rounded before a zero point is added.
    """
    zero = 130 if dtype == "uint8" else -8

    def conv(x: str, w: str, y: str, **attrs: object) -> onnx.NodeProto:
        names = [x, "s", "z", w, "t", "zw", "u", "z"]
        return helper.make_node("QLinearConv", names, [y], **attrs)

    nodes = [
        conv("x", "w1", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        conv("a", "w2", "b", pads=[1, 1, 1, 1]),
        conv("b", "w3", "c"),
        helper.make_node("Reshape", ["c", "rows"], ["d"]),
        helper.make_node("QLinearMatMul", ["d", "s", "z", "w4", "t", "zw", "u", "z"], ["y"]),
    ]
    weights = [
        number(np.float32(2**-6), "s"), number(np.float32(2**-7), "t"), number(np.float32(1), "u"),
        number(np.array(zero, dtype), "z"), number(np.int8(0), "zw"),
        number(small("int8", 16, 3, 3, 3), "w1"), number(small("int8", 24, 16, 3, 3), "w2"),
        number(small("int8", 10, 24, 1, 1), "w3"), number(small("int8", 640, 17), "w4"),
        number(np.array([1, -1]), "rows"),
    ]  # fmt: skip
    x = {"x": small(dtype, 1, 3, 16, 16)}
    kind = TensorProto.UINT8 if dtype == "uint8" else TensorProto.INT8
    return model(nodes, x, {"y": kind, "b": kind}, weights), x


def products(weights: str, zero: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return products of integers with zero points given at run time and with the weights."""
    inputs = {"x": small("uint8", 37, 70), "z": np.array(200, "uint8")}
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w", "z", "zw"], ["y"]),
        helper.make_node("MatMulInteger", ["x", "w"], ["p"]),
    ]
    constants = [number(small(weights, 70, 33), "w"), number(np.array(zero, weights), "zw")]
    return model(nodes, inputs, {"y": TensorProto.INT32, "p": TensorProto.INT32}, constants), inputs


CASES = {
    "images uint8": lambda: images("uint8"),
    "images int8": lambda: images("int8"),
    "signed weights": lambda: products("int8", 0),
    "weights with a zero": lambda: products("int8", -3),
    "weights without a sign": lambda: products("uint8", 128),
    "weights of nine bits": lambda: products("uint8", 3),
}
TARGETS = ("llvm", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3")
USES = [(case, target) for case in CASES for target in TARGETS]
USES += [("images uint8", "llvm -mcpu=x86-64"), ("images uint8", "c"), ("signed weights", "c")]


@pytest.mark.parametrize(("case", "target"), USES)
def test_integers_are_those_of_the_reference(case: str, target: str) -> None:
    if target == "c" and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    if why_not_here(treadle.parse_target(target)):
        pytest.skip("this machine cannot run code for the target")
    made, inputs = CASES[case]()
    wanted = ReferenceEvaluator(made).run(None, inputs)
    got = treadle.compile(made, target=target).run(inputs)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), theirs)
