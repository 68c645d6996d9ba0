# SPDX-License-Identifier: Apache-2.0
"""Errors say problem, place and next step, keep their kind when they are located, and are short."""

from __future__ import annotations

import pytest

from treadle import errors
from treadle.errors import LONGEST_PART, ModelError, TreadleError, TypeMismatch

pytestmark = pytest.mark.tiny


def test_the_parts_stand_on_lines_of_their_own() -> None:
    assert str(TreadleError("it is broken")) == "it is broken"
    assert str(TreadleError("it is broken", at="node a", hint="mend it")) == (
        "it is broken\n  at    node a\n  hint  mend it"
    )


def test_a_wrong_name_is_told_the_one_most_like_it() -> None:
    assert errors.name_hint("dtaa", ["data", "mask"], "none") == "did you mean 'data'?"
    assert errors.name_hint("x", ["data"], "its names are data") == "its names are data"


def test_a_place_is_put_before_the_place_there_is() -> None:
    error = TypeMismatch("3 and 4 differ", at="axis 1", hint="pad it").located("node a")
    assert type(error) is TypeMismatch
    assert error.at == "node a, axis 1"
    assert error.hint == "pad it"
    assert ModelError("x").located("file").at == "file"


def test_a_text_of_any_length_is_cut_in_its_middle() -> None:
    problem = "a" * LONGEST_PART + "b" * LONGEST_PART
    shown = TreadleError(problem, hint=problem).problem
    assert len(shown) < LONGEST_PART + 60
    assert shown.startswith("aaa")
    assert shown.endswith("bbb")
    assert f"({LONGEST_PART} characters left out)" in shown
    assert TreadleError("c" * LONGEST_PART).problem == "c" * LONGEST_PART


def test_every_error_is_one_of_the_tree() -> None:
    kinds = [v for v in vars(errors).values() if isinstance(v, type)]
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, TreadleError)
        assert kind.__doc__
