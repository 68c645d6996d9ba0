# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.gpu` measures: networks and single operators as torch modules, with inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

SEED = 1


@dataclass(frozen=True)
class Case:
    """A module in evaluation, and the inputs it is run on, all on the CPU."""

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]


class _Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return what the function gives."""
        return self.function(*inputs)


class _Binary(_Function):
    """A function of two tensors: exporters want to know how many there are."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return what the function gives."""
        return self.function(a, b)


class _Ternary(_Function):
    """A function of three tensors."""

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Return what the function gives."""
        return self.function(a, b, c)


class _Unary(_Function):
    """A function of one tensor."""

    def forward(self, a: Tensor) -> Tensor:
        """Return what the function gives."""
        return self.function(a)


def _vision(name: str, size: int = 224) -> Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]:
    def made() -> tuple[nn.Module, tuple[Tensor, ...]]:
        from torchvision import models  # optional, and slow to import

        return getattr(models, name)(weights=None), (torch.randn(1, 3, size, size),)

    return made


class _Bert(nn.Module):
    """An encoder of BERT's size without its tables: [1, 128, 768] to the same."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoded sequence."""
        made: Tensor = self.layers(x)
        return made


def _square(n: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return _Binary(torch.matmul), (torch.randn(n, n), torch.randn(n, n))


def _conv(
    channels: int, filters: int, size: int, kernel: int, groups: int = 1, batch: int = 1
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    made = nn.Conv2d(channels, filters, kernel, padding=kernel // 2, groups=groups)
    return made, (torch.randn(batch, channels, size, size),)


def _attention(
    rows: int, depth: int = 64, heads: int = 12, *, causal: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return torch's attention of [1, heads, rows, depth] to itself, by three tensors."""

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made: Tensor = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return made

    shape = (1, heads, rows, depth)
    return _Ternary(attended), (torch.randn(shape), torch.randn(shape), torch.randn(shape))


_Maker = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]

NETWORKS: Mapping[str, _Maker] = {
    "resnet50": _vision("resnet50"),
    "resnet18": _vision("resnet18"),
    "mobilenet_v2": _vision("mobilenet_v2"),
    "efficientnet_b0": _vision("efficientnet_b0"),
    "densenet121": _vision("densenet121"),
    "vgg19": _vision("vgg19"),
    "squeezenet1_1": _vision("squeezenet1_1"),
    "convnext_tiny": _vision("convnext_tiny"),
    "vit_b_16": _vision("vit_b_16"),
    "bert_encoder": lambda: (_Bert(), (torch.randn(1, 128, 768),)),
}
"""Whole networks with seeded weights."""

OPERATORS: Mapping[str, _Maker] = {
    "matmul 512": lambda: _square(512),
    "matmul 1024": lambda: _square(1024),
    "matmul 2048": lambda: _square(2048),
    "matmul 4096": lambda: _square(4096),
    "linear 128x768x3072": lambda: (nn.Linear(768, 3072), (torch.randn(128, 768),)),
    "linear 1x4096x4096": lambda: (nn.Linear(4096, 4096), (torch.randn(1, 4096),)),
    "conv 64x56x56 3x3": lambda: _conv(64, 64, 56, 3),
    "conv 256x14x14 3x3": lambda: _conv(256, 256, 14, 3),
    "conv 512x7x7 1x1": lambda: _conv(512, 2048, 7, 1),
    "conv 8x256x56x56 3x3": lambda: _conv(256, 256, 56, 3, batch=8),
    "depthwise 144x56x56": lambda: _conv(144, 144, 56, 3, groups=144),
    "softmax 4096x4096": lambda: (nn.Softmax(-1), (torch.randn(4096, 4096),)),
    "layer norm 4096x4096": lambda: (nn.LayerNorm(4096), (torch.randn(4096, 4096),)),
    "attention 197": lambda: _attention(197),
    "attention 512": lambda: _attention(512),
    "attention 2048": lambda: _attention(2048),
    "attention 2048 causal": lambda: _attention(2048, causal=True),
    "attention 1024x128": lambda: _attention(1024, 128),
    "add 16M": lambda: (_Binary(torch.add), (torch.randn(1 << 24), torch.randn(1 << 24))),
    "gelu 16M": lambda: (nn.GELU(), (torch.randn(1 << 24),)),
    "sum 4096x4096": lambda: (_Unary(lambda a: a.sum(-1)), (torch.randn(4096, 4096),)),
    "transpose 4096x4096": lambda: (
        _Unary(lambda a: a.transpose(0, 1).contiguous()),
        (torch.randn(4096, 4096),),
    ),
}
"""Single operators."""

CASES: Mapping[str, _Maker] = {**OPERATORS, **NETWORKS}


def case_of(name: str) -> Case:
    """Return a case with its seeded weights and inputs."""
    torch.manual_seed(SEED)
    module, inputs = CASES[name]()
    return Case(name, module.eval(), inputs)


def cupy_of(name: str, module: Any) -> Callable[..., Any] | None:
    """Return how CuPy computes a case from its inputs; None where it has no one function for it."""
    functions: Mapping[str, Callable[..., Any]] = {
        "matmul": module.matmul,
        "add": module.add,
        "sum": lambda a: a.sum(-1),
    }
    return functions.get(name.partition(" ")[0])
