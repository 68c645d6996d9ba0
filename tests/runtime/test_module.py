# SPDX-License-Identifier: Apache-2.0
"""Modules: kernels called and timed with arrays, every mismatch named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.runtime import artifacts
from treadle.errors import ArtifactError, InputError, InternalError, UsageError
from treadle.runtime import array as arrays
from treadle.runtime.module import LoadedKernel, Module, loaded_kernels
from treadle.runtime.signature import Param, Signature
from treadle.settings import use as change_settings

ADD = Signature(
    "add",
    (
        Param("A", "float32", ("n",)),
        Param("B", "float32", ("n",)),
        Param("C", "float32", ("n",), is_output=True),
    ),
    symbols=("n",),
)
TWICE = Signature(
    "twice16",
    (Param("X", "float32", (4, 4)), Param("Y", "float32", (4, 4), is_output=True)),
    workspace_bytes=64,
)
FAILING = Signature(
    "code_of",
    (Param("X", "int32", ()), Param("Y", "int32", (), is_output=True)),
)
COVER = Signature(
    "cover",
    (Param("counts", "int32", ("n",), True), Param("workers", "int32", ("n",), True)),
    symbols=("n",),
)


@pytest.fixture
def module() -> Module[LoadedKernel]:
    kernels = {"add": ADD, "twice": TWICE, "failing": FAILING, "cover": COVER}
    return Module(loaded_kernels(artifacts.kernel_code(), kernels))


def test_a_kernel_with_a_symbolic_size(
    module: Module[LoadedKernel], random: np.random.Generator
) -> None:
    for n in (0, 1, 5, 1000):
        a, b = random.random((2, n), np.float32)
        c = arrays.empty((n,))
        module(arrays.array(a), arrays.array(b), c)
        np.testing.assert_array_equal(c.numpy(), a + b)


def test_unaligned_arrays_are_copied_in_and_out(module: Module[LoadedKernel]) -> None:
    memory = np.arange(3 * 101, dtype=np.float32)
    a, b, c = memory[1:101], memory[102:202], memory[203:303]
    expected = a + b
    module["add"](a, b, c)
    np.testing.assert_array_equal(c, expected)


def test_a_kernel_with_a_workspace(module: Module[LoadedKernel]) -> None:
    y = np.zeros((4, 4), np.float32)
    module["twice"](np.full((4, 4), 3, np.float32), y)
    assert (y == 6).all()


def test_a_module_from_a_file_and_from_addresses(tmp_path: Path) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(artifacts.kernel_code())
    library = artifacts.kernel_library()
    at_address = LoadedKernel(TWICE, library.kernel("twice16"), library)
    from_file = loaded_kernels(path, {"twice": TWICE})
    for module in (Module(from_file), Module({"twice": at_address})):
        y = np.zeros((4, 4), np.float32)
        module(np.ones((4, 4), np.float32), y)
        assert (y == 2).all()


def test_a_rebuilt_file_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(artifacts.kernel_code())
    first = Module(loaded_kernels(path, {"add": ADD}))
    source = tmp_path / "other.c"
    source.write_text(
        '#include "treadle.h"\n'
        "int32_t add(const td_env* e, void* const* b, const int64_t* d)\n"
        "{ (void)e; for (int64_t i = 0; i < d[0]; i++) ((float*)b[2])[i] = -1; return 0; }\n"
    )
    from treadle.runtime import toolchain

    toolchain.link_shared([artifacts.compile_object(source, tmp_path / "other.o")], path)
    second = Module(loaded_kernels(path, {"add": ADD}))
    one, c = np.ones(8, np.float32), np.zeros(8, np.float32)
    second(one, one, c)
    assert (c == -1).all()
    first(one, one, c)
    assert (c == 2).all()


def test_the_number_of_threads_follows_the_settings(module: Module[LoadedKernel]) -> None:
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
def test_arguments_that_do_not_fit(module: Module[LoadedKernel], name: str) -> None:
    given, problem, hint = BAD_ARGUMENTS[name]
    with pytest.raises(InputError) as caught:
        module(*given)  # type: ignore[arg-type]
    assert problem in caught.value.problem
    assert hint in caught.value.hint


def test_fixed_sizes_and_read_only_outputs_are_checked(module: Module[LoadedKernel]) -> None:
    good = np.zeros((4, 4), np.float32)
    with pytest.raises(InputError, match=r"float32\[4, 5\] but its dimension 1 must be 4"):
        module["twice"](np.zeros((4, 5), np.float32), good)
    locked = good.copy()
    locked.flags.writeable = False
    module["twice"](locked, good)
    with pytest.raises(InputError, match="argument 'Y' of twice16 is read-only"):
        module["twice"](good, locked)


def test_a_failing_kernel_raises(module: Module[LoadedKernel]) -> None:
    y = np.zeros((), np.int32)
    module["failing"](np.array(0, np.int32), y)
    with pytest.raises(InternalError, match="the kernel returns code 3"):
        module["failing"](np.array(3, np.int32), y)


def test_names_of_kernels(module: Module[LoadedKernel]) -> None:
    assert list(module) == ["add", "twice", "failing", "cover"]
    assert len(module) == 4
    with pytest.raises(UsageError, match="did you mean 'twice'"):
        module["twise"]
    with pytest.raises(ArtifactError, match="no kernel 'missing'"):
        loaded_kernels(artifacts.kernel_code(), {"x": Signature("missing", ())})
    with pytest.raises(UsageError, match="at least one kernel"):
        Module({})


HIDDEN = Signature("add", ADD.params, symbols=("n", "m"))


def test_sizes_that_no_argument_tells_are_given() -> None:
    kernel = loaded_kernels(artifacts.kernel_code(), {"add": HIDDEN})["add"]
    c = np.zeros(4, np.float32)
    kernel(ONE, ONE, c, sizes={"m": 7})
    assert (c == 2).all()
    with pytest.raises(InputError, match="size 'm' of kernel add is not given") as caught:
        kernel(ONE, ONE, c)
    assert "sizes={'n': 1, 'm': 1}" in caught.value.hint
    with pytest.raises(InputError, match="no size 'k'; its sizes are n, m"):
        kernel(ONE, ONE, c, sizes={"m": 7, "k": 1})
    with pytest.raises(InputError, match="must be n = 3, the size that sizes has given"):
        kernel(ONE, ONE, c, sizes={"m": 7, "n": 3})


def test_random_arguments_follow_a_seed(module: Module[LoadedKernel]) -> None:
    add = module["add"]
    first, again, other = (add.random_arguments(seed, {"n": 6}) for seed in (1, 1, 2))
    assert [a.shape for a in first] == [(6,)] * 3
    assert (first[0].numpy() == again[0].numpy()).all()
    assert (first[0].numpy() != other[0].numpy()).any()
    assert (first[0].numpy() != first[1].numpy()).any()
    assert (first[2].numpy() == 0).all()
    add(*first)
    np.testing.assert_array_equal(first[2].numpy(), first[0].numpy() + first[1].numpy())
    with pytest.raises(InputError, match="size 'n' of kernel add is not given"):
        add.random_arguments()


# ---- timing --------------------------------------------------------------------------------------


def test_the_time_evaluator(module: Module[LoadedKernel]) -> None:
    c = np.zeros(4, np.float32)
    evaluate = module.time_evaluator("add", arrays.cpu(), number=3, repeat=4)
    result = evaluate(ONE, ONE, c)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max
    assert result.min <= result.mean <= result.max
    assert (c == 2).all()
    with pytest.raises(InputError):
        evaluate(ONE, ONE)
    with pytest.raises(UsageError, match=r"runs on cpu, not on cuda\(0\)"):
        module.time_evaluator("add", arrays.Device("cuda"))
    with pytest.raises(UsageError, match="no kernel"):
        module.time_evaluator("sub")


def test_timing_out_of_cache_calls_as_often_and_changes_no_argument(
    module: Module[LoadedKernel],
) -> None:
    given = module["add"].random_arguments(3, {"n": 100})
    before = [a.numpy().copy() for a in given[:2]]
    result = module["add"].time_evaluator(2, repeat=3, flush=True)(*given)
    assert len(result.results) == 3
    assert result.min > 0
    for a, b in zip(given, before, strict=False):
        np.testing.assert_array_equal(a.numpy(), b)
    np.testing.assert_array_equal(given[2].numpy(), before[0] + before[1])
