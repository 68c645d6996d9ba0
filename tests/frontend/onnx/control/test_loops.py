# SPDX-License-Identifier: Apache-2.0
"""A loop is unrolled, or a loop of the plan: by its length, and by what its iterations share."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.frontend.onnx.control.bodies import B, F, N, X, body, declared, model
from tests.frontend.onnx.models import check_with_onnxruntime
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.nodes import Call, topological
from treadle.ops.control import loop


def counted_loop(inner: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Return a loop of 100 iterations whose body begins with `inner`, y from s, and 40 nodes."""
    chain = [helper.make_node("Add", [f"v{k}", "small"], [f"v{k + 1}"]) for k in range(40)]
    renamed = helper.make_node("Mul", ["y", "half"], ["v0"])
    last = [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Abs", ["v40"], ["s2"])]
    constants = {**constants, "small": np.float32(1e-3), "half": np.float32(0.5)}
    nodes = [*inner, renamed, *chain, *last]
    graph = body(nodes, {"i": N, "c": B, "s": F}, {"c2": B, "s2": F}, constants)
    loop = helper.make_node("Loop", ["n", "", "x"], ["z"], body=graph, name="count")
    made = model([loop], [declared("x", F, [4])], {"z": F})
    made.graph.initializer.append(numpy_helper.from_array(np.array(100), "n"))
    return made


def test_long_loops_of_known_length_are_loops_of_the_plan() -> None:
    inner = [
        helper.make_node("Cast", ["i"], ["f"], to=F),
        helper.make_node("Add", ["s", "f"], ["y"]),
    ]
    made = counted_loop(inner, {})
    check_with_onnxruntime(made, {"x": X})
    nodes = list(topological([import_onnx(made).module.main.body]))
    assert len(nodes) < 100
    assert any(isinstance(n, Call) and n.op is loop for n in nodes)


def test_long_loops_whose_iterations_differ_are_unrolled() -> None:
    """The axis that is summed is the number of the iteration, modulo 2."""
    inner = [
        helper.make_node("Mod", ["i", "two"], ["axis"]),
        helper.make_node("Reshape", ["axis", "one"], ["axes"]),
        helper.make_node("Reshape", ["s", "square"], ["table"]),
        helper.make_node("ReduceSum", ["table", "axes"], ["sums"], keepdims=1),
        helper.make_node("Sub", ["table", "sums"], ["rest"]),
        helper.make_node("Reshape", ["rest", "line"], ["y"]),
    ]
    numbers = {"two": 2, "one": [1], "square": [2, 2], "line": [4]}
    made = counted_loop(inner, {n: np.array(v, "int64") for n, v in numbers.items()})
    check_with_onnxruntime(made, {"x": X})
    nodes = list(topological([import_onnx(made).module.main.body]))
    assert len(nodes) > 3_000
