# SPDX-License-Identifier: Apache-2.0
"""Elements that are rolled, padding of open sizes; other movements are samples of torch's."""

from __future__ import annotations

from typing import Any

import pytest

import treadle

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import assert_agrees  # noqa: E402  # torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("shape", [(3, 4, 5), (4,), (0, 3)])
def test_without_axes_all_elements_are_rolled(shape: tuple[int, ...]) -> None:
    assert_agrees(lambda x: (x.roll(2), x.roll(-7)), torch.randn(shape))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_padding_to_a_multiple_at_any_size(mode: str) -> None:
    class Padded(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            value = {"value": 7.0} if mode == "constant" else {}
            return torch.nn.functional.pad(x, (1, -x.shape[-1] % 4), mode=mode, **value) * 2

    size = torch.export.Dim("size", min=4, max=64)
    exe = treadle.compile(
        Padded(), (torch.zeros(1, 3, 9),), dynamic_shapes=({2: size},), opt_level=1
    )
    for n in (4, 5, 6, 7, 8, 31):
        x = torch.randn(1, 3, n)
        torch.testing.assert_close(torch.from_dlpack(exe.run([x])[0]), Padded()(x))


def test_a_cut_of_as_many_elements_as_sizes_say() -> None:
    class Cut(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.pad(x, (2, 1 - x.shape[-1]))

    size = torch.export.Dim("size", min=4, max=64)
    exe = treadle.compile(Cut(), (torch.zeros(2, 9),), dynamic_shapes=({1: size},), opt_level=1)
    for n in (4, 9, 20):
        x = torch.randn(2, n)
        torch.testing.assert_close(torch.from_dlpack(exe.run([x])[0]), Cut()(x))
