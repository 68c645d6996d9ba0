# SPDX-License-Identifier: Apache-2.0
"""Tasks: the distinct kernels of a model, how often a run calls each, and what bounds its time."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import cast

import numpy as np

from treadle.build.compile import Fused
from treadle.build.cost import group_cost
from treadle.build.kernel import Kernel, ObjectCode, Scheduled, Template
from treadle.build.signatures import signature_of_function, signature_of_loops
from treadle.build.sizes import size_to_json
from treadle.cost.memory import memory_bytes_per_cycle
from treadle.dtype import itemsize
from treadle.errors import UsageError
from treadle.expr.nodes import Var, int_value
from treadle.graph import interpret
from treadle.graph.nodes import Call, Constant, Function
from treadle.graph.types import Dim
from treadle.loop.nodes import Buffer
from treadle.runtime import native
from treadle.runtime.array import NDArray, array
from treadle.runtime.extents import Extent, Formula
from treadle.runtime.module import LoadedKernel
from treadle.runtime.signature import Signature
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.te.choice import Choice
from treadle.te.operations import ComputeOp
from treadle.te.schedule import Schedule

Code = bytes


Link = Callable[[str, list[str]], object]
"""link(library, objects): links object files into a shared library, all given by their paths."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One kernel to be tuned: a fused function of a model, or a template of te.

    Its name holds a hash of what it computes: structure, shapes, types.

    `uses` is how many calls of it one run of the model makes, `flops` and `bytes` are the work of a
    call (`saves` where it multiplies less than the direct algorithm that flops count), `cycles` the
    least the machine needs for it: its roofline. `constants` are the weights that one of the calls
    has, by the place of the argument: what is packed or transformed ahead of time has parts that a
    kernel may count on. `link`, where there is one, makes the library that is measured of the
    object code that was built. `sizes` are what the kernel's dynamic sizes are when it is measured,
    by the names in its signature.
    """

    kernel: Kernel
    uses: int
    flops: int
    bytes: int
    cycles: float
    saves: bool = False
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    link: Link | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def sizes_text(self) -> str:
        """What else than the measuring a time depends on, for records; "" without sizes."""
        words = (f"{name}={size}" for name, size in sorted(self.sizes.items()))
        return f" at {','.join(words)}" if self.sizes else ""

    @property
    def name(self) -> str:
        """The name of the kernel, which records know it by."""
        return self.kernel.name

    @property
    def function(self) -> Function:
        """The fused function. Raises: UsageError where it is none."""
        return self.kernel.function

    @property
    def target(self) -> Target:
        """What it is compiled for."""
        return self.kernel.target

    @property
    def origins(self) -> list[str]:
        """The nodes of the user's model that run in it, each once."""
        return list(dict.fromkeys(o for o in self.kernel.origins if o))

    def candidate(self, choice: Choice) -> Kernel:
        """Return a kernel that computes the same, made by a choice; no code is made."""
        return Kernel(self.kernel.work, self.target, choice)

    def built(self, choice: Choice) -> ObjectCode:
        """Return the code of a candidate: object code, or what `link` makes of it.

        Raises: UsageError where that makes no library; else as `Kernel.object_code`, and what the
            user's `link` raises.
        """
        made = self.candidate(choice).object_code()
        if self.link is None:
            return made
        with tempfile.TemporaryDirectory(prefix="treadle-link-") as folder:
            source, library = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
            source.write_bytes(made.code)
            self.link(str(library), [str(source)])
            if not library.is_file():
                raise UsageError(
                    "the function that links candidates has written no library",
                    hint="it is called with the path to write and a list of object files",
                )
            return ObjectCode(library.read_bytes(), made.workspace)

    def loaded(self, code: Code, workspace: object) -> LoadedKernel:
        """Return what `built` made as a kernel in memory, ready to be called."""
        signature = self.signature(workspace)
        if self.link is not None:
            library = native.Library(code)
            return LoadedKernel(signature, library.kernel(self.name), library)
        loaded = backend_of(self.target).load([code])
        return LoadedKernel(signature, loaded.address(self.name), loaded, sizes=self.sizes)

    def signature(self, workspace: object) -> Signature:
        """Return what its kernels take; `workspace` is what one needs as scratch memory."""
        if isinstance(self.kernel.work, Function):
            return signature_of_function(self.name, self.kernel.work, workspace)
        return signature_of_loops(self.kernel.loops, workspace)

    def reference(self, arguments: Sequence[NDArray]) -> list[np.ndarray]:
        """Return the right outputs for arguments of its kernels, of which the inputs are read.

        Of a fused function they are those of the NumPy references of its operators; of a template
        those of its computation without its schedule: every stage loop by loop.
        """
        if isinstance(self.kernel.work, Function):
            inputs = [np.asarray(a) for a in arguments[: len(self.kernel.work.params)]]
            with np.errstate(all="ignore"):
                return interpret.leaves(interpret.evaluate(self.kernel.work, inputs))
        made = self.kernel.scheduled[0]
        schedule = _plain(made.schedule)
        plain = Kernel(Scheduled(schedule, made.args, self.name), self.target)
        outputs = [k for k, p in enumerate(plain.signature.params) if p.is_output]
        own = [array(a) if k in outputs else a for k, a in enumerate(arguments)]
        plain(*own)
        return [np.asarray(own[k]) for k in outputs]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a model, those with the most predicted time first, and what cannot be tuned."""

    tasks: list[Task]
    dynamic: list[Kernel]
    """Kernels with dynamic sizes of which not all are known: there is no one time to shorten."""
    missing: tuple[str, ...] = ()
    """The names of the sizes that are not known."""

    @property
    def cycles(self) -> float:
        """The sum of all rooflines in one run."""
        return sum(t.uses * t.cycles for t in self.tasks)

    @property
    def note(self) -> str:
        """What is said of the kernels that cannot be tuned; "" where there are none."""
        if not self.dynamic:
            return ""
        count = len(self.dynamic)
        said = "1 kernel has" if count == 1 else f"{count} kernels have"
        said += " dynamic sizes and " + ("stays as is" if count == 1 else "stay as is")
        return f"{said}: it is not said what to measure {', '.join(self.missing)} at (--sizes)"


def extract_tasks(fused: Fused, sizes: Mapping[str, int] | None = None) -> Tasks:
    """Return the tasks of a model; no code is made.

    Kernels with dynamic sizes are measured at `sizes`, by name; those that have others are left.
    """
    given = sizes or {}
    uses = Counter(kernel.name for kernel in fused.calls.values())
    first = {kernel.name: call for call, kernel in reversed([*fused.calls.items()])}
    tasks: list[Task] = []
    dynamic: list[Kernel] = []
    missing: set[str] = set()
    for kernel in fused.kernels:
        unknown = {*_size_names(kernel)} - {*given}
        if unknown:
            missing |= unknown
            dynamic.append(kernel)
        else:
            constants = _constants(first[kernel.name])
            tasks.append(task_of(kernel, uses[kernel.name], constants, given))
    tasks.sort(key=lambda t: -t.uses * t.cycles)
    return Tasks(tasks, dynamic, tuple(sorted(missing)))


def _size_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of a kernel's dynamic sizes, as its signature has them."""
    if not kernel.sizes:
        return ()
    return signature_of_function(kernel.name, kernel.function, 0).symbols


