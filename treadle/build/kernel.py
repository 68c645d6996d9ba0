# SPDX-License-Identifier: Apache-2.0
"""One kernel from te to machine code: its text at every stage, its code, calling and timing it.

Networks, `treadle.build` of a te schedule, benchmarks and tests all use this one object.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from treadle.build.collector import without_collector
from treadle.build.group import build_group, function_sizes, group_space, lower_group
from treadle.build.launches import launches_of
from treadle.build.signatures import signature_of_function, signature_of_loops
from treadle.build.sizes import size_to_json
from treadle.build.sources import source_of, sources_of
from treadle.errors import ConfigError, ScheduleError, UsageError
from treadle.expr.nodes import Var
from treadle.graph.nodes import Function
from treadle.graph.text import function_text
from treadle.graph.types import as_dim
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import PrimFunc, func_text
from treadle.lower.limit_stack import stack_bytes
from treadle.lower.pipeline import LOOPS
from treadle.passes import final_text
from treadle.runtime.array import ArrayLike, NDArray
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.kernel import DeviceKernel
from treadle.runtime.module import LoadedKernel
from treadle.runtime.signature import Signature
from treadle.runtime.timing import BenchmarkResult
from treadle.target.backend import Backend, CompileError, OnDone, backend_of
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.target.names import symbol
from treadle.te.choice import Choice, Script
from treadle.te.knobs import DEFAULTS, Knob, Knobs, Space
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule
from treadle.te.text import operations_text

_NO_SIZES: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """Machine code of a kernel and the scratch memory its caller lends it (`size_to_json`).

    `stack` is the most bytes that its buffers take of the stack at once, where that is known.
    """

    code: bytes
    workspace: object
    stack: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Scheduled:
    """A te schedule, and what its kernel takes: tensors and sizes in calling order."""

    schedule: Schedule
    args: Sequence[Tensor | Var]
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A computation of te whose schedule is made by choices; `make(knobs)` makes it anew.

    Every run of `make` has the same computation, and its arguments in the same order.
    """

    name: str
    make: Callable[[Knobs], Scheduled]

    def scheduled(self, choice: Choice) -> Scheduled:
        """Return the schedule of a choice.

        Raises: ConfigError where the choice fits neither the knobs nor the stages, and what the
            user's own code raises.
        """
        if isinstance(choice, Script):
            plain = self.make(Knobs())
            try:
                schedule = plain.schedule.fresh().replay(choice.steps)
            except ScheduleError as e:
                problem = f"the steps do not fit: {e.problem}"
                raise ConfigError(problem, at=e.at, hint=e.hint) from None
            return Scheduled(schedule, plain.args, plain.name)
        knobs = Knobs(choice)
        made = self.make(knobs)
        knobs.check_known()
        return made

    @property
    def space(self) -> Space:
        """All configurations."""

        def run(knobs: Knobs) -> None:
            self.make(knobs)
            knobs.check_known()

        return Space(run)


Work = Function | Template | Scheduled | PrimFunc


