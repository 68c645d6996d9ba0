# SPDX-License-Identifier: Apache-2.0
"""Which operators torch writes by others: those that have no converter here."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from treadle.frontend.torch.families import FAMILIES
from treadle.frontend.torch.fused_layers import fused
from treadle.frontend.torch.node import converter_of

assert FAMILIES  # the table of converters is filled by importing them

_IN_PLACE = frozenset({torch.ops.aten.complex.default, torch.ops.aten.polar.default})
"""Operators that torch writes by updates of a new tensor, which neither road of torch takes."""

_LAYERS_THAT_DRAW = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh",
                               "_scaled_dot_product_attention_math"})  # fmt: skip
"""Operators that draw random numbers by others of theirs, and only in training."""

Decompositions = dict[Any, Callable[..., Any]]
"""torch's own functions, by the operators that they write by others."""


def for_export() -> Decompositions:
    """Return the table for ExportedProgram.run_decompositions."""
    table: Decompositions = torch.export.default_decompositions()
    for op, function in _beyond_core().items():
        if op not in table and op not in _IN_PLACE and not op._schema.is_mutable:
            table[op] = function
    for op in [op for op in table if converter_of(str(op)) is not None]:
        table.pop(op)
    for op, function in fused().items():  # `|` would forget what the table makes when it is used
        table[op] = function
    return table


def for_compile() -> Decompositions:
    """Return the table for AOTAutograd.

    Random numbers are drawn by torch's own operators: a seed gives the numbers that eager draws.
    """
    table = _without_random(len(decomposition_table)) | fused()
    return {op: f for op, f in table.items() if converter_of(str(op)) is None}


@lru_cache(maxsize=1)
def _without_random(_registered: int) -> Decompositions:
    """Return torch's own functions of now; it takes longer than a small graph does to find them."""
    table: Decompositions = _beyond_core() | core_aten_decompositions()
    return {op: f for op, f in table.items() if op not in _IN_PLACE and not _draws(op)}


def _draws(op: Any) -> bool:
    """True for an operator overload whose result is random numbers."""
    name = op._schema.name.partition("::")[2]
    return torch.Tag.nondeterministic_seeded in op.tags and name not in _LAYERS_THAT_DRAW


def _beyond_core() -> Decompositions:
    """Return what torch writes by others, down to its primitives, though nothing demands it."""
    return {op: f for op, f in decomposition_table.items() if isinstance(op, torch._ops.OpOverload)}
