# SPDX-License-Identifier: Apache-2.0
"""Tables of rows whose length is bounded; bags themselves are samples of torch's database."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import treadle.integrations.torch_compile  # noqa: E402, F401  # registers the backend

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_rows_that_are_used_are_no_longer_than_the_limit(norm_type: float) -> None:
    def looked_up(ids: Any, table: Any) -> Any:
        return torch.nn.functional.embedding(ids, table, max_norm=1.0, norm_type=norm_type)

    torch._dynamo.reset()
    ids, table = torch.tensor([[3, 1], [3, 0]]), torch.randn(5, 7) * 3
    table[1] = 0.01
    expected_table, found_table = table.clone(), table.clone()
    expected = looked_up(ids, expected_table)
    found = torch.compile(looked_up, backend="treadle", fullgraph=True)(ids, found_table)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_table, expected_table)  # torch changes the table in place
    assert torch.equal(found_table[[1, 2, 4]], table[[1, 2, 4]])
    assert not torch.equal(found_table[0], table[0])
