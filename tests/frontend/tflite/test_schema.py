# SPDX-License-Identifier: Apache-2.0
"""Numbers, fields and defaults are those of the package `tflite`, made from the schema itself."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from treadle.frontend.tflite import schema

tflite = pytest.importorskip("tflite")
pytestmark = pytest.mark.tflite

NEWER = {("UnidirectionalSequenceLSTMOptions", "diagonal_recurrent_tensors")}
"""Fields that schemas after that of the package have."""


def numbers(enumeration: Any) -> dict[int, str]:
    return {v: k for k, v in vars(enumeration).items() if isinstance(v, int)}


def test_operators() -> None:
    assert dict(enumerate(schema.OPERATORS)) == numbers(tflite.BuiltinOperator)


def test_element_types() -> None:
    found = {
        k: v.lower().replace("bfloat16", "bfloat16") for k, v in numbers(tflite.TensorType).items()
    }
    assert {k: v.lower() for k, v in enumerate(schema.ELEMENT_TYPES)} == found


def test_activations_and_paddings() -> None:
    assert dict(enumerate(schema.ACTIVATIONS)) == numbers(tflite.ActivationFunctionType)
    assert dict(enumerate(schema.PADDINGS)) == numbers(tflite.Padding)


def test_options_are_numbered_as_in_their_union() -> None:
    found = {v: k for k, v in numbers(tflite.BuiltinOptions).items()}
    assert {name: number for name, (number, _) in schema.OPTIONS.items()}.items() <= found.items()


@pytest.mark.parametrize("name", schema.OPTIONS)
def test_fields(name: str) -> None:
    table = getattr(tflite, name)
    for field, (place, kind, default) in schema.OPTIONS[name][1].items():
        if (name, field) in NEWER:
            continue
        method = getattr(table, "".join(part.title() for part in field.split("_")), None)
        if method is None:  # fields that the schema calls deprecated have no accessor
            assert field in ("new_height", "new_width")
            continue
        source = inspect.getsource(method)
        assert int(re.findall(r"Offset\((\d+)\)", source)[0]) == 4 + 2 * place, field
        assert f"{kind.strip('[]').title()}Flags" in source, field
        last = re.findall(r"return ([\w.]+)\s*$", source)[-1]
        assert (
            float(last == "True" or (last != "False" and float(last))) == default or kind[0] == "["
        )


def test_every_owner_is_an_operator() -> None:
    for op in schema._OPTIONS_OF:
        assert op in schema.OPERATORS
    assert schema.options_of("RELU") == (0, {})
