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
from treadle.graph.nodes import Constant, Module
from treadle.runtime.array import NDArray, array
from treadle.runtime.fill import filled
from treadle.settings import get as settings
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.te.knobs import DEFAULTS
from treadle.tune.dask_executor import DaskExecutor, onnx_bytes
from treadle.tune.executor import Executor, LocalExecutor
from treadle.tune.record_store import RecordStore, open_store
from treadle.tune.settle import Comparison, compared
from treadle.tune.task import extract_tasks
from treadle.tune.tuner import OnChange, TuneOptions, Tuner
from treadle.tune.worker import why_unlike

if TYPE_CHECKING:
    from treadle.frontend.onnx.files import AnyModel

OnStage = Callable[[str], None]
"""Told what begins: "tune", "decide", "compare"."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What a run has found: the tuner's state, and the model before and after.

    `comparison` is None where no kernel has become faster; `reverted` are kernels that were faster
    alone and not in the model.
    """

    tuner: Tuner
    comparison: Comparison | None
    reverted: Sequence[str] = ()


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
    """Tune the kernels of a model into a file of records, which `compile(records=)` reads.

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
    known = _known(records)
    methods = known.method_records()
    fused = fused_model(model, records=_records(methods), **compiling)
    options = _with_cold_weights(options, fused)
    if executor is None:
        executor = _executor(options.executor, model, fused.target, methods, compiling)
    tasks = extract_tasks(fused)
    if not tasks.tasks:
        raise UsageError(
            "the model has no kernel whose sizes are known: there is nothing to tune",
            hint="give sizes to its inputs, with --input-shapes or shapes=",
        )
    file = open_store(records)
    try:
        trials = [record for record in known if isinstance(record, Record)]
        tuner = Tuner(tasks.tasks, file, options, on_change, executor=executor, known=trials)
        if tasks.dynamic:
            tuner.notes.append(f"{len(tasks.dynamic)} kernels have dynamic sizes and stay as is")
        stage = on_stage or (lambda _: None)
        stage("tune")
        tuner.run()
        stage("decide")
        tuner.decide()
        stage("compare")
        return _settled(
            fused,
            tuner,
            file,
            lambda decided: _compiled(fused, _records([*methods, *decided.values()]), compiling),
        )
    finally:
        file.close()
        executor.close()


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
            hint="tune on the machine that the model is to run on, or name an --executor",
        )
    return LocalExecutor()


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


def _settled(
    fused: Fused,
    tuner: Tuner,
    file: RecordStore,
    compiled: Callable[[Mapping[str, Record]], Executable],
) -> TuneResult:
    """Try the decisions in the model; take back those that do not pay there.

    `compiled` gives the model with some decisions. Where no kernel is slower and the model is, all
    are taken back.
    """
    decided = {s.task.name: s.decided for s in tuner.states if s.decided is not None}
    changed = {name: r for name, r in decided.items() if r.choice != DEFAULTS}
    reverted: list[str] = []
    comparison: Comparison | None = None
    is_dynamic = any(kernel.sizes for kernel in fused.kernels)
    unlike = why_unlike(fused.target) if tuner.options.executor != "local" else ""
    if changed and unlike:
        tuner.notes.append(f"decisions were not tried in the model on this machine: {unlike}")
    elif changed and not is_dynamic:
        before = compiled({})
        inputs = _inputs(before)
        while changed:
            after = compiled(changed)
            comparison = compared(before, after, inputs, list(changed))
            slower = comparison.slower or (list(changed) if comparison.share > 1 else [])
            if not slower:
                break
            for name in slower:
                reverted.append(name)
                file.append(replace(changed.pop(name), choice=DEFAULTS, seconds=()))
            comparison = None
    return TuneResult(tuner, comparison, reverted)


def _compiled(fused: Fused, records: Records, compiling: Mapping[str, Any]) -> Executable:
    read = ("target", "shapes", "dynamic", "report")  # fused.module has been read
    options = {name: value for name, value in compiling.items() if name not in read}
    with applied(None):  # what is compared is what was tuned here
        return compile_model(fused.module, target=fused.target, records=records, **options)


def _inputs(model: Executable) -> dict[str, NDArray]:
    random = np.random.default_rng(0)
    return {
        name: array(filled("random", dtype, shape, random)) for name, dtype, shape in model.inputs
    }
