# SPDX-License-Identifier: Apache-2.0
"""Attention: scores are never rounded to 16 bits, and what no query sees counts for nothing."""

from __future__ import annotations

from typing import Any

import pytest

import treadle

torch: Any = pytest.importorskip("torch")

from tests.frontend.torch.programs import (  # noqa: E402  # imports torch
    as_module,
    assert_agrees,
    exported_outputs,
)

pytestmark = pytest.mark.torch

DIM = torch.export.Dim
attend = torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.01), ("bfloat16", 0.06)])
def test_large_scores_tell_keys_apart(dtype: str, tolerance: float) -> None:
    kind = getattr(torch, dtype)
    q, k, v = (8 * torch.randn(3, 2, 4, 6, 8)).to(kind)
    (found,) = exported_outputs(as_module(attend), (q, k, v))
    exact = attend(q.double(), k.double(), v.double())
    assert found.dtype is kind
    assert float((found.double() - exact).abs().max()) < tolerance * float(v.abs().max()) / 8


def masks() -> list[Any]:
    """Return masks of [2, 3, 5, 7] scores; each leaves some query nothing to see."""
    seen = torch.rand(2, 1, 5, 7) > 0.4
    seen[0, 0, 1] = seen[1, 0, 4] = False
    low = torch.zeros(5, 7).masked_fill(~seen[0, 0], float("-inf"))
    return [seen, seen[0, 0], seen.expand(2, 3, 5, 7), low, torch.rand(2, 1, 1, 7) > 1]


@pytest.mark.parametrize("number", range(5))
def test_a_query_that_sees_no_key_gives_zeros(number: int) -> None:
    q, k, mask = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), masks()[number]
    assert_agrees(lambda q, k, m: attend(q, k, k, attn_mask=m), q, k, mask)
    assert_agrees(lambda q, k: attend(q, k, k, attn_mask=mask), q, k)


@pytest.mark.parametrize("keys", [3, 5, 9])
def test_a_causal_query_sees_the_keys_up_to_its_own_number(keys: int) -> None:
    q, k = torch.randn(2, 3, 5, 8), torch.randn(2, 3, keys, 8)
    assert_agrees(lambda q, k: attend(q, k, k, is_causal=True), q, k)


def test_any_size_of_attention_may_be_open() -> None:
    sizes = {0: DIM("batch"), 1: DIM("heads"), 2: DIM("queries"), 3: DIM("size")}
    shapes = (sizes, {**sizes, 2: DIM("keys")})
    module = as_module(lambda q, k: attend(q, k, k, is_causal=True))
    exe = treadle.compile(
        module, (torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8)), dynamic_shapes=((*shapes,),)
    )
    for queries, keys, size in ((5, 7, 8), (4, 2, 12), (3, 3, 16)):
        q, k = torch.randn(2, 4, queries, size), torch.randn(2, 4, keys, size)
        found = torch.from_dlpack(exe.run([q, k])[0])
        torch.testing.assert_close(found, module(q, k), rtol=1e-5, atol=1e-5)
