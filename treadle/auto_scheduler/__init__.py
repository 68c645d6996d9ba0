# SPDX-License-Identifier: Apache-2.0
"""Tuning in the words of TVM v0.8's auto_scheduler (Ansor), on Treadle's engine.

Names, arguments and what is printed are those that its users know; `treadle.tune` does the work.
"""

from treadle.auto_scheduler import loop_state
from treadle.auto_scheduler.compute_dag import ComputeDAG
from treadle.auto_scheduler.convenience import auto_schedule
from treadle.auto_scheduler.cost_model import RandomModel, XGBModel
from treadle.auto_scheduler.custom_rule import PreloadCustomSketchRule
from treadle.auto_scheduler.dispatcher import ApplyHistoryBest
from treadle.auto_scheduler.extract import extract_tasks
from treadle.auto_scheduler.hardware import HardwareParams
from treadle.auto_scheduler.log import RecordToFile
from treadle.auto_scheduler.loop_state import LoopState
from treadle.auto_scheduler.measure import (
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    PythonBasedMeasureCallback,
    RPCRunner,
    TuningOptions,
)
from treadle.auto_scheduler.measure_record import (
    RecordReader,
    load_best_record,
    load_records,
    save_records,
)
from treadle.auto_scheduler.outcome import MeasureResult
from treadle.auto_scheduler.search_policy import EmptyPolicy, PreloadMeasuredStates, SketchPolicy
from treadle.auto_scheduler.search_task import LayoutRewriteOption, SearchTask
from treadle.auto_scheduler.state import MeasureInput, State
from treadle.auto_scheduler.task_scheduler import (
    LogEstimatedLatency,
    PrintTableInfo,
    TaskScheduler,
    TaskSchedulerCallback,
)
from treadle.auto_scheduler.workload import make_workload_key, register_workload
from treadle.tune.failures import MeasureErrorNo

__all__ = [
    "ApplyHistoryBest", "ComputeDAG", "EmptyPolicy", "HardwareParams", "LayoutRewriteOption",
    "LocalBuilder", "LocalRPCMeasureContext", "LocalRunner", "LogEstimatedLatency", "LoopState",
    "MeasureErrorNo", "MeasureInput", "MeasureResult", "PreloadCustomSketchRule",
    "PreloadMeasuredStates", "PrintTableInfo", "PythonBasedMeasureCallback", "RPCRunner",
    "RandomModel", "RecordReader", "RecordToFile", "SearchTask", "SketchPolicy", "State",
    "TaskScheduler", "TaskSchedulerCallback", "TuningOptions", "XGBModel", "auto_schedule",
    "extract_tasks", "load_best_record", "load_records", "loop_state", "make_workload_key",
    "register_workload", "save_records",
]  # fmt: skip
