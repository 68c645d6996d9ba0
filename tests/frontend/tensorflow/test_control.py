# SPDX-License-Identifier: Apache-2.0
"""Calls, branches, loops and lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frontend.tensorflow.core.test_conv import FLOAT, values
from tests.frontend.tensorflow.models import Function, Graph, Kind, computed
from treadle.build.reading import from_tensorflow
from treadle.errors import ModelError

INT = Kind("int32")


def run(g: Graph, folder: Path, output: str, **inputs: np.ndarray) -> np.ndarray:
    (made,) = computed(g, folder, inputs, outputs=[output])
    return made


def test_calls_see_their_arguments_and_name_outputs(tmp_path: Path) -> None:
    g = Graph()
    inner = g.function("inner", ["x"])
    best = inner.node("TopKV2", "x", inner.constant(2, "int32") + ":output:0", T=FLOAT)
    inner.results = {"places": f"{best}:indices:0", "best": f"{best}:values:0"}
    outer = g.function("outer", ["x"])
    call = outer.node("StatefulPartitionedCall", "x", f=inner.called())
    outer.results = {"y": f"{call}:output:1"}
    y = g.node("PartitionedCall", g.input("x", (4,)), f=outer.called())
    made = run(g, tmp_path, y, x=np.array([1, 4, 2, 3], "float32"))
    np.testing.assert_array_equal(made, [4, 3])


def branches(g: Graph) -> tuple[Function, Function]:
    """Return the functions of twice a value and of its negative."""
    twice = g.function("twice", ["x"])
    twice.results = {"y": twice.node("AddV2", "x", "x", T=FLOAT) + ":z:0"}
    negative = g.function("negative", ["x"])
    negative.results = {"y": negative.node("Neg", "x", T=FLOAT) + ":y:0"}
    return twice, negative


@pytest.mark.parametrize("op", ["If", "StatelessIf"])
def test_branches(op: str, tmp_path: Path) -> None:
    g = Graph()
    twice, negative = branches(g)
    condition, x = g.input("c", (), "bool"), g.input("x", (3,))
    y = g.node(op, condition, x, then_branch=twice.called(), else_branch=negative.called())
    value = values(3)
    for chosen, expected in ((True, 2 * value), (False, -value)):
        made = run(g, tmp_path, y, c=np.array(chosen), x=value)
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(("index", "factor"), [(0, 2), (1, -1), (7, -1), (-1, -1)])
def test_choices_by_number(index: int, factor: int, tmp_path: Path) -> None:
    g = Graph()
    functions = [f.called() for f in branches(g)]
    y = g.node("Case", g.input("i", (), "int32"), g.input("x", (3,)), branches=functions)
    value = values(3)
    made = run(g, tmp_path, y, i=np.array(index, "int32"), x=value)
    np.testing.assert_array_equal(made, factor * value)


def counted_loop(g: Graph, states: list[str], step: Function, op: str = "While") -> str:
    """Return a loop of as many iterations as the second state says, counted in the first."""
    test = g.function("test", list(step.arguments))
    counter, limit = step.arguments[:2]
    test.results = {"goes_on": test.node("Less", counter, limit, T=INT) + ":z:0"}
    return g.node(op, *states, cond=test.called(), body=step.called())


def next_number(step: Function) -> str:
    one = step.constant(1, "int32") + ":output:0"
    return step.node("AddV2", step.arguments[0], one, T=INT) + ":z:0"


@pytest.mark.parametrize("op", ["While", "StatelessWhile"])
def test_loops_of_computed_length_keep_what_does_not_change(op: str, tmp_path: Path) -> None:
    g = Graph()
    step = g.function("step", ["i", "n", "x", "w"])
    product = step.node("MatMul", "x", step.node("Identity", "w", T=FLOAT) + ":output:0", T=FLOAT)
    step.results = {"i_": next_number(step), "n_": "n", "x_": f"{product}:product:0",
                    "w_": step.node("Identity", "w", T=FLOAT) + ":output:0"}  # fmt: skip
    weights, x = values(3, 3) / 2, values(2, 3)
    states = [g.constant(0, "int32"), g.input("n", (), "int32"), g.input("x", x.shape),
              g.constant(weights)]  # fmt: skip
    y = counted_loop(g, states, step, op) + ":2"
    for n in (0, 1, 4):
        made = run(g, tmp_path, y, n=np.array(n, "int32"), x=x)
        expected = x @ np.linalg.matrix_power(weights, n)
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


def test_lists_are_read_and_written_in_loops(tmp_path: Path) -> None:
    """A recurrent layer as Keras writes it: a running sum of rows, all states kept."""
    g = Graph()
    x = g.input("x", (5, 2, 3))
    unknown = g.constant([-1, 3], "int32")
    rows = g.node("TensorListFromTensor", x, unknown, element_dtype=FLOAT, shape_type=INT)
    five = g.constant(5, "int32")
    kept = g.node("TensorListReserve", unknown, five, element_dtype=FLOAT, shape_type=INT)
    step = g.function("step", ["i", "n", "rows", "kept", "state"])
    shape = step.constant([-1, 3], "int32") + ":output:0"
    item = step.node("TensorListGetItem", "rows", "i", shape, element_dtype=FLOAT) + ":item:0"
    total = step.node("AddV2", "state", item, T=FLOAT) + ":z:0"
    written = step.node("TensorListSetItem", "kept", "i", total, element_dtype=FLOAT)
    step.results = {"i_": next_number(step), "n_": "n", "rows_": "rows",
                    "kept_": f"{written}:output_handle:0", "state_": total}  # fmt: skip
    states = [g.constant(0, "int32"), five, rows, kept, g.constant(np.zeros((2, 3)))]
    loop = counted_loop(g, states, step)
    y = g.node("TensorListStack", f"{loop}:3", unknown, element_dtype=FLOAT, num_elements=5)
    value = values(5, 2, 3)
    made = run(g, tmp_path, y, x=value)
    np.testing.assert_allclose(made, np.cumsum(value, 0), rtol=1e-5, atol=1e-5)


def test_lists_have_lengths_and_are_gathered(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", (3, 2))
    shape = g.constant([2], "int32")
    rows = g.node("TensorListFromTensor", x, shape, element_dtype=FLOAT, shape_type=INT)
    places = g.constant([2, 0], "int32")
    outputs = [
        g.node("TensorListLength", rows),
        g.node("TensorListGather", rows, places, shape, element_dtype=FLOAT),
        g.node("TensorListElementShape", rows, shape_type=INT),
    ]
    value = values(3, 2)
    made = computed(g, tmp_path, {"x": value}, outputs=outputs)
    for found, expected in zip(made, (3, value[[2, 0]], [2]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    g = Graph()
    f = g.function("f", ["x"])
    f.results = {"y": f.node("PartitionedCall", "x", f=f.called()) + ":output:0"}
    g.node("PartitionedCall", g.input("x", (2,)), f=f.called())
    with pytest.raises(ModelError, match="'f' calls itself, or is nested too deeply"):
        from_tensorflow(g.write(tmp_path))


def test_a_list_without_a_shape_is_refused(tmp_path: Path) -> None:
    g = Graph()
    shape = g.constant(-1, "int32")
    rows = g.node("TensorListReserve", shape, g.constant(2, "int32"), element_dtype=FLOAT)
    g.node("TensorListStack", rows, shape, element_dtype=FLOAT, num_elements=-1)
    g.input("x", (2,))
    with pytest.raises(ModelError, match="nothing says what shape its elements have"):
        from_tensorflow(g.write(tmp_path))
