# SPDX-License-Identifier: Apache-2.0
"""Tuning a model: its tasks, then the decisions, then both tried in the model itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.build.compile import Fused, compile_model, fused_model
from treadle.build.executable import Executable
from treadle.build.method_records import MethodRecord
from treadle.build.record_context import applied
from treadle.build.record_database import is_url
from treadle.build.records import Record, Records
from treadle.errors import UsageError
from treadle.expr.nodes import Expr
from treadle.expr.traversal import free_vars
from treadle.graph.nodes import Constant, Module
from treadle.graph.types import tensor_type
from treadle.runtime.array import NDArray, array
from treadle.runtime.fill import filled
from treadle.settings import get as settings
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.te.knobs import DEFAULTS
from treadle.tune.dask_executor import DaskExecutor, onnx_bytes
from treadle.tune.executor import Executor, LocalExecutor
from treadle.tune.gpu_runner import GpuExecutor
from treadle.tune.methods import (
    MethodResult,
    decide,
    left_of,
    method_tuner,
    standing,
    tasks_of_methods,
    try_methods,
)
from treadle.tune.options import TuneOptions
from treadle.tune.record_store import RecordStore, open_store
from treadle.tune.settle import Comparison, Evidence, compared, seconds_for
from treadle.tune.task import extract_tasks
from treadle.tune.tuner import OnChange, Tuner
from treadle.tune.worker import why_unlike

if TYPE_CHECKING:
    from treadle.frontend.onnx.files import AnyModel

OnStage = Callable[[str], None]
"""Told what begins: "methods", "tune", "decide", "compare"."""
_METHOD_SECONDS = 2.0
"""How long the model runs with and without a method."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What a run has found: the tuner's state, and the model before and after.

    `comparison` is None where nothing has become faster; `reverted` are kernels that were faster
    alone and not in the model. `methods` is what became of methods, None where they were not tuned.
    """

    tuner: Tuner
    comparison: Comparison | None
    reverted: Sequence[str] = ()
    methods: MethodResult | None = None

    @property
    def tuners(self) -> list[Tuner]:
        """Those that ran: of methods, then of kernels."""
        return [self.tuner] if self.methods is None else [self.methods.tuner, self.tuner]

    @property
    def trials(self) -> int:
        """All trials of methods and kernels, those of earlier runs included."""
        return sum(t.trials for t in self.tuners)

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return max(t.elapsed for t in self.tuners)


def tune_model(
    model: AnyModel | Module,
    records: str | os.PathLike[str],
    *,
    options: TuneOptions | None = None,
    on_change: OnChange | None = None,
    on_stage: OnStage | None = None,
    executor: Executor | None = None,
    **compiling: Any,
) -> TuneResult:
    """Tune a model into a file of records, which `compile(records=)` reads: methods, then kernels.

    In place of a file, `records` may be the URL of a database. It may hold records already: what
    they say of this model, this target and this version of the compiler is not tried again.
    `executor` is where candidates are measured, in the place of the one that the options name.
    `compiling` are the options of `treadle.compile`.

    Raises:
        UsageError: the target is not this machine, nothing can be tuned, the file cannot be
            written, or an option is out of range.
        ConfigError: the file holds other things than records.
        Others as `treadle.compile`.
    """
    options = options or TuneOptions()
    known = _known(records)
    decided = standing(known, options)
    first = fused_model(model, records=_records(decided), **compiling)
    _check_sizes(options.sizes, first)
    _check_space(options.space, first.target)
    _check_kernels(first, options.sizes)
    options = _with_cold_weights(options, first)
    if executor is None:
        executor = _executor(options.executor, model, first.target, decided, compiling)
    stage = on_stage or (lambda _: None)
    file = open_store(records)
    try:
        run = _Run(first, known, file, options, compiling, on_change, stage)
        methods = run.methods(executor, decided)
        return run.kernels(executor, methods, decided)
    finally:
        file.close()
        executor.close()


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of `tune_model`: `first` is the model before its methods are tuned, `known` what the
    records said when it began."""

    first: Fused
    known: Records
    file: RecordStore
    options: TuneOptions
    compiling: Mapping[str, Any]
    on_change: OnChange | None
    stage: OnStage

    def methods(self, executor: Executor, decided: Sequence[MethodRecord]) -> MethodResult | None:
        """Tune the methods of the calls; None where none compete or they are left as they are."""
        options = self.options
        is_here = isinstance(executor, LocalExecutor)
        if options.space == "sketch" or not options.methods or not is_here:
            return None
        tasks = tasks_of_methods(self.first, decided, self.compiling, options)
        if not tasks:
            return None
        self.stage("methods")
        tuner = method_tuner(tasks, self.file, self.known, decided, options, executor)
        try_methods(tuner, self.on_change)
        growth = self.compiling.get("weight_growth")
        share = self._share if self.can_run else None
        return decide(tuner, self.file, self.first, decided, growth, self.compiled, share)

    def kernels(
        self, executor: Executor, methods: MethodResult | None, decided: Sequence[MethodRecord]
    ) -> TuneResult:
        """Tune the kernels that the methods make, and try all in the model.

        Raises: UsageError where there are none.
        """
        taken = decided if methods is None else methods.decided
        fused = self.first
        if methods is not None:
            fused = fused_model(
                fused.module, target=fused.target, records=_records(taken), **self._options
            )
        is_here = isinstance(executor, LocalExecutor)
        tasks = extract_tasks(fused, self.options.sizes if is_here else {})
        if not tasks.tasks:
            raise _no_sizes()
        options = self.options if methods is None else left_of(self.options, methods)
        trials = [record for record in self.known if isinstance(record, Record)]
        tuner = Tuner(
            tasks.tasks, self.file, options, self.on_change, executor=executor, known=trials
        )
        if not is_here and self.options.methods:
            tuner.notes += _methods_left(self.first)
        tuner.notes += [tasks.note] if tasks.note else []
        self.stage("tune")
        tuner.run()
        self.stage("decide")
        tuner.decide()
        self.stage("compare")
        found = _settled(self, fused, tuner, taken)
        return found if methods is None else self._with_methods(found, methods)

    def _with_methods(self, found: TuneResult, methods: MethodResult) -> TuneResult:
        """Compare the model before and after with the methods, which go back where it is slower."""
        result = replace(found, methods=methods)
        if not methods.changed or not self.can_run:
            return result
        others = [r for r in methods.decided if r.call not in methods.changed]
        decided = {s.task.name: s.decided for s in found.tuner.states if s.decided is not None}
        kernels = {n: r for n, r in decided.items() if n not in found.reverted}
        before, after = self.compiled(others), self.compiled(methods.decided, kernels)
        both = compared(before, after, self.inputs(before), [])
        if both.is_faster:
            return replace(result, comparison=both)
        for record in methods.as_estimated():
            self.file.append(record)
        undone = replace(methods, changed=(), reverted=(*methods.reverted, *methods.changed))
        return replace(result, comparison=None, methods=undone)

    def compiled(
        self, methods: Iterable[MethodRecord], kernels: Mapping[str, Record] | None = None
    ) -> Executable:
        """Return the model with methods and kernels decided."""
        records = _records([*methods, *(kernels or {}).values()])
        with applied(None):  # what is compared is what was tuned here
            return compile_model(
                self.first.module, target=self.first.target, records=records, **self._options
            )

    @property
    def can_run(self) -> bool:
        """True where the sizes of all inputs are known."""
        params = self.first.module.main.params
        dims = (d for p in params for d in tensor_type(p.type).shape)
        names = {v.name for d in dims if isinstance(d, Expr) for v in free_vars(d)}
        return names <= {*self.options.sizes}

    def inputs(self, model: Executable) -> dict[str, NDArray]:
        """Return random inputs, at the sizes that the options say."""
        random = np.random.default_rng(0)
        shapes = {
            name: tuple(d if isinstance(d, int) else self.options.sizes[d] for d in shape)
            for name, shape in model.input_sizes().items()
        }
        return {
            name: array(filled("random", dtype, shapes[name], random))
            for name, dtype, _ in model.inputs
        }

    def _share(self, before: Executable, after: Executable) -> float:
        """Run two compilations of the model alternately; return the share of time that is left.

        It is at least 1 where less is chance.
        """
        found = compared(before, after, self.inputs(before), [], seconds=_METHOD_SECONDS)
        return found.share if found.is_faster else max(found.share, 1.0)

    @property
    def _options(self) -> dict[str, Any]:
        """Return the options of compiling a model that has been read."""
        read = ("target", "shapes", "dynamic", "report")
        return {name: value for name, value in self.compiling.items() if name not in read}


