# SPDX-License-Identifier: Apache-2.0
"""What of a model for a GPU runs on the CPU: kernels without a form for GPUs, and models
whose course data decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.build.kernel import Kernel
from treadle.build.memory_plan import Launch, plan_memory
from treadle.errors import InternalError, ScheduleError, TargetError
from treadle.graph import nodes as g
from treadle.graph.nodes import Function
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.knobs import DEFAULTS

_REASONS: Mapping[str, str] = {
    "size": "its data decides sizes",
    "if": "it has branches that its data decides",
    "loop": "it has loops that its data decides",
    "result": "it has loops or branches that its data decides",
}


def host_target() -> Target:
    """Return the target for what of a GPU's model runs on the CPU: this machine."""
    return parse_target("llvm")


def why_on_host(main: Function, calls: Mapping[g.Call, Kernel], target: Target) -> str | None:
    """Return why a model for a GPU runs on the CPU as a whole; None where it need not."""
    if target.family != "gpu":
        return None
    launches = {call: Launch(kernel.name) for call, kernel in calls.items()}
    names = [f"output_{k}" for k, _ in enumerate(g.outputs_of(main.body))]
    for step in plan_memory(main, launches, names).steps:
        if step.kind in _REASONS:
            origin = f" ({step.origin})" if step.origin else ""
            return f"{_REASONS[step.kind]}{origin}"
    return None


def to_host(kernels: Sequence[Kernel], notes: list[str]) -> list[Kernel]:
    """Give kernels that a GPU has no form for the target of the CPU; return them.

    The text of the others is made. A note of each says why it is moved: what a schedule of this
    package fails on is a mistake in it, and no reason to give no result.
    """
    moved = []
    for kernel in kernels:
        if kernel.target.family != "gpu":
            continue
        try:
            kernel.source()
        except (InternalError, ScheduleError, TargetError) as error:
            notes.append(
                f"kernel {kernel.name} runs on the CPU, not on {kernel.target.kind}: "
                f"{error.problem}"
            )
            kernel.target = host_target()
            kernel.configure(DEFAULTS)
            moved.append(kernel)
    return moved
