# SPDX-License-Identifier: Apache-2.0
"""Programs run at the sizes that torch runs them at, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import treadle

torch: Any = pytest.importorskip("torch")

from treadle.frontend.torch.guards import conditions_of  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch

Dim = torch.export.Dim


class Branching(torch.nn.Module):  # type: ignore[misc]  # torch counts as without types
    """Does another thing at more than ten rows, or at an odd number of them."""

    def forward(self, x: Any, held: Any) -> Any:
        if x.shape[0] * 2 > 20:
            return x * 0
        pairs = x.view(-1, 2, 3).sum(1) if x.shape[0] % 2 == 0 else x
        return pairs * held["factors"][0].sum() * int(x.shape[1] * 1.5)


class Cut(torch.nn.Module):  # type: ignore[misc]
    """Keeps so many columns as a trace has found."""

    def forward(self, x: Any) -> Any:
        return x[:, : int(x.shape[1] * 0.3)] * 2


def is_refused(run: Any) -> bool:
    """True where sizes are not those that a program is made for."""
    try:
        run()
    except (treadle.InputError, AssertionError):
        return True
    return False


def programs() -> list[tuple[Any, list[Any]]]:
    """Return programs, and inputs of sizes some of which they refuse."""
    held = {"factors": [torch.ones(4)]}
    branching = torch.export.export(
        Branching(),
        (torch.randn(4, 3), held),
        dynamic_shapes=({0: Dim.AUTO}, {"factors": [{0: Dim.AUTO}]}),
    )
    cut = torch.export.export(Cut(), (torch.randn(4, 10),), dynamic_shapes=({1: Dim.AUTO},))
    ranged = torch.export.export(
        torch.nn.Linear(3, 2), (torch.randn(8, 3),), dynamic_shapes=({0: Dim("n", min=4, max=16)},)
    )
    return [
        (branching, [(torch.randn(n, 3), held) for n in (4, 6, 10, 12, 5)]),
        (cut, [(torch.randn(4, n),) for n in (10, 13, 14, 9)]),
        (ranged, [(torch.randn(n, 3),) for n in (1, 3, 4, 16, 17)]),
    ]


@pytest.mark.parametrize("number", range(3))
def test_sizes_are_refused_as_torch_refuses_them(number: int, tmp_path: Path) -> None:
    program, inputs = programs()[number]
    torch.export.save(program, tmp_path / "program.pt2")
    module, refused = program.module(), []
    for exe in (treadle.compile(program), treadle.compile(tmp_path / "program.pt2", dynamic=True)):
        for args in inputs:
            tensors = torch.utils._pytree.tree_leaves(args)
            refused.append(is_refused(lambda args=args: module(*args)))
            assert refused[-1] == is_refused(lambda exe=exe, t=tensors: exe.run(t))
    assert True in refused
    assert False in refused


def test_a_refusal_says_what_the_program_asks_for() -> None:
    program, inputs = programs()[0]
    exe = treadle.compile(program)
    with pytest.raises(treadle.InputError, match=r"it asks for x.size\(0\) <= 10"):
        exe.run(torch.utils._pytree.tree_leaves(inputs[3]))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd() == 1",
        "L['x'].size()[0].real == 1",
        "L['x'].size()[7] == 1",
        "L['y'].size()[0] == 1",
        "2 < 3 < 4",
        "not True",
        "(" * 300,
        "L['x'].stride()[0] == 1",
        "2 in 3",
    ],
)
def test_texts_that_are_no_arithmetic_of_sizes_are_told(text: str) -> None:
    program = torch.export.export(torch.nn.Identity(), (torch.ones(2),))
    users = [n for n in program.graph.nodes if n.op == "placeholder"]
    assert conditions_of(program, users, [text]) == ([], [text])
