# SPDX-License-Identifier: Apache-2.0
"""From a te schedule to a loop nest that prints and to a module that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.errors import UsageError
from treadle.expr.nodes import Const, Expr, Var, int_value, substitute
from treadle.expr.simplify import simplify
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import Buffer, PrimFunc, func_text
from treadle.lower.pipeline import LOOPS, lowering
from treadle.runtime.module import KernelInfo, Module, Param
from treadle.target.base import Target
from treadle.target.host import why_not_here
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

    A module for another machine has its texts and cannot be called: that raises TargetError.
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
    passes = lowering(machine.lookup_lanes, machine.least_masked)
    funcs = [passes.run(f, label=f.name) for f in loops]
    texts = [emit(f, machine) for f in funcs]
    jobs = [(f.name, text) for f, text in zip(funcs, texts, strict=True)]
    objects = compile_many(jobs)
    unfit = why_not_here(machine)
    jit = JitModule(objects.values() if unfit is None else ())
    infos = {
        f.name: _info(shaped, f.workspace_bytes) for shaped, f in zip(loops, funcs, strict=True)
    }
    module = BuiltModule.__new__(BuiltModule)
    addresses = {n: jit.address(n) if unfit is None else 0 for n in infos}
    Module.__init__(module, infos, addresses, jit, unfit=unfit)
    module.funcs, module.ir = loops, texts
    return module


def _info(func: PrimFunc, workspace_bytes: int | Expr) -> KernelInfo:
    inputs = len(func.params) - func.outputs
    params = tuple(
        Param(b.name, b.dtype, _sizes(b), is_output=i >= inputs) for i, b in enumerate(func.params)
    )
    used = {s for p in params for s in p.shape if isinstance(s, str)}
    symbols = tuple(v.name for v in func.sizes)
    unbound = [s for s in symbols if s not in used]
    if unbound:
        raise UsageError(
            f"size {unbound[0]} of kernel {func.name} is in no argument's shape by itself",
            hint="pass a tensor that has this size as one of its dimensions",
        )
    if isinstance(workspace_bytes, int):
        return KernelInfo(func.name, params, workspace_bytes, symbols)
    return KernelInfo(func.name, params, _Scratch(workspace_bytes, func.sizes), symbols)


@dataclass(frozen=True, slots=True)
class _Scratch:
    """The bytes of scratch memory for given sizes."""

    nbytes: Expr
    sizes: tuple[Var, ...]

    def __call__(self, values: Sequence[int]) -> int:
        known: dict[Expr, Expr] = {v: Const.of(n) for v, n in zip(self.sizes, values, strict=True)}
        number = int_value(simplify(substitute(self.nbytes, known)))
        assert number is not None  # it depends on these sizes alone
        return number


def _sizes(buffer: Buffer) -> tuple[int | str, ...]:
    return tuple(_size(d) for d in buffer.shape)


def _size(extent: Expr) -> int | str:
    number = int_value(extent)
    if number is not None:
        return number
    if isinstance(extent, Var):
        return extent.name
    raise UsageError(f"the size {extent} of an argument is an expression, not a plain symbol")
