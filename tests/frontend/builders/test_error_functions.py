# SPDX-License-Identifier: Apache-2.0
"""The error function's relatives, against values computed with fifty digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.frontend.builders.functions import Cases, check_values, values_of
from treadle.frontend.builders import error_functions

VALUES: Cases = {
    "erfcx": (error_functions.erfcx, {
        -2.0: 108.94090438997797, 0.25: 0.7703465477309968, 3.0: 0.17900115118138996,
        60.0: 0.009401854275176388,
    }),
    "log_ndtr": (error_functions.log_ndtr, {
        -30.0: -454.3212439563432, -1.5: -2.7059444008238898, -0.5: -1.1759117615936185,
        2.0: -0.02301290932896349,
    }),
    "erfinv": (error_functions.erfinv, {
        -0.5: -0.4769362762044699, 0.78125: 0.8696414685437235, 0.9990234375: 2.331467773621948,
    }),
    "ndtri": (error_functions.ndtri, {
        1e-200: -30.20559417957964, 0.000244140625: -3.4871041041144313,
        0.25: -0.6744897501960817, 0.9375: 1.5341205443525463,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    check_values(*VALUES[name])


LIMITS: Cases = {
    "erfinv": (error_functions.erfinv, {1.0: math.inf, -1.0: -math.inf, 1.5: math.nan}),
    "ndtri": (error_functions.ndtri, {0.0: -math.inf, 1.0: math.inf, -0.1: math.nan}),
    "erfcx": (error_functions.erfcx, {math.inf: 0.0, -math.inf: math.inf}),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    function, points = LIMITS[name]
    found = values_of(function, np.array(list(points)))
    np.testing.assert_array_equal(found, [*points.values()])
