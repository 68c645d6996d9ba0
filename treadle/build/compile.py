# SPDX-License-Identifier: Apache-2.0
"""The whole way from a model to something that runs; the only place that knows all stages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.build.coverage import Coverage, coverage_of
from treadle.build.executable import Executable
from treadle.build.gpu_executable import GpuExecutable
from treadle.build.gpu_places import host_target, to_host, why_on_host
from treadle.build.group import function_sizes
from treadle.build.kernel import Kernel, compile_kernels
from treadle.build.kernel_cache import (
    foreign_operators,
    kernel_key,
    load_kernel,
    store_kernel,
)
from treadle.build.limits import check_limits
from treadle.build.memory_plan import Launch, MemoryPlan, concat_parts, is_alias, plan_memory
from treadle.build.plan_json import plan_to_json
from treadle.build.reading import read_model
from treadle.build.record_context import records_to_read
from treadle.build.records import Records
from treadle.build.reuse import caches_of
from treadle.build.size_checks import SizeCheck, refuse_broken, size_checks
from treadle.build.sizes import size_from_json
from treadle.build.watch import overrides_watched, say_graph, say_kernel, say_stage
from treadle.build.weights import constants_of, store_constants
from treadle.errors import ConfigError, InternalError, UsageError
from treadle.graph import nodes as g
from treadle.graph.nodes import Function
from treadle.graph.text import functions_of
from treadle.limits import WORKERS_BYTES
from treadle.optimize.equal_sizes import with_equal_sizes
from treadle.optimize.index_checks import drop_index_checks
from treadle.optimize.methods.method import Choices, MethodCall
from treadle.optimize.pipeline import optimize
from treadle.runtime.pages import release_heap
from treadle.settings import get, use
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.target.worker_pool import pool
from treadle.te.knobs import DEFAULTS

if TYPE_CHECKING:
    from treadle.frontend.onnx.files import AnyModel

_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(slots=True)
class Report:
    """What happened while compiling: seconds per stage, notes, kernels found in the cache, names of
    other files that were read, and where there are records, which kernels they are of.

    `on_progress(stage, done, total)` is called as stages start and kernels finish.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cached: int = 0
    files: tuple[str, ...] = ()
    coverage: Coverage | None = None
    on_progress: Callable[[str, int, int], None] | None = None

    def progress(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Tell that `done` of `total` parts of a stage are finished."""
        if self.on_progress is not None:
            self.on_progress(stage, done, total)


class _Timer:
    def __init__(self, report: Report, stage: str) -> None:
        self.report, self.stage = report, stage

    def __enter__(self) -> None:
        self.report.progress(self.stage)
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self.start
        self.report.seconds[self.stage] = self.report.seconds.get(self.stage, 0.0) + spent
        say_stage(self.stage, spent)


def _called(name: str) -> Callable[[_F], _F]:
    """Let Python's own messages about a function's arguments name it as users do."""

    def rename(function: _F) -> _F:
        function.__qualname__ = name
        return function

    return rename


@overrides_watched()
@_called("compile")
def compile_model(
    model: AnyModel | g.Module | Any,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    target: str | Target = "llvm",
    shapes: Mapping[str, Sequence[int]] | None = None,
    opt_level: int = 3,
    winograd: bool | None = None,
    weight_growth: float | None = None,
    dynamic: bool = False,
    unchecked: bool = False,
    records: Records | str | os.PathLike[str] | None = None,
    methods: Mapping[str, str] | None = None,
    report: Report | None = None,
) -> Executable:
    """Return a model compiled for `target`.

    `model` is an ONNX file (a path, bytes, an open file), a ModelProto, what torch.onnx.export
    returns, a TFLite file (a path or bytes), a graph module, or a model of PyTorch: a
    torch.nn.Module with its `example_inputs` and `dynamic_shapes` (see `treadle.from_torch`), an
    ExportedProgram, or a file of one. `shapes` gives sizes to inputs that leave them open.
    `opt_level` 0 runs every operator as its own kernel, 3 does everything. `winograd` says whether
    3x3 convolutions may run by Winograd's filtering and large products with constant weights by
    Strassen's algorithm, which multiply less and round differently (None: as TREADLE_WINOGRAD says,
    by default yes). `weight_growth` is the part of themselves by which weights may grow for that,
    half a megabyte at least where it is not 0 (None: as TREADLE_WEIGHT_GROWTH says, by default a
    tenth). With `dynamic`, sizes that the file leaves open are decided by each run; else an unknown
    batch becomes 1. `unchecked` leaves out the check that indices that are data (`Gather`,
    `ScatterND`, ...) are inside of what they index: then those outside take the nearest element, or
    write nothing. `records`, or the file of that name, say how the schedules of some kernels are
    configured and how some calls are computed; what does not fit any more is a note. Without them
    those count that a block around the call applies (`build.record_context.applied`). `methods`
    names how some convolutions and products are computed, by the text of the call (`treadle explain
    --json` has both), before what records say; of the others the estimates decide.

    Raises:
        ModelError: the model cannot be read. UnsupportedOperators: it uses unknown operators.
        TargetError: the target is not known.
        UsageError: an option is out of range, or `model` is none.
        ChoiceError: a method in `methods` does not apply to its call.
        ConfigError: `records` names a file that holds other things than records.

    >>> exe = treadle.compile("resnet50.onnx")
    >>> prob, = exe(image)
    """
    report = Report() if report is None else report
    kept = records_to_read(records)
    fused = fused_model(
        model, example_inputs, dynamic_shapes=dynamic_shapes, target=target, shapes=shapes,
        opt_level=opt_level, winograd=winograd, weight_growth=weight_growth, dynamic=dynamic,
        unchecked=unchecked, methods=methods, records=kept, report=report,
    )  # fmt: skip
    made = built(fused, kept, report)
    with _Timer(report, "load"):
        made.make_ready()
    return made


def built(fused: Fused, records: Records | None, report: Report) -> Executable:
    """Return a model with the code of its kernels, as records configure them, and its plan.

    Unlike what `compile_model` returns it is not ready to run: its first run loads it.
    """
    if records is not None:
        _configure(fused, records, report)
    with _Timer(report, "build"):
        _build(fused.kernels, report)
    with _Timer(report, "weights"):
        _store_weights(fused.main)
    with _Timer(report, "plan"):
        plan = _plan(fused)
    report.notes += _stack_notes(fused)
    module = fused.module
    made = GpuExecutable if fused.target.family == "gpu" else Executable
    return made(
        module=g.Module(fused.main, module.output_names, module.name, module.structures),
        kernels=fused.kernels,
        plan=plan_to_json(plan, fused.target, _stack_bytes(fused)),
        memory=plan,
        target=fused.target,
        nodes=sum(isinstance(n, g.Call) for n in g.topological([module.main.body])),
        seconds=report.seconds,
        notes=tuple(report.notes),
        coverage=report.coverage,
        files=report.files,
    )


@dataclass(frozen=True, slots=True)
class Fused:
    """A model as fused kernels, before any code is made.

    `module` is the graph as it was read, `main` the fused one; `calls` say which kernel each of its
    calls runs; `checks` is what every run compares. `method_calls` are the calls that methods
    compute, where records were read.
    """

    module: g.Module
    main: Function
    kernels: list[Kernel]
    calls: Mapping[g.Call, Kernel]
    checks: Sequence[SizeCheck]
    target: Target
    method_calls: Sequence[MethodCall] = ()


def fused_model(
    model: AnyModel | g.Module | Any,
    example_inputs: Any = None,
    *,
    dynamic_shapes: Any = None,
    target: str | Target = "llvm",
    shapes: Mapping[str, Sequence[int]] | None = None,
    opt_level: int = 3,
    winograd: bool | None = None,
    weight_growth: float | None = None,
    dynamic: bool = False,
    unchecked: bool = False,
    methods: Mapping[str, str] | None = None,
    records: Records | None = None,
    report: Report | None = None,
) -> Fused:
    """Return the fused kernels of a model, of which no schedule is made yet.

    Arguments and errors are those of `compile_model`; of `records` the methods count.
    """
    if opt_level not in range(5):
        raise UsageError(f"opt_level is {opt_level}", hint="it is one of 0, 1, 2, 3, 4")
    report = Report() if report is None else report
    machine = parse_target(target) if isinstance(target, str) else target
    with _Timer(report, "read"):
        imported = read_model(model, shapes, dynamic, example_inputs, dynamic_shapes)
    report.notes += imported.notes
    report.files = imported.files
    module = imported.module
    say_graph("graph as read", module.main)
    check_limits(module)
    checks = size_checks(module.main)
    refuse_broken(checks)
    uses_winograd = get().winograd if winograd is None else winograd
    grows = get().weight_growth if weight_growth is None else weight_growth
    with use(winograd=uses_winograd, weight_growth=grows), _Timer(report, "optimize"):
        settled = with_equal_sizes(module.main, (c.rule for c in checks))
        checked = drop_index_checks(settled) if unchecked else settled
        told: list[MethodCall] = []
        choices = _choices(methods, records, machine, report)
        if records is not None:
            choices = replace(choices, on_call=told.append)
        main = optimize(checked, machine, opt_level, choices)
    say_graph("graph after all passes", main)
    kernels, calls = kernels_of(main, machine)
    if (reason := why_on_host(main, calls, machine)) is not None:
        report.notes.append(f"the model runs on the CPU, not on {machine.kind}: {reason}")
        return fused_model(
            module, target=host_target(), opt_level=opt_level, winograd=winograd,
            weight_growth=weight_growth, dynamic=dynamic, unchecked=unchecked, methods=methods,
            records=records, report=report,
        )  # fmt: skip
    return Fused(module, main, kernels, calls, checks, machine, told)


def _choices(
    methods: Mapping[str, str] | None, records: Records | None, target: Target, report: Report
) -> Choices:
    """Return the methods that are asked for and recorded; notes tell of records that do not fit."""
    kept = {} if records is None else records.methods(target)

    def note(call: str, problem: str) -> None:
        where = f" ({kept[call].at})" if kept[call].at else ""
        text = f"the record{where} of a method does not fit, the estimates decide: {problem}"
        if text not in report.notes:
            report.notes.append(text)

    recorded = {call: r.method for call, r in kept.items()}
    measured = {call: r.time for call, r in kept.items() if r.seconds}
    return Choices(methods or {}, recorded, note, measured)


def kernels_of(main: Function, target: Target) -> tuple[list[Kernel], dict[g.Call, Kernel]]:
    """Return the distinct kernels of an optimised function, in its order, and that of each call."""
    by_function: dict[Function, Kernel] = {}
    by_code: dict[tuple[object, ...], Kernel] = {}
    calls: dict[g.Call, Kernel] = {}
    functions = [f for f in functions_of(main) if not f.attrs.get("primitive")]
    for node in (n for f in functions for n in g.topological([f.body])):
        if not isinstance(node, g.Call) or is_alias(node) or concat_parts(node) is not None:
            continue
        if not isinstance(node.op, Function):
            if node.op.is_kernel:
                raise InternalError(f"operator {node.op.name} is left outside of every group")
            continue
        if node.op not in by_function:
            made = Kernel(node.op, target)
            code = (made.name, *foreign_operators(node.op))
            by_function[node.op] = by_code.setdefault(code, made)
        kernel = by_function[node.op]
        kernel.origins.append(node.origin)
        calls[node] = kernel
    kernels = list(by_code.values())
    _name_apart(kernels)
    return kernels, calls


def _name_apart(kernels: Sequence[Kernel]) -> None:
    """Number kernels of one name: their operators are called alike and are not the same."""
    taken: dict[str, int] = {}
    for kernel in kernels:
        count = taken[kernel.name] = taken.get(kernel.name, 0) + 1
        if count > 1:
            kernel.name = f"{kernel.name}_{count}"


def _configure(fused: Fused, records: Records, report: Report) -> None:
    """Give kernels the choices kept for them; say of which it does not fit any more."""
    for kernel in fused.kernels:
        record = records.best(kernel.name, kernel.target)
        if record is None:
            continue
        kernel.configure(record.choice)
        try:
            kernel.check_choice()
        except ConfigError as error:
            kernel.configure(DEFAULTS)
            where = f" ({record.at})" if record.at else ""
            report.notes.append(
                f"the record{where} of kernel {kernel.name} does not fit it, which runs by "
                f"default: {error.problem}"
            )
    report.coverage = coverage_of(fused.kernels, records, fused.method_calls)


def _store_weights(main: Function) -> None:
    """Store the weights; large ones and idle compile workers are not in memory together."""
    constants = constants_of(main)
    if sum(c.type.nbytes for c in constants) > WORKERS_BYTES:
        pool().end_idle()
    store_constants(constants)


def _plan(fused: Fused) -> MemoryPlan:
    """Return where the values of a fused function live, and what every run compares."""
    target = fused.target
    launches = {call: _launch(call, kernel) for call, kernel in fused.calls.items()}
    least: int | None = target.l2_bytes if target.cores > 1 else 0
    if target.family == "gpu":
        least = None  # its compiler is told that what a kernel reads and what it writes differ
    names = fused.module.output_names
    caches = None if get().num_threads == 1 else caches_of(target)
    plan = plan_memory(fused.main, launches, names, overwrite_from=least, caches=caches)
    plan.checks = list(fused.checks)
    return plan


def _stack_bytes(fused: Fused) -> int:
    """Return what threads of the runtime need of their stacks; 0 where kernels run without it."""
    if fused.target.is_source_only:
        return 0
    return max((k.stack_bytes for k in fused.kernels), default=0)


def _stack_notes(fused: Fused) -> list[str]:
    """Return which kernels take more of the stack than the target has.

    It is told of those that C source is written of; the others have the stacks of the runtime.
    """
    if not fused.target.is_source_only:
        return []
    room = fused.target.machine.stack_bytes
    return [
        f"kernel {k.name} takes {k.stack_bytes:,} bytes of the stack, and the target has {room:,} "
        "(-stack-bytes)"
        for k in fused.kernels
        if k.stack_bytes > room
    ]


def _launch(call: g.Call, kernel: Kernel) -> Launch:
    """Return what a call runs; its sizes are those of its own function, in the kernel's order."""
    assert isinstance(call.op, Function)
    sizes = function_sizes(call.op)
    return Launch(kernel.name, size_from_json(kernel.workspace(), sizes), sizes)


