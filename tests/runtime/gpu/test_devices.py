# SPDX-License-Identifier: Apache-2.0
"""Devices that are not there, and memory that is used again."""

from __future__ import annotations

import re
from threading import RLock

import pytest

from treadle.errors import DeviceError
from treadle.runtime.gpu import cuda, nvrtc, opencl, opencl_library
from treadle.runtime.gpu.devices import Pool, opened
from treadle.runtime.gpu.libraries import distribution_files


class _Memory:
    """A driver of memory alone, of which there is so much."""

    def __init__(self, total: int) -> None:
        self.lock = RLock()
        self.total = total
        self.held: dict[int, int] = {}

    def allocate(self, nbytes: int) -> int:
        if sum(self.held.values()) + nbytes > self.total:
            raise DeviceError("memory is out")
        address = 4096 * (len(self.held) + 1) + sum(self.held)
        self.held[address] = nbytes
        return address

    def free(self, address: int) -> None:
        del self.held[address]


def test_blocks_are_used_again() -> None:
    memory = _Memory(1 << 20)
    pool = Pool(memory)  # type: ignore[arg-type]  # as much of a driver as a pool needs
    first = pool.take(1000)
    address = first.pointer
    assert pool.in_use == first.nbytes >= 1000
    first.release()
    first.release()  # does nothing more
    assert (pool.in_use, pool.kept) == (0, first.nbytes)
    second = pool.take(900)  # of the same class of sizes
    assert second.pointer == address
    assert len(memory.held) == 1
    del second
    assert pool.in_use == 0


def test_what_nobody_holds_is_given_back_where_memory_is_out() -> None:
    memory = _Memory(10_000)
    pool = Pool(memory)  # type: ignore[arg-type]
    pool.take(6000).release()
    kept = pool.take(8000)
    assert list(memory.held.values()) == [kept.nbytes]
    with pytest.raises(DeviceError, match="memory is out"):
        pool.take(9000)
    kept.release()
    pool.trim()
    assert not memory.held


def test_memory_of_no_bytes_has_an_address() -> None:
    pool = Pool(_Memory(1000))  # type: ignore[arg-type]
    assert pool.take(0).nbytes > 0


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(DeviceError, match="'tpu' is no kind of device"):
        opened("tpu")


@pytest.fixture
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any driver."""
    for module in (cuda, nvrtc, opencl_library):
        monkeypatch.setattr(module, "opened", lambda names: None)
    for function in (cuda._started, nvrtc._functions, opencl_library.functions):
        function.cache_clear()


def test_files_of_distributions_are_found_by_name() -> None:
    (found,) = distribution_files("numpy", "METADATA")
    assert found.is_file()
    assert not distribution_files("numpy", "libintelocl.so")
    assert not distribution_files("no-such-distribution", "libintelocl.so")


def test_a_driver_older_than_the_cpu_is_told_from_a_wrong_kernel() -> None:
    old = opencl.refusal("pthread", "error: unknown target CPU 'generic'")
    assert "pthread refuses the text of a kernel: error: unknown target CPU" in str(old)
    assert "pip install intel-opencl-rt" in old.hint
    assert not opencl.refusal("pthread", "error: use of undeclared identifier").hint


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cuda.facts_of(0), "NVIDIA's driver (libcuda.so.1) is not found"),
        (lambda: opencl_library.functions(), "no OpenCL driver is found on this machine"),
        (lambda: nvrtc.nvrtc_version(), 'pip install "treadle[cuda]"'),
    ],
)
def test_what_is_missing_is_said_with_the_next_step(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(DeviceError, match=re.escape(words)) as caught:
        call()
    assert caught.value.hint
