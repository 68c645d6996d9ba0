# SPDX-License-Identifier: Apache-2.0
"""The launches that a kernel for a GPU consists of, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.runtime.extents import Formula

Extents = tuple[Formula, Formula, Formula]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a device function called `symbol`.

    `grid` are numbers of blocks along three axes, as formulas over the sizes of the kernel; where
    one of them is 0, nothing is launched. `block` are the threads of a block. `arguments` are in
    the function's order: a number is the buffer that is this param of the kernel, "workspace" the
    memory that the kernel's caller lends it, "size:k" size number k of the kernel, as int64.
    """

    symbol: str
    grid: Extents
    block: tuple[int, int, int]
    arguments: tuple[int | str, ...]
