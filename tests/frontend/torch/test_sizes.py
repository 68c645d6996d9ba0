# SPDX-License-Identifier: Apache-2.0
"""Numbers that are computed of sizes: fractions, and whole numbers rounded from them."""

from __future__ import annotations

import math
from typing import Any

import pytest

import treadle

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import as_module, assert_agrees  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch

interpolate = torch.nn.functional.interpolate

FUNCTIONS = {
    "a fraction as a factor": lambda x: x * x.shape[2] ** -0.5,
    "functions of fractions": lambda x: x.clamp(max=(x.shape[3] / 7 + 0.1) / x.shape[2]),
    "exact halves": lambda x: interpolate(x, scale_factor=1.5, mode="bilinear"),
    "halves that are cut": lambda x: interpolate(x, scale_factor=0.5, mode="bilinear"),
    "what no float holds": lambda x: interpolate(x, scale_factor=0.37),
    "scales computed anew": lambda x: interpolate(
        x, scale_factor=0.37, mode="bilinear", recompute_scale_factor=True
    ),
    "antialiased": lambda x: interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    "windows that overlap": torch.nn.AdaptiveAvgPool2d((3, None)),
    "maxima of such windows": torch.nn.AdaptiveMaxPool2d((2, 4)),
    "windows of open number": lambda x: interpolate(x, scale_factor=0.4, mode="area"),
    "cut towards zero": lambda x: x.sum() * math.trunc((x.shape[2] - 12) / 2),
    "what may be below zero": lambda x: x.sum() * math.trunc(0.1 * (x.shape[2] - 12)),
    "rounded down and up": lambda x: (
        x.sum() * math.floor((5 - x.shape[2]) / 2) + math.ceil((5 - x.shape[3]) / 2)
    ),
    "nothing but a size": lambda x: torch.full((3,), x.shape[2]) + x.mean(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_made_of_open_sizes(name: str) -> None:
    module, free = as_module(FUNCTIONS[name]), torch.export.Dim.DYNAMIC
    shapes = (({2: free, 3: free},),)
    exe = treadle.compile(module, (torch.randn(1, 3, 10, 14),), dynamic_shapes=shapes)
    for height, width in ((10, 14), (13, 9), (31, 22), (3, 3)):
        x = torch.randn(1, 3, height, width)
        found = torch.from_dlpack(exe.run([x])[0])
        torch.testing.assert_close(found, module(x), rtol=1e-5, atol=1e-5)


def test_a_fraction_in_a_tensor_is_a_number() -> None:
    def scaled(x: Any) -> Any:
        return x * (x.abs().max().item() * 2 + 1)

    assert_agrees(scaled, torch.randn(3, 5))
