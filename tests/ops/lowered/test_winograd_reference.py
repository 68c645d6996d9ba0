# SPDX-License-Identifier: Apache-2.0
"""The filtering in NumPy is the convolution, whatever the window."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.cost.filtering import filter_axes
from treadle.ops.conv import ConvAttrs, conv
from treadle.ops.lowered.winograd_reference import filtered_image
from treadle.optimize.methods.winograd_weights import transform_weights

pytestmark = pytest.mark.tiny

CASES = [
    (2, (3, 3), 1, (1, 1), 1),
    (4, (3, 3), 1, (2, 3), 2),
    (4, (3, 3), 2, (1, 1), 1),
    (3, (7, 7), 2, (1, 1), 1),
    (6, (1, 3), 1, (1, 1), 2),
    (4, (5, 1), 1, (4, 1), 1),
    (2, (5, 5), 1, (1, 1), 1),
    (4, (2, 2), 1, (1, 1), 1),
    (3, (2, 4), 1, (1, 2), 1),
    (6, (4, 1), 2, (1, 1), 1),
]


@pytest.mark.parametrize(("tile", "kernel", "stride", "gaps", "groups"), CASES)
def test_it_is_the_convolution(
    tile: int, kernel: tuple[int, int], stride: int, gaps: tuple[int, int], groups: int
) -> None:
    axes = filter_axes(tile, kernel, stride, gaps)
    rng = np.random.default_rng(tile)
    high, wide = (axis.reads(9) for axis in axes)
    x = rng.standard_normal((2, 2 * groups, high, wide, 4))
    w = rng.standard_normal((2 * groups, 2, *kernel, 4, 3))
    made = filtered_image(x, transform_weights(w, axes), axes, groups)
    plain = w.transpose(0, 5, 1, 4, 2, 3).reshape(6 * groups, 8, *kernel)
    data = x.transpose(0, 1, 4, 2, 3).reshape(2, 8 * groups, high, wide)
    attrs = ConvAttrs(strides=tuple(a.stride for a in axes), dilations=gaps, groups=groups)
    found = conv.reference(attrs, data, plain)
    exact = found.reshape(2, 2 * groups, 3, *found.shape[2:]).transpose(0, 1, 3, 4, 2)
    np.testing.assert_allclose(made[:, :, :9, :9], exact[:, :, :9, :9], rtol=1e-9, atol=1e-9)
