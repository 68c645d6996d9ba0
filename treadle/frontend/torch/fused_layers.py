# SPDX-License-Identifier: Apache-2.0
"""Layers that torch runs as one operator when nobody needs gradients, written by their parts.

nn.TransformerEncoderLayer, nn.MultiheadAttention and linear_cross_entropy in chunks take such a
path of torch's own, of which torch has no decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as nn

Tensor = Any
"""A torch.Tensor."""


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Return aten._transformer_encoder_layer_fwd: attention and a network, with their norms."""

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attended((x, x, x), embed_dim, num_heads, weights, mask, mask_type)[0]

    def network(x: Tensor) -> Tensor:
        hidden = nn.linear(x, ffn_weight_1, ffn_bias_1)
        return nn.linear(nn.gelu(hidden) if use_gelu else nn.relu(hidden), ffn_weight_2, ffn_bias_2)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return nn.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + network(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + network(x), norm_weight_2, norm_bias_2)


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return aten._native_multi_head_attention: the result, and the weights where needed."""
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    inputs = (query, key, value)
    made, shares = _attended(inputs, embed_dim, num_head, weights, mask, mask_type)
    if not need_weights:
        return made, query.new_empty(0)
    return made, shares.mean(1) if average_attn_weights else shares


def _attended(
    inputs: tuple[Tensor, Tensor, Tensor],
    width: int,
    heads: int,
    weights: Sequence[Tensor],
    mask: Tensor | None,
    mask_type: int | None,
) -> tuple[Tensor, Tensor]:
    """Return attention of [batch, steps, width], and its weights [batch, heads, steps, steps]."""
    qkv_weight, qkv_bias, proj_weight, proj_bias = weights
    parts = zip(inputs, qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (
        nn.linear(x, w, b).unflatten(-1, (heads, width // heads)).transpose(1, 2)
        for x, w, b in parts
    )
    scores = (q * (width // heads) ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(_wide(mask, mask_type), float("-inf"))
    shares = torch.softmax(scores, -1)
    joined = (shares @ v).transpose(1, 2).flatten(2)
    return nn.linear(joined, proj_weight, proj_bias), shares


def _wide(mask: Tensor, mask_type: int | None) -> Tensor:
    """Return a mask that broadcasts to scores: type 1 is of padding [batch, steps]."""
    return mask[:, None, None, :].bool() if mask_type == 1 else mask.bool()


# ---- losses --------------------------------------------------------------------------------------


def chunked_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *_policy_and_gradients: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the loss of a linear layer's results, and gradients without elements.

    x: [rows, features], target: int64[rows]. Gradients are asked for in training alone.
    """
    logits = nn.linear(x, linear_weight, linear_bias)
    loss = nn.cross_entropy(logits, target, weight, None, ignore_index, None, reduction,
                            label_smoothing)  # fmt: skip
    return loss, x.new_empty(0, 0), x.new_empty(0, 0), x.new_empty(0)


def chunked_cross_entropy_of_rows(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    *_policy: object,
) -> Tensor:
    """Return the losses of rows, [rows], as `chunked_cross_entropy` has their mean or sum."""
    logits = nn.linear(x, linear_weight, linear_bias)
    return nn.cross_entropy(logits, target, weight, None, ignore_index, None, "none")


_LAYERS: dict[str, Callable[..., Any]] = {
    "aten._transformer_encoder_layer_fwd": encoder_layer,
    "aten._native_multi_head_attention": multi_head_attention,
    "torch_nn._linear_cross_entropy_batch_chunked": chunked_cross_entropy,
    "torch_nn._linear_cross_entropy_batch_chunked_no_reduction": chunked_cross_entropy_of_rows,
}


def fused() -> dict[Any, Callable[..., Any]]:
    """Return decompositions by operator: of those that torch has registered by now."""
    found = {}
    for name, function in _LAYERS.items():
        domain, _, op = name.partition(".")
        packet = getattr(getattr(torch.ops, domain), op, None)
        if packet is not None:
            found[packet.default] = function
    return found
