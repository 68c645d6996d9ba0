# SPDX-License-Identifier: Apache-2.0
"""What a file says of its parts is checked: weights, scales, sparse and packed ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale, model
from treadle.errors import ModelError
from treadle.frontend.tflite.formats import is_tflite
from treadle.frontend.tflite.model import open_tflite
from treadle.frontend.tflite.sparse import densified
from treadle.frontend.tflite.wire import Table

flatbuffers = pytest.importorskip("flatbuffers")
pytestmark = pytest.mark.tiny


def of_one_constant(value: np.ndarray, scale: Scale | None = None, dtype: str = "") -> Graph:
    g = Graph()
    g.constant(value, dtype, scale)
    return g


def test_weights_are_views_of_the_file() -> None:
    content = model(of_one_constant(np.arange(6, dtype="float32").reshape(2, 3)))
    (tensor,) = open_tflite(content).subgraphs[0].tensors
    assert tensor.value is not None
    np.testing.assert_array_equal(tensor.value, np.arange(6).reshape(2, 3))
    assert not tensor.value.flags.owndata
    assert not tensor.value.flags.writeable


def test_halves_of_bytes() -> None:
    g = of_one_constant(np.array([0x7F, -0x78], "int8"))  # the low half is first
    g.tensors[0].dtype, g.tensors[0].shape = "INT4", (3,)
    (tensor,) = open_tflite(model(g)).subgraphs[0].tensors
    assert tensor.dtype == "int8"
    assert tensor.value is not None
    assert tensor.value.tolist() == [-1, 7, -8]


def test_truth_values_of_any_byte() -> None:
    g = of_one_constant(np.array([0, 1, 7], "uint8"))
    g.tensors[0].dtype = "bool"
    (tensor,) = open_tflite(model(g)).subgraphs[0].tensors
    assert tensor.value is not None
    assert tensor.value.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("scale", "problem"),
    [
        (Scale(float("nan")), "no positive number"),
        (Scale(-1.0), "no positive number"),
        (Scale(1.0, 1 << 40), "outside of 32 bits"),
        (Scale([1.0, 2.0]), r"2 scales do not fit axis 0 of \[3, 2\]"),
        (Scale([1.0, 2.0], 0, 7), "do not fit axis 7"),
    ],
)
def test_scales_that_cannot_be(scale: Scale, problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        open_tflite(model(of_one_constant(np.zeros((3, 2), "int8"), scale)))
    assert caught.value.at == "tensor constant_0"


def test_weights_of_another_size_than_their_shape() -> None:
    g = of_one_constant(np.zeros(3, "float32"))
    g.tensors[0].shape = (4,)
    with pytest.raises(ModelError, match=r"float32\[4\] takes 16 bytes, the file has 12"):
        open_tflite(model(g))


@pytest.mark.parametrize("shape", [(-2,), (1 << 30, 1 << 30), (1,) * 40])
def test_shapes_that_are_none(shape: tuple[int, ...]) -> None:
    g = of_one_constant(np.zeros(3, "float32"))
    g.tensors[0].shape = shape
    with pytest.raises(ModelError, match="its shape"):
        open_tflite(model(g))


def test_numbers_of_tensors_that_are_none() -> None:
    g = Graph()
    x = g.input("x", (2,))
    g.result(g.op("ABS", (x, 9), (2,)))
    with pytest.raises(ModelError, match="operator 0 names tensor 9, there are 2"):
        open_tflite(model(g))


def test_files_are_told_by_name_or_content() -> None:
    content = model(of_one_constant(np.zeros(1, "float32")))
    assert is_tflite(content)
    assert is_tflite(memoryview(content))
    assert is_tflite("a/b.TFLite")
    assert not is_tflite("a.onnx")
    assert not is_tflite(b"")
    assert not is_tflite(3)


def sparsity(segments: list[int], indices: list[int], rows: int = 3) -> Table:
    """Return a description of a matrix of dense rows, of which some columns are stored."""
    b = flatbuffers.Builder(0)
    levels = []
    for kind, values in ((0, None), (1, (segments, indices))):
        vectors = []
        for v in values or ():
            data = b.CreateNumpyVector(np.array(v, "int32"))
            b.StartObject(1)
            b.PrependUOffsetTRelativeSlot(0, data, 0)
            vectors.append(b.EndObject())
        b.StartObject(6)
        b.PrependInt8Slot(0, kind, None)
        b.PrependInt32Slot(1, rows, None)
        for slot, vector in zip((2, 4), vectors, strict=False):
            b.PrependUint8Slot(slot, 1, None)
            b.PrependUOffsetTRelativeSlot(slot + 1, vector, 0)
        levels.append(b.EndObject())
    order = b.CreateNumpyVector(np.array([0, 1], "int32"))
    b.StartVector(4, 2, 4)
    for level in reversed(levels):
        b.PrependUOffsetTRelative(level)
    levels_at = b.EndVector()
    b.StartObject(3)
    b.PrependUOffsetTRelativeSlot(0, order, 0)
    b.PrependUOffsetTRelativeSlot(2, levels_at, 0)
    b.Finish(b.EndObject())
    return Table.root(memoryview(bytes(b.Output())))


def test_sparse_weights_are_written_out() -> None:
    values = memoryview(np.array([5, 6, 7], "float32").tobytes())
    made = densified(sparsity([0, 1, 1, 3], [2, 0, 3]), values, np.dtype("float32"), (3, 4))
    np.testing.assert_array_equal(made, [[0, 0, 5, 0], [0, 0, 0, 0], [6, 0, 0, 7]])


@pytest.mark.parametrize(
    ("segments", "indices", "rows"),
    [
        ([0, 1, 1, 3], [2, 0, 4], 3),
        ([0, 1, 1, 9], [2, 0, 3], 3),
        ([0, 2, 1, 3], [2, 0, 3], 3),
        ([0, 3], [2, 0, 3], 3),
        ([0, 1, 1, 3], [2, 0, -1], 3),
        ([0, 1, 1, 3], [2, 0, 3], 1 << 30),
        ([0, 1, 1, 2], [2, 0], 3),
    ],
)
def test_damaged_sparse_weights(segments: list[int], indices: list[int], rows: int) -> None:
    values = memoryview(np.zeros(3, "float32").tobytes())
    with pytest.raises(ModelError, match="sparse weights"):
        densified(sparsity(segments, indices, rows), values, np.dtype("float32"), (3, 4))
