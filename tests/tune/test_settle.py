# SPDX-License-Identifier: Apache-2.0
"""Decisions tried in the model."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests.optimize.cases import inputs_of
from tests.tune.tasks import network
from treadle.runtime.array import array
from treadle.tune.settle import Comparison, compared


def test_two_compilations_run_in_turns() -> None:
    module = network()
    pair = [treadle.compile(module) for _ in range(2)]
    inputs = {name: array(np.asarray(a)) for name, a in inputs_of(module.main).items()}
    names = [pair[0].kernels[0].name, "none"]
    found = compared(pair[0], pair[1], inputs, names, seconds=0.1)
    assert set(found.kernels) == {names[0]}  # what does not run is not compared
    assert 0 < found.before < 1
    assert 0.1 < found.share < 10


@pytest.mark.tiny
def test_kernels_that_take_longer_are_named() -> None:
    found = Comparison(1.0, 0.9, 0.9, {"a": 0.8, "b": 1.02, "c": 1.0})
    assert found.slower == ["b"]
