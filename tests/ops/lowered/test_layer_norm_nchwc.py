# SPDX-License-Identifier: Apache-2.0
"""Rows that are normalised into blocks of channels, in one loop, are those of the plain norm."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import check_operator, example_arrays
from tests.ops.schedules.compiled import check, kernel_of
from tests.optimize.cases import var
from tests.targets import MACHINES
from treadle.errors import TypeMismatch
from treadle.graph.operator import Example
from treadle.ops.lowered.layer_norm_nchwc import layer_norm_nchwc


@pytest.mark.parametrize("example", layer_norm_nchwc.examples, ids=lambda e: f"{e.shapes}{e.attrs}")
def test_blocks_hold_the_normalised_rows(example: Example) -> None:
    x, scale, bias = example_arrays(example)
    made = check_operator(layer_norm_nchwc, [x, scale, bias], dict(example.attrs))
    rows = np.moveaxis(made, 1, -2).reshape(x.shape)
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + example.attrs.get("epsilon", 1e-5))
    np.testing.assert_allclose(rows, centred / spread * scale + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 301, 48), (2, 9, 7, 80), (3, 1, 16)])
def test_any_number_of_rows(shape: tuple[int, ...]) -> None:
    channels = shape[-1]
    check("layer_norm_nchwc", shape, (channels,), (channels,), block=16, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("machine", MACHINES)
def test_everything_of_a_row_is_in_one_loop(machine: str) -> None:
    target = MACHINES[machine]
    shapes = ((1, 640, 128), (128,), (128,))
    text = kernel_of(target, "layer_norm_nchwc", *shapes, block=target.lanes()).loop_text()
    assert text.count("parallel(") == 1
    assert "alloc(workspace)" not in text


@pytest.mark.parametrize(
    ("shapes", "block", "text"),
    [
        (((1, 5, 20), (20,), (20,)), 8, "20 channels do not fill blocks of 8"),
        (((1, 5, 16), (5,), (16,)), 8, "the scale is"),
        (((16,), (16,), (16,)), 8, "has no rows of channels"),
    ],
)
def test_what_has_no_whole_blocks_is_refused(
    shapes: tuple[tuple[int, ...], ...], block: int, text: str
) -> None:
    with pytest.raises(TypeMismatch, match=text):
        layer_norm_nchwc(*(var("x", *s) for s in shapes), block=block)
