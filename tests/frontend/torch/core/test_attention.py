# SPDX-License-Identifier: Apache-2.0
"""Attention of halves: scores are never rounded to 16 bits."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import as_module, exported_outputs  # noqa: E402  # torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.01), ("bfloat16", 0.06)])
def test_large_scores_tell_keys_apart(dtype: str, tolerance: float) -> None:
    kind = getattr(torch, dtype)
    q, k, v = (8 * torch.randn(3, 2, 4, 6, 8)).to(kind)
    attend = torch.nn.functional.scaled_dot_product_attention
    (found,) = exported_outputs(as_module(attend), (q, k, v))
    exact = attend(q.double(), k.double(), v.double())
    assert found.dtype is kind
    assert float((found.double() - exact).abs().max()) < tolerance * float(v.abs().max()) / 8
