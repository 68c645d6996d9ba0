# SPDX-License-Identifier: Apache-2.0
"""What calls share is made once, and the budget of bytes is taken from where it was granted."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.graph.nodes import Call, Constant, Function, Var, topological
from treadle.graph.types import TensorType
from treadle.ops.elementwise import relu, tanh
from treadle.ops.matmul import matmul
from treadle.optimize.methods.shared import Shared
from treadle.optimize.pipeline import optimize
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny


def call() -> Call:
    made = relu(Constant.of(np.zeros(2, np.float32)))
    assert isinstance(made, Call)
    return made


def test_a_value_is_made_when_it_is_first_asked_for() -> None:
    shared, made = Shared(), []
    for _ in range(2):
        assert shared.once("key", lambda: made.append(1) or len(made)) == 1  # type: ignore[func-returns-value]
    assert shared.once("other", lambda: 5) == 5
    assert shared.has("key")
    assert not shared.has("none")
    shared.clear()
    assert not shared.has("key")


def test_calls_without_a_grant_share_what_is_left() -> None:
    shared, granted, other = Shared(), call(), call()
    shared.granted = {granted: 100}
    shared.spare_bytes = 50
    assert shared.may_grow(granted, 100)
    assert not shared.may_grow(granted, 101)
    assert shared.may_grow(other, 50)
    shared.grow(other, 30)
    assert not shared.may_grow(other, 21)
    shared.grow(granted, 100)
    assert shared.may_grow(call(), 20)


def test_weights_of_all_steps_of_a_recurrence_are_one_constant() -> None:
    weights = Constant.of(np.eye(64, dtype="float32"))
    x = Var("x", TensorType((1, 64), "float32"))
    state = x
    for _ in range(5):
        state = tanh(matmul(state, weights))
    done = optimize(Function((x,), state), parse_target("llvm"))
    constants = [n for n in topological([done.body]) if isinstance(n, Constant)]
    assert len([c for c in constants if c.value.size >= 64 * 64]) == 1
