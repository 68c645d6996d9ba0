# SPDX-License-Identifier: Apache-2.0
"""An NVIDIA GPU: code, memory, graphs, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests.devices import has_nvrtc, image, small_network
from tests.runtime.gpu.test_nvrtc import TEXT
from treadle.errors import DeviceError, InputError
from treadle.runtime.gpu import cuda, nvrtc
from treadle.runtime.gpu.cuda import CudaDriver
from treadle.runtime.gpu.devices import found_devices, opened

COUNT = 1000


def _has_gpu() -> bool:
    try:
        return has_nvrtc() and bool(found_devices("cuda"))
    except DeviceError:
        return False


pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not _has_gpu(), reason="there is no NVIDIA GPU here, or no NVRTC"),
]


@pytest.fixture(scope="module")
def driver() -> CudaDriver:
    made = opened("cuda").driver
    assert isinstance(made, CudaDriver)
    return made


@pytest.fixture(scope="module")
def code(driver: CudaDriver) -> bytes:
    return nvrtc.compiled(TEXT, driver.facts.architecture)


def test_the_device_tells_what_it_is(driver: CudaDriver) -> None:
    facts = driver.facts
    assert facts.architecture.startswith("sm_")
    assert facts.warp == 32
    assert facts.bandwidth > 1e10
    free, total = driver.memory_info()
    assert 0 < free <= total


def test_code_runs_one_by_one_and_as_a_graph(driver: CudaDriver, code: bytes) -> None:
    a, b = np.arange(COUNT, dtype="float32"), np.zeros(COUNT, "float32")
    place = driver.allocate(8192)
    module = driver.load(code)
    driver.copy_in(place, a.ctypes.data, a.nbytes)
    arguments = [place, place + 4096, (COUNT,)]
    start = driver.prepared(module, "add_one", (8, 1, 1), (128, 1, 1), arguments)
    start()
    driver.copy_out(b.ctypes.data, place + 4096, b.nbytes)
    np.testing.assert_array_equal(b, a + 1)
    back = driver.prepared_copy(place, place + 4096, a.nbytes)
    graph = driver.sequence([start, back, start])
    graph()
    graph()
    driver.copy_out(b.ctypes.data, place + 4096, b.nbytes)
    np.testing.assert_array_equal(b, a + 3)
    assert 0 < driver.seconds(graph, 10) < 1
    assert module.has("add_one")
    assert not module.has("add_two")
    module.close()
    driver.free(place)


def test_code_of_another_architecture_is_refused(driver: CudaDriver) -> None:
    other = "sm_75" if driver.facts.architecture != "sm_75" else "sm_80"
    with pytest.raises(DeviceError, match="cuModuleLoadData fails"):
        driver.load(nvrtc.compiled(TEXT, other))


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceError, match=r"there is no cuda\(99\)"):
        cuda.facts_of(99)


def test_a_model_runs_and_gives_its_memory_back() -> None:
    exe = treadle.compile(small_network("n"), target="cuda", dynamic=True)
    reference = treadle.compile(small_network("n"), dynamic=True)
    for batch in (1, 3):
        (found,), (wanted,) = exe(image(batch)), reference(image(batch))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    exe.executor.close()
    assert opened("cuda").pool.in_use == 0


def test_tensors_of_torch_are_read_and_written_where_they_are() -> None:
    torch = pytest.importorskip("torch")
    exe = treadle.compile(small_network(), target="cuda")
    (wanted,) = exe(image())
    given = torch.from_numpy(image()).cuda()
    (found,) = exe.executor.run([given], on_device=True)
    np.testing.assert_array_equal(torch.as_tensor(found, device="cuda").cpu(), wanted.numpy())
    with pytest.raises(InputError, match="not contiguous"):
        exe(given.transpose(2, 3))
    with pytest.raises(InputError, match=r"float32\[1, 3, 12, 12\] is expected"):
        exe(torch.zeros(1, 3, 12, 13).cuda())
