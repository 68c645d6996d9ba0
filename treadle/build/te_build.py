# SPDX-License-Identifier: Apache-2.0
"""From a te schedule to a loop nest that prints and to a module that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast

from treadle.build.sizes import size_to_json
from treadle.errors import UsageError
from treadle.expr.nodes import Expr, Var, int_value
from treadle.graph.types import as_dim
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import Buffer, PrimFunc, func_text
from treadle.lower.pipeline import LOOPS, lowering
from treadle.runtime.extents import Extent, Formula
from treadle.runtime.module import KernelInfo, Module, Param
from treadle.target.base import Target
from treadle.target.jit import JitModule
from treadle.target.llvm_ir import emit, symbol
from treadle.target.parse import parse_target
from treadle.target.workers import assembly, compile_many
from treadle.te.schedule import Schedule
from treadle.te.tensor import Tensor

Arg = Tensor | Var


def lower(schedule: Schedule, args: Sequence[Arg], name: str = "main") -> PrimFunc:
    """Return the loop nest of a schedule; `print` shows it as Python-like text.

    `args` are the tensors and sizes the kernel takes, in calling order.

    Raises:
        ScheduleError: a step does not fit, or a tensor is missing among the arguments.
    """
    return LOOPS.run(schedule_to_func(schedule, args, symbol(name)), label=name)


@dataclass
class BuiltModule(Module):
    """Kernels built from te, with every stage they went through.

    Call it with arrays, inputs first: outputs are written in place.
    """

    funcs: list[PrimFunc] = field(default_factory=list)
    ir: list[str] = field(default_factory=list)

    def loop_text(self) -> str:
        """Return the loop nests as Python-like text."""
        return "\n".join(func_text(f) for f in self.funcs)

    def llvm(self) -> str:
        """Return the LLVM IR before optimisation."""
        return "\n".join(self.ir)

    def asm(self) -> str:
        """Return the assembly."""
        texts = assembly({str(k): text for k, text in enumerate(self.ir)})
        return "\n".join(texts.values())


def build(
    inputs: Schedule | PrimFunc | Sequence[PrimFunc],
    args: Sequence[Arg] | None = None,
    target: str | Target = "llvm",
    *,
    target_host: str | None = None,
    name: str = "default_function",
) -> BuiltModule:
    """Return a callable module of a schedule (with its `args`) or of lowered functions.

    `target_host` is accepted for scripts that give it and must agree with a CPU target.

    Raises:
        ScheduleError, TargetError: as `lower` and the target string say.

    >>> add = treadle.build(s, [A, B, C], "llvm", name="add")
    >>> add(a, b, c)
    """
    del target_host
    if isinstance(inputs, Schedule):
        if args is None:
            raise UsageError("build of a schedule needs the arguments of the kernel")
        loops = [lower(inputs, args, name)]
    else:
        loops = [inputs] if isinstance(inputs, PrimFunc) else list(inputs)
    machine = parse_target(target) if isinstance(target, str) else target
    passes = lowering(machine.lookup_lanes)
    funcs = [passes.run(f, label=f.name) for f in loops]
    texts = [emit(f, machine) for f in funcs]
    jobs = [(f.name, text) for f, text in zip(funcs, texts, strict=True)]
    objects = compile_many(jobs)
    jit = JitModule(objects.values())
    infos = {
        f.name: _info(shaped, f.workspace_bytes) for shaped, f in zip(loops, funcs, strict=True)
    }
    module = BuiltModule.__new__(BuiltModule)
    Module.__init__(module, infos, {n: jit.address(n) for n in infos}, jit, None)
    module.funcs, module.ir = loops, texts
    return module


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
