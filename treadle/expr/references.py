# SPDX-License-Identifier: Apache-2.0
"""What expressions refer to outside of themselves: memory that is read, instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from treadle.expr.nodes import Expr


class Source(Protocol):
    """What a `Load` reads: a te tensor or a loop-level buffer."""

    dtype: str

    @property
    def name(self) -> str:
        """What it is called in texts."""

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents of its dimensions."""


class Instruction(Protocol):
    """What an `Apply` applies: an instruction of some machine, known here by its meaning alone."""

    @property
    def name(self) -> str:
        """What it is called in texts."""

    @property
    def result(self) -> str:
        """The element type of its result."""

    @property
    def argument_types(self) -> tuple[str, ...]:
        """The element types of its arguments."""

    def expand(self, args: Sequence[Expr]) -> Expr:
        """Return what it computes as an expression that every machine can evaluate."""
