# SPDX-License-Identifier: Apache-2.0
"""Whole graphs: names, notes, what is refused, damaged files, and where images are transposed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.frontend.tensorflow.models import Graph, Kind
from treadle.build.reading import from_tensorflow
from treadle.errors import InputError, ModelError, UnsupportedOperators, UsageError
from treadle.frontend.tensorflow.importer import import_tensorflow
from treadle.graph.nodes import Call, Node, Var, topological
from treadle.ops.reshaping import transpose

FLOAT = Kind("float32")


def network(size: int = -1) -> Graph:
    """Return convolutions with a residual addition, a concatenation, a pool and a product."""
    g = Graph()
    random = np.random.default_rng(0)
    image = g.input("image", (size, 8, 8, 3))

    def conv(x: str, inputs: int) -> str:
        w = g.constant(random.normal(size=(3, 3, inputs, 4)))
        y = g.node("Conv2D", x, w, strides=[1, 1, 1, 1], padding="SAME", T=FLOAT)
        return g.node("Relu", g.node("BiasAdd", y, g.constant(np.ones(4)), T=FLOAT), T=FLOAT)

    x = conv(image, 3)
    y = g.node("AddV2", conv(x, 4), x, T=FLOAT)
    both = g.node("ConcatV2", x, y, g.constant(3, "int32"), N=2, T=FLOAT)
    both = g.node("MaxPool", both, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID",
                  T=FLOAT)  # fmt: skip
    pads = g.constant([[0, 0], [1, 1], [1, 1], [0, 0]], "int32")
    mean = g.node("Mean", g.node("Pad", both, pads, T=FLOAT), g.constant([1, 2], "int32"), T=FLOAT)
    g.node("MatMul", mean, g.constant(random.normal(size=(8, 5))), name="scores", T=FLOAT)
    return g


def transposes(node: Node) -> int:
    """Return how many values that are no weights are transposed."""
    found = [n for n in topological([node]) if isinstance(n, Call) and n.op is transpose]
    return sum(any(isinstance(p, Var) for p in topological([n])) for n in found)


def test_names_notes_and_one_transpose_of_the_input(tmp_path: Path) -> None:
    imported = import_tensorflow(network().write(tmp_path))
    (image,) = imported.module.main.params
    assert (image.name, str(image.type)) == ("image", "float32[1, 8, 8, 3]")
    assert imported.module.output_names == ("scores",)
    (note,) = imported.notes
    assert "unknown dimension 0 is compiled as 1" in note
    assert transposes(imported.module.main.body) == 1


def test_a_file_is_compiled_with_dynamic_batches(tmp_path: Path) -> None:
    exe = treadle.compile(network().write(tmp_path), dynamic=True)
    x = np.random.default_rng(1).normal(size=(3, 8, 8, 3)).astype("float32")
    (many,) = exe.run({"image": x})
    (one,) = exe.run({"image": x[:1]})
    np.testing.assert_allclose(np.asarray(many)[:1], np.asarray(one), rtol=1e-5, atol=1e-5)


def test_outputs_may_be_named(tmp_path: Path) -> None:
    path = network().write(tmp_path)
    module = from_tensorflow(path, outputs=["scores", "image"])
    assert module.output_names == ("scores", "image")
    with pytest.raises(UsageError, match="the graph has no node 'score'") as caught:
        from_tensorflow(path, outputs=["score"])
    assert "did you mean 'scores'?" in str(caught.value)


def test_shapes_are_checked(tmp_path: Path) -> None:
    path = network().write(tmp_path)
    module = from_tensorflow(path, {"image": (4, 8, 8, 3)})
    assert str(module.main.params[0].type) == "float32[4, 8, 8, 3]"
    with pytest.raises(InputError, match="does not fit input 'image'"):
        from_tensorflow(path, {"image": (4, 8, 9, 3)})
    g = Graph()
    g.node("Relu", g.input("x", None), T=FLOAT)
    with pytest.raises(ModelError, match="leaves sizes of its inputs open:\n  x without a shape"):
        from_tensorflow(g.write(tmp_path))
    assert str(from_tensorflow(g.write(tmp_path), {"x": (2,)}).main.params[0].type) == "float32[2]"


def test_all_missing_operators_are_listed_those_of_functions_too(tmp_path: Path) -> None:
    g = Graph()
    f = g.function("f", ["a"])
    f.results = {"y": f.node("Unheard", "a") + ":y:0"}
    x = g.input("x", (2,))
    y = g.node("PartitionedCall", g.node("Strange", x), f=f.called())
    g.node("Merge", y, g.node("Strange", x), N=2)
    with pytest.raises(UnsupportedOperators) as caught:
        from_tensorflow(g.write(tmp_path))
    text = str(caught.value)
    assert "tensorflow.Strange: 2 nodes" in text
    assert "tensorflow.Unheard: 1 node, first f/unheard_1" in text
    assert "control flow of TensorFlow 1; freeze with lower_control_flow=False" in text


def test_errors_name_the_operator_and_its_inputs(tmp_path: Path) -> None:
    g = Graph()
    g.node("AddV2", g.input("a", (2,)), g.input("b", (3,)), name="sum", T=FLOAT)
    with pytest.raises(ModelError) as caught:
        from_tensorflow(g.write(tmp_path))
    assert "operator AddV2 ('sum'), inputs (float32[2], float32[3])" in str(caught.value.at)


def test_circles_and_missing_nodes_are_errors(tmp_path: Path) -> None:
    g = Graph()
    g.node("Relu", "b", name="a", T=FLOAT)
    g.node("Relu", "a", name="b", T=FLOAT)
    with pytest.raises(ModelError, match="reads what it makes"):
        from_tensorflow(g.write(tmp_path), outputs=["a"])
    g = Graph()
    g.node("Relu", "gone", name="a", T=FLOAT)
    with pytest.raises(ModelError, match="'gone' is read, but is no node"):
        from_tensorflow(g.write(tmp_path))


def test_long_chains_are_imported(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", (2,))
    for _ in range(3000):
        x = g.node("Neg", x, T=FLOAT)
    assert len(topological([from_tensorflow(g.write(tmp_path)).main.body])) == 3001


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"no graph", "starts no protobuf field|cut off"),
        (b"\x1a\x00", "holds no graph"),
    ],
)
def test_files_that_are_no_graphs(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pb"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=problem):
        from_tensorflow(path)


def test_damaged_files_end_in_errors_of_ours(tmp_path: Path) -> None:
    data = network().message()
    path = tmp_path / "m.pb"
    for seed in range(150):
        chance = random.Random(seed)
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(min(len(changed), 4000))] = chance.randrange(256)
        path.write_bytes(changed[: chance.choice([len(data), chance.randrange(1, len(data))])])
        try:
            from_tensorflow(path)
        except treadle.TreadleError:
            continue
