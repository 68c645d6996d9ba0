# SPDX-License-Identifier: Apache-2.0
"""Whole files: names, shapes, notes, what is refused, and damaged files."""

from __future__ import annotations

import io
import random
import time
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.frontend.tflite.models import Graph, Scale, model
from treadle.build.reading import from_tflite
from treadle.errors import InputError, ModelError, UnsupportedOperators, UsageError
from treadle.frontend.tflite.importer import import_tflite
from treadle.frontend.tflite.schema import options_of
from treadle.graph.types import tensor_type

pytest.importorskip("flatbuffers")


def small() -> Graph:
    """Return a graph of most things a file holds: weights, options, scales, two inputs."""
    g = Graph()
    x = g.input("image", (1, 6, 6, 3), signature=(-1, 6, 6, 3))
    w = g.constant(np.arange(108).reshape(4, 3, 3, 3), "float32")
    options = {"padding": 0, "stride_w": 2, "stride_h": 2, "fused_activation_function": 1}
    y = g.op("CONV_2D", (x, w, g.constant(np.zeros(4, "float32"))), (1, 3, 3, 4), options=options)
    y = g.op("RESHAPE", (y, g.constant([-1, 36], "int32")), (1, 36))
    q = g.op("QUANTIZE", (y,), (1, 36), "int8", Scale(0.5, 3))
    parts = g.multi(
        "SPLIT",
        (g.constant(1, "int32"), q),
        [((1, 18), "int8", Scale(0.5, 3))] * 2,
        {"num_splits": 2},
    )
    return g.result(y, *parts)


@pytest.mark.tiny
def test_names_types_and_notes() -> None:
    imported = import_tflite(model(small()))
    (image,) = imported.module.main.params
    assert (image.name, str(image.type)) == ("image", "float32[1, 6, 6, 3]")
    assert imported.module.output_names[0].startswith("reshape")
    (note,) = imported.notes
    assert "unknown dimension 0 is compiled as 1" in note


@pytest.mark.tiny
def test_inputs_of_one_name_are_numbered() -> None:
    g = Graph()
    made = g.op("ADD", (g.input("x", (2,)), g.input("x", (2,))), (2,), options={})
    assert [p.name for p in from_tflite(model(g.result(made))).main.params] == ["x", "x_1"]


