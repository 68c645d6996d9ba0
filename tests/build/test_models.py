# SPDX-License-Identifier: Apache-2.0
"""What `compile` takes as a model and as shapes, and what it says of anything else."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest

import treadle
from treadle.errors import InputError, UsageError

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
SHAPES = {"image": (2, 1, 8, 8)}


class Exported:
    """As torch's ONNXProgram."""

    model_proto = onnx.load(MODEL)


def in_package(name: str) -> object:
    """Return a model of a class that inherits from one of another package."""
    base = type("Module", (), {"__module__": f"{name}.nn"})
    return type("Net", (base,), {"__module__": "__main__"})()


def test_every_form_of_a_model_is_the_same() -> None:
    data = MODEL.read_bytes()
    image = np.ones((2, 1, 8, 8), np.float32)
    (want,) = treadle.compile(MODEL, shapes=SHAPES)(image)
    with MODEL.open("rb") as file:
        forms = (str(MODEL), data, bytearray(data), memoryview(data), io.BytesIO(data), file,
                 onnx.load(MODEL), Exported())  # fmt: skip
        for form in forms:
            (found,) = treadle.compile(form, shapes=SHAPES)(image)  # type: ignore[arg-type]
            assert np.array_equal(np.asarray(found), np.asarray(want)), type(form)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (in_package("torch"), "treadle.compile(module, inputs)"),
        (in_package("keras"), "model.export"),
        (in_package("sklearn"), "skl2onnx"),
        (42, "give the path of an ONNX file"),
        (None, "give the path of an ONNX file"),
        (types.SimpleNamespace(read=None), "give the path of an ONNX file"),
    ],
)
def test_what_is_no_model_is_named_with_the_way_out(model: object, hint: str) -> None:
    with pytest.raises(UsageError, match=r"a model of type .* cannot be compiled") as caught:
        treadle.compile(model)  # type: ignore[arg-type]
    assert hint in caught.value.hint
    assert type(model).__qualname__ in caught.value.problem


def test_a_file_open_as_text_is_named() -> None:
    with pytest.raises(UsageError, match="open as text") as caught:
        treadle.compile(io.StringIO("text"))  # type: ignore[arg-type]
    assert '"rb"' in caught.value.hint


@pytest.mark.parametrize("shape", ["1,1,8,8", b"1", 8, (1, 1, 8.5, 8), (1, "1", 8, 8), None])
def test_a_shape_is_whole_numbers(shape: object) -> None:
    with pytest.raises(InputError, match=r"the shape of input 'image' is .* no sequence") as caught:
        treadle.compile(MODEL, shapes={"image": shape})  # type: ignore[dict-item]
    assert "shapes={'image': (1, 3, 224, 224)}" in caught.value.hint


def test_shapes_of_other_kinds() -> None:
    with pytest.raises(InputError, match="the shapes are a list, not a mapping"):
        treadle.compile(MODEL, shapes=[(1, 1, 8, 8)])  # type: ignore[arg-type]
    compiled = treadle.compile(MODEL, shapes={"image": np.array(SHAPES["image"])})  # type: ignore[dict-item]
    assert compiled.inputs[0][2] == SHAPES["image"]


def test_an_array_is_made_from_numpy() -> None:
    for wrong in ([1], 1.0, None):
        with pytest.raises(InputError, match="is made from a NumPy array, not from a") as caught:
            treadle.NDArray(wrong)  # type: ignore[arg-type]
        assert "treadle.array" in caught.value.hint


def test_nothing_of_other_packages_is_imported() -> None:
    with pytest.raises(UsageError):
        treadle.compile(in_package("tensorflow"))  # type: ignore[arg-type]
    assert "tensorflow" not in sys.modules
