# SPDX-License-Identifier: Apache-2.0
"""Treadle: a deep-learning compiler. This module is the public surface; it holds no logic."""

from treadle import autotvm, rpc, te
from treadle.build.compile import compile_model as compile
from treadle.build.executable import Executable, LoadedExecutable
from treadle.build.load import load
from treadle.build.te_build import build, lower
from treadle.errors import (
    ArtifactError,
    ConfigError,
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
from treadle.integrations.inference_session import InferenceSession, SessionOptions
from treadle.runtime.array import Device, NDArray, array, cpu, empty, from_dlpack
from treadle.runtime.kernel_files import load_module
from treadle.settings import use as settings
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.tune.model import tune_model
from treadle.tune.runner import MeasureOptions
from treadle.tune.tuner import TuneOptions

__version__ = "0.1.0"

__all__ = [
    "ArtifactError", "ConfigError", "Device", "Executable", "InferenceSession", "InputError",
    "InternalError", "LoadedExecutable", "MeasureOptions", "ModelError", "NDArray", "RpcError",
    "ScheduleError", "SessionOptions", "Target", "TargetError", "ToolchainError", "TreadleError",
    "TuneOptions", "TypeMismatch", "UnsupportedOperators", "UsageError", "array", "autotvm",
    "build", "compile", "cpu", "empty", "from_dlpack", "load", "load_module", "lower",
    "parse_target", "rpc", "settings", "te", "tune_model",
]  # fmt: skip
