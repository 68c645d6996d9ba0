# SPDX-License-Identifier: Apache-2.0
"""Candidates for a GPU of this machine: built by forked processes, measured by a fresh one.

A driver of a GPU does not outlive a fork, and a kernel that reads past an array leaves it unusable
for the whole process. So the process that measures is a program of its own, which gets arguments
and right results from here and knows nothing of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from treadle.build.kernel import ObjectCode
from treadle.runtime.array import NDArray
from treadle.tune.executor import LocalWorkers, WorkOptions
from treadle.tune.gpu_process import start
from treadle.tune.process import Child, FreshChild
from treadle.tune.runner import Runner, arguments_of
from treadle.tune.task import Task


class GpuExecutor:
    """Builders of this machine, and its GPU, which measures while they go on."""

    def workers(self, tasks: Sequence[Task], options: WorkOptions) -> LocalWorkers:
        """Return workers, not yet started."""
        return LocalWorkers(tasks, options, GpuRunner, is_quiet=False)

    def close(self) -> None:
        """Do nothing: workers end with their context."""


class GpuRunner(Runner):
    """A process that measures candidates of the tasks on the device they are compiled for."""

    def _started(self) -> Child:
        return FreshChild(start)

    def _preparation(self, task: int) -> tuple[dict[str, object], bytes]:
        """Return a task's arguments and right results."""
        work = self.tasks[task]
        arguments, outputs = arguments_of(work)
        expected = [np.ascontiguousarray(a) for a in work.reference(arguments)]
        head: dict[str, object] = {
            "do": "prepare",
            "task": task,
            "name": work.name,
            "device": work.target.kind,
            "sizes": dict(work.sizes),
            "options": asdict(self.options),
            "arguments": [[a.dtype, list(a.shape)] for a in arguments],
            "outputs": outputs,
            "expected": [[str(a.dtype), list(a.shape)] for a in expected],
        }
        held = [a for place, a in enumerate(arguments) if place not in outputs]
        return head, b"".join([*map(_bytes_of, held), *(a.tobytes() for a in expected)])

    def _said(self, task: int, made: Sequence[ObjectCode]) -> list[dict[str, object]]:
        signatures = [self.tasks[task].signature(m.workspace).to_json() for m in made]
        return [
            {"size": len(m.code), "signature": s} for m, s in zip(made, signatures, strict=True)
        ]


def _bytes_of(a: NDArray) -> bytes:
    return np.ascontiguousarray(a.numpy()).tobytes()
