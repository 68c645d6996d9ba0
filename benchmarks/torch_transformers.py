# SPDX-License-Identifier: Apache-2.0
"""Transformers of `transformers` as torch modules, with the weights of their ONNX files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn

from benchmarks.transformers import HEAD

LAYERS = 12


class Transformer(nn.Module):
    """What the three have in common: weights by name, linear maps, norms, attention."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self.weights: dict[str, Tensor] = {}
        for stored in onnx.load(model).graph.initializer:
            value = torch.from_numpy(numpy_helper.to_array(stored).copy())
            if value.ndim == 2 and stored.name.endswith(".weight"):
                value = value if stored.name.startswith(("pooler.", "head.")) else value.T
            self.weights[stored.name] = value.contiguous()

    def linear(self, x: Tensor, name: str) -> Tensor:
        """Return x [..., in] times the weight [out, in], plus the bias."""
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, x: Tensor, name: str, epsilon: float = 1e-5) -> Tensor:
        """Return x normalised along its last axis."""
        scale, shift = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], scale, shift, epsilon)

    def attend(
        self, parts: list[Tensor], mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Return attention of queries, keys and values [1, rows, width], heads joined again."""
        q, k, v = (x.view(*x.shape[:2], -1, HEAD).transpose(1, 2) for x in parts)
        made = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        return made.transpose(1, 2).flatten(2)


class Bert(Transformer):
    """BERT-base: ids and mask in, hidden states and the pooled first one out."""

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return float32 [1, rows, 768] and [1, 768]."""
        words, places = self.weights["embeddings.word"], self.weights["embeddings.position"]
        x = self.norm(words[ids] + places, "embeddings", 1e-12)
        bias = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in range(LAYERS):
            at = f"encoder.{layer}"
            parts = [self.linear(x, f"{at}.{part}") for part in ("query", "key", "value")]
            output = self.linear(self.attend(parts, bias), f"{at}.output")
            x = self.norm(output + x, f"{at}.attention.norm", 1e-12)
            inner = F.gelu(self.linear(x, f"{at}.inner"))
            x = self.norm(self.linear(inner, f"{at}.outer") + x, f"{at}.norm", 1e-12)
        return x, torch.tanh(self.linear(x[:, 0], "pooler"))


class Gpt2(Transformer):
    """GPT-2 small: ids in, logits of every position out."""

    def forward(self, ids: Tensor) -> Tensor:
        """Return float32 [1, rows, 50257]."""
        words = self.weights["words"]
        x = words[ids] + self.weights["places"][: ids.shape[1]]
        for layer in range(LAYERS):
            at = f"block.{layer}"
            projected = self.linear(self.norm(x, f"{at}.norm1"), f"{at}.qkv")
            context = self.attend(list(projected.chunk(3, -1)), causal=True)
            x = self.linear(context, f"{at}.output") + x
            inner = self.linear(self.norm(x, f"{at}.norm2"), f"{at}.inner")
            x = x + self.linear(F.gelu(inner, approximate="tanh"), f"{at}.outer")
        return F.linear(self.norm(x, "norm"), words)


class Vit(Transformer):
    """ViT-base with patches of 16 x 16: an image of 224 x 224 in, logits out."""

    def forward(self, image: Tensor) -> Tensor:
        """Return float32 [1, 1000]."""
        filters, bias = self.weights["patch.weight"], self.weights["patch.bias"]
        patches = F.conv2d(image, filters, bias, stride=16).flatten(2).transpose(1, 2)
        x = torch.cat([self.weights["class"], patches], 1) + self.weights["positions"]
        for layer in range(LAYERS):
            at = f"block.{layer}"
            projected = self.linear(self.norm(x, f"{at}.norm1"), f"{at}.qkv")
            context = self.attend(list(projected.chunk(3, -1)))
            x = x + self.linear(context, f"{at}.output")
            inner = F.gelu(self.linear(self.norm(x, f"{at}.norm2"), f"{at}.inner"))
            x = x + self.linear(inner, f"{at}.outer")
        return self.linear(self.norm(x, "norm")[:, 0], "head")


MODULES: dict[str, Callable[[Path], Transformer]] = {
    "bert_base": Bert,
    "gpt2": Gpt2,
    "vit_base": Vit,
}
"""The networks that have a torch form here, by the names of their files."""
