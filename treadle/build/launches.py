# SPDX-License-Identifier: Apache-2.0
"""What a kernel for a GPU launches, as plain data that artifacts hold and the runtime reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from treadle.build.sizes import size_to_json
from treadle.expr.nodes import Expr, Var
from treadle.graph.types import as_dim
from treadle.loop.nodes import PrimFunc
from treadle.lower.split_launches import split_launches
from treadle.runtime.extents import Formula
from treadle.runtime.launches import Launch
from treadle.target.gpu_text import device_symbol


def launches_of(lowered: PrimFunc) -> tuple[Launch, ...]:
    """Return the launches of a lowered kernel for a GPU, in their order."""
    made = []
    for f in split_launches(lowered):
        arguments: list[int | str] = list(f.params)
        arguments += ["workspace"] if f.workspace else []
        arguments += [f"size:{lowered.sizes.index(v)}" for v in f.sizes]
        x, y, z = (_formula(e, lowered.sizes) for e in f.grid)
        made.append(Launch(device_symbol(f.name), (x, y, z), f.block, tuple(arguments)))
    return tuple(made)


def _formula(e: Expr, sizes: Sequence[Var]) -> Formula:
    return cast(Formula, size_to_json(as_dim(e), sizes))
