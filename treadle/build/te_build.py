# SPDX-License-Identifier: Apache-2.0
"""From a te schedule to a loop nest that prints and to a module that runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from typing import cast

from treadle.build.kernel_library import save_kernels
from treadle.build.sizes import size_to_json
from treadle.errors import TargetError, UsageError
from treadle.expr.nodes import Expr, Var, int_value
from treadle.graph.types import as_dim
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import Buffer, PrimFunc, func_text
from treadle.lower.pipeline import LOOPS
from treadle.runtime.extents import Extent, Formula
from treadle.runtime.module import KernelInfo, Module, Param
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.target.names import symbol
from treadle.target.parse import parse_target
from treadle.te.schedule import Schedule
from treadle.te.tensor import Tensor

Arg = Tensor | Var


def lower(schedule: Schedule, args: Sequence[Arg], name: str = "main") -> PrimFunc:
    """Return the loop nest of a schedule; `print` shows it as Python-like text.

    `args` are the tensors and sizes the kernel takes, in calling order.

    Raises:
        ScheduleError: a step does not fit, or a tensor is missing among the arguments.
        UsageError: an argument is given twice, or belongs to another schedule.
    """
    for a in args:
        if isinstance(a, Tensor) and a not in schedule:
            raise UsageError(
                f"tensor {a.name} is not part of the schedule: no stage reads or makes it",
                hint="leave it out of the arguments, or pass the one that the computes read",
            )
    return LOOPS.run(schedule_to_func(schedule, args, symbol(name)), label=name)


class BuiltModule(Module):
    """Kernels built from te, with every stage they went through.

    Call it with arrays, inputs first: outputs are written in place.
    """

    def __init__(
        self,
        loops: Sequence[PrimFunc],
        lowered: Sequence[PrimFunc],
        texts: Sequence[str],
        target: Target,
    ) -> None:
        jobs = [(f.name, text) for f, text in zip(lowered, texts, strict=True)]
        backend = backend_of(target)
        self.objects = backend.compile(jobs, target, None)
        unfit = why_not_here(target)
        code = backend.load(self.objects.values() if unfit is None else ())
        pairs = zip(loops, lowered, strict=True)
        self.infos = {f.name: _info(shaped, f.workspace_bytes) for shaped, f in pairs}
        addresses = {n: code.address(n) if unfit is None else 0 for n in self.infos}
        super().__init__(self.infos, addresses, code, unfit=unfit)
        self.funcs = list(loops)
        self.sources = list(texts)
        self.target = target

    def __repr__(self) -> str:
        return f"BuiltModule({', '.join(map(str, self.infos.values()))}, {self.target})"

    def save(
        self, path: str | os.PathLike[str], *, linker: str | Sequence[str] | None = None
    ) -> None:
        """Write the kernels as a shared object, for `treadle.load_module`.

        `linker` names the linker or C compiler to use (default: the first one found).

        Raises:
            ToolchainError: there is no linker. UsageError: the file cannot be written.
        """
        save_kernels(path, self.infos, list(self.objects.values()), self.target, linker)

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
        return "\n".join(func_text(f) for f in self.funcs)

    def source(self) -> str:
        """Return the source text that the back end compiled: LLVM IR or C."""
        return "\n".join(self.sources)

    def asm(self) -> str:
        """Return the assembly."""
        texts = {str(k): text for k, text in enumerate(self.sources)}
        return "\n".join(backend_of(self.target).assembly(texts, self.target).values())


def build(
    inputs: Schedule | PrimFunc | Sequence[PrimFunc],
    args: Sequence[Arg] | None = None,
    target: str | Target = "llvm",
    *,
    target_host: str | Target | None = None,
    name: str = "default_function",
) -> BuiltModule:
    """Return a callable module of a schedule (with its `args`) or of lowered functions.

    A module for another machine has its texts and cannot be called: that raises TargetError.
    `target_host` is for scripts that give one: a CPU target is its own host, so both must name the
    same machine.

    Raises:
        ScheduleError, TargetError: as `lower` and the target string say.

    >>> add = treadle.build(s, [A, B, C], "llvm", name="add")
    >>> add(a, b, c)
    """
    if isinstance(inputs, Schedule):
        if args is None:
            raise UsageError("build of a schedule needs the arguments of the kernel")
        loops = [lower(inputs, args, name)]
    else:
        loops = [inputs] if isinstance(inputs, PrimFunc) else list(inputs)
    machine = parse_target(target) if isinstance(target, str) else target
    _check_host(target_host, machine)
    backend = backend_of(machine)
    passes = backend.lowering(machine)
    funcs = [passes.run(f, label=f.name) for f in loops]
    texts = [backend.emit(f, machine) for f in funcs]
    return BuiltModule(loops, funcs, texts, machine)


def _check_host(target_host: str | Target | None, machine: Target) -> None:
    if target_host is None:
        return
    host = parse_target(target_host) if isinstance(target_host, str) else target_host
    if host.triple != machine.triple:
        raise TargetError(
            f"target_host is for {host.triple}, the target for {machine.triple}",
            hint="leave target_host out: kernels for a CPU run on that CPU",
        )


def _info(func: PrimFunc, workspace_bytes: int | Expr) -> KernelInfo:
    inputs = len(func.params) - func.outputs
    symbols = _distinct_names(func.sizes)
    params = tuple(
        Param(b.name, b.dtype, _shape(b, func.sizes, symbols), is_output=i >= inputs)
        for i, b in enumerate(func.params)
    )
    if isinstance(workspace_bytes, int):
        scratch: int | Extent = workspace_bytes
    else:
        scratch = _extent(workspace_bytes, func.sizes)
    try:
        return KernelInfo(func.name, params, scratch, symbols)
    except UsageError as error:
        raise UsageError(
            error.problem,
            hint="pass a tensor that has this size, or a multiple of it, as one of its dimensions",
        ) from None


def _distinct_names(sizes: Sequence[Var]) -> tuple[str, ...]:
    """Return the names of sizes; of several with one name all but the first get a number."""
    names: dict[str, None] = {}
    for size in sizes:
        tries = (size.name if k == 0 else f"{size.name}_{k}" for k in count())
        names[next(name for name in tries if name not in names)] = None
    return tuple(names)


def _shape(
    buffer: Buffer, sizes: Sequence[Var], names: Sequence[str]
) -> tuple[int | str | Extent, ...]:
    plain = dict(zip(sizes, names, strict=True))
    return tuple(
        plain[d] if isinstance(d, Var) and d in plain else _int_or_extent(d, sizes)
        for d in buffer.shape
    )


def _int_or_extent(extent: Expr, sizes: Sequence[Var]) -> int | Extent:
    number = int_value(extent)
    return _extent(extent, sizes) if number is None else number


def _extent(extent: Expr, sizes: Sequence[Var]) -> Extent:
    return Extent(str(extent), cast(Formula, size_to_json(as_dim(extent), sizes)))
