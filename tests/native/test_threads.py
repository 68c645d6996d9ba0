# SPDX-License-Identifier: Apache-2.0
"""The thread pool: every iteration once, on as many threads as allowed, whatever happens."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.processes import PATIENCE
from tests.runtime import artifacts
from tests.runtime.artifacts import ROOT
from treadle.errors import InternalError, SettingError, UsageError
from treadle.runtime import native
from treadle.runtime.array import address_of
from treadle.runtime.executor import Executor
from treadle.runtime.native_build import FLAGS
from treadle.settings import use as change_settings


def call(name: str, threads: int, buffers: list[np.ndarray], dims: list[int]) -> None:
    address = artifacts.kernel_addresses(name)[name]
    addresses = [address_of(buffer) for buffer in buffers]
    native.KernelCall(address, native.env(threads), addresses, dims).run()


def run_python(code: str, **variables: str) -> str:
    """Run code in a fresh interpreter with the test kernels at hand; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("threads", [1, 2])
def test_frames_of_kernels_begin_with_a_page_however_deep_the_stack_is(threads: int) -> None:
    """A vector on the stack that lies across two pages takes many times as long to write and read.

    Each nested callback of C takes some hundred bytes of the caller's stack.
    """
    plan = artifacts.small_plan()
    plan["values"] = [artifacts.value("input"), artifacts.value("output")]
    plan["outputs"] = [{"name": "out", "value": 1}]
    call = {"op": "call", "kernel": "frame", "args": [0, 1], "dims": [16], "origin": "frame"}
    plan["instructions"] = [call]
    addresses = artifacts.kernel_addresses("frame")
    executor = Executor.from_plan(plan, {}, addresses, artifacts.kernel_library())
    executor.num_threads = threads
    data, places = np.zeros((4, 4), np.float32), list[float]()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)

    def nested(levels: int) -> None:
        (out,) = executor.run([data])
        places.extend(out.numpy().ravel().tolist())
        if levels > 0:
            kind(nested)(levels - 1)

    nested(12)
    assert min(places) > 4096 - 1024


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64, 1000, 100_003])
def test_every_iteration_runs_exactly_once(threads: int, count: int) -> None:
    counts = np.zeros(count + 1, np.int32)
    workers = np.full(count + 1, -1, np.int32)
    for _ in range(20):
        call("cover", threads, [counts, workers], [count])
    assert (counts[:count] == 20).all()
    assert counts[count] == 0
    assert (workers[:count] >= 0).all()
    assert (workers[:count] < threads).all()


def test_the_threads_run_at_the_same_time_each_its_own_part() -> None:
    for threads in (2, 3, 5):
        arrived, workers = np.zeros(1, np.int32), np.full(threads, -1, np.int32)
        call("meet", threads, [arrived, workers], [])
        assert arrived[0] == threads
        assert workers.tolist() == list(range(threads))


def test_many_loops_in_a_row_with_changing_numbers_of_threads(random: np.random.Generator) -> None:
    counts = np.zeros(300, np.int32)
    workers = np.zeros(300, np.int32)
    for count in random.integers(1, 300, 3000):
        counts[:] = 0
        threads = int(random.integers(1, 6))
        call("cover", threads, [counts, workers], [int(count)])
        assert (counts[:count] == 1).all()
        assert workers[:count].max() < threads


def test_a_loop_inside_a_loop_runs_serially_and_completely() -> None:
    counts = np.zeros((37, 11), np.int32)
    workers = np.full((37, 11), -1, np.int32)
    call("nested", 4, [counts, workers], [37, 11])
    assert (counts == 1).all()
    assert (workers == workers[:, :1]).all()


def test_the_first_failure_is_returned_and_the_pool_goes_on() -> None:
    for threads in (1, 4):
        for bad in (0, 500, 999):
            with pytest.raises(InternalError, match="the kernel returns code 42"):
                call("fail_at", threads, [], [1000, bad])
        call("fail_at", threads, [], [1000, 1000])


def test_callers_on_several_threads_all_get_their_results() -> None:
    problems: list[str] = []

    def work(seed: int) -> None:
        counts = np.zeros(997, np.int32)
        workers = np.zeros(997, np.int32)
        for _ in range(300):
            call("cover", 3, [counts, workers], [997])
        if not (counts == 300).all():
            problems.append(f"caller {seed}: {np.unique(counts)}")

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE)
    assert not problems
    assert not any(caller.is_alive() for caller in callers)


FORKED = """
import os, signal
import numpy as np
from tests.native.test_threads import call
def check():
    counts, workers = np.zeros(1000, np.int32), np.zeros(1000, np.int32)
    call("cover", 3, [counts, workers], [1000])
    call("meet", 3, [np.zeros(1, np.int32), np.zeros(3, np.int32)], [])
    assert (counts == 1).all()
check()
child = os.fork()
if child == 0:
    signal.alarm(240)
    check()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
check()
print("done")
"""


