# SPDX-License-Identifier: Apache-2.0
"""Bessel and Airy functions, against values computed with fifty digits."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from tests.frontend.builders.functions import Cases, check_values, values_of
from treadle.frontend.builders import bessel

VALUES: Cases = {
    "j0": (partial(bessel.bessel_j, 0), {
        0.5: 0.9384698072408129, -7.5: 0.2663396578803784, 8.5: 0.041939251842934504,
        40.0: 0.00736689058423729,
    }),
    "j1": (partial(bessel.bessel_j, 1), {
        0.5: 0.2422684576748739, -7.5: -0.1352484275797055, -8.5: -0.2731219636740537,
        40.0: 0.126038318037585,
    }),
    "y0": (partial(bessel.bessel_y, 0), {
        0.125: -1.3896806251438405, 7.5: 0.11731328614820863, 8.5: 0.27020510536578746,
    }),
    "y1": (partial(bessel.bessel_y, 1), {
        0.125: -5.199936112534775, 7.5: -0.25912851048611624, 8.5: -0.02616867939853747,
    }),
    "i0": (partial(bessel.bessel_i, 0, scaled=False), {
        0.5: 1.0634833707413236, -7.5: 268.16131151518937, 20.0: 43558282.559553534,
    }),
    "i1e": (partial(bessel.bessel_i, 1, scaled=True), {
        0.5: 0.1564208031848717, -7.5: -0.1380412115485542, 500.0: 0.017827851852898056,
    }),
    "k0": (partial(bessel.bessel_k, 0, scaled=False), {
        0.125: 2.20786908674497, 1.75: 0.1553798123866036, 2.25: 0.08404311197465811,
        9.0: 5.0881312956459246e-05,
    }),
    "k1e": (partial(bessel.bessel_k, 1, scaled=True), {
        0.125: 8.873819586426329, 1.75: 1.1248950768625277, 2.25: 0.960313541101207,
        900.0: 0.041794539013033705,
    }),
    "airy_ai": (bessel.airy_ai, {
        -30.0: -0.08796818845684216, -2.25: 0.06159865877700528, -1.0: 0.5355608832923521,
        1.75: 0.05056988080579487, 2.25: 0.023654658557747447, 9.0: 2.47116843087249e-09,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    check_values(*VALUES[name])


LIMITS: Cases = {
    "y0": (partial(bessel.bessel_y, 0), {0.0: -math.inf, -1.0: math.nan}),
    "k1": (partial(bessel.bessel_k, 1, scaled=False), {0.0: math.inf, -1.0: math.nan}),
    "spherical_j0": (bessel.spherical_j0, {0.0: 1.0, math.inf: 0.0, -math.inf: 0.0}),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    function, points = LIMITS[name]
    found = values_of(function, np.array(list(points)))
    np.testing.assert_array_equal(found, [*points.values()])
