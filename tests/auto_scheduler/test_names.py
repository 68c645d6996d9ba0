# SPDX-License-Identifier: Apache-2.0
"""What scripts for v0.8 call is there, with its arguments in their order."""

from __future__ import annotations

import inspect

import pytest

from treadle import auto_scheduler
from treadle.auto_scheduler.workload import WORKLOAD_FUNC_REGISTRY, register_workload

pytestmark = pytest.mark.tiny

SIGNATURES = {
    "ApplyHistoryBest": "records n_lines include_compatible",
    "HardwareParams": "num_cores vector_unit_bytes cache_line_bytes max_shared_memory_per_block "
    "max_local_memory_per_block max_threads_per_block max_vthread_extent warp_size",
    "LocalBuilder": "timeout n_parallel build_func",
    "LocalRPCMeasureContext": "priority n_parallel timeout number repeat min_repeat_ms "
    "cooldown_interval enable_cpu_cache_flush",
    "LocalRunner": "timeout number repeat min_repeat_ms cooldown_interval enable_cpu_cache_flush",
    "LogEstimatedLatency": "log_file",
    "PreloadCustomSketchRule": "meet_condition_func apply_func rule_name",
    "PreloadMeasuredStates": "filename",
    "RPCRunner": "key host port priority n_parallel timeout number repeat min_repeat_ms "
    "cooldown_interval enable_cpu_cache_flush",
    "RecordToFile": "filename",
    "SearchTask": "func args compute_dag workload_key target target_host hardware_params "
    "layout_rewrite_option task_inputs task_inputs_overwrite task_inputs_save_to_file desc",
    "SketchPolicy": "task program_cost_model params seed verbose init_search_callbacks",
    "TaskScheduler": "tasks task_weights objective_func strategy load_model_file load_log_file "
    "alpha beta gamma backward_window_size callbacks",
    "TuningOptions": "num_measure_trials early_stopping num_measures_per_round verbose builder "
    "runner measure_callbacks",
    "XGBModel": "verbose_eval num_warmup_sample seed model_file adapative_training",
    "extract_tasks": "mod params target target_host hardware_params include_simple_tasks "
    "dump_workload_to_dag_log opt_level",
    "register_workload": "func_name f override",
    "save_records": "filename inputs results",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_are_those_of_v08_in_their_order(name: str) -> None:
    given = list(inspect.signature(getattr(auto_scheduler, name)).parameters)
    wanted = SIGNATURES[name].split()
    assert given[: len(wanted)] == wanted


def test_all_names_are_there() -> None:
    assert all(hasattr(auto_scheduler, name) for name in auto_scheduler.__all__)
    assert sorted(auto_scheduler.__all__) == auto_scheduler.__all__ or len(
        set(auto_scheduler.__all__)
    ) == len(auto_scheduler.__all__)


def test_functions_are_registered_by_any_of_the_forms() -> None:
    def own() -> list[object]:
        return []

    try:
        assert register_workload(own) is own  # type: ignore[arg-type]
        assert register_workload(own) is own  # type: ignore[arg-type]  # a cell run again
        register_workload("second", own)  # type: ignore[arg-type]
        register_workload("second", lambda: [], override=True)
        assert {"own", "second"} <= set(WORKLOAD_FUNC_REGISTRY)
    finally:
        for name in ("own", "second"):
            WORKLOAD_FUNC_REGISTRY.pop(name, None)
