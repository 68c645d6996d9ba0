# SPDX-License-Identifier: Apache-2.0
"""Indices that are data: taken where they exist, refused by node and number where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.errors import InputError, ModelError

INT64, INT32, FLOAT = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT
TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)


def model(
    op: str,
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    constants: Mapping[str, np.ndarray] | None = None,
    **attributes: object,
) -> onnx.ModelProto:
    """One node of all inputs and constants, in the order of their names."""
    names = sorted([*inputs, *(constants or {})])
    node = helper.make_node(op, names, ["y"], name="the_node", **attributes)
    graph = helper.make_graph(
        [node],
        "indices",
        [helper.make_tensor_value_info(n, *t) for n, t in sorted(inputs.items())],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9)


UPDATES = np.full((2, 6), 100, np.float32)
# op, what is indexed, indices that fit, the same with one that does not, other inputs, attributes,
# what the error says
CASES = {
    "gather": ("Gather", [-4, 3], [1, 4], {}, {"axis": 0}, "element 4 of axis 0, which has 4"),
    "gather_axis": ("Gather", [[-6], [5]], [[0], [-7]], {}, {"axis": 1},
                    "element -7 of axis 1, which has 6"),
    "elements": ("GatherElements", [[-4, 3]], [[0, 9]], {}, {"axis": 0},
                 "element 9 of axis 0, which has 4"),
    "nd": ("GatherND", [[-4, 5], [3, -6]], [[0, 0], [0, 6]], {}, {},
           "element 6 of axis 1, which has 6"),
    "nd_batch": ("GatherND", [[0], [1], [2], [-6]], [[0], [1], [2], [6]], {}, {"batch_dims": 1},
                 "element 6 of axis 1, which has 6"),
    "scatter": ("ScatterElements", [[0] * 6, [-4] * 6], [[0] * 6, [4] * 6], {"c": UPDATES},
                {"axis": 0}, "element 4 of axis 0, which has 4"),
    "reverse": ("ReverseSequence", [4, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 0], {},
                {"time_axis": 0, "batch_axis": 1}, "element 4 of axis 0, which has 4"),
    "scatter_nd": ("ScatterND", [[-4], [3]], [[0], [-5]], {"c": UPDATES}, {},
                   "element -5 of axis 0, which has 4"),
}  # fmt: skip


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> tuple[object, ...]:
    return CASES[request.param]


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_does_not_exist_is_refused(
    case: tuple[object, ...], dtype: type, dynamic: bool
) -> None:
    op, good, bad, others, attributes, said = case
    right, wrong = np.array(good, dtype), np.array(bad, dtype)
    if op in ("GatherND", "ReverseSequence", "ScatterND") and dtype is np.int32:
        pytest.skip("the standard has no such type")
    shape: list[int | str] = ["n", *right.shape[1:]] if dynamic else list(right.shape)
    kind = INT64 if dtype is np.int64 else INT32
    inputs = {"a": (FLOAT, ["r", 6] if dynamic else [4, 6]), "b": (kind, shape)}
    if op == "GatherND" and attributes:
        inputs = {"a": (FLOAT, [4, 6]), "b": (kind, right.shape)}
    net = model(str(op), inputs, others, **attributes)  # type: ignore[arg-type]
    exe = treadle.compile(net, dynamic=dynamic)
    loose = treadle.compile(net, dynamic=dynamic, unchecked=True)
    named = {"a": TABLE, "b": right}
    (taken,), (same,) = exe.run(named), loose.run(named)
    assert np.array_equal(np.asarray(taken), np.asarray(same))
    with pytest.raises(InputError, match=f"the_node takes {said}") as caught:
        exe.run({"a": TABLE, "b": wrong})
    assert "give indices from" in str(caught.value)
    loose.run({"a": TABLE, "b": wrong})
    (again,) = exe.run(named)  # a run that failed leaves nothing behind
    assert np.array_equal(np.asarray(again), np.asarray(taken))


def test_constants_are_refused_when_compiling(case: tuple[object, ...]) -> None:
    op, good, bad, others, attributes, _ = case
    for indices in (good, bad):
        constants = {"b": np.array(indices, np.int64), **others}  # type: ignore[dict-item]
        net = model(str(op), {"a": (FLOAT, [4, 6])}, constants, **attributes)  # type: ignore[arg-type]
        if indices is good:
            treadle.compile(net)
            continue
        with pytest.raises(
            ModelError, match=rf"the (index -?\d of {op}|sequence lengths) "
        ) as caught:
            treadle.compile(net)
        assert "the_node" in str(caught.value)


def test_a_position_past_an_open_table_is_refused() -> None:
    net = model("Gather", {"a": (FLOAT, ["n", 6])}, {"b": np.array([0, 2])}, axis=0)
    exe = treadle.compile(net, dynamic=True)
    (rows,) = exe.run({"a": TABLE})
    assert np.array_equal(np.asarray(rows), TABLE[[0, 2]])
    with pytest.raises(InputError, match="the_node takes element 2 of axis 0, which has 2"):
        exe.run({"a": TABLE[:2]})


def test_computed_indices_are_refused_in_branches_loops_and_artifacts(tmp_path: Path) -> None:
    """`table[i + ids]` in the body of a loop, inside the branch of a condition."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["i", "ids"], ["at"]),
            helper.make_node("Gather", ["table", "at"], ["rows"], name="inner", axis=0),
            helper.make_node("Identity", ["c"], ["go_on"]),
        ],
        "body",
        [value("i", INT64, []), value("c", TensorProto.BOOL, [])],
        [value("go_on", TensorProto.BOOL, []), value("rows", FLOAT, None)],
    )
    branches = [
        helper.make_graph(
            [helper.make_node("Loop", ["count", ""], ["taken"], body=body)],
            "then",
            [],
            [value("taken", FLOAT, None)],
        ),
        helper.make_graph(
            [helper.make_node("Identity", ["none"], ["nothing"])],
            "else",
            [],
            [value("nothing", FLOAT, None)],
        ),
    ]
    node = helper.make_node(
        "If", ["which"], ["y"], then_branch=branches[0], else_branch=branches[1]
    )
    graph = helper.make_graph(
        [node],
        "nested",
        [value("which", TensorProto.BOOL, []), value("count", INT64, []), value("ids", INT64, [2]),
         value("table", FLOAT, [4, 6])],
        [value("y", FLOAT, None)],
        [numpy_helper.from_array(np.zeros((0, 2, 6), np.float32), "none")],
    )  # fmt: skip
    net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9)
    exe = treadle.compile(net)
    exe.save(tmp_path / "net.tar")
    for one in (exe, treadle.load(tmp_path / "net.tar")):
        inputs = {"which": np.array(True), "ids": np.array([0, 1]), "table": TABLE}
        (rows,) = one.run({**inputs, "count": np.array(3)})
        assert np.array_equal(np.asarray(rows), TABLE[[[0, 1], [1, 2], [2, 3]]])
        with pytest.raises(InputError, match="inner takes element 4 of axis 0, which has 4"):
            one.run({**inputs, "count": np.array(4)})


