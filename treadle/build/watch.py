# SPDX-License-Identifier: Apache-2.0
"""What the setting `debug` prints while a model is compiled, on stderr; passes print their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.build.kernel import Kernel
from treadle.graph.nodes import Function
from treadle.graph.text import function_text
from treadle.loop.nodes import func_text
from treadle.passes import unused_overrides
from treadle.settings import get

_LISTED = 3
"""Unused files that are named."""

STAGES, KERNELS, SCHEDULES, SOURCES, PROGRAMS = 1, 2, 3, 4, 5
"""The levels from which on each thing is printed; treadle.passes takes over at 6."""


def say_stage(stage: str, seconds: float) -> None:
    """Print that a stage of the compiler is done."""
    if get().debug >= STAGES:
        _say(f"{seconds * 1e3:9.1f} ms  {stage}")


def say_graph(title: str, function: Function) -> None:
    """Print the graph between two stages."""
    if get().debug >= PROGRAMS:
        _part(title, function_text(function))


def say_kernel(kernel: Kernel, seconds: float) -> None:
    """Print a kernel that is ready to compile: what it computes, then more with every level."""
    level = get().debug
    if level < KERNELS:
        return
    params = ", ".join(str(p.type) for p in kernel.function.params)
    nodes = ", ".join(dict.fromkeys(o for o in kernel.origins if o))
    _say(f"{seconds * 1e3:9.1f} ms  kernel {kernel.name}")
    _say(f"              ({params}) -> {kernel.function.body.type}; from {nodes or 'no node'}")
    if level >= SCHEDULES:
        _part("schedule", kernel.schedule)
    if level >= PROGRAMS:
        _part("graph", kernel.graph_text())
        _part("loops", kernel.loop_text())
        _part("lowered", func_text(kernel.lowered))
    if level >= SOURCES:
        _part(kernel.backend.kind, kernel.source())


@contextmanager
def overrides_watched() -> Iterator[None]:
    """Print at the end of the block which edited texts were not used, and so changed nothing."""
    with unused_overrides() as unused:
        yield
    folder = get().override
    if folder is not None and not unused and not any(folder.iterdir()):
        _say(f"note: TREADLE_OVERRIDE: the folder {folder} is empty")
    for path in unused[:_LISTED]:
        _say(f"note: TREADLE_OVERRIDE: {path} replaces no stage of this model")
    if len(unused) > _LISTED:
        _say(f"note: TREADLE_OVERRIDE: nor do {len(unused) - _LISTED} more files")


def _part(title: str, text: str) -> None:
    _say(f"--- {title}\n{text.rstrip()}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
