# SPDX-License-Identifier: Apache-2.0
"""Losses of halves: what is added is never rounded to 16 bits."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import (  # noqa: E402  # imports torch
    as_module,
    assert_agrees,
    exported_outputs,
)

pytestmark = pytest.mark.torch

loss = torch.nn.functional.binary_cross_entropy_with_logits


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_of_logits(reduction: str) -> None:
    def losses(x: Any, t: Any, w: Any, p: Any) -> Any:
        return (
            loss(x, t, reduction=reduction),
            loss(x, t, weight=w, reduction=reduction),
            loss(x, t, pos_weight=p, reduction=reduction),
        )

    x, (target, weight) = 9 * torch.randn(4, 5), torch.rand(2, 4, 5)
    assert_agrees(losses, x, target, weight, torch.rand(5))


def test_cancelled_terms_of_halves_keep_their_digits() -> None:
    x, target = torch.tensor([5.0, 9.0]).half(), torch.tensor([0.999, 1.0]).half()
    (found,) = exported_outputs(as_module(lambda x, t: loss(x, t, reduction="none")), (x, target))
    exact = loss(x.double(), target.double(), reduction="none")
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=0)
