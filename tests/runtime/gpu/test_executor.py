# SPDX-License-Identifier: Apache-2.0
"""Models on a device, beside the same ones on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import treadle
from tests.devices import image, model_of, small_network
from treadle.errors import InputError, UsageError
from treadle.runtime.gpu.array import DeviceArray
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.devices import opened
from treadle.runtime.gpu.executor import PROGRAMS, GpuExecutor
from treadle.runtime.gpu.program import HostKernel
from treadle.target.backend import backend_of

pytestmark = pytest.mark.opencl

Chooser = Callable[[int], bool]
EVERY: tuple[Chooser, ...] = (
    lambda k: True,
    lambda k: False,
    lambda k: k % 2 == 0,
    lambda k: k % 2 == 1,
)
"""Which kernels of a model run on the device, by their number."""


def mixed(model: onnx.ModelProto, on_device: Chooser, **options: bool) -> GpuExecutor:
    """Return a model some kernels of which run on the device, all others on the CPU.

    Both are compiled of the graph for the device, whose kernels have the same names.
    """
    exe = treadle.compile(model, target="opencl", **options)
    for number, kernel in enumerate(exe.kernels):
        if not on_device(number):
            kernel.target = treadle.parse_target("llvm")
            kernel.configure(kernel.choice)
    there = [k for k in exe.kernels if k.target.kind == "opencl"]
    here = [k for k in exe.kernels if k.target.kind == "llvm"]
    code = backend_of("llvm").load(k.object_code().code for k in here) if here else None
    outputs = {k.name: tuple(p.is_output for p in k.signature.params) for k in exe.kernels}
    hosts = {
        k.name: HostKernel(code.address(k.name), outputs[k.name]) for k in here if code is not None
    }
    codes = {k.name: GpuCode.from_bytes(k.object_code().code) for k in there}
    return GpuExecutor(
        exe.plan, exe.memory.constants, codes, hosts, outputs, opened("opencl"), (code, exe)
    )


def expected(model: onnx.ModelProto, *inputs: np.ndarray, **options: bool) -> list[np.ndarray]:
    """Return what the model gives on the CPU."""
    return [o.numpy() for o in treadle.compile(model, **options)(*inputs)]


def assert_close(found: Iterable[treadle.NDArray], wanted: Iterable[np.ndarray]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-5)


def test_a_model_runs() -> None:
    exe = treadle.compile(small_network(), target="opencl")
    assert isinstance(exe.executor, GpuExecutor)
    assert_close(exe(image()), expected(small_network(), image()))
    assert_close(exe.run({"x": image(1, 2)}), expected(small_network(), image(1, 2)))


def elementwise() -> onnx.ModelProto:
    """Return a chain of kernels without scratch memory, and two that read the first's result."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("CumSum", ["a", "axis"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("CumSum", ["c", "axis"], ["d"]),
        helper.make_node("Concat", ["d", "x"], ["e"], axis=0),
        helper.make_node("CumSum", ["e", "axis"], ["y"]),
        helper.make_node("Add", ["b", "b"], ["z"]),
    ]
    return model_of(nodes, {"x": (4, 4)}, ["y", "z"], {"axis": np.array(0, "int64")})


@pytest.mark.parametrize("on_device", EVERY)
def test_kernels_of_both_sides_take_turns(on_device: Chooser) -> None:
    executor = mixed(elementwise(), on_device)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((4, 4)).astype("float32")
        assert_close(executor(x), expected(elementwise(), x))
    executor.close()


def test_each_set_of_shapes_has_a_program() -> None:
    model = small_network("n")
    exe = treadle.compile(model, target="opencl", dynamic=True)
    reference = treadle.compile(model, dynamic=True)
    for batch in (*range(1, PROGRAMS + 3), 1, 2, 0):
        x = image(batch, batch)
        assert_close(exe(x), [o.numpy() for o in reference(x)])
    assert len(exe.executor._programs) == PROGRAMS
    exe.executor.close()


