# SPDX-License-Identifier: Apache-2.0
"""Views by strides, of tensors that lie in memory in any order of axes."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from treadle.integrations.torch_compile import treadle_backend  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch


def _windows(x: Any) -> Any:
    """Overlapping windows of rows, read where a transposed tensor lies."""
    rows = (x * 2).transpose(0, 1).reshape(-1, 8, x.shape[2])
    return rows.as_strided((6, 3, 4, 5), (5, 60, 30, 1)).sum(1)


def _update(x: Any) -> Any:
    return torch.as_strided_scatter((x + 1).transpose(0, 2), x[0, :4, :3] * 2, (4, 3), (7, 2))


def _gaps(x: Any) -> Any:
    """A view of every other row, seen through strides that reach the rows between."""
    return (x * 2)[:, 1::2].as_strided((3, 4), (2, 5)) + 1


@pytest.mark.parametrize("function", [_windows, _update, _gaps])
def test_views_by_strides_read_what_lies_there(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    x = torch.randn(8, 6, 5)
    run = torch.compile(function, backend=treadle_backend, fullgraph=True)
    torch.testing.assert_close(run(x), function(x))
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text
