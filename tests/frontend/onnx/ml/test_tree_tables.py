# SPDX-License-Identifier: Apache-2.0
"""TreeEnsembleRegressor and TreeEnsembleClassifier, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.onnx.models import check_with_onnxruntime, outputs_of
from treadle.build.compile import compile_model
from treadle.errors import ModelError
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.nodes import Call, Constant, topological
from treadle.ops.trees import walk_trees

RNG = np.random.default_rng(11)
DOMAIN = "ai.onnx.ml"
FEATURES = 4
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")

Attributes = dict[str, object]


def _forest(
    what: str,
    targets: list[tuple[int, ...]],
    *,
    depth: int | tuple[int, ...] = 2,
    low: float = -1.0,
    modes: int = 1,
) -> Attributes:
    """Return trees as tables; leaves of tree k weigh `targets[k]`. Several depths take turns."""
    depths = depth if isinstance(depth, tuple) else (depth,)
    nodes = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes += ("missing_value_tracks_true",)
    leaves = ("treeids", "nodeids", "ids", "weights")
    columns: dict[str, list[object]] = {f"nodes_{n}": [] for n in nodes}
    columns |= {f"{what}_{n}": [] for n in leaves}
    for tree, weighed in enumerate(targets):
        first_leaf = 2 ** depths[tree % len(depths)] - 1
        for k in range(2 * first_leaf + 1):
            is_leaf = k >= first_leaf
            feature = 0 if is_leaf else int(RNG.integers(FEATURES))
            split = 0.0 if is_leaf else float(RNG.uniform(-1, 1))
            mode = "LEAF" if is_leaf else MODES[RNG.integers(modes)]
            ways = (0, 0) if is_leaf else (2 * k + 1, 2 * k + 2)
            row = (tree, k, feature, split, mode, *ways, int(RNG.integers(2)))
            for name, value in zip(nodes, row, strict=True):
                columns[f"nodes_{name}"].append(value)
            for target in weighed if is_leaf else ():
                weight = float(RNG.uniform(low, 1))
                for name, value in zip(leaves, (tree, k, target, weight), strict=True):
                    columns[f"{what}_{name}"].append(value)
    return dict(columns)


def _model(kind: str, x: np.ndarray, outputs: list[str], **attributes: object) -> onnx.ModelProto:
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], outputs, domain=DOMAIN, **attributes)],
        "trees",
        [helper.make_tensor_value_info("x", number, ["n", x.shape[1]])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.fixture
def rows() -> np.ndarray:
    x = RNG.uniform(-1, 1, (40, FEATURES)).astype("float32")
    x[3, 1] = np.nan
    return x


def _check(model: onnx.ModelProto, x: np.ndarray) -> None:
    fixed = onnx.ModelProto.FromString(model.SerializeToString())
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = x.shape[0]
    check_with_onnxruntime(fixed, {"x": x})


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("depth", [0, 3])
def test_regressor(how: str, depth: int, rows: np.ndarray) -> None:
    forest = _forest("target", [(0, 1)] * 5, depth=depth)
    base = {"base_values": [0.5, 1.0]} if how in ("SUM", "AVERAGE") else {}
    attributes = forest | base | {"aggregate_function": how, "n_targets": 2}
    _check(_model("TreeEnsembleRegressor", rows, ["y"], **attributes), rows)


def test_trees_of_like_depth_are_walked_together(rows: np.ndarray) -> None:
    trees = _forest("target", [(k % 3,) for k in range(60)], depth=(1, 5, 2, 0, 3))
    model = _model("TreeEnsembleRegressor", rows, ["y"], n_targets=3, **trees)
    _check(model, rows)
    nodes = topological([import_onnx(model).module.main.body])
    (walk,) = (n for n in nodes if isinstance(n, Call) and n.op is walk_trees)
    steps = walk.args[3]
    assert isinstance(steps, Constant)
    assert steps.value.tolist() == [2, 5, 3, 5, 5]  # of 12 trees: by target, then by depth


def test_regressor_with_every_test_and_a_target_per_tree(rows: np.ndarray) -> None:
    forest = _forest("target", [(0,)] * 7, depth=3, modes=4)
    _check(_model("TreeEnsembleRegressor", rows, ["y"], n_targets=1, **forest), rows)
    forest = _forest("target", [(k % 3,) for k in range(6)])
    _check(_model("TreeEnsembleRegressor", rows, ["y"], n_targets=3, **forest), rows)
    wide = rows.astype("float64") + 1e-12
    _check(_model("TreeEnsembleRegressor", wide, ["y"], n_targets=3, **forest), wide)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classifier(post: str, rows: np.ndarray) -> None:
    names = ["label", "scores"]
    forest = _forest("class", [(k % 3,) for k in range(6)])
    three = {"classlabels_int64s": [4, 7, 9], "base_values": [0.1, 0.2, 0.3], **forest}
    _check(_model("TreeEnsembleClassifier", rows, names, post_transform=post, **three), rows)
    for used in (0, 1):
        for low in (0.0, -1.0):
            two = {"classlabels_int64s": [4, 7], **_forest("class", [(used,)] * 2, low=low)}
            model = _model("TreeEnsembleClassifier", rows, names, post_transform=post, **two)
            _check(model, rows)


def test_trees_run_compiled_at_every_number_of_rows(rows: np.ndarray) -> None:
    model = _model("TreeEnsembleRegressor", rows, ["y"], **_forest("target", [(0,)] * 3))
    executable = compile_model(model, dynamic=True)
    for count in (1, 40):
        (found,) = executable(rows[:count])
        fixed = onnx.ModelProto.FromString(model.SerializeToString())
        fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = count
        (wanted,) = outputs_of(fixed, {"x": rows[:count]})
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)


def test_mistakes_are_told(rows: np.ndarray) -> None:
    forest = _forest("target", [(0,)])
    for changed, said in (
        ({"target_nodeids": [0] * 4}, "name no leaf"),
        ({"nodes_truenodeids": [9] * 7}, "describe no trees"),
        ({"nodes_nodeids": [1] * 7}, "two nodes of one number"),
        ({"nodes_values": [1.0]}, "differ in length"),
    ):
        with pytest.raises(ModelError, match=said):
            import_onnx(_model("TreeEnsembleRegressor", rows, ["y"], **forest | changed))
    attributes = _forest("class", [(0,)]) | {"classlabels_strings": ["a", "b"]}
    with pytest.raises(ModelError, match="with strings is not supported"):
        import_onnx(_model("TreeEnsembleClassifier", rows, ["label", "scores"], **attributes))