def test_results_stay_on_the_device_where_asked() -> None:
    exe = treadle.compile(small_network(), target="opencl")
    wanted = expected(small_network(), image())
    there = treadle.array(image(), device=treadle.opencl())
    (result,) = exe.executor.run([there], on_device=True)
    assert isinstance(result, DeviceArray)
    assert_close([result], wanted)
    target = treadle.empty(result.shape, device=treadle.opencl())
    exe.executor.run({"x": there}, [target])
    assert_close([target], wanted)
    own = treadle.empty(result.shape)
    assert exe.executor.run([image()], [own])[0] is own
    assert_close([own], wanted)


def test_inputs_are_checked() -> None:
    executor = treadle.compile(small_network(), target="opencl").executor
    with pytest.raises(InputError, match=r"float32\[1, 3, 12, 12\] is expected"):
        executor(image(2))
    with pytest.raises(InputError, match=r"float32\[1, 3, 12, 12\] is expected"):
        executor(treadle.array(image(2), device=treadle.opencl()))
    with pytest.raises(InputError, match="are not given"):
        executor.run()
    with pytest.raises(InputError, match="2"):
        executor(image(), image())
    executor.set_input("x", image())
    assert executor.run()[0].shape == (1, 8)
    assert executor.get_output("y").shape == (1, 8)


def test_indices_outside_of_their_axis_are_refused() -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], axis=0)]
    kinds = {"i": TensorProto.INT64}
    model = model_of(nodes, {"x": (4, 2), "i": (3,)}, ["y"], types=kinds)
    exe = treadle.compile(model, target="opencl")
    x = np.arange(8, dtype="float32").reshape(4, 2)
    assert_close(exe(x, np.array([0, -4, 3])), [x[[0, -4, 3]]])
    with pytest.raises(InputError, match="takes element 4 of axis 0, which has 4") as caught:
        exe(x, np.array([0, 4, 3]))
    assert caught.value.hint == "give indices from -4 to 3"


def test_random_numbers_are_those_of_the_seed() -> None:
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["y"])]
    model = model_of(nodes, {"x": (32,)}, ["y"])
    here, there = treadle.compile(model), treadle.compile(model, target="opencl")
    x = np.zeros(32, "float32")
    here.seed(7)
    there.seed(7)
    for _ in range(3):
        np.testing.assert_array_equal(here(x)[0].numpy(), there(x)[0].numpy())


def test_threads_run_one_model() -> None:
    exe = treadle.compile(small_network(), target="opencl")
    wanted = {k: expected(small_network(), image(1, k))[0] for k in range(3)}
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for _ in range(5):
                assert_close(exe(image(1, seed)), [wanted[seed]])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_forks_have_memory_of_their_own() -> None:
    exe = treadle.compile(small_network(), target="opencl")
    first = exe(image())[0].numpy()
    other = exe.fork()
    other(image(1, 3))
    np.testing.assert_array_equal(exe.executor.get_output().numpy(), first)
    assert_close(other(image()), [first])


def test_memory_is_given_back() -> None:
    pool = opened("opencl").pool
    before = pool.in_use
    exe = treadle.compile(small_network("n"), target="opencl", dynamic=True)
    for batch in (1, 2, 3):
        exe(image(batch))
    assert pool.in_use > before
    exe.executor.close()
    assert pool.in_use == before
    assert pool.kept == 0
    with pytest.raises(UsageError, match="closed"):
        exe(image())


def test_time_and_what_is_written_are_told_by_instruction() -> None:
    exe = treadle.compile(small_network(), target="opencl")
    rows = exe.profile([image()], 2)
    assert len(rows) == len(exe.instructions())
    assert all(row.seconds > 0 and row.runs == 2 for row in rows)
    seen: dict[int, np.ndarray] = {}
    results = exe.executor.watch([image()], lambda k, value: seen.update({k: value.copy()}))
    assert sorted(seen) == list(range(len(rows)))
    np.testing.assert_array_equal(seen[len(rows) - 1].reshape(1, 8), results[0].numpy())
    assert len(exe.benchmark([image()], repeat=3).results) == 3
    assert exe.executor.benchmark_on_device([image()], repeat=2).min > 0
