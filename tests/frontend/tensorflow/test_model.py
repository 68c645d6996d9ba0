# SPDX-License-Identifier: Apache-2.0
"""SavedModels: signatures, variables, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.frontend.tensorflow.models import (
    Graph,
    Kind,
    Texts,
    checkpoint_files,
    saved_model,
)
from treadle.build.reading import from_tensorflow
from treadle.errors import ModelError, UsageError
from treadle.frontend.tensorflow.importer import import_tensorflow

FLOAT, RESOURCE = Kind("float32"), Kind("RESOURCE")
KERNEL = np.arange(6, dtype="float32").reshape(3, 2)


def dense(folder: Path, *, changed_before: bool = False, tag: str = "serve") -> Path:
    """Write a SavedModel as TensorFlow 2 does: one layer, restored by a function."""
    g = Graph()
    x = g.input("serving_default_x", (-1, 3))
    handle = g.node("VarHandleOp", name="handle", shared_name="dense/kernel", dtype=FLOAT)
    g.node("Placeholder", name="saver_filename", dtype=Kind("STRING"))
    f = g.function("forward", ["x", "kernel"])
    after = []
    if changed_before:
        after = ["^" + f.node("AssignVariableOp", "kernel", "x", name="assign", dtype=FLOAT)]
    value = f.node("ReadVariableOp", "kernel", *after, dtype=FLOAT) + ":value:0"
    y = f.node("MatMul", "x", value, T=FLOAT) + ":product:0"
    f.results = {"y": y, "twice": f.node("AddV2", y, y, T=FLOAT) + ":z:0"}
    r = g.function("restore", ["file", "kernel"])
    names = r.node("Const", value=Texts(("variables/7/.ATTRIBUTES/VARIABLE_VALUE",)))
    read = r.node("RestoreV2", "file", f"{names}:output:0", f"{names}:output:0")
    tensor = r.node("Identity", f"{read}:tensors:0", T=FLOAT) + ":output:0"
    r.node("AssignVariableOp", "kernel", tensor, dtype=FLOAT)
    r.results = {"file_": "file"}
    g.node("StatefulPartitionedCall", x, handle, name="forward_call", f=f.called())
    g.node("StatefulPartitionedCall", "saver_filename", handle, name="restore_call", f=r.called())
    path = saved_model(
        folder,
        g,
        {"x": ("serving_default_x:0", "float32", (-1, 3))},
        {f"output_{k}": (f"forward_call:{i}", "float32") for k, i in ((10, 1), (2, 0))},
        restore="restore_call",
        tags=(tag,),
    )
    checkpoint_files(path / "variables", {"variables/7/.ATTRIBUTES/VARIABLE_VALUE": KERNEL})
    return path


@pytest.mark.parametrize("inside", ["", "saved_model.pb"])
def test_signatures_and_variables(inside: str, tmp_path: Path) -> None:
    path = dense(tmp_path / "m") / inside
    module = from_tensorflow(path, {"x": (4, 3)})
    assert [p.name for p in module.main.params] == ["x"]
    assert module.output_names == ("output_2", "output_10")
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    once, twice = (np.asarray(v) for v in treadle.compile(module).run({"x": x}))
    np.testing.assert_allclose(once, x @ KERNEL, rtol=1e-5)
    np.testing.assert_allclose(twice, 2 * (x @ KERNEL), rtol=1e-5)


def test_outputs_and_signatures_are_chosen_by_name(tmp_path: Path) -> None:
    path = dense(tmp_path / "m")
    assert from_tensorflow(path, outputs=["output_10"]).output_names == ("output_10",)
    with pytest.raises(UsageError, match="has no signature 'serve'"):
        from_tensorflow(path, signature="serve")
    with pytest.raises(UsageError, match="has no output 'y'"):
        from_tensorflow(path, outputs=["y"])


def test_a_variable_that_the_model_changes_before_it_reads_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'dense/kernel' is read after it is changed by 'assign'"):
        import_tensorflow(dense(tmp_path / "m", changed_before=True))


def test_a_model_without_its_variables_or_its_tag(tmp_path: Path) -> None:
    path = dense(tmp_path / "m")
    (path / "variables" / "variables.index").unlink()
    with pytest.raises(ModelError, match="the model has no value of it"):
        from_tensorflow(path)
    with pytest.raises(ModelError, match="no graph with the tag 'serve'"):
        from_tensorflow(dense(tmp_path / "train", tag="train"))


def test_a_frozen_graph_has_no_variables(tmp_path: Path) -> None:
    g = Graph()
    handle = g.node("VarHandleOp", name="handle", shared_name="v", dtype=FLOAT)
    g.node("ReadVariableOp", handle, name="y", dtype=FLOAT)
    with pytest.raises(ModelError, match="reads the variable 'v', and has no values") as caught:
        from_tensorflow(g.write(tmp_path), outputs=["y"])
    assert "freeze it" in str(caught.value)


def test_old_variables_are_restored_by_name(tmp_path: Path) -> None:
    """Write a SavedModel as TensorFlow 1 does: assignments behind a node of none."""
    g = Graph()
    x = g.input("x", (2,))
    v = g.node("VariableV2", name="v", dtype=FLOAT)
    y = g.node("AddV2", x, g.node("Identity", v, T=FLOAT), T=FLOAT)
    file = g.node("Const", name="save/Const", value=Texts(("file",)))
    names = g.node("Const", value=Texts(("saved/v",)))
    read = g.node("RestoreV2", file, names, names)
    g.node("Assign", v, read, name="save/Assign", T=FLOAT)
    g.node("NoOp", "^save/Assign", name="save/restore_all")
    inputs = {"x": (x, "float32", (2,))}
    path = saved_model(tmp_path / "m", g, inputs, {"y": (y, "float32")}, "save/restore_all")
    checkpoint_files(path / "variables", {"saved/v": np.array([3, 4], "float32")})
    (made,) = treadle.compile(path).run({"x": np.array([1, 1], "float32")})
    np.testing.assert_array_equal(np.asarray(made), [4, 5])
