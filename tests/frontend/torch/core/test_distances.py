# SPDX-License-Identifier: Apache-2.0
"""Distances of rows: axes in front broadcast, whichever operand has more of them."""

from __future__ import annotations

from typing import Any

import pytest

import treadle

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


class _Distances(torch.nn.Module):  # type: ignore[misc]
    def forward(self, a: Any, b: Any) -> Any:
        return torch.cdist(a, b), torch.cdist(a, b, p=1.0)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 5, 8), (6, 8)), ((5, 8), (3, 2, 6, 8)), ((3, 1, 5, 8), (2, 6, 8))]
)
def test_axes_in_front_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    args = torch.randn(a), torch.randn(b)
    found = treadle.compile(_Distances(), args).run(list(args))
    for made, wanted in zip(found, _Distances()(*args), strict=True):
        torch.testing.assert_close(torch.from_dlpack(made), wanted, rtol=1e-4, atol=1e-4)