def test_a_forked_child_gets_a_pool_of_its_own() -> None:
    assert run_python(FORKED) == "done\n"


def test_the_process_ends_while_workers_sleep_or_spin() -> None:
    code = """
import numpy as np
from tests.native.test_threads import call
call("meet", 4, [np.zeros(1, np.int32), np.zeros(4, np.int32)], [])
print("done")
"""
    assert run_python(code) == "done\n"


# ---- threads that are there before the first run -------------------------------------------------

OPENED = """
import ctypes, os, time
from pathlib import Path
from tests.native import hostile, models
from treadle.runtime import native

def threads():
    return len(os.listdir("/proc/self/task"))

def threads_left(wanted):
    end = time.monotonic() + 30
    while threads() != wanted and time.monotonic() < end:
        time.sleep(0.001)  # the system lists a thread for a moment after it was joined
    return threads()

def stack_bytes():
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split("VmStk:")[1].split()[0])

before = threads(), stack_bytes()
executor = hostile.load({**models.static_plan(1 << 17, 3), "stack_bytes": %d}, ["add"])
"""

on_linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this asks Linux")


def run_opened(code: str, stack_bytes: int = 0) -> str:
    return run_python(
        OPENED % stack_bytes + code, TREADLE_NUM_THREADS="3", OPENBLAS_NUM_THREADS="1"
    )


@on_linux
def test_opening_a_model_starts_its_threads_and_readies_its_stack() -> None:
    code = "print(threads() - before[0], stack_bytes() - before[1] >= 700_000)"
    assert run_opened(code, 1 << 20) == "2 True\n"


RUN_IN_A_THREAD = """
import threading
import numpy as np
import treadle
def run():
    try:
        print(bool((executor.run([np.ones(1 << 17, np.float32)])[0].numpy() == 8).all()))
    except treadle.TreadleError as e:
        print(e)
threading.stack_size(2 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@on_linux
@pytest.mark.parametrize("stack_bytes", [2 << 20, 1 << 30, 1 << 50])
def test_a_run_needs_the_stack_that_its_kernels_take(stack_bytes: int) -> None:
    text = run_opened(RUN_IN_A_THREAD, stack_bytes)
    assert re.fullmatch(
        rf"kernels take {stack_bytes} bytes of the stack, and this thread has \d+ left\n"
        "  hint  run the model in a thread with a larger stack: ulimit -s, "
        "pthread_attr_setstacksize, threading.stack_size in Python\n",
        text,
    )


@on_linux
@pytest.mark.parametrize("stack_bytes", [0, 1 << 20])
def test_a_run_in_a_thread_with_enough_stack_is_not_refused(stack_bytes: int) -> None:
    assert run_opened(RUN_IN_A_THREAD, stack_bytes) == "True\n"


@on_linux
def test_a_model_may_be_opened_by_a_thread_with_a_small_stack() -> None:
    code = """
import threading
threading.stack_size(96 << 10)
again = {**models.static_plan(1 << 10, 3), "stack_bytes": 4 << 20}
thread = threading.Thread(target=lambda: print(hostile.load(again, ["add"]).num_threads))
thread.start()
thread.join()
"""
    assert run_opened(code) == "3\n"


@on_linux
def test_a_fork_ends_threads_that_no_run_has_and_the_next_run_starts_its_own() -> None:
    code = """
