# SPDX-License-Identifier: Apache-2.0
"""Windows of spectra are constants."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import assert_agrees  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann", "kaiser"])
@pytest.mark.parametrize("periodic", [False, True])
def test_windows(name: str, periodic: bool) -> None:
    make = getattr(torch, f"{name}_window")
    assert_agrees(lambda x: x * make(9, periodic) + make(9), torch.randn(2, 9))


def test_a_window_of_other_numbers_and_another_type() -> None:
    def widened(x: Any) -> Any:
        return x * torch.hamming_window(9, False, 0.5, 0.4, dtype=torch.float64)

    assert_agrees(widened, torch.randn(2, 9))