def _check_sizes(sizes: Mapping[str, int], fused: Fused) -> None:
    """Raise UsageError where a size is none of the model's, or no number that one can have."""
    known = {size.name for kernel in fused.kernels for size in kernel.sizes}
    for name, size in sizes.items():
        if name not in known:
            listed = f"they are {', '.join(sorted(known))}" if known else "it has none: --dynamic"
            raise UsageError(f"no kernel of the model has a dynamic size {name!r}", hint=listed)
        if size < 1:
            raise UsageError(f"the size {name} is {size}", hint="it is at least 1")


def _check_kernels(fused: Fused, sizes: Mapping[str, int]) -> None:
    """Raise UsageError where there is nothing to tune."""
    if not fused.kernels:
        raise UsageError("the model has no kernels: a run computes nothing that could be tuned")
    if all(kernel.sizes for kernel in fused.kernels) and not extract_tasks(fused, sizes).tasks:
        raise _no_sizes()


def _no_sizes() -> UsageError:
    return UsageError(
        "the model has no kernel whose sizes are known: there is nothing to tune",
        hint="give sizes to its inputs, with --input-shapes or shapes=, or say at which to "
        "measure, with --sizes or TuneOptions(sizes=)",
    )


def _check_space(space: str, target: Target) -> None:
    """Raise UsageError where there are no such spaces for a target."""
    if target.family == "gpu" and space != "template":
        raise UsageError(
            f"there are no sketches for {target.kind}: they lay out loops for the threads of a CPU",
            hint="tune the knobs of its schedules: --space template",
        )


