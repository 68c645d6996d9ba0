# SPDX-License-Identifier: Apache-2.0
"""Which operators torch writes by others: those that have no converter here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

from treadle.frontend.torch.families import FAMILIES
from treadle.frontend.torch.fused_layers import FUSED
from treadle.frontend.torch.node import converter_of

assert FAMILIES  # the table of converters is filled by importing them

Decompositions = dict[Any, Callable[..., Any]]
"""torch's own functions, by the operators that they write by others."""


def for_export() -> Decompositions:
    """Return the table for ExportedProgram.run_decompositions."""
    table: Decompositions = torch.export.default_decompositions()
    for op in [op for op in table if converter_of(str(op)) is not None]:
        table.pop(op)
    for op, function in FUSED.items():
        table[op] = function
    return table


def for_compile() -> Decompositions:
    """Return the table for AOTAutograd."""
    table: Decompositions = core_aten_decompositions() | FUSED
    return {op: f for op, f in table.items() if converter_of(str(op)) is None}
