# SPDX-License-Identifier: Apache-2.0
"""Modules: kernels called and timed with arrays, every mismatch named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.runtime import artifacts
from treadle.errors import ArtifactError, InputError, InternalError, UsageError
from treadle.runtime import array as arrays
from treadle.runtime.module import BenchmarkResult, KernelInfo, Module, Param, measure
from treadle.settings import use as change_settings

ADD = KernelInfo(
    "add",
    (
        Param("A", "float32", ("n",)),
        Param("B", "float32", ("n",)),
        Param("C", "float32", ("n",), is_output=True),
    ),
    symbols=("n",),
)
TWICE = KernelInfo(
    "twice16",
    (Param("X", "float32", (4, 4)), Param("Y", "float32", (4, 4), is_output=True)),
    workspace_bytes=64,
)
FAILING = KernelInfo(
    "code_of",
    (Param("X", "int32", ()), Param("Y", "int32", (), is_output=True)),
)
COVER = KernelInfo(
    "cover",
    (Param("counts", "int32", ("n",), True), Param("workers", "int32", ("n",), True)),
    symbols=("n",),
)


@pytest.fixture
def module() -> Module:
    kernels = {"add": ADD, "twice": TWICE, "failing": FAILING, "cover": COVER}
    return Module.load(artifacts.kernel_code(), kernels)


def test_a_kernel_with_a_symbolic_size(module: Module, random: np.random.Generator) -> None:
    for n in (0, 1, 5, 1000):
        a, b = random.random((2, n), np.float32)
        c = arrays.empty((n,))
        module(arrays.array(a), arrays.array(b), c)
        np.testing.assert_array_equal(c.numpy(), a + b)


def test_unaligned_arrays_are_copied_in_and_out(module: Module) -> None:
    memory = np.arange(3 * 101, dtype=np.float32)
    a, b, c = memory[1:101], memory[102:202], memory[203:303]
    expected = a + b
    module["add"](a, b, c)
    np.testing.assert_array_equal(c, expected)


def test_a_kernel_with_a_workspace(module: Module) -> None:
    y = np.zeros((4, 4), np.float32)
    module["twice"](np.full((4, 4), 3, np.float32), y)
    assert (y == 6).all()


def test_a_module_from_a_file_and_from_addresses(tmp_path: Path) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(artifacts.kernel_code())
    library = artifacts.kernel_library()
    address = {"twice": library.kernel("twice16")}
    for module in (Module.load(path, {"twice": TWICE}), Module({"twice": TWICE}, address, library)):
        y = np.zeros((4, 4), np.float32)
        module(np.ones((4, 4), np.float32), y)
        assert (y == 2).all()


def test_a_rebuilt_file_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(artifacts.kernel_code())
    first = Module.load(path, {"add": ADD})
    source = tmp_path / "other.c"
    source.write_text(
        '#include "treadle.h"\n'
        "int32_t add(const td_env* e, void* const* b, const int64_t* d)\n"
        "{ (void)e; for (int64_t i = 0; i < d[0]; i++) ((float*)b[2])[i] = -1; return 0; }\n"
    )
    from treadle.runtime import toolchain

    toolchain.link_shared([artifacts.compile_object(source, tmp_path / "other.o")], path)
    second = Module.load(path, {"add": ADD})
    one, c = np.ones(8, np.float32), np.zeros(8, np.float32)
    second(one, one, c)
    assert (c == -1).all()
    first(one, one, c)
    assert (c == 2).all()


def test_the_number_of_threads_follows_the_settings(module: Module) -> None:
    counts, workers = np.zeros(1000, np.int32), np.zeros(1000, np.int32)
    with change_settings(num_threads=1):
        module["cover"](counts, workers)
    assert (counts == 1).all()
    assert (workers == 0).all()


ONE = np.ones(4, np.float32)

BAD_ARGUMENTS = {
    "too few": ((ONE, ONE), "add takes 3 arguments but is given 2", "its arguments are A, B, C"),
    "a list": (([1.0], ONE, ONE), "argument 'A' of add is a list, not an array", "NumPy array"),
    "objects": (
        (np.array([None] * 4), ONE, ONE),
        "argument 'A' of add holds Python objects",
        "numeric",
    ),
    "other dtype": (
        (ONE.astype(np.float64), ONE, ONE),
        "argument 'A' of add is float64[4] but float32[n] is expected",
        ".astype('float32')",
    ),
    "other rank": (
        (ONE, ONE.reshape(2, 2), ONE),
        "argument 'B' of add is float32[2, 2] but float32[n] is expected",
        "",
    ),
    "other size": (
        (ONE, ONE, np.zeros(5, np.float32)),
        "argument 'C' of add is float32[5] but its dimension 0 must be n = 4, the size that "
        "argument 'A' has given",
        "",
    ),
    "not contiguous": (
        (np.ones(8, np.float32)[::2], ONE, ONE),
        "argument 'A' of add is not contiguous",
        "ascontiguousarray",
    ),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_arguments_that_do_not_fit(module: Module, name: str) -> None:
    given, problem, hint = BAD_ARGUMENTS[name]
    with pytest.raises(InputError) as caught:
        module(*given)  # type: ignore[arg-type]
    assert problem in caught.value.problem
    assert hint in caught.value.hint


def test_fixed_sizes_and_read_only_outputs_are_checked(module: Module) -> None:
    good = np.zeros((4, 4), np.float32)
    with pytest.raises(InputError, match=r"float32\[4, 5\] but its dimension 1 must be 4"):
        module["twice"](np.zeros((4, 5), np.float32), good)
    locked = good.copy()
    locked.flags.writeable = False
    module["twice"](locked, good)
    with pytest.raises(InputError, match="argument 'Y' of twice16 is read-only"):
        module["twice"](good, locked)


def test_a_failing_kernel_raises(module: Module) -> None:
    y = np.zeros((), np.int32)
    module["failing"](np.array(0, np.int32), y)
    with pytest.raises(InternalError, match="the kernel returns code 3"):
        module["failing"](np.array(3, np.int32), y)


def test_names_of_kernels(module: Module) -> None:
    assert list(module) == ["add", "twice", "failing", "cover"]
    assert len(module) == 4
    with pytest.raises(UsageError, match="did you mean 'twice'"):
        module["twise"]
    with pytest.raises(ArtifactError, match="no kernel 'missing'"):
        Module.load(artifacts.kernel_code(), {"x": KernelInfo("missing", ())})
    with pytest.raises(UsageError, match="at least one kernel"):
        Module({}, {}, None)
    with pytest.raises(UsageError, match="size 'm' of kernel k is in no parameter's shape"):
        KernelInfo("k", (Param("A", "float32", ("n",)),), symbols=("n", "m"))
    with pytest.raises(UsageError, match="kernel k does not list the size 'n' it uses"):
        KernelInfo("k", (Param("A", "float32", ("n",)),))


# ---- timing --------------------------------------------------------------------------------------


def test_the_time_evaluator(module: Module) -> None:
    c = np.zeros(4, np.float32)
    evaluate = module.time_evaluator("add", arrays.cpu(), number=3, repeat=4)
    result = evaluate(ONE, ONE, c)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max
    assert result.min <= result.mean <= result.max
    assert (c == 2).all()
    with pytest.raises(InputError):
        evaluate(ONE, ONE)
    with pytest.raises(UsageError, match=r"kernels on cuda\(0\)"):
        module.time_evaluator("add", arrays.Device("cuda"))
    with pytest.raises(UsageError, match="no kernel"):
        module.time_evaluator("sub")


def test_min_repeat_ms_raises_the_number_of_calls() -> None:
    numbers: list[int] = []

    def time(number: int) -> float:
        numbers.append(number)
        return number * 1e-4

    result = measure(time, 2, 3, 10)
    assert result.mean == pytest.approx(1e-4)
    assert numbers[0] == 1
    assert all(number * 1e-4 >= 10e-3 for number in numbers[-3:])
    with pytest.raises(UsageError, match="cannot be measured"):
        measure(time, 0, 1, 0)


def test_the_summary_table() -> None:
    result = BenchmarkResult((0.001, 0.002, 0.006))
    assert (result.median, result.min, result.max) == (0.002, 0.001, 0.006)
    assert result.mean == pytest.approx(0.003)
    assert result.std == pytest.approx(np.std([0.001, 0.002, 0.006]))
    assert str(result).splitlines() == [
        "Execution time summary:",
        " mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  ",
        "   3.0000       2.0000       6.0000       1.0000       2.1602   ",
    ]