def test_what_folds_to_a_constant_is_refused_when_compiling() -> None:
    nodes = [
        helper.make_node("Add", ["one", "two"], ["at"]),
        helper.make_node("Gather", ["a", "at"], ["y"], name="the_node", axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "folded",
        [helper.make_tensor_value_info("a", FLOAT, [4, 6])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.array([n]), name) for n, name in ((3, "one"), (2, "two"))],
    )
    net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9)
    with pytest.raises(ModelError, match="the index 5 of Gather is outside axis 0"):
        treadle.compile(net)


@pytest.mark.parametrize("op", ["Gather", "GatherND"])
def test_the_first_of_many_indices_that_does_not_exist_is_named(op: str) -> None:
    """So many that threads share them."""
    extents = (50, 9, 3) if op == "GatherND" else (50,)
    count, depth = 70_001, len(extents)
    shape = [count, depth] if op == "GatherND" else [count]
    net = model(op, {"a": (FLOAT, extents), "b": (INT64, shape)})
    exe = treadle.compile(net)
    random = np.random.default_rng(0)
    table = random.random(extents, np.float32)
    for place in (0, 32_768, count * depth // 2, count * depth - 1):
        rows = [random.integers(-n, n, count) for n in extents]
        indices = np.stack(rows, -1).reshape(shape)
        (taken,) = exe.run({"a": table, "b": indices})
        assert np.array_equal(np.asarray(taken), table[tuple(rows)])
        axis = place % depth
        indices.reshape(-1)[place] = wrong = -extents[axis] - 1 if place % 2 else extents[axis]
        said = rf"element {wrong} of axis {axis}, which has \d+ \(element {place} of its indices"
        with pytest.raises(InputError, match=said):
            exe.run({"a": table, "b": indices})


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 40])
def test_no_number_is_taken_for_one_inside(dtype: type, count: int) -> None:
    """Those at the ends of the type too, in every place of a vector."""
    limits = np.iinfo(dtype)
    kind = INT64 if dtype is np.int64 else INT32
    exe = treadle.compile(model("Gather", {"a": (FLOAT, [7]), "b": (kind, [count])}))
    table = np.arange(7, dtype=np.float32)
    inside = np.random.default_rng(0).integers(-7, 7, count).astype(dtype)
    (taken,) = exe.run({"a": table, "b": inside})
    assert np.array_equal(np.asarray(taken), table[inside])
    for place in {0, count // 2, count - 1}:
        for wrong in (7, -8, 14, -14, limits.min, limits.min + 7, limits.max, limits.max - 7):
            indices = inside.copy()
            indices[place] = wrong
            with pytest.raises(InputError, match=f"takes element {wrong} of axis 0"):
                exe.run({"a": table, "b": indices})