class Kernel:
    """A computation on its way to machine code; every stage is text that can be read.

    It is made of a fused function of a graph, of a template or a te schedule, or of a loop nest.
    `name` is its symbol in the machine code: of a fused function a hash of its content, the same in
    every model. `content` is what it is made of as text without origins; `choice` is what the
    schedule of a fused function or a template is told: values of knobs, or all its steps; `origins`
    are the nodes of the user's model that run in it. `object` is its machine code, once it is
    compiled.

    >>> kernel = treadle.compile("resnet50.onnx").kernels[0]
    >>> print(kernel.loop_text())
    >>> arguments = kernel.random_arguments(seed=1)
    >>> kernel.time_evaluator(number=100, flush=True)(*arguments)
    """

    def __init__(self, work: Work, target: Target, choice: Choice = DEFAULTS) -> None:
        self.work = work
        self.target = target
        self.choice = choice
        self.origins: list[str] = []
        self.object: ObjectCode | None = None
        self._loaded: LoadedKernel | None = None
        if isinstance(work, Function):
            label = re.sub(r"_\d+$", "", work.name) or "kernel"
            content = Function(work.params, work.body, label, work.attrs)
            self.content = function_text(content, origins=False)
            digest = hashlib.sha256(self.content.encode()).hexdigest()
            self.name = f"{label}_{digest[:12]}"
        else:
            self.content = ""
            self.name = work.name if isinstance(work, PrimFunc) else symbol(work.name)

    @property
    def backend(self) -> Backend:
        """The back end that makes its code."""
        return backend_of(self.target)

    @property
    def device_kind(self) -> str:
        """The kind of the device it runs on."""
        return "cpu" if self.target.family == "cpu" else self.target.kind

    @property
    def function(self) -> Function:
        """The fused function. Raises: UsageError for a kernel that is made of no graph."""
        if not isinstance(self.work, Function):
            raise self._without("graph")
        return self.work

    @property
    def sizes(self) -> tuple[Var, ...]:
        """The symbolic sizes the kernel takes, in its order."""
        if isinstance(self.work, Function):
            return function_sizes(self.work)
        return self.loops.sizes

    def __repr__(self) -> str:
        return f"Kernel({self.name})"

    # -- stages --------------------------------------------------------------------------------

    def graph_text(self) -> str:
        """Return the fused function as graph text."""
        return function_text(self.function)

    def te_text(self) -> str:
        """Return what it computes as tensor expressions, producers first."""
        if isinstance(self.work, PrimFunc):
            raise self._without("tensor expressions")
        if isinstance(self.work, Function):
            schedule = build_group(self.work, self.target)[0].schedule
        elif isinstance(self.work, Template):
            schedule = self.work.scheduled(self.choice).schedule
        else:
            schedule = self.work.schedule
        return operations_text(stage.op for stage in schedule.stages)

    @property
    def space(self) -> Space:
        """All configurations of its schedule.

        Raises: UsageError where it is made of neither a graph nor a template.
        """
        if isinstance(self.work, Template):
            return self.work.space
        return group_space(self.function, self.target, self.name)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """What its schedule chooses with `choice`: candidates, what they cost, values.

        A script leaves no knob to choose.

        Raises: ConfigError where the configuration does not fit the schedule.
        """
        return () if isinstance(self.choice, Script) else self.space.knobs(self.choice)

    def check_choice(self) -> None:
        """Raise ConfigError where `choice` does not fit the function; no code is made."""
        if isinstance(self.choice, Script):
            _ = self._scheduled
            self.release()
        else:
            _ = self.knobs

    def configure(self, choice: Choice) -> None:
        """Take other values of knobs, or steps; what was made with those before is dropped."""
        self.choice = choice
        self.object = self._loaded = None
        self.__dict__.pop("stack_bytes", None)
        self.release()

    @cached_property
    @without_collector
    def _scheduled(self) -> tuple[list[Scheduled], PrimFunc]:
        work = self.work
        if isinstance(work, Function):
            cases, func = lower_group(work, self.target, self.name, self.choice)
            return [Scheduled(c.schedule, c.args, self.name) for c in cases], func
        if isinstance(work, PrimFunc):
            return [], work
        made = work.scheduled(self.choice) if isinstance(work, Template) else work
        line = self.target.machine.line_bytes
        func = schedule_to_func(made.schedule, made.args, self.name, line_bytes=line)
        return [made], func

    @property
    def scheduled(self) -> list[Scheduled]:
        """Its te schedules with what they take: to be edited, and made kernels of their own.

        There is one for each case of symbolic sizes that has loops of its own; the last runs where
        no condition holds.
        """
        if isinstance(self.work, PrimFunc):
            raise self._without("schedule")
        return self._scheduled[0]

    @property
    def schedule(self) -> str:
        """The schedule steps as Python; of several cases one after the other."""
        return "\n\n".join(s.schedule.as_python() for s in self.scheduled)

    @cached_property
    @without_collector
    def loops(self) -> PrimFunc:
        """The loop nest with multi-dimensional buffers."""
        made = self._scheduled[1]
        return made if made is self.work else LOOPS.run(made, label=self.name)

    @cached_property
    @without_collector
    def lowered(self) -> PrimFunc:
        """The loop nest that is handed to the code generator."""
        passes, loops = self.backend.lowering(self.target), self.loops
        return passes.run(loops, label=self.name, is_verified=loops is not self.work)

    def loop_text(self) -> str:
        """Return the loop nest as Python-like text."""
        return func_text(self.loops)

    @property
    def _source_file(self) -> str:
        return f"00_{self.backend.kind}.{self.backend.suffix}"

    @cached_property
    @without_collector
    def _source(self) -> str:
        text = self.backend.emit(self.lowered, self.target)
        final = final_text(self.name, "target", self._source_file, text)
        if final != text:
            self._check_edited(final)
        return final

    def _check_edited(self, text: str) -> None:
        try:
            self.backend.check(text, self.target)
        except CompileError as error:
            raise UsageError(
                f"the compiler refuses the edited kernel: {error}",
                at=f"{self.name}/target/{self._source_file} in the folder TREADLE_OVERRIDE names",
                hint="correct the file or remove it",
            ) from error

    def source(self) -> str:
        """Return the source text that the back end compiles: LLVM IR or C."""
        return self._source

    def asm(self) -> str:
        """Return the assembly of the target, as it runs."""
        return self.backend.assembly({self.name: self._source}, self.target)[self.name]

    def release(self) -> None:
        """Drop the intermediate forms; they are made again when asked for."""
        for name in ("_scheduled", "loops", "lowered", "_source"):
            self.__dict__.pop(name, None)

    def _without(self, stage: str) -> UsageError:
        kinds = {PrimFunc: "a loop nest", Template: "a template", Scheduled: "a te schedule"}
        made_of = kinds[type(self.work)]
        return UsageError(
            f"kernel {self.name} is made of {made_of}: it has no {stage}",
            hint="look at a later stage: loop_text(), source() or asm()",
        )

    # -- machine code --------------------------------------------------------------------------

    def workspace(self) -> object:
        """Return the scratch memory its caller lends it in bytes, as `sizes.size_to_json`."""
        if self.object is not None:
            return self.object.workspace
        return size_to_json(as_dim(self.lowered.workspace_bytes), self.sizes)

    @cached_property
    def stack_bytes(self) -> int:
        """The most bytes that its buffers take of the stack at once, before a compiler's own."""
        if self.object is not None:
            return self.object.stack
        return stack_bytes(self.lowered)

    @property
    def signature(self) -> Signature:
        """What it takes: buffers with their types, sizes, scratch memory."""
        if isinstance(self.work, Function):
            return signature_of_function(self.name, self.work, self.workspace())
        return signature_of_loops(self.loops, self.workspace())

    def object_code(self) -> ObjectCode:
        """Return the machine code, compiled at the first use."""
        if self.object is None:
            compile_kernels([self])
        assert self.object is not None
        return self.object

    def load(self) -> LoadedKernel:
        """Return the kernel in memory, ready to be called, compiled at the first use.

        One for another machine is returned, too: calling it raises TargetError.
        """
        if self._loaded is None:
            code = self.object_code().code
            unfit = why_not_here(self.target)
            if self.target.family == "gpu":
                made = GpuCode.from_bytes(code)
                self._loaded = DeviceKernel(self.signature, made, unfit=unfit)
                return self._loaded
            loaded = self.backend.load([code] if unfit is None else [])
            address = loaded.address(self.name) if unfit is None else 0
            self._loaded = LoadedKernel(self.signature, address, loaded, unfit)
        return self._loaded

    def __call__(self, *args: ArrayLike, sizes: Mapping[str, int] = _NO_SIZES) -> None:
        """Run the kernel alone; see `LoadedKernel`."""
        self.load()(*args, sizes=sizes)

    def random_arguments(
        self, seed: int = 0, sizes: Mapping[str, int] = _NO_SIZES
    ) -> list[NDArray]:
        """Return arguments to try the kernel on; see `LoadedKernel`."""
        return self.load().random_arguments(seed, sizes)

    def time_evaluator(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, *, flush: bool = False
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes the kernel's arguments and times it; see `LoadedKernel`."""
        return self.load().time_evaluator(number, repeat, min_repeat_ms, flush=flush)


def compile_kernels(
    kernels: Sequence[Kernel],
    on_done: OnDone | None = None,
    on_source: Callable[[Kernel, float], None] | None = None,
) -> None:
    """Compile kernels of one target at once; `object` of each is its machine code then.

    `on_source(kernel, seconds)` is called when the source text of a kernel is made, in any order
    while others compile; `on_done(name, is_cached)` when its code is ready.
    """
    if not kernels:
        return
    objects: dict[str, ObjectCode] = {}
    on_device: dict[str, GpuCode] = {}

    def jobs() -> Iterator[tuple[str, str]]:
        is_gpu = target.family == "gpu"
        for made in map(source_of, kernels) if is_gpu else sources_of(kernels):
            kernel = made.kernel
            objects[kernel.name] = ObjectCode(b"", made.workspace, made.stack)
            if is_gpu:
                launches = launches_of(kernel.lowered)
                on_device[kernel.name] = GpuCode(target.kind, target.cpu, launches, made.text)
            if on_source is not None:
                on_source(kernel, made.seconds)
            yield kernel.name, made.text

    target = kernels[0].target
    codes = backend_of(target).compile(jobs(), target, on_done)
    for kernel in kernels:
        code = codes[kernel.name]
        if target.family == "gpu":
            code = replace(on_device[kernel.name], binary=code).to_bytes()
        kernel.object = replace(objects[kernel.name], code=code)
