# SPDX-License-Identifier: Apache-2.0
"""A session shaped like onnxruntime's, for programs that were written for that one.

`import treadle.integrations.inference_session as ort` is enough for most. What onnxruntime has and
this module has not is absent or refused in words, never ignored where it would change a result.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from treadle.build.load import is_artifact, is_artifact_content
from treadle.errors import InputError, UsageError
from treadle.frontend.importer import did_you_mean
from treadle.integrations.session_model import ModelMetadata, NodeArg, SavedModel, SessionModel
from treadle.runtime.array import as_numpy, conversion_hint, describe
from treadle.settings import get, use

PROVIDER = "CPUExecutionProvider"

_WARNING = 2  # of the levels of `log_severity_level`

_ABSENT = {
    "io_binding": "run() uses NumPy arrays and DLPack tensors where they lie",
    "run_with_iobinding": "run() uses NumPy arrays and DLPack tensors where they lie",
    "run_with_ort_values": "run() takes NumPy arrays and DLPack tensors",
    "run_with_ortvaluevector": "run() takes NumPy arrays and DLPack tensors",
    "run_async": "call run() in a thread of your own: a session may run in several at once",
    "end_profiling": "treadle profile MODEL shows the time of every kernel",
    "set_providers": "make another session",
}
"""What sessions of onnxruntime have and this one has not, and what to do instead."""


class GraphOptimizationLevel(IntEnum):
    """How much is done to the graph; Treadle's opt_level 0 stands for the first, 3 for the last."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Accepted without effect: Treadle's threads share each kernel, kernels run in order."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(slots=True)
