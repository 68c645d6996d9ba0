# SPDX-License-Identifier: Apache-2.0
"""What is read of a GraphDef: attributes, references, tensors, functions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tensorflow.models import (
    Called,
    Function,
    Graph,
    Kind,
    Shape,
    chunk,
    integer,
    node_message,
    shape_message,
    single,
)
from treadle.errors import ModelError
from treadle.frontend.protobuf import Message
from treadle.frontend.tensorflow.graph import NodeDef, Reference, read_graph, reference
from treadle.frontend.tensorflow.tensors import array_of

pytestmark = pytest.mark.tiny


def read(graph: Graph) -> dict[str, NodeDef]:
    return dict(read_graph(Message(memoryview(graph.message()))).nodes)


def test_attributes_of_every_kind_and_their_defaults() -> None:
    g = Graph()
    g.node("Op", "a:1", "^b", name="n", i=-3, f=0.5, s="text", b=True, t=Kind("int64"),
           shape=Shape((2, -1)), l=[1, -2], value=np.arange(3, dtype="int32"),
           fn=Called("f"))  # fmt: skip
    node = read(g)["n"]
    found = node.attributes
    assert (found.integer("i"), found.number("f"), found.text("s")) == (-3, 0.5, "text")
    assert (found.flag("b"), found.dtype("t"), found.shape("shape")) == (True, "int64", (2, -1))
    assert (found.integers("l"), found.function("fn")) == ((1, -2), "f")
    assert found.tensor("value", "it").tolist() == [0, 1, 2]
    assert (found.integer("x", 7), found.shape("x"), found.integers("x", (1,))) == (7, None, (1,))
    assert (node.inputs, node.after) == ((Reference("a", "", 1),), ("b",))


def test_an_attribute_of_another_kind_is_refused() -> None:
    g = Graph()
    g.node("Op", name="n", axis="text")
    with pytest.raises(ModelError, match="the attribute axis is of another kind"):
        read(g)["n"].attributes.integer("axis")


def test_references() -> None:
    assert reference("n") == Reference("n", "", 0)
    assert reference("n:2") == Reference("n", "", 2)
    assert reference("n:y:1") == Reference("n", "y", 1)
    for text in ("n:x", "n:-1", "n:99999999"):
        with pytest.raises(ModelError, match="names no value"):
            reference(text)


def test_functions_have_arguments_and_results_in_order() -> None:
    f = Function(name="f", arguments=("a", "b"), results={"y": "add:z:0", "x": "b"})
    f.node("AddV2", "a", "b", name="add")
    found = read_graph(Message(memoryview(Graph(functions=[f]).message()))).function("f")
    assert found.arguments == ("a", "b")
    assert found.results == (Reference("add", "z", 0), Reference("b", "", 0))


@pytest.mark.parametrize("name", ["", "twice"])
def test_nodes_have_names_of_their_own(name: str) -> None:
    part = chunk(1, node_message(name, "NoOp", (), {}))
    with pytest.raises(ModelError, match="has no name, or that of another"):
        read_graph(Message(memoryview(part * 2)))


def tensor(*fields: bytes, dtype: int = 1, shape: tuple[int, ...] = (2, 2)) -> np.ndarray:
    data = integer(1, dtype) + chunk(2, shape_message(shape)) + b"".join(fields)
    return array_of(Message(memoryview(data)), "it")


def test_listed_elements_of_which_the_last_fills_what_is_left() -> None:
    assert tensor(single(5, 1.0), single(5, 2.0)).tolist() == [[1, 2], [2, 2]]
    assert tensor().tolist() == [[0, 0], [0, 0]]
    assert tensor(integer(7, -4), dtype=3, shape=()).tolist() == -4
    assert tensor(integer(13, 0x3C00), dtype=19, shape=(1,)).tolist() == [1.0]
    assert tensor(integer(13, 0x3F80), dtype=14, shape=(1,)).astype("float32").tolist() == [1.0]


@pytest.mark.parametrize(
    ("fields", "options", "problem"),
    [
        ((chunk(4, b"abc"),), {}, "3 bytes are stored for float32"),
        ((single(5, 1.0),) * 5, {}, "lists 5 elements"),
        ((), {"shape": (1 << 20, 1 << 20, 1 << 20)}, "more elements than memory"),
        ((), {"shape": (1 << 29,)}, "filled with more than 1 GB"),
        ((), {"shape": (-1,)}, "no known shape"),
        ((), {"dtype": 7}, "has elements of string"),
        ((), {"dtype": 99}, "the element type 99 is not known"),
    ],
)
def test_tensors_that_are_none(fields, options, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        tensor(*fields, **options)