def test_files_bytes_and_open_files_run(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(model(small()))
    image = np.random.default_rng(0).normal(size=(1, 6, 6, 3)).astype("float32")
    expected = treadle.compile(str(path)).run({"image": image})
    for source in (path, path.read_bytes(), from_tflite(io.BytesIO(path.read_bytes()))):
        exe = treadle.compile(source)
        for a, b in zip(exe.run({"image": image}), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_open_sizes_run_at_any(tmp_path: Path) -> None:
    exe = treadle.compile(model(small()), dynamic=True)
    one = treadle.compile(model(small()), shapes={"image": (3, 6, 6, 3)})
    images = np.random.default_rng(0).normal(size=(3, 6, 6, 3)).astype("float32")
    for a, b in zip(exe.run({"image": images}), one.run({"image": images}), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-5)


@pytest.mark.tiny
def test_shapes_that_do_not_fit() -> None:
    content = model(small())
    with pytest.raises(InputError, match="no input 'imag'") as caught:
        import_tflite(content, {"imag": (1, 6, 6, 3)})
    assert "did you mean 'image'?" in caught.value.hint
    for shape in ((1, 6, 6), (1, 6, 6, 4), (-1, 6, 6, 3)):
        with pytest.raises(InputError, match="does not fit") as caught:
            import_tflite(content, {"image": shape})
        assert "image[?, 6, 6, 3]" in caught.value.hint
    with pytest.raises(InputError, match="no sequence of whole numbers"):
        import_tflite(content, {"image": "1663"})  # type: ignore[dict-item]


@pytest.mark.tiny
def test_open_sizes_behind_the_first_are_asked_for() -> None:
    g = Graph()
    x = g.input("x", (1, 1), signature=(-1, -1))
    g.result(g.op("ABS", (x,), (1, 1)))
    with pytest.raises(ModelError, match=r"x\[\?, \?\]") as caught:
        import_tflite(model(g))
    assert '--input-shapes "x:[1,128]"' in caught.value.hint
    assert tensor_type(import_tflite(model(g), dynamic=True).module.main.params[0].type).ndim == 2


@pytest.mark.tiny
def test_constants_of_no_elements_have_no_bytes() -> None:
    g = Graph()
    x, scalar = g.input("x", (1, 1)), g.constant(np.zeros(0, "int32"))
    g.result(g.op("RESHAPE", (x, scalar), ()))
    result = import_tflite(model(g)).module.main.body
    assert tensor_type(result.type).shape == ()


@pytest.mark.tiny
def test_all_unknown_operators_are_listed_at_once() -> None:
    g = Graph()
    x = g.input("x", (2,))
    a = g.op("HASHTABLE_FIND", (x,), (2,), name="found")
    b = g.op("CUSTOM.MyOperator", (a,), (2,), name="mine")
    g.result(g.op("CUSTOM.MyOperator", (b,), (2,)))
    with pytest.raises(UnsupportedOperators) as caught:
        import_tflite(model(g))
    text = str(caught.value)
    assert "2 operators (3 nodes)" in text
    assert "tflite.CUSTOM.MyOperator-1: 2 nodes, first mine" in text
    assert "tflite.HASHTABLE_FIND-1: 1 node, first found" in text


@pytest.mark.tiny
def test_operators_of_subgraphs_are_checked_too() -> None:
    g = Graph()
    c, x = g.input("c", (1,), "bool"), g.input("x", (2,))
    options = {"then_subgraph_index": 1, "else_subgraph_index": 1}
    g.result(g.op("IF", (c, x), (2,), options=options))
    inner = Graph("inner")
    inner.result(inner.op("RFFT2D", (inner.input("x", (2,)),), (2,)))
    with pytest.raises(UnsupportedOperators, match="RFFT2D"):
        import_tflite(model(g, inner))


@pytest.mark.tiny
def test_an_operator_that_cannot_be_converted_is_named() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    g.result(g.op("SIGN", (g.op("MATRIX_SET_DIAG", (x,), (2, 3), name="bad"),), (2, 3)))
    with pytest.raises(ModelError, match="lacks its input 1") as caught:
        import_tflite(model(g))
    assert "operator MATRIX_SET_DIAG (index 0, 'bad'), inputs (float32[2, 3])" in caught.value.at
    assert caught.value.hint


@pytest.mark.tiny
def test_a_subgraph_that_uses_itself() -> None:
    g = Graph()
    x = g.input("x", (2,))
    g.result(g.op("CALL", (x,), (2,), options={"subgraph": 0}))
    with pytest.raises(ModelError, match="uses itself"):
        import_tflite(model(g))


@pytest.mark.tiny
def test_options_of_another_operator() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    g.result(g.op("MUL", (x, x), (2, 3), options={"fused_activation_function": 1}))
    mul, add = (bytes([options_of(op)[0]]) for op in ("MUL", "ADD"))
    with pytest.raises(ModelError, match=r"MUL has options of type 11, 21 are its own"):
        import_tflite(model(g).replace(mul, add))


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "this is not a TFLite file"),
        (b"PK\x03\x04 something else", "this is not a TFLite file"),
        (bytes(4) + b"TFL3", "the file has version 0"),
        (b"\xff\xff\xff\xffTFL3", "the file is damaged"),
    ],
)
def test_what_is_no_model(content: bytes, problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        import_tflite(content)
    assert caught.value.at
    assert caught.value.hint


@pytest.mark.tiny
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.tflite"
    empty.touch()
    for path, problem in (
        (empty, "the file is empty"),
        (tmp_path / "none.tflite", "cannot be read"),
        (tmp_path, "this is a folder"),
    ):
        with pytest.raises(ModelError, match=problem) as caught:
            import_tflite(path)
        assert str(path) in caught.value.at
    with pytest.raises(UsageError, match="of type int"):
        import_tflite(7)  # type: ignore[arg-type]


def attempt(content: bytes) -> str:
    """Import a damaged file: a module, or one clear error, in little time."""
    start = time.process_time()
    try:
        import_tflite(content, dynamic=True)
        ending = "imported"
    except (ModelError, InputError):
        ending = "refused"
    assert time.process_time() - start < 20
    return ending


def damaged(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    way = rng.random()
    if way < 0.1:
        return bytes(data[: rng.randrange(len(data))])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data))
        if way < 0.4:
            at -= at % 4
            data[at : at + 4] = rng.choice(
                [b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f", rng.randbytes(4), b"\x01\0\0\0"]
            )[: len(data) - at]
        else:
            data[at] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
    return bytes(data)


def looped() -> list[Graph]:
    """Return a model of control flow, with a recurrent layer and chosen boxes."""
    g = Graph()
    c, x = g.input("c", (1,), "bool"), g.input("x", (2, 3))
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    y = g.op("IF", (c, x), (2, 3), options=options)
    whole = {"begin_mask": 1, "end_mask": 2, "shrink_axis_mask": 0}
    bounds = [g.constant(v, "int32") for v in ([0, 0], [2, 2], [1, 1])]
    y = g.op("STRIDED_SLICE", (y, *bounds), (2, 2), options=whole)
    y = g.op("GATHER", (y, g.constant([1, 0], "int32")), (2, 2), options={"axis": 0})
    g.result(g.op("MEAN", (y, g.constant([1], "int32")), (2,), options={"keep_dims": False}))
    then, orelse = Graph("then"), Graph("else")
    then.result(then.op("ABS", (then.input("x", (2, 3)),), (2, 3)))
    x = orelse.input("x", (2, 3))
    orelse.result(orelse.op("ADD", (x, orelse.constant(2.0, "float32")), (2, 3), options={}))
    return [g, then, orelse]


@pytest.mark.parametrize("graphs", [[small()], looped()], ids=["convolution", "branches"])
def test_damaged_files_end_in_one_clear_error(graphs: list[Graph]) -> None:
    content, rng = model(*graphs), random.Random(1)
    endings = [attempt(damaged(content, rng)) for _ in range(400)]
    assert set(endings) == {"imported", "refused"}


@pytest.mark.tiny
def test_truncated_files_end_in_one_clear_error() -> None:
    content = model(small())
    for end in range(0, len(content) - 1, 7):
        attempt(content[:end])
    assert attempt(content) == "imported"
