# SPDX-License-Identifier: Apache-2.0
"""Weights that several products share are packed and kept once."""

from __future__ import annotations

import numpy as np

from treadle.graph.nodes import Constant, Function, Var, topological
from treadle.graph.types import TensorType
from treadle.ops.elementwise import tanh
from treadle.ops.matmul import matmul
from treadle.optimize.pipeline import optimize
from treadle.target.parse import parse_target


def test_weights_of_all_steps_of_a_recurrence_are_one_constant() -> None:
    weights = Constant.of(np.eye(64, dtype="float32"))
    x = Var("x", TensorType((1, 64), "float32"))
    state = x
    for _ in range(5):
        state = tanh(matmul(state, weights))
    done = optimize(Function((x,), state), parse_target("llvm"))
    constants = [n for n in topological([done.body]) if isinstance(n, Constant)]
    assert len([c for c in constants if c.value.size >= 64 * 64]) == 1
