# SPDX-License-Identifier: Apache-2.0
"""Tuning in the words of AutoTVM, on Treadle's engine.

This package re-exports what users write: `from treadle import autotvm`.
"""

from treadle.autotvm import callback, measure, record, task, tuner
from treadle.autotvm.dispatcher import (
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    apply_history_best,
)
from treadle.autotvm.entity import ConfigEntity
from treadle.autotvm.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureInput,
    MeasureResult,
    RPCRunner,
    measure_option,
)
from treadle.autotvm.runs import get_config
from treadle.autotvm.space import ConfigSpace
from treadle.autotvm.task import Task
from treadle.autotvm.templates import template
from treadle.tune.failures import MeasureErrorNo

__all__ = [
    "ApplyHistoryBest", "ConfigEntity", "ConfigSpace", "DispatchContext", "FallbackContext",
    "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult", "RPCRunner",
    "Task", "apply_history_best", "callback", "get_config", "measure", "measure_option", "record",
    "task", "template", "tuner",
]  # fmt: skip