def _methods_left(fused: Fused) -> list[str]:
    """Return a note that methods are not tuned, where any compete."""
    count = len({call.text for call in fused.method_calls if len(call.offers) > 1})
    said = f"methods of {count} calls stay as they are: they are measured on CPUs, by this machine"
    return [said] if count else []


def _executor(
    name: str,
    model: AnyModel | Module,
    target: Target,
    methods: Sequence[MethodRecord],
    compiling: Mapping[str, Any],
) -> Executor:
    """Return the executor of a name, "local" or "dask:" and an address.

    Raises: UsageError where there is none such, or it cannot measure for the target.
    """
    kind, _, address = name.partition(":")
    if kind == "dask" and address:
        plain = {key: value for key, value in compiling.items() if key not in ("target", "report")}
        if plain.get("winograd") is None:
            plain["winograd"] = settings().winograd
        return DaskExecutor(address, onnx_bytes(model), target, plain, methods)
    if name != "local":
        raise UsageError(
            f"there is no executor {name!r}", hint="there is local, and dask:tcp://host:8786"
        )
    if (unfit := why_not_here(target)) is not None:
        raise UsageError(
            f"kernels for {target} cannot be measured on this machine: {unfit.problem}",
            hint="tune on the machine that the model is to run on, or measure there: --rpc-tracker "
            "with --rpc-key, or --executor",
        )
    return GpuExecutor() if target.family == "gpu" else LocalExecutor()


def _with_cold_weights(options: TuneOptions | None, fused: Fused) -> TuneOptions:
    """Let weights be read from memory where the model has more of them than the caches hold."""
    found = options or TuneOptions()
    if not weights_are_cold(fused):
        return found
    return replace(found, measure=replace(found.measure, cold_weights=True))


def weights_are_cold(fused: Fused) -> bool:
    """Return whether a model has more weights than the caches hold."""
    weights = {id(a.value): a.value.nbytes for call in fused.calls for a in call.args
               if isinstance(a, Constant)}  # fmt: skip
    return sum(weights.values()) > fused.target.machine.caches[-1].bytes


def _known(where: str | os.PathLike[str]) -> Records:
    """Return the records that may be there; those of methods decide which kernels there are."""
    if is_url(where):
        open_store(where).close()  # makes the table
    elif not Path(where).exists():
        return Records()
    return Records.read(where)


def _records(found: Iterable[Record | MethodRecord]) -> Records:
    records = Records()
    for record in found:
        records.add(record)
    return records


def _settled(run: _Run, fused: Fused, tuner: Tuner, methods: Sequence[MethodRecord]) -> TuneResult:
    """Try the decisions in the model; take back those that do not pay there.

    Where no kernel is slower and the model is not faster for certain, all are taken back.
    """
    decided = {s.task.name: s.decided for s in tuner.states if s.decided is not None}
    changed = {name: r for name, r in decided.items() if r.choice != DEFAULTS}
    reverted: list[str] = []
    comparison: Comparison | None = None
    unlike = why_unlike(fused.target) if tuner.options.executor != "local" else ""
    if changed and unlike:
        tuner.notes.append(f"decisions were not tried in the model on this machine: {unlike}")
    elif changed and not run.can_run:
        tuner.notes.append("decisions were not tried in the model: not all of its sizes are known")
    elif changed:
        before = run.compiled(methods)
        inputs = run.inputs(before)
        evidence = Evidence()
        while changed:
            after = run.compiled(methods, changed)
            seconds = seconds_for(tuner.elapsed)
            comparison = compared(before, after, inputs, list(changed), seconds)
            evidence.add(comparison)
            names = list(changed)
            slower = evidence.slower(names) or ([] if comparison.is_faster else names)
            if not slower:
                break
            for name in slower:
                reverted.append(name)
                run.file.append(replace(changed.pop(name), choice=DEFAULTS, seconds=()))
            comparison = None
    return TuneResult(tuner, comparison, reverted)