class SessionOptions:
    """What a session may be told.

    `intra_op_num_threads` (0: the CPUs this process may use), `graph_optimization_level` and the
    sizes of `add_free_dimension_override_by_name` count. `log_severity_level` above 2 silences
    warnings. The other fields say how onnxruntime works inside, which changes no result: they are
    accepted without effect, except those that ask for a file, which are refused.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: int = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: int = ExecutionMode.ORT_SEQUENTIAL
    execution_order: int = 0
    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = ""
    optimized_model_filepath: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size that inputs name so."""
        self.sizes[name] = int(size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; none has an effect here."""
        self.entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Return an entry kept before. Raises: UsageError when there is none."""
        if key not in self.entries:
            raise UsageError(f"the session options have no entry {key!r}")
        return self.entries[key]

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Raise UsageError: those libraries hold kernels for onnxruntime alone."""
        raise UsageError(
            f"{path} holds kernels for onnxruntime, which Treadle cannot call",
            hint="register the operators in Python, see docs/how-to/add_operator.md",
        )


@dataclass(slots=True)
class RunOptions:
    """What a run may be told; accepted without effect, except `terminate`."""

    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    entries: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; none has an effect here."""
        self.entries[key] = value


class AbsentError(UsageError, AttributeError):
    """A session has no such method; hasattr() says so too."""


def get_available_providers() -> list[str]:
    """Return the providers a session can have: the CPU."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """Return the providers Treadle knows: the CPU."""
    return [PROVIDER]


def set_default_logger_severity(level: int) -> None:
    """Do nothing: Treadle's warnings are Python's, see the module `warnings`."""


def get_device() -> str:
    """Return the device sessions run on."""
    return "CPU"


class InferenceSession:
    """A model, compiled or loaded, that runs as a session of onnxruntime does.

    `path_or_bytes` is an ONNX file, an artifact of `treadle compile`, or the bytes of either. Sizes
    that the model leaves open stay open: the session runs at any without compiling again. Where a
    model cannot be compiled so, or not for the sizes of a run, a warning says it, once, and it is
    compiled for every such set of shapes.
    Compiled kernels are kept on disk, so the next start is quicker. Several threads may call `run`
    at once.

    `provider_options` are of no use: those of the CPU say how onnxruntime holds memory.

    Raises:
        ModelError: the model cannot be read. UnsupportedOperators: it uses unknown operators.
        ArtifactError: an artifact is damaged. UsageError: an option cannot be honoured.

    >>> session = treadle.InferenceSession("resnet50.onnx")
    >>> (scores,) = session.run(None, {"image": image})
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,  # Any: SessionOptions, or onnxruntime's own
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        enable_fallback: int = 1,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        _check_options(self._options)
        notes = _check_providers(providers or ())
        with use(num_threads=self._options.intra_op_num_threads or get().num_threads):
            self._model = self._open(path_or_bytes)
        if self._warns:
            for note in (*notes, *self._model.notes):
                warnings.warn(note, stacklevel=2)
        self._inputs = {i.name: i for i in self._model.inputs}
        self._outputs = {o.name: k for k, o in enumerate(self._model.outputs)}

    def _open(self, source: str | os.PathLike[str] | bytes) -> SessionModel:
        if isinstance(source, (str, os.PathLike)):
            if is_artifact(Path(source)):
                return SavedModel(source)
        elif not isinstance(source, (bytes, bytearray, memoryview)):
            kind = type(source).__name__
            raise UsageError(
                f"a session opens a file or its bytes; this is of type {kind}",
                hint="give a path, or model.SerializeToString()",
            )
        elif is_artifact_content(source):
            return SavedModel(source)
        from treadle.integrations.session_onnx import OnnxModel

        sizes = getattr(self._options, "sizes", {})
        return OnnxModel(source, _opt_level(self._options), sizes, quiet=not self._warns)

    @property
    def _warns(self) -> bool:
        return int(self._options.log_severity_level) <= _WARNING

    # ---- facts -----------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Return name, type and shape of every input."""
        return list(self._model.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return name, type and shape of every output."""
        return list(self._model.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return nothing: weights are fixed when the model is compiled."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the file says about itself."""
        return self._model.metadata

    def get_session_options(self) -> Any:  # Any: what the caller gave
        """Return the options the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the providers in use: the CPU."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of the providers in use: none."""
        return {PROVIDER: {}}

    def enable_fallback(self) -> None:
        """Do nothing: there is no provider to fall back to."""

    def disable_fallback(self) -> None:
        """Do nothing: there is no provider to fall back to."""

    def __getattr__(self, name: str) -> NoReturn:
        hint = _ABSENT.get(name, "")
        raise AbsentError(f"a session of Treadle has no {name}", hint=hint)

    # ---- runs ------------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],  # Any: arrays, tensors, lists; sequences of them
        run_options: Any = None,  # Any: RunOptions, or onnxruntime's own
    ) -> list[Any]:
        """Return the named outputs (None or no names: all) for inputs by name.

        Every output is a NumPy array of its own that no later run writes to; a sequence is a list
        of arrays, an optional value without an element is None. Inputs are NumPy arrays, lists,
        or tensors that speak DLPack.

        Raises:
            InputError: an input is missing, unknown, or has the wrong type or shape.
            UsageError: there is no such output.
        """
        wanted = self._positions(output_names) if output_names else None
        if run_options is not None and getattr(run_options, "terminate", False):
            raise UsageError("the run is asked to terminate by its options")
        results: list[Any] | None = None
        if isinstance(input_feed, dict):
            results = self._model.run_fitting(input_feed)
        if results is None:
            results = [*self._model.run(self._checked(input_feed))]
        return results if wanted is None else [results[position] for position in wanted]

    def _positions(self, names: Sequence[str]) -> list[int]:
        if isinstance(names, str):
            raise UsageError(f"output_names is {names!r}", hint=f"give a list: [{names!r}]")
        for name in names:
            if name not in self._outputs:
                hint = did_you_mean(str(name), self._outputs)
                raise UsageError(f"the model has no output {name!r}", hint=hint)
        return [self._outputs[name] for name in names]

    def _checked(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(feed, Mapping):
            raise InputError(
                f"the inputs are no dictionary but of type {type(feed).__name__}",
                hint=f"give {{name: array}} for {', '.join(self._inputs) or 'no input'}",
            )
        for name in feed:
            if name not in self._inputs:
                raise InputError(
                    f"the model has no input {name!r}", hint=did_you_mean(str(name), self._inputs)
                )
        missing = [i for n, i in self._inputs.items() if n not in feed and not i.is_optional]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(self._inputs)} inputs are not given: "
                + ", ".join(f"{i.name!r}" for i in missing),
                hint=f"give {', '.join(f'{i.name}: {_declared(i)}' for i in missing)}",
            )
        return {n: _value(i, feed.get(n)) for n, i in self._inputs.items()}


