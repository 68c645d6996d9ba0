# SPDX-License-Identifier: Apache-2.0
"""From a te schedule to a loop nest that prints and to a module that runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from treadle.build.kernel import Kernel, Scheduled, compile_kernels
from treadle.build.kernel_library import save_kernels
from treadle.errors import TargetError, UsageError
from treadle.expr.nodes import Var
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import PrimFunc
from treadle.lower.pipeline import LOOPS
from treadle.runtime.module import Module
from treadle.target.base import Target
from treadle.target.names import symbol
from treadle.target.parse import parse_target
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule

Arg = Tensor | Var


def lower(schedule: Schedule, args: Sequence[Arg], name: str = "main") -> PrimFunc:
    """Return the loop nest of a schedule; `print` shows it as Python-like text.

    `args` are the tensors and sizes the kernel takes, in calling order.

    Raises:
        ScheduleError: a step does not fit, or a tensor is missing among the arguments.
        UsageError: an argument is given twice, or belongs to another schedule.
    """
    _check_arguments(schedule, args)
    return LOOPS.run(schedule_to_func(schedule, args, symbol(name)), label=name)


def _check_arguments(schedule: Schedule, args: Sequence[Arg]) -> None:
    for a in args:
        if isinstance(a, Tensor) and a not in schedule:
            raise UsageError(
                f"tensor {a.name} is not part of the schedule: no stage reads or makes it",
                hint="leave it out of the arguments, or pass the one that the computes read",
            )


class BuiltModule(Module[Kernel]):
    """Kernels built from te; `module[name]` has every stage of one, and is called and timed alone.

    Call it with arrays in the order of its arguments: outputs are written in place.
    """

    def __init__(self, kernels: Sequence[Kernel], target: Target) -> None:
        """Compile the kernels. Raises: UsageError when a size is told by no argument."""
        super().__init__({k.name: k for k in kernels})
        self.kernels = list(kernels)
        self.target = target
        compile_kernels(self.kernels)
        for kernel in self.kernels:
            _check_sizes(kernel)
            kernel.load()

    def __repr__(self) -> str:
        return f"BuiltModule({', '.join(str(k.signature) for k in self.kernels)}, {self.target})"

    def save(
        self, path: str | os.PathLike[str], *, linker: str | Sequence[str] | None = None
    ) -> None:
        """Write the kernels as a shared object, for `treadle.load_module`.

        `linker` names the linker or C compiler to use (default: the first one found).

        Raises:
            ToolchainError: there is no linker. UsageError: the file cannot be written.
        """
        signatures = {k.name: k.signature for k in self.kernels}
        objects = [k.object_code().code for k in self.kernels]
        save_kernels(path, signatures, objects, self.target, linker)

    def export_library(
        self, file_name: str | os.PathLike[str], *, linker: str | Sequence[str] | None = None
    ) -> None:
        """Write the kernels as a shared object: `save` under the name that TVM gives it."""
        if os.fspath(file_name).endswith((".tar", ".o", ".a")):
            raise UsageError(
                f"{os.fspath(file_name)} is no name of a shared object",
                hint="name the file .so; archives of object code are not written",
            )
        self.save(file_name, linker=linker)

    def loop_text(self) -> str:
        """Return the loop nests as Python-like text."""
        return "\n".join(k.loop_text() for k in self.kernels)

    def source(self) -> str:
        """Return the source text that the back end compiled: LLVM IR or C."""
        return "\n".join(k.source() for k in self.kernels)

    def asm(self) -> str:
        """Return the assembly."""
        return "\n".join(k.asm() for k in self.kernels)


def _check_sizes(kernel: Kernel) -> None:
    hidden = kernel.signature.hidden_sizes()
    if hidden:
        raise UsageError(
            f"size {hidden[0]!r} of kernel {kernel.name} is in no parameter's shape",
            hint="pass a tensor that has this size, or a multiple of it, as one of its dimensions",
        )


def build(
    inputs: Schedule | PrimFunc | Sequence[PrimFunc],
    args: Sequence[Arg] | None = None,
    target: str | Target = "llvm",
    *,
    target_host: str | Target | None = None,
    name: str = "default_function",
) -> BuiltModule:
    """Return a callable module of a schedule (with its `args`) or of lowered functions.

    The order of `args` is free: outputs are those that the schedule computes.
    A module for another machine has its texts and cannot be called: that raises TargetError.
    `target_host` is for scripts that give one: a CPU target is its own host, so both must name the
    same machine.

    Raises:
        ScheduleError, TargetError: as `lower` and the target string say.

    >>> add = treadle.build(s, [A, B, C], "llvm", name="add")
    >>> add(a, b, c)
    """
    machine = parse_target(target) if isinstance(target, str) else target
    _check_host(target_host, machine)
    works: Sequence[Scheduled | PrimFunc]
    if isinstance(inputs, Schedule):
        if args is None:
            raise UsageError("build of a schedule needs the arguments of the kernel")
        _check_arguments(inputs, args)
        works = [Scheduled(inputs, tuple(args), name)]
    else:
        works = [inputs] if isinstance(inputs, PrimFunc) else list(inputs)
    return BuiltModule([Kernel(work, machine) for work in works], machine)


def _check_host(target_host: str | Target | None, machine: Target) -> None:
    if target_host is None:
        return
    host = parse_target(target_host) if isinstance(target_host, str) else target_host
    if host.triple != machine.triple:
        raise TargetError(
            f"target_host is for {host.triple}, the target for {machine.triple}",
            hint="leave target_host out: kernels for a CPU run on that CPU",
        )
