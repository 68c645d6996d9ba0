# SPDX-License-Identifier: Apache-2.0
"""Elements that are rolled; other movements are samples of torch's database."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import assert_agrees  # noqa: E402  # torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("shape", [(3, 4, 5), (4,), (0, 3)])
def test_without_axes_all_elements_are_rolled(shape: tuple[int, ...]) -> None:
    assert_agrees(lambda x: (x.roll(2), x.roll(-7)), torch.randn(shape))
