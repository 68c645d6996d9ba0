# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong in a converter is a ModelError with a place, and with a next step."""

from __future__ import annotations

import pytest

from treadle.errors import ModelError, TypeMismatch, UnsupportedOperators
from treadle.frontend.places import placed

pytestmark = pytest.mark.tiny


def fail(error: BaseException, advice: str = "") -> ModelError:
    with (
        pytest.raises(ModelError) as caught,
        placed(lambda: "m.onnx, node 3", mistake="check the model", advice=lambda: advice),
    ):
        raise error
    return caught.value


def test_what_an_error_says_already_is_kept() -> None:
    error = fail(UnsupportedOperators("no Foo", at="inside", hint="use Bar"), "read the page")
    assert type(error) is UnsupportedOperators
    assert (error.problem, error.at, error.hint) == ("no Foo", "inside", "use Bar")


def test_an_error_without_a_place_gets_place_and_advice() -> None:
    error = fail(ModelError("sizes differ"), "read the page")
    assert (error.problem, error.at, error.hint) == (
        "sizes differ", "m.onnx, node 3", "read the page",
    )  # fmt: skip


def test_errors_of_the_graph_become_errors_of_the_model() -> None:
    error = fail(TypeMismatch("add of float32 and int8", at="add"))
    assert type(error) is ModelError
    assert (error.at, error.hint) == ("m.onnx, node 3", "")


@pytest.mark.parametrize("mistake", [KeyError("x"), ZeroDivisionError("0"), AttributeError("None")])
def test_mistakes_of_a_converter_name_what_was_raised(mistake: Exception) -> None:
    error = fail(mistake, "read the page")
    assert error.problem.startswith(f"this node cannot be converted: {type(mistake).__name__}")
    assert (error.at, error.hint) == ("m.onnx, node 3", "check the model")


def test_a_lack_of_memory_names_the_node() -> None:
    error = fail(MemoryError())
    assert (error.problem, error.at) == (
        "this node needs more memory than there is", "m.onnx, node 3",
    )  # fmt: skip


def test_nobody_else_is_kept_from_stopping() -> None:
    with pytest.raises(KeyboardInterrupt), placed(lambda: "here", mistake=""):
        raise KeyboardInterrupt
