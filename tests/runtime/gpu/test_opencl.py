# SPDX-License-Identifier: Apache-2.0
"""A device of OpenCL: code, memory, time, and what goes wrong."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.devices import ADD_ONE
from treadle.errors import DeviceError
from treadle.runtime.gpu import opencl
from treadle.runtime.gpu.devices import opened
from treadle.runtime.gpu.opencl import OpenclDriver

pytestmark = pytest.mark.opencl

COUNT = 1000


@pytest.fixture(scope="module")
def driver() -> OpenclDriver:
    made = opened("opencl").driver
    assert isinstance(made, OpenclDriver)
    return made


def test_the_device_tells_what_it_is(driver: OpenclDriver) -> None:
    facts = driver.facts
    assert facts.kind == "opencl"
    assert facts.name
    assert facts.units >= 1
    assert facts.max_threads >= 64
    assert facts.memory_bytes > 1 << 20
    assert facts.name in facts.text()


def test_code_runs_on_memory_of_the_device(driver: OpenclDriver) -> None:
    a, b = np.arange(COUNT, dtype="float32"), np.zeros(COUNT, "float32")
    place = driver.allocate(2 * 4096 + 64)
    source, target = place + 64, place + 4096  # anywhere inside of an allocation
    module = driver.load(ADD_ONE.encode())
    driver.copy_in(source, a.ctypes.data, a.nbytes)
    start = driver.prepared(module, "add_one", (16, 1, 1), (64, 1, 1), [source, target, (COUNT,)])
    driver.sequence([start])()
    driver.copy_out(b.ctypes.data, target, b.nbytes)
    np.testing.assert_array_equal(b, a + 1)
    driver.prepared_copy(source, target, b.nbytes)()
    start()
    driver.copy_out(b.ctypes.data, target, b.nbytes)
    np.testing.assert_array_equal(b, a + 2)
    assert 0 < driver.seconds(start, 3) < 10
    module.close()
    driver.free(place)


def test_a_module_says_what_it_holds(driver: OpenclDriver) -> None:
    module = driver.load(ADD_ONE.encode())
    assert module.has("add_one")
    assert not module.has("add_two")
    with pytest.raises(DeviceError, match="no kernel of that name"):
        driver.prepared(module, "add_two", (1, 1, 1), (1, 1, 1), [])
    module.close()


def test_a_text_that_does_not_compile_is_refused_with_the_log(driver: OpenclDriver) -> None:
    with pytest.raises(DeviceError, match=r"(?s)refuses the text of a kernel.*missing"):
        driver.load(ADD_ONE.replace("a[i]", "missing[i]").encode())


def test_a_block_of_too_many_threads_is_refused(driver: OpenclDriver) -> None:
    module, place = driver.load(ADD_ONE.encode()), driver.allocate(64)
    start = driver.prepared(module, "add_one", (1, 1, 1), (1 << 20, 1, 1), [place, place, (0,)])
    with pytest.raises(DeviceError, match="too many threads"):
        start()
    driver.free(place)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceError, match=r"there is no opencl\(99\)"):
        opencl.facts_of(99)


def test_threads_take_turns(driver: OpenclDriver) -> None:
    module = driver.load(ADD_ONE.encode())
    failed: list[BaseException] = []

    def work(value: float) -> None:
        try:
            a, b = np.full(COUNT, value, "float32"), np.zeros(COUNT, "float32")
            place = driver.allocate(8192)
            arguments = [place, place + 4096, (COUNT,)]
            start = driver.prepared(module, "add_one", (16, 1, 1), (64, 1, 1), arguments)
            for _ in range(20):
                driver.copy_in(place, a.ctypes.data, a.nbytes)
                start()
                driver.copy_out(b.ctypes.data, place + 4096, b.nbytes)
                assert (b == value + 1).all()
            driver.free(place)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


FORKS = """
import os
from treadle.errors import DeviceError
from treadle.runtime.gpu.devices import opened
driver = opened("opencl").driver
place = driver.allocate(64)
child = os.fork()
if child == 0:
    try:
        driver.allocate(64)
    except DeviceError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
driver.free(place)
print("the parent goes on", flush=True)
"""


def test_a_forked_process_is_told_that_it_cannot_use_the_device() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "opencl(0) was opened before this process was forked" in done.stdout, done.stderr
    assert "the parent goes on" in done.stdout