def _build(kernels: Sequence[Kernel], report: Report) -> None:
    """Make the code of every kernel; what the cache holds is not even lowered.

    Where only C source can be written, its user's compiler makes the code.
    """
    if kernels and kernels[0].target.is_source_only:
        return
    done = 0

    def finished(_name: str, _is_cached: bool) -> None:
        nonlocal done
        done += 1
        report.progress("build", done, len(kernels))

    keys = {k.name: _key(k) for k in kernels}
    for k in kernels:
        k.object = load_kernel(keys[k.name])
    moved = to_host([k for k in kernels if k.object is None], report.notes)
    keys |= {k.name: _key(k) for k in moved}
    for k in moved:
        k.object = load_kernel(keys[k.name])
    missing = [k for k in kernels if k.object is None]
    report.cached = done = len(kernels) - len(missing)
    report.progress("build", done, len(kernels))
    if missing:  # what folding has freed is not in memory together with the compile workers
        release_heap()

    def lowered(kernel: Kernel, seconds: float) -> None:
        say_kernel(kernel, seconds)
        kernel.release()

    for family in ("cpu", "gpu"):
        compile_kernels([k for k in missing if k.target.family == family], finished, lowered)
    for k in missing:
        store_kernel(keys[k.name], k.object_code())


def _key(k: Kernel) -> str | None:
    return kernel_key(k.name, k.content, k.function, k.target, k.choice)
