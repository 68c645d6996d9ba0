# SPDX-License-Identifier: Apache-2.0
"""Executors: inputs by name or order, outputs, profiles, and every mistake with a clear error."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.processes import PATIENCE
from tests.runtime import artifacts
from treadle.errors import ArtifactError, InputError, UsageError
from treadle.runtime import array as arrays
from treadle.runtime.executor import Executor
from treadle.settings import use as change_settings

_ROOT = Path(__file__).parents[2]
_PAGES = Path("/proc/self/smaps_rollup")
"""What the system counts page by page; `VmRSS` and `RssAnon` lag behind on many CPUs."""


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory and no file's."""
    (line,) = (x for x in _PAGES.read_text().splitlines() if x.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


@pytest.fixture
def executor() -> Executor:
    return make()


def make(plan: artifacts.Plan | None = None) -> Executor:
    return Executor.from_plan(
        plan or artifacts.small_plan(),
        artifacts.small_constants(),
        artifacts.kernel_addresses("add16", "twice16"),
        artifacts.kernel_library(),
    )


def expected(data: np.ndarray) -> list[np.ndarray]:
    constant = artifacts.small_constants()["p0"]
    return [2 * (data + constant) + constant, data + constant]


def check(results: list[arrays.NDArray], data: np.ndarray) -> None:
    for found, wanted in zip(results, expected(data), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)


DATA = np.linspace(-2, 2, 16, dtype=np.float32).reshape(4, 4)


def test_inputs_by_name_in_order_and_set_before(executor: Executor) -> None:
    check(executor.run({"data": DATA}), DATA)
    check(executor.run([DATA]), DATA)
    check(executor(DATA), DATA)
    check(executor(data=DATA), DATA)
    executor.set_input("data", DATA + 1)
    check(executor.run(), DATA + 1)
    executor.set_input(0, DATA + 2)
    check(executor.run(), DATA + 2)
    check(executor.run({"data": DATA}), DATA)


def test_inputs_of_every_kind(executor: Executor) -> None:
    check(executor.run([arrays.array(DATA)]), DATA)
    turned = np.asfortranarray(DATA)
    check(executor.run([turned]), DATA)
    swapped = DATA.astype(">f4")
    check(executor.run([swapped]), DATA)
    memory = np.zeros(17, np.float32)
    memory[1:] = DATA.ravel()
    check(executor.run([memory[1:].reshape(4, 4)]), DATA)
    locked = DATA.copy()
    locked.flags.writeable = False
    check(executor.run([locked]), DATA)


@pytest.mark.torch
def test_torch_tensors_go_in_and_out(executor: Executor) -> None:
    import torch

    results = executor.run([torch.from_numpy(DATA)])
    assert torch.equal(torch.from_dlpack(results[1]), torch.from_numpy(expected(DATA)[1]))


def test_results_are_fresh_or_where_the_caller_wants_them(executor: Executor) -> None:
    first = executor.run([DATA])
    second = executor.run([DATA + 1])
    check(first, DATA)
    check(second, DATA + 1)
    assert all(result.is_aligned for result in first)
    own = [arrays.empty((4, 4)), arrays.NDArray(np.zeros(17, np.float32)[1:].reshape(4, 4))]
    assert executor.run([DATA], own)[0] is own[0]
    check(own, DATA)
    assert executor.get_output("sum") is own[1]
    assert executor.get_output(0) is own[0]


BAD_INPUTS = {
    "missing": ({}, "1 of 1 inputs are not given", "give data: float32[4, 4]"),
    "unknown": ({"dtaa": DATA}, "the model has no input 'dtaa'", "did you mean 'data'?"),
    "unknown, unlike any": ({"x": DATA}, "the model has no input 'x'", "the model's inputs are da"),
    "too many": ([DATA, DATA], "the model has 1 inputs but is given 2", ""),
    "dtype": (
        [DATA.astype(np.float64)],
        "input 'data' is float64[4, 4] but float32[4, 4] is expected",
        "convert it with .astype('float32')",
    ),
    "rank": (
        [DATA.ravel()],
        "input 'data' has 1 dimensions (float32[16]) but float32[4, 4] is expected",
        "",
    ),
    "shape": (
        [DATA[:2]],
        "input 'data' is float32[2, 4] but float32[4, 4] is expected",
        "",
    ),
    "objects": ([DATA.astype(object)], "input 'data' holds Python objects", "numeric array"),
    "list": ([[1, 2]], "input 'data' is a list, not an array", "NumPy array"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_inputs_that_do_not_fit(executor: Executor, name: str) -> None:
    inputs, problem, hint = BAD_INPUTS[name]
    with pytest.raises(InputError) as caught:
        executor.run(inputs)  # type: ignore[arg-type]
    assert caught.value.problem.startswith(problem)
    assert hint in caught.value.hint
    check(executor.run([DATA]), DATA)


def test_other_mistakes(executor: Executor) -> None:
    with pytest.raises(UsageError, match="has not run yet"):
        executor.get_output(0)
    executor.run([DATA])
    with pytest.raises(UsageError, match="no output 'x'"):
        executor.get_output("x")
    with pytest.raises(InputError, match="input 5 does not exist"):
        executor.set_input(5, DATA)
    with pytest.raises(InputError, match="given twice"):
        executor(DATA, data=DATA)
    with pytest.raises(InputError, match="2 outputs but is given 1 arrays"):
        executor.run([DATA], [arrays.empty((4, 4))])
    with pytest.raises(InputError, match=r"output 'out' is float32\[4\] but float32\[4, 4\]"):
        executor.run([DATA], [arrays.empty((4,)), arrays.empty((4, 4))])


def test_results_may_not_overwrite_what_is_read(executor: Executor) -> None:
    data = arrays.array(DATA)
    other = arrays.empty((4, 4))
    with pytest.raises(InputError, match='buffer of output "out" overlaps input "data"'):
        executor.run([data], [data, other])
    with pytest.raises(InputError, match='buffers of outputs "out" and "sum" overlap'):
        executor.run([data], [other, other])


def test_what_it_tells_about_itself(executor: Executor) -> None:
    assert [(i.name, i.dtype, i.shape, i.nbytes) for i in executor.inputs] == [
        ("data", "float32", (4, 4), 64)
    ]
    assert [info.name for info in executor.outputs] == ["out", "sum"]
    assert executor.target == "llvm"
    assert executor.arena_bytes == 192
    assert executor.constant_bytes == 64


@pytest.mark.skipif(not _PAGES.is_file(), reason="the system does not tell what is resident")
def test_working_memory_is_resident_before_the_first_run() -> None:
    """In a process of its own: what other tests hold comes and goes meanwhile."""
    program = "from tests.runtime import test_executor as t; print(*t.resident_growth())"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    arena, first, both = map(int, found.stdout.split())
    assert arena == 96 << 20
    assert first >= arena // 2
    assert both >= arena * 3 // 2


def resident_growth() -> tuple[int, int, int]:
    """Return the bytes of an arena, and what an executor and then a fork of it make resident."""
    make()  # loads what every executor needs
    plan = artifacts.small_plan()
    plan["arena_bytes"] = 96 << 20
    before = resident_bytes()
    executor = make(plan)
    first = resident_bytes() - before
    second = executor.fork()
    return second.arena_bytes, first, resident_bytes() - before


def test_the_number_of_threads() -> None:
    with change_settings(num_threads=3):
        executor = make()
    assert executor.num_threads == 3
    executor.num_threads = 2
    assert executor.num_threads == 2
    with pytest.raises(UsageError, match="not a number of threads"):
        executor.num_threads = -3


def test_a_profile_has_a_row_per_instruction(executor: Executor) -> None:
    rows = executor.profile([DATA], runs=5)
    assert [(row.kernel, row.origin, row.runs) for row in rows] == [
        ("add16", "add_1", 5),
        ("twice16", "mul", 5),
        ("add16", "add_2", 5),
        ("copy", "identity", 5),
    ]
    assert all(row.seconds >= 0 for row in rows)
    assert sum(row.mean for row in rows) > 0
    check(executor.run([DATA]), DATA)
    assert [row.runs for row in executor.profile([DATA], runs=2)] == [2, 2, 2, 2]


def test_the_benchmark_measures_and_leaves_results(executor: Executor) -> None:
    result = executor.benchmark([DATA], number=3, repeat=4)
    assert len(result.results) == 4
    assert result.min > 0
    np.testing.assert_array_equal(executor.get_output("sum").numpy(), expected(DATA)[1])
    with pytest.raises(InputError):
        executor.benchmark([DATA[:1]])


def test_constants_and_code_live_as_long_as_the_executor() -> None:
    constants = {"p0": np.arange(17, dtype=np.float32)[1:].reshape(4, 4) - 1}
    executor = Executor.from_plan(
        artifacts.small_plan(),
        constants,
        artifacts.kernel_addresses("add16", "twice16"),
        artifacts.kernel_library(),
    )
    constants.clear()
    gc.collect()
    check(executor.run([DATA]), DATA)


def test_a_closed_executor_says_so(tmp_path: Path) -> None:
    path = artifacts.write_artifact(tmp_path / "model.tar")
    with Executor.open(path) as executor:
        check(executor.run([DATA]), DATA)
    with pytest.raises(UsageError, match="the executor is closed"):
        executor.run([DATA])
    executor.close()


def test_results_outlive_the_executor() -> None:
    results = make().run([DATA])
    gc.collect()
    check(results, DATA)


def test_one_executor_serves_several_threads(executor: Executor) -> None:
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        data = DATA + seed
        try:
            for _ in range(200):
                check(executor.run([data]), data)
        except (AssertionError, InputError) as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not problems


def test_constants_are_checked() -> None:
    with pytest.raises(ArtifactError, match='constant "p0" of the plan is not among the weights'):
        Executor.from_plan(
            artifacts.small_plan(), {}, artifacts.kernel_addresses("add16", "twice16")
        )
    with pytest.raises(InputError, match="constant 'p0' holds Python objects"):
        Executor.from_plan(artifacts.small_plan(), {"p0": np.array([None])}, {})
