# SPDX-License-Identifier: Apache-2.0
"""Products of truth values; other reductions are samples of torch's database."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import assert_agrees  # noqa: E402  # torch

pytestmark = pytest.mark.torch


def test_a_product_as_a_truth_value_is_whether_all_hold() -> None:
    x = torch.tensor([[True, True], [False, True]])
    assert_agrees(lambda x: x.prod(1, dtype=torch.bool), x)
    assert_agrees(lambda x: (x + 2).prod(0, keepdim=True, dtype=torch.bool), x)
