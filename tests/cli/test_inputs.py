# SPDX-License-Identifier: Apache-2.0
"""What watches a run is handed values one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.conftest import DIGITS
from treadle.build.compile import compile_model
from treadle.cli.inputs import filled_inputs


def test_what_an_observer_raises_is_raised_again() -> None:
    model = compile_model(str(DIGITS), shapes={"image": (1, 1, 8, 8)})
    seen: list[int] = []

    def observe(index: int, _found: np.ndarray) -> None:
        seen.append(index)
        if index == 1:
            raise KeyError("enough")

    inputs = filled_inputs(model, "random")
    with pytest.raises(KeyError, match="enough"):
        model.executor.watch(inputs, observe)
    assert seen == [0, 1]
    model.run(inputs)
    assert seen == [0, 1]
