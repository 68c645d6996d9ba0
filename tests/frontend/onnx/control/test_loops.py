# SPDX-License-Identifier: Apache-2.0
"""A loop is unrolled, or a loop of the plan: by its length, and by what its iterations share."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.frontend.onnx.control.bodies import B, F, N, X, body, declared, model
from tests.frontend.onnx.models import check_with_onnxruntime, outputs_of
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.nodes import Call, Constant, Node, topological
from treadle.ops.control import loop
from treadle.ops.matmul import matmul


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


def test_states_that_a_body_hands_through_are_values_from_outside() -> None:
    """So weights are known, and no iteration copies them."""
    inner = [
        helper.make_node("MatMul", ["s", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s2"]),
        helper.make_node("Identity", ["c"], ["c2"]),
        helper.make_node("Identity", ["w"], ["w1"]),
        helper.make_node("Identity", ["w1"], ["w2"]),
        helper.make_node("Mul", ["s", "s"], ["row"]),
    ]
    states = {"s": F, "w": F, "b": F}
    results = {"c2": B, "s2": F, "w2": F, "b": F, "row": F}
    graph = body(inner, {"i": N, "c": B, **states}, results)
    node = helper.make_node(
        "Loop", ["n", "", "x", "weights", "bias"], ["z", "same", "also", "rows"], body=graph
    )
    given = [declared("x", F, [1, 4]), declared("n", N, []), declared("bias", F, [4])]
    outputs = {"z": F, "same": F, "also": F, "rows": F}
    made = model([node], given, outputs)
    weights = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "weights"))
    bias = np.arange(4, dtype=np.float32)
    given_values = {"x": X[None], "bias": bias}
    check_with_onnxruntime(made, {**given_values, "n": np.array(3)})
    z, same, also, rows = outputs_of(made, {**given_values, "n": np.array(0)})
    for found, wanted in ((z, X[None]), (same, weights), (also, bias)):
        np.testing.assert_array_equal(found, wanted)
    assert rows.shape == (0, 1, 4)
    (call,) = calls_of_loops(made)
    assert call.attrs.states == 1
    (product,) = (n for n in topological([call.attrs.body.body]) if is_product(n))
    assert isinstance(product.args[1], Constant)


def calls_of_loops(made: onnx.ModelProto) -> list[Call]:
    nodes = topological([import_onnx(made).module.main.body])
    return [n for n in nodes if isinstance(n, Call) and n.op is loop]


def is_product(node: Node) -> bool:
    return isinstance(node, Call) and node.op is matmul
