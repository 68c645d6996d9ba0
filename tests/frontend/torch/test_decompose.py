# SPDX-License-Identifier: Apache-2.0
"""Which operators torch writes by others."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch._decomp import decomposition_table  # noqa: E402

from treadle.frontend.torch.decompose import for_compile  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch


def test_operators_with_converters_and_those_that_draw_stay() -> None:
    table = for_compile()
    aten = torch.ops.aten
    assert aten.addcmul_.default in table or aten.huber_loss.default in table
    assert aten.add.Tensor not in table
    assert aten.bernoulli.default not in table


def test_what_is_registered_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    library = torch.library.Library("treadle_decompose", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    op = torch.ops.treadle_decompose.twice.default
    assert op not in for_compile()
    monkeypatch.setitem(decomposition_table, op, lambda x: x + x)
    assert op in for_compile()
    monkeypatch.undo()
    assert op not in for_compile()


def test_each_caller_has_a_table_of_its_own() -> None:
    first = for_compile()
    count = len(first)
    first.clear()
    assert len(for_compile()) == count
