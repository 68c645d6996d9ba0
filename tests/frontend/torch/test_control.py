# SPDX-License-Identifier: Apache-2.0
"""Operators of torch whose operands are graphs: branches and loops, on both roads."""

from __future__ import annotations

from typing import Any

import pytest

import treadle
from tests.frontend.torch.programs import as_module, exported_outputs, leaves_of

torch: Any = pytest.importorskip("torch")
nn = torch.nn

from torch._higher_order_ops.map import map as map_rows  # noqa: E402  # needs torch
from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402

from treadle.integrations.torch_compile import treadle_backend  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::FutureWarning")]


class Cooling(nn.Module):  # type: ignore[misc]
    """Applies a layer as long as the first element is large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.eye(3))

    def forward(self, x: Any) -> Any:
        def is_hot(count: Any, y: Any) -> Any:
            return y.abs().sum() > 1

        def cooled(count: Any, y: Any) -> Any:
            return count + 1, y @ self.weight

        return while_loop(is_hot, cooled, (torch.zeros((), dtype=torch.int64), x))


class Cell(nn.Module):  # type: ignore[misc]
    """A recurrent layer over the rows of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any, state: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = torch.tanh(self.inner(h) + row)
            return h, h * 2

        return scan(step, state, x, dim=0)


def rows_times(x: Any, matrix: Any) -> Any:
    return map_rows(lambda row, m: torch.relu(row) @ m, x, matrix)


def larger(x: Any, y: Any) -> Any:
    return torch.cond(x.sum() > y.sum(), lambda a, b: a * 2, lambda a, b: b - 1, (x, y))


PROGRAMS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "while_loop": (Cooling().eval(), [(torch.full((2, 3), 40.0),), (torch.zeros(2, 3),)]),
    "scan": (Cell().eval(), [(torch.randn(5, 2, 4), torch.zeros(2, 4))]),
    "map": (as_module(rows_times), [(torch.randn(4, 2, 3), torch.randn(3, 5))]),
    "cond": (
        as_module(larger),
        [(torch.ones(3), torch.zeros(3)), (torch.zeros(3), torch.ones(3))],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_torch_export(name: str) -> None:
    module, inputs = PROGRAMS[name]
    for args in inputs:
        with torch.no_grad():
            wanted = leaves_of(module(*args))
        for found, want in zip(exported_outputs(module, args), wanted, strict=True):
            torch.testing.assert_close(found, want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_of_torch_compile_run_whole(name: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    module, inputs = PROGRAMS[name]
    fast = torch.compile(module, backend=treadle_backend, fullgraph=True)
    with torch.no_grad():
        for args in inputs:
            for found, want in zip(leaves_of(fast(*args)), leaves_of(module(*args)), strict=True):
                torch.testing.assert_close(found, want)
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text


def test_a_scan_of_any_length() -> None:
    steps = torch.export.Dim("steps", min=2, max=64)
    cell = Cell().eval()
    exe = treadle.compile(
        cell, (torch.zeros(5, 2, 4), torch.zeros(2, 4)), dynamic_shapes=({0: steps}, None)
    )
    for length in (3, 9):
        given = [torch.randn(length, 2, 4), torch.zeros(2, 4)]
        with torch.no_grad():
            wanted = cell(*given)
        for found, want in zip(exe.run(given), leaves_of(wanted), strict=True):
            torch.testing.assert_close(torch.from_dlpack(found), want)
