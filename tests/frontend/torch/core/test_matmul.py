# SPDX-License-Identifier: Apache-2.0
"""Products of matrices by groups, as mixtures of experts have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from treadle.integrations.torch_compile import treadle_backend  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch

ENDS = torch.tensor([4, 4, 9], dtype=torch.int32)
"""Where groups end among 10 rows: the second is empty, and the last row has none."""


@pytest.fixture
def fallback() -> Iterator[Any]:
    """The operator that transformers adds for products of groups of rows."""
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        yield torch.ops.transformers.grouped_mm_fallback
        return
    with torch.library._scoped_library("transformers", "FRAGMENT") as library:
        library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        library.impl("grouped_mm_fallback", _by_groups, "CPU")
        library.impl("grouped_mm_fallback", lambda x, w, _: x.new_empty(len(x), w.shape[2]), "Meta")
        yield torch.ops.transformers.grouped_mm_fallback


def _by_groups(x: Any, weight: Any, ends: Any) -> Any:
    made, start = x.new_zeros(len(x), weight.shape[2]), 0
    for matrix, end in zip(weight, ends.tolist(), strict=True):
        made[start:end] = x[start:end] @ matrix
        start = end
    return made


def _compiled(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=treadle_backend, fullgraph=True)


def test_rows_by_the_matrices_of_their_groups(
    fallback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    run = _compiled(lambda x, w, ends: fallback(x * 2, w.transpose(1, 2), ends))
    for rows in (10, 12, 15):
        x, w = torch.randn(rows, 8), torch.randn(3, 20, 8)
        wanted = _by_groups(x * 2, w.transpose(1, 2), ENDS)
        torch.testing.assert_close(run(x, w, ENDS), wanted, rtol=1e-5, atol=1e-5)
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text


def test_grouped_products_of_torch(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(9, 16).bfloat16(), torch.randn(3, 16, 24).bfloat16()
    stack = torch.randn(3, 8, 16).bfloat16()
    product = torch.nn.functional.grouped_mm
    for args in ((x, w, ENDS), (w.transpose(1, 2), x.t(), ENDS), (stack, w, None)):
        run = _compiled(lambda a, b, ends: product(a, b, offs=ends))
        torch.testing.assert_close(run(*args), product(*args[:2], offs=args[2]))
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text


def test_sums_over_groups_run_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    a, b = torch.randn(8, 16).bfloat16(), torch.randn(16, 24).bfloat16()
    ends = torch.tensor([8, 16], dtype=torch.int32)
    run = _compiled(lambda a, b: torch.nn.functional.grouped_mm(a * 2, b, offs=ends))
    wanted = torch.nn.functional.grouped_mm(a * 2, b, offs=ends)
    torch.testing.assert_close(run(a, b), wanted)
    assert "aten._grouped_mm.default (1)" in caplog.text
