# SPDX-License-Identifier: Apache-2.0
"""Options of a tuning run that have no meaning."""

from __future__ import annotations

import math
from typing import Any

import pytest

from treadle.errors import UsageError
from treadle.tune.options import TuneOptions

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize(
    ("name", "value"),
    [("trials", -1), ("minutes", -0.5), ("minutes", math.nan), ("seed", -1), ("early_stopping", 0),
     ("builders", 0)],
)  # fmt: skip
def test_a_number_out_of_range_is_named(name: str, value: float) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(UsageError, match=f"{name} of tuning is {value}"):
        TuneOptions(**given)
