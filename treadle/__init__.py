# SPDX-License-Identifier: Apache-2.0
"""Treadle: a deep-learning compiler. This module is the public surface.

Names are imported when they are first used: who only runs saved models waits for the runtime, not
for the compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Sub-packages called like public functions: once imported they do not take a function's place.
import treadle.build
import treadle.lower  # as said above
from treadle.build.collector import without_collector
from treadle.errors import (
    ArtifactError,
    ConfigError,
    DeviceError,
    InputError,
    InternalError,
    ModelError,
    RpcError,
    ScheduleError,
    TargetError,
    ToolchainError,
    TreadleError,
    TypeMismatch,
    UnsupportedOperators,
    UsageError,
)
from treadle.settings import use as settings

if TYPE_CHECKING:
    from treadle import auto_scheduler, autotvm, rpc, te
    from treadle.build.compile import compile_model as compile
    from treadle.build.executable import Executable
    from treadle.build.load import load
    from treadle.build.loaded import LoadedExecutable
    from treadle.build.reading import from_tensorflow, from_tflite, from_torch
    from treadle.build.te_build import build, lower
    from treadle.integrations.inference_session import InferenceSession, SessionOptions
    from treadle.runtime.array import (
        Device,
        NDArray,
        array,
        cpu,
        cuda,
        empty,
        from_dlpack,
        opencl,
    )
    from treadle.runtime.kernel_files import load_module
    from treadle.target.base import Target
    from treadle.target.parse import parse_target
    from treadle.tune.model import tune_model
    from treadle.tune.options import TuneOptions
    from treadle.tune.runner import MeasureOptions
else:
    del build, lower, treadle

__version__ = "0.1.0"

__all__ = [
    "ArtifactError", "ConfigError", "Device", "DeviceError", "Executable", "InferenceSession",
    "InputError", "InternalError", "LoadedExecutable", "MeasureOptions", "ModelError", "NDArray",
    "RpcError", "ScheduleError", "SessionOptions", "Target", "TargetError", "ToolchainError",
    "TreadleError", "TuneOptions", "TypeMismatch", "UnsupportedOperators", "UsageError", "array",
    "auto_scheduler", "autotvm", "build", "compile", "cpu", "cuda", "empty", "from_dlpack",
    "from_tensorflow", "from_tflite", "from_torch", "load", "load_module", "lower", "opencl",
    "parse_target", "rpc", "settings", "te", "tune_model",
]  # fmt: skip

_PLACES = {
    "Device": "runtime.array",
    "Executable": "build.executable",
    "InferenceSession": "integrations.inference_session",
    "LoadedExecutable": "build.loaded",
    "MeasureOptions": "tune.runner",
    "NDArray": "runtime.array",
    "SessionOptions": "integrations.inference_session",
    "Target": "target.base",
    "TuneOptions": "tune.options",
    "array": "runtime.array",
    "build": "build.te_build",
    "compile": "build.compile",
    "cpu": "runtime.array",
    "cuda": "runtime.array",
    "empty": "runtime.array",
    "from_dlpack": "runtime.array",
    "from_tensorflow": "build.reading",
    "from_tflite": "build.reading",
    "from_torch": "build.reading",
    "load": "build.load",
    "load_module": "runtime.kernel_files",
    "lower": "build.te_build",
    "opencl": "runtime.array",
    "parse_target": "target.parse",
    "tune_model": "tune.model",
}
"""The module of every name that is imported when it is used."""
_PACKAGES = ("auto_scheduler", "autotvm", "rpc", "te")
"""Names that are packages."""
# What modules are made of is no garbage, and need not be looked through.
_imported = without_collector(import_module)


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return _imported(f"treadle.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'treadle' has no attribute {name!r}")
    module = _imported(f"treadle.{_PLACES[name]}")
    found = getattr(module, "compile_model" if name == "compile" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
