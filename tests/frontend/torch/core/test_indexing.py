# SPDX-License-Identifier: Apache-2.0
"""Choices by index at their limits; the rest are samples of torch's database."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import assert_agrees  # noqa: E402  # torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_an_index_without_elements_may_have_another_rank(shape: tuple[int, ...]) -> None:
    index = torch.zeros(shape, dtype=torch.int64)
    assert_agrees(lambda x, at: torch.gather(x, 0, at), torch.randn(5), index)