def task_of(
    kernel: Kernel,
    uses: int = 1,
    constants: Mapping[int, np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Task:
    """Return the task of a kernel; `sizes` say what its dynamic sizes are, if it has any."""
    names = _size_names(kernel)
    own = {name: (sizes or {})[name] for name in names}
    cost = group_cost(kernel.function)
    flops, moved = (_number(d, kernel.sizes, [*own.values()]) for d in (cost.flops, cost.bytes))
    cycles = roofline_cycles(flops, moved, kernel.target)
    return Task(kernel, uses, flops, moved, cycles, cost.saves, constants or {}, sizes=own)


def template_task(template: Template, target: Target, flops: int) -> Task:
    """Return the task of a template whose sizes are known; a call has so many operations.

    Raises: what the template raises with all choices at their defaults; UsageError where a size is
        not known.
    """
    kernel = Kernel(template, target)
    if kernel.sizes:
        raise UsageError(
            f"{template.name} has sizes that are known at run time only: "
            f"{', '.join(map(str, kernel.sizes))}",
            hint="give numbers: there is no one time of a kernel for all sizes",
        )
    moved = sum(_nbytes(b) for b in kernel.loops.params)
    return Task(kernel, 1, flops, moved, roofline_cycles(flops, moved, target))


def _plain(schedule: Schedule) -> Schedule:
    """Return a schedule of the same tensors of which every stage is whole loops.

    Reductions run outside of the last axis, which lies along memory: a large product takes a tenth
    of the time that it takes otherwise.
    """
    plain = schedule.fresh()
    for stage in plain.stages:
        if isinstance(stage.op, ComputeOp) and stage.op.axis and stage.op.reduce_axis:
            stage.reorder(*stage.op.axis[:-1], *stage.op.reduce_axis, stage.op.axis[-1])
    return plain


def _nbytes(buffer: Buffer) -> int:
    return prod(int_value(d) or 1 for d in buffer.shape) * itemsize(buffer.dtype)


def _constants(call: Call) -> dict[int, np.ndarray]:
    return {k: a.value for k, a in enumerate(call.args) if isinstance(a, Constant)}


def _number(dim: Dim, sizes: Sequence[Var], values: Sequence[int]) -> int:
    """Return a number, or what an expression of sizes is for their values."""
    if isinstance(dim, int):
        return dim
    return Extent(str(dim), cast(Formula, size_to_json(dim, sizes))).of(values)


def roofline_cycles(flops: int, moved: int, target: Target) -> float:
    """Return the least cycles of a call on all cores, by arithmetic and by what must be moved.

    Williams et al., Roofline, CACM 2009: the larger of the two. Data that fits in the caches of the
    cores comes from there.
    """
    peak = 2 * target.machine.fma_units * target.machine.fma_bits // 32 * target.cores
    caches = target.machine.caches
    level = next((c for c in caches if moved <= c.bytes * target.cores), None)
    rate = memory_bytes_per_cycle(target) if level is None else level.bytes_per_cycle
    return max(flops / max(peak, 1), moved / (rate * target.cores))


def shares(seconds: Sequence[float]) -> list[float]:
    """Return each of the times as a part of their sum."""
    total = sum(seconds)
    return [s / total if total else 0.0 for s in seconds]
