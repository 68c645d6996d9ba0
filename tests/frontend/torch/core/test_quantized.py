# SPDX-License-Identifier: Apache-2.0
"""Quantised programs of torch: integers between operators, and integer kernels for them."""

from __future__ import annotations

from typing import Any

import pytest

import treadle
from tests.frontend.torch.programs import exported_outputs
from treadle.graph.nodes import Call, topological
from treadle.graph.types import tensor_type
from treadle.ops.conv import conv
from treadle.ops.matmul import matmul
from treadle.optimize.quantised import multiply_quantised
from treadle.target.parse import parse_target

torch: Any = pytest.importorskip("torch")
nn = torch.nn

import torch.ao.quantization.fx._decomposed  # noqa: E402  # registers the operators

from treadle.integrations.torch_compile import treadle_backend  # noqa: E402

pytestmark = pytest.mark.torch

Q = torch.ops.quantized_decomposed


class Quantised(nn.Module):  # type: ignore[misc]
    """A convolution and a layer with int8 weights per channel, between uint8 and int8 values."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        weights = {"filters": torch.randn(8, 4, 3, 3) / 6, "matrix": torch.randn(5, 8) / 3}
        for name, weight in weights.items():
            scales = weight.abs().flatten(1).amax(1) / 127
            zeros = torch.zeros(len(scales), dtype=torch.int64)
            held = Q.quantize_per_channel(weight, scales, zeros, 0, -127, 127, torch.int8)
            self.register_buffer(name, held)
            self.register_buffer(f"{name}_scales", scales)
            self.register_buffer(f"{name}_zeros", zeros)

    def weight(self, name: str) -> Any:
        held, scales = getattr(self, name), getattr(self, f"{name}_scales")
        zeros = getattr(self, f"{name}_zeros")
        return Q.dequantize_per_channel(held, scales, zeros, 0, -127, 127, torch.int8)

    def forward(self, x: Any) -> Any:
        x = _rounded(x, 0.03, 120, (0, 255), torch.uint8)
        x = torch.relu(nn.functional.conv2d(x, self.weight("filters"), padding=1))
        x = _rounded(x, 0.02, -128, (-128, 127), torch.int8).mean((2, 3))
        x = _rounded(x, 0.01, 0, (-100, 100), torch.int8)
        return Q.quantize_per_tensor(x @ self.weight("matrix").t(), 0.01, 3, -128, 127, torch.int8)


def _rounded(x: Any, scale: float, zero: int, bounds: tuple[int, int], kind: Any) -> Any:
    steps = Q.quantize_per_tensor(x, scale, zero, *bounds, kind)
    return Q.dequantize_per_tensor(steps, scale, zero, *bounds, kind)


def test_a_quantised_program_is_within_one_step() -> None:
    module, x = Quantised().eval(), torch.randn(2, 4, 10, 10)
    (found,) = exported_outputs(module, (x,))
    wanted = module(x)
    assert found.dtype == wanted.dtype == torch.int8
    assert wanted.float().std() > 5
    assert (found.int() - wanted.int()).abs().max() <= 1


def test_products_of_a_quantised_program_are_of_integers() -> None:
    module = treadle.from_torch(Quantised().eval(), (torch.randn(2, 4, 10, 10),))
    target = parse_target("llvm -mcpu=skylake-avx512")
    function = multiply_quantised(module.main, target)
    products = [n for n in topological([function.body]) if isinstance(n, Call)]
    types = {str(n.op): tensor_type(n.type).dtype for n in products if n.op in (conv, matmul)}
    assert types == {"conv": "int32", "matmul": "int32"}


def test_a_quantised_module_runs_whole_under_torch_compile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch._dynamo.reset()
    module, x = Quantised().eval(), torch.randn(2, 4, 10, 10)
    with torch.no_grad():
        found = torch.compile(module, backend=treadle_backend, fullgraph=True)(x)
        assert (found.int() - module(x).int()).abs().max() <= 1
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text


def test_bounds_narrower_than_the_type_clip() -> None:
    class Clipped(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, scale: Any, zero: Any) -> Any:
            return Q.quantize_per_tensor.tensor(x, scale, zero, -7, 9, torch.int8)

    args = (torch.linspace(-3, 3, 13), torch.tensor(0.25), torch.tensor(1))
    (found,) = exported_outputs(Clipped(), args)
    assert torch.equal(found, Clipped()(*args))


class Ranges(nn.Module):  # type: ignore[misc]
    """What quantises by the range that a run finds, of all elements or of every vector."""

    def forward(self, x: Any) -> Any:
        made = []
        for choose in (Q.choose_qparams.tensor, Q.choose_qparams_symmetric.tensor):
            scale, zero = choose(x, -128, 127, 1e-5, torch.int8)
            steps = Q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
            made += [scale, zero, steps]
        for choose in (Q.choose_qparams_per_token, Q.choose_qparams_per_token_asymmetric):
            scale, zero = choose(x, torch.int8)
            steps = Q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
            back = Q.dequantize_per_token(steps, scale, zero, -128, 127, torch.int8, torch.float32)
            made += [scale, zero, steps, back]
        return made


@pytest.mark.parametrize("shift", [-9.0, 0.0, 9.0])
def test_scales_and_zero_points_that_a_run_finds(shift: float) -> None:
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1)) + shift
    module = Ranges()
    for want, got in zip(module(x), exported_outputs(module, (x,)), strict=True):
        assert got.shape == want.shape
        if want.dtype == torch.int8:
            assert (got.int() - want.int()).abs().max() <= 1  # a tie is rounded either way
        else:
            largest_step = 0.2 if want.shape == x.shape else 1e-6 * float(want.abs().max())
            assert (got.double() - want.double()).abs().max() <= largest_step


def test_scales_of_nothing_but_zeros_are_above_0() -> None:
    x = torch.zeros(2, 4)
    for want, got in zip(Ranges()(x), exported_outputs(Ranges(), (x,)), strict=True):
        torch.testing.assert_close(got, want, check_dtype=False)  # torch's kernels and types differ


def test_groups_of_a_rows_elements() -> None:
    class Grouped(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, scales: Any, zeros: Any) -> Any:
            kind = (-8, 7, torch.int8, 4)
            steps = Q.quantize_per_channel_group(x, scales, zeros, *kind)
            back = Q.dequantize_per_channel_group(steps, scales, zeros, *kind, torch.float32)
            return (
                steps,
                back,
                Q.dequantize_per_channel_group(steps, scales, None, *kind, torch.float32),
            )

    zeros = torch.tensor([[0, 1, -2], [3, 0, 1]], dtype=torch.int32)
    scales = torch.tensor([[0.5, 0.25, 1.0], [0.125, 2.0, 0.75]])
    args = (torch.linspace(-4.1, 3.9, 24).reshape(2, 12), scales, zeros)
    for want, got in zip(Grouped()(*args), exported_outputs(Grouped(), args), strict=True):
        torch.testing.assert_close(got, want)


def test_a_product_of_bytes_is_summed_in_32_bits() -> None:
    class Product(nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any) -> Any:
            return torch._int_mm(a, b)

    a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((32, 64), (64, 24)))
    a[0], b[:, 0] = -128, -128
    (found,) = exported_outputs(Product(), (a, b))
    assert found.dtype == torch.int32
    assert torch.equal(found, a.int() @ b.int())
    assert int(found[0, 0]) == 64 * 128 * 128