x = np.ones(1 << 17, np.float32)
child = os.fork()
seen = [threads_left(1)]
right = bool((executor.run([x])[0].numpy() == 8).all())
seen.append(threads())
if child == 0:
    os._exit(0 if right and seen == [1, 3] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(right, seen)
"""
    assert run_opened("import numpy as np" + code) == "True [1, 3]\n"


@on_linux
def test_cpus_are_chosen_until_the_first_run() -> None:
    code = """
def choose():
    error = native.Error()
    cpus = (ctypes.c_int32 * 1)(min(os.sched_getaffinity(0)))
    found = native.library().td_set_cpus(cpus, 1, ctypes.byref(error))
    return found, error.text.decode()

import numpy as np
print(choose(), threads_left(1))
executor.run([np.ones(1 << 17, np.float32)])
print(choose())
"""
    first, second = run_opened(code).splitlines()
    assert first == "(0, '') 1"
    assert "threads are running already" in second


# ---- how many threads ----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_the_affinity_mask_limits_the_threads() -> None:
    code = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from treadle.runtime import native
print(native.usable_cpus(), native.num_threads(), native.env().num_threads)
"""
    assert run_python(code) == "1 1 1\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/cpu"

QUOTAS: dict[str, tuple[dict[str, str], int | None]] = {
    "none": ({}, None),
    "v2 without limit": ({"proc/self/cgroup": "0::/a\n", f"{V2}/a/cpu.max": "max 100000\n"}, None),
    "v2": ({"proc/self/cgroup": "0::/a\n", f"{V2}/a/cpu.max": "100000 100000\n"}, 1),
    "v2 rounded up": ({"proc/self/cgroup": "0::/a\n", f"{V2}/a/cpu.max": "50000 100000\n"}, 1),
    "v2 of a parent": (
        {"proc/self/cgroup": "0::/a/b\n", f"{V2}/a/cpu.max": "90000 100000\n"},
        1,
    ),
    "v2 in a container": ({"proc/self/cgroup": "0::/x/y\n", f"{V2}/cpu.max": "1000 100000\n"}, 1),
    "v2 larger than the machine": (
        {"proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "100000000 100000\n"},
        None,
    ),
    "v1": (
        {
            "proc/self/cgroup": "5:memory:/a\n4:cpu,cpuacct:/a\n",
            f"{V1}/a/cpu.cfs_quota_us": "80000\n",
            f"{V1}/a/cpu.cfs_period_us": "100000\n",
        },
        1,
    ),
    "v1 without limit": (
        {
            "proc/self/cgroup": "4:cpuacct,cpu:/\n",
            f"{V1}/cpu.cfs_quota_us": "-1\n",
            f"{V1}/cpu.cfs_period_us": "100000\n",
        },
        None,
    ),
    "v1 of cpuset only": (
        {
            "proc/self/cgroup": "4:cpuset:/a\n",
            f"{V1}/a/cpu.cfs_quota_us": "80000\n",
            f"{V1}/a/cpu.cfs_period_us": "100000\n",
        },
        None,
    ),
    "nonsense": ({"proc/self/cgroup": "hello\n::\n0::/\n", f"{V2}/cpu.max": "lots\n"}, None),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_the_quota_of_the_control_group_limits_the_threads(tmp_path: Path, name: str) -> None:
    files, limit = QUOTAS[name]
    for path, text in files.items():
        write(tmp_path / path, text)
    unlimited = native.usable_cpus(str(tmp_path / "nothing"))
    assert native.usable_cpus(str(tmp_path)) == (limit or unlimited)


def test_the_variable_sets_the_number_of_threads() -> None:
    code = "from treadle.runtime import native; print(native.num_threads())"
    assert run_python(code, TREADLE_NUM_THREADS="3") == "3\n"


def test_the_setting_sets_the_number_of_threads() -> None:
    with change_settings(num_threads=5):
        assert native.num_threads() == 5
        assert native.env().num_threads == 5
    assert native.env(2).num_threads == 2


def test_the_process_can_set_the_number_of_threads() -> None:
    native.set_num_threads(7)
    try:
        assert native.env().num_threads == 7
    finally:
        native.set_num_threads(0)
    assert native.env().num_threads == native.num_threads()


@pytest.mark.parametrize("count", [-1, 513])
def test_impossible_numbers_of_threads_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"{count} is not a number of threads"):
        native.set_num_threads(count)


@pytest.mark.parametrize("text", ["0", "many", "-2", "1000000", "2.5"])
def test_a_bad_variable_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_NUM_THREADS", text)
    with pytest.raises(SettingError, match=f"TREADLE_NUM_THREADS is '{text}'"):
        native.num_threads()


def runs_without_races(folder: Path, name: str, *words: str) -> None:
    """Build a program of this folder and the runtime under the thread sanitizer, and run it."""
    native_folder = ROOT / "native"
    sources = [str(path) for path in sorted((native_folder / "src").glob("*.c"))]
    command = [*artifacts.compiler(), *FLAGS, "-O1", "-g", "-fsanitize=thread"]
    command += [f"-I{native_folder / 'include'}", str(ROOT / "tests" / "native" / name)]
    command += [*sources, "-ldl", "-o", "program"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    if built.returncode != 0 and ("sanitize" in built.stderr or "tsan" in built.stderr):
        pytest.skip("the compiler has no thread sanitizer")
    assert built.returncode == 0, built.stderr
    variables = {**os.environ, "TREADLE_NUM_THREADS": "4"}
    done = subprocess.run(
        ["./program", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=variables,
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not run on this system")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_parallel_loops_have_no_data_races(tmp_path: Path) -> None:
    """Those of three callers at once."""
    runs_without_races(tmp_path, "race_program.c")


@pytest.mark.slow
def test_models_opened_forked_and_run_at_once_have_no_data_races(tmp_path: Path) -> None:
    """By four threads, of which each has executors of its own; weights and the pool are shared."""
    treadle.compile(ROOT / "examples" / "digits" / "digits.onnx").save(tmp_path / "digits.tar")
    runs_without_races(tmp_path, "race_models.c", "digits.tar")
