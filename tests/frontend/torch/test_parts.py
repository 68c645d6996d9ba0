# SPDX-License-Identifier: Apache-2.0
"""Complex numbers through torch.compile and torch.export: layers that use them, and operators."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import treadle

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.frontend.torch.programs import as_module  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch


class MelSpectrogram(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("mel", torch.rand(20, 33))

    def forward(self, x: Any) -> Any:
        spectrum = torch.stft(x, 64, 16, window=self.window, return_complex=True)
        return torch.log(self.mel @ spectrum.abs() ** 2 + 1e-3)


class GlobalFilter(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 5, 2))

    def forward(self, x: Any) -> Any:
        spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
        made = spectrum * torch.view_as_complex(self.weight)
        return torch.fft.irfft2(made, s=(6, 6), dim=(1, 2), norm="ortho")


class Rotary(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(32.0), 0.1 ** torch.arange(4.0))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turns = self.turns[: x.shape[1], None]
        return torch.view_as_real(pairs * turns).flatten(3)


class Vocoder(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 34)
        self.register_buffer("window", torch.hann_window(32))

    def forward(self, x: Any) -> Any:
        length, angle = self.head(x).transpose(1, 2).chunk(2, 1)
        spectrum = torch.polar(length.exp(), angle)
        return torch.istft(spectrum, 32, 8, window=self.window)


LAYERS = {
    "mel": (MelSpectrogram, (2, 400)),
    "filter": (GlobalFilter, (2, 6, 6, 5)),
    "rotary": (Rotary, (2, 7, 3, 8)),
    "vocoder": (Vocoder, (2, 11, 12)),
}


def _layer(name: str, dtype: str = "float32") -> tuple[Any, Any]:
    torch.manual_seed(0)
    made, shape = LAYERS[name]
    layer = made().eval()
    if dtype == "float64":
        layer = layer.double()
        if name == "rotary":
            layer.turns = layer.turns.to(torch.complex128)
    return layer, torch.randn(shape, dtype=getattr(torch, dtype))


@pytest.fixture
def whole(caplog: pytest.LogCaptureFixture) -> Any:
    """Hold that torch runs nothing of a graph."""
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "treadle.torch"), torch.no_grad():
        yield
    assert not caplog.records, caplog.text


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-4), ("float64", 1e-11)])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_through_torch_compile(name: str, dtype: str, near: float) -> None:
    layer, x = _layer(name, dtype)
    found = torch.compile(layer, backend="treadle", fullgraph=True)(x)
    torch.testing.assert_close(found, layer(x), rtol=near, atol=near)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_through_torch_export(name: str) -> None:
    layer, x = _layer(name)
    (found,) = treadle.compile(layer, (x,)).run([x])
    torch.testing.assert_close(torch.from_dlpack(found), layer(x).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["mel", "filter", "rotary"])
def test_a_layer_of_any_batch_through_torch_export(name: str) -> None:
    layer, x = _layer(name)
    exe = treadle.compile(layer, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    wide = torch.cat([x, x + 1, x * 2])
    (found,) = exe.run([wide])
    torch.testing.assert_close(torch.from_dlpack(found), layer(wide).detach(), rtol=1e-4, atol=1e-4)


def _numbers(*shape: int) -> Any:
    torch.manual_seed(1)
    return torch.randn(shape, dtype=torch.complex64)


OPERATORS = {
    "products": lambda a, b: (a * b, a * 2j, a / b, 1 / a, a**3, a**0.5, a.real * b),
    "functions": lambda a, b: (a.exp(), a.log(), a.sqrt(), a.sin(), a.cosh(), a.tanh(), a.tan()),
    "signs": lambda a, b: (a.abs(), a.angle(), a.sgn(), a.conj() + b, -a, a.conj().imag * 2),
    "sums": lambda a, b: (a.sum(), a.mean(0), a.prod(-1), a.std(), a.cumsum(0)),
    "matrices": lambda a, b: (a @ b.T, torch.einsum("ij,kj->ik", a, b.conj()),
                              a.real.cfloat() @ b.T),
    "moved": lambda a, b: (torch.cat([a, b.real]), a.roll(1, 0), a[:, 1:].flip(0),
                           torch.stack([a, b])),
    "chosen": lambda a, b: (torch.where(a.real > 0, a, b), a[a.imag > 0], a[[0, 2]], a == b),
    "transforms": lambda a, b: (torch.fft.fft(a, n=7), torch.fft.ifft2(a), torch.fft.hfft(a)),
}  # fmt: skip


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_through_torch_compile(name: str) -> None:
    function, given = OPERATORS[name], (_numbers(5, 4), _numbers(5, 4))
    found = torch.compile(function, backend="treadle", fullgraph=True)(*given)
    for f, wanted in zip(found, function(*given), strict=True):
        torch.testing.assert_close(f, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("x", [_numbers(3, 4).T, _numbers(3, 4).conj(), _numbers(6, 4)[::2]])
def test_complex_inputs_of_any_memory(x: Any) -> None:
    found = torch.compile(lambda z: z * 2 + 1j, backend="treadle", fullgraph=True)(x)
    torch.testing.assert_close(found, x * 2 + 1j)
    assert found.stride() == (x * 2 + 1j).stride()


@pytest.mark.usefixtures("whole")
def test_complex_numbers_in_a_branch() -> None:
    def function(z: Any) -> Any:
        return torch.cond(z.real.sum() > 0, lambda v: v * 2, lambda v: v * 1j + 1, (z,))

    fast = torch.compile(function, backend="treadle", fullgraph=True)
    for z in (_numbers(3) + 9, _numbers(3) - 9):
        torch.testing.assert_close(fast(z), function(z))


def test_a_complex_tensor_updated_in_place_is_updated() -> None:
    torch._dynamo.reset()
    x, y = _numbers(4), _numbers(4)
    with torch.no_grad():
        torch.compile(lambda z: torch.view_as_real(z).mul_(2), backend="treadle")(x)
    torch.testing.assert_close(x, y * 2)


def test_a_complex_result_of_a_program_is_an_axis_of_2() -> None:
    class Spectrum(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x)

    x = torch.randn(3, 10)
    (found,) = treadle.compile(Spectrum(), (x,)).run([x])
    torch.testing.assert_close(torch.from_dlpack(found), torch.view_as_real(torch.fft.rfft(x)))


def test_what_complex_numbers_lack_is_refused_by_name() -> None:
    class Sinc(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.acosh(x * 1j).abs()

    with pytest.raises(treadle.UnsupportedOperators, match=r"acosh.*for complex numbers"):
        treadle.from_torch(Sinc(), (torch.ones(3),))


def test_a_transform_of_open_length_is_refused_in_words() -> None:
    module, free = as_module(lambda x: torch.fft.rfft(x).abs()), torch.export.Dim.DYNAMIC
    with pytest.raises(treadle.TreadleError, match="a length that each run decides") as error:
        treadle.compile(module, (torch.randn(3, 20),), dynamic_shapes=(({1: free},),))
    assert "frames of a known length" in error.value.hint