def _check_providers(providers: Sequence[str | tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Return a note where a provider is asked for that is not here."""
    if isinstance(providers, str):
        raise UsageError(f"providers is {providers!r}", hint="give a list of names")
    names = [p if isinstance(p, str) else p[0] for p in providers]
    missing = [name for name in names if name != PROVIDER]
    return [f"the session runs on the CPU: there is no {', '.join(missing)}"] if missing else []


def _check_options(options: Any) -> None:
    """Raise UsageError for what is asked for and cannot be given."""
    if getattr(options, "enable_profiling", False):
        raise UsageError(
            "a session writes no profile", hint="treadle profile MODEL --trace FILE writes one"
        )
    if getattr(options, "optimized_model_filepath", ""):
        raise UsageError(
            "a session writes no optimised model", hint="treadle compile MODEL -o FILE.tar does"
        )
    threads = options.intra_op_num_threads
    if not isinstance(threads, int) or threads < 0:
        raise UsageError(f"intra_op_num_threads is {threads!r}", hint="0, or a number of threads")


def _opt_level(options: Any) -> int:
    return 0 if int(options.graph_optimization_level) == 0 else 3


# ---- what a caller gives -------------------------------------------------------------------------


def _declared(info: NodeArg) -> str:
    """Return what an input must be: float32[batch, ?, 4]."""
    if info.dtype is None:
        return info.type
    if not info.is_ranked:
        return f"{info.dtype} of any shape"
    return f"{info.dtype}[{', '.join('?' if s is None else str(s) for s in info.shape)}]"


def _value(info: NodeArg, value: Any) -> Any:  # Any: what run() takes
    """Return the array for an input; what is no tensor is left to the model."""
    if info.dtype is None:
        return value
    if value is None:
        raise InputError(f"input {info.name!r} is None", hint=f"give an array: {_declared(info)}")
    if isinstance(value, (list, tuple, int, float, bool)):
        view = _from_list(info, value)
    else:
        view = as_numpy(value, f"input {info.name!r}")
    _check_type(info, view, value)
    if info.is_ranked:
        _check_shape(info, view)
    return view


def _check_type(info: NodeArg, view: np.ndarray, value: object) -> None:
    if view.dtype == info.dtype:
        return
    is_text = view.dtype.kind in "SU"
    asks = "text is not computed with: give numbers"
    raise _misfit(info, view, asks if is_text else conversion_hint(value, str(info.dtype)))


def _from_list(info: NodeArg, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, dtype=info.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"input {info.name!r} cannot be made an array of {info.dtype}: {error}",
            hint=f"give an array: {_declared(info)}",
        ) from None


def _check_shape(info: NodeArg, view: np.ndarray) -> None:
    if view.ndim != len(info.shape):
        raise _misfit(info, view, f"it has {view.ndim} dimensions, not {len(info.shape)}")
    for axis, (size, wanted) in enumerate(zip(view.shape, info.shape, strict=True)):
        if isinstance(wanted, int) and size != wanted:
            raise _misfit(info, view, f"dimension {axis} is {size}, not {wanted}")


def _misfit(info: NodeArg, view: np.ndarray, hint: str) -> InputError:
    problem = f"input {info.name!r} is {describe(view)} but {_declared(info)} is expected"
    return InputError(problem, hint=hint)
