# SPDX-License-Identifier: Apache-2.0
"""Elements that are rolled, padding of open sizes; other movements are samples of torch's."""

from __future__ import annotations

from typing import Any

import pytest

import treadle
from treadle.errors import InputError

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import assert_agrees  # noqa: E402  # torch
from treadle.integrations.torch_compile import treadle_backend  # noqa: E402  # imports torch

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


def _compiled(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=treadle_backend, fullgraph=True, dynamic=True)


@pytest.mark.parametrize("shifts", [(3, 5, 41), (-3, -5, -41), (3, -3, 5)])
def test_numbers_of_any_sign(shifts: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    def moved(x: Any, k: int) -> tuple[Any, ...]:
        return x * k + 1, torch.roll(x, k, 1), torch.triu(x, diagonal=k), x[:, k:] * 2

    run = _compiled(moved)
    for k in shifts:
        x = torch.randn(3, 40)
        for want, got in zip(moved(x, k), run(x, k), strict=True):
            torch.testing.assert_close(got, want)
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text


def test_a_roll_of_nothing() -> None:
    run = _compiled(lambda x, k: torch.roll(x, k, 1) + 1)
    for n in (4, 3, 0, 2):
        x = torch.randn(2, n)
        torch.testing.assert_close(run(x, 3), torch.roll(x, 3, 1) + 1)


def _one_behind_the_other(cache: Any, x: Any, place: int) -> Any:
    cache = cache.clone()
    cache[:, place : place + x.shape[1]] = x
    return cache * 2


def _every_third(cache: Any, x: Any, place: int) -> Any:
    cache = cache.clone()
    cache[:, place : place + 3 * x.shape[1] : 3] = x
    return cache * 2


@pytest.mark.parametrize("written", [_one_behind_the_other, _every_third])
@pytest.mark.parametrize("from_end", [False, True])
def test_a_range_at_an_open_place_is_overwritten(
    written: Any, from_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run = _compiled(written)
    for count, place in ((4, 7), (5, 9), (2, 11), (2, 37), (7, 2)):
        cache, x = torch.randn(3, 44, 2), torch.randn(3, count, 2)
        at = place - 44 if from_end else place
        torch.testing.assert_close(run(cache, x, at), written(cache, x, at))
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text


def test_open_ranges_of_open_axes_are_overwritten() -> None:
    class Written(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            x = x.clone()
            x[:, : y.shape[1]] = y
            x[:, -3:] = 0
            x[:, 1:-1] += 1
            return x

    sizes = {"m": (8, 64), "n": (2, 8)}
    m, n = (torch.export.Dim(k, min=low, max=high) for k, (low, high) in sizes.items())
    args = (torch.zeros(3, 20), torch.zeros(3, 5))
    exe = treadle.compile(Written(), args, dynamic_shapes=({1: m}, {1: n}), opt_level=1)
    for wide, narrow in ((9, 4), (8, 7), (30, 7)):
        x, y = torch.randn(3, wide), torch.randn(3, narrow)
        torch.testing.assert_close(torch.from_dlpack(exe.run([x, y])[0]), Written()(x, y))
    # A range that is all of the axis is none for torch, whose own program refuses it, too.
    with pytest.raises(InputError, match=r"asks for x.size\(\)\[1\] != y.size\(\)\[1\]"):
        exe.run([torch.randn(3, 8), torch.randn(3, 8)])
