# SPDX-License-Identifier: Apache-2.0
"""Compile workers: results, failures, crashes, deadlines, reuse, Ctrl-C and a dead parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import PATIENCE, is_alive, resident_bytes, running, ticks, wait_until
from treadle.errors import InternalError
from treadle.settings import use as use_settings
from treadle.target.loading import load_objects
from treadle.target.worker_pool import Worker, pool
from treadle.target.workers import assembly, compile_each, compile_many, shut_down

ROOT = Path(__file__).resolve().parents[2]
TRIPLE = 'target triple = "x86_64-unknown-linux-gnu"\n'


def returns(name: str, value: int) -> tuple[str, str]:
    return name, f"{TRIPLE}define i32 @{name}() {{\n  ret i32 {value}\n}}\n"


def crashes(name: str) -> tuple[str, str]:
    """A module LLVM's code generator gives up on, ending the process."""
    call = "call void @llvm.nvvm.barrier0()"
    declare = "declare void @llvm.nvvm.barrier0()"
    return name, f"{TRIPLE}define void @{name}() {{\n  {call}\n  ret void\n}}\n{declare}\n"


def is_slow(name: str) -> tuple[str, str]:
    """A module that takes many seconds to compile: hundreds of very wide products."""
    lines = [f"  %v{i} = mul <4096 x i64> %v{i - 1}, %v{i - 1}" for i in range(1, 400)]
    body = "\n".join(lines)
    text = (
        f"{TRIPLE}define void @{name}(ptr %p) {{\n  %v0 = load <4096 x i64>, ptr %p\n{body}\n"
        "  store <4096 x i64> %v399, ptr %p\n  ret void\n}\n"
    )
    return name, text


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Iterator[None]:
    with use_settings(cache=str(tmp_path / "cache"), compile_workers=2):
        yield


def call(name: str, data: bytes) -> int:
    import ctypes

    module = load_objects([data])
    return int(ctypes.CFUNCTYPE(ctypes.c_int32)(module.address(name))())


def test_kernels_come_back_under_their_names_in_order() -> None:
    jobs = [returns(f"k{i}", i * i) for i in range(7)]
    seen: list[tuple[str, bool]] = []
    done = compile_many(jobs, lambda name, cached: seen.append((name, cached)))
    assert list(done) == [name for name, _ in jobs]
    assert [call(f"k{i}", done[f"k{i}"]) for i in range(7)] == [i * i for i in range(7)]
    assert sorted(seen) == [(f"k{i}", False) for i in range(7)]


def test_the_second_time_kernels_come_from_the_cache() -> None:
    jobs = [returns("a", 1), returns("b", 2)]
    first = compile_many(jobs)
    shut_down()
    seen: list[tuple[str, bool]] = []
    assert compile_many(jobs, lambda name, cached: seen.append((name, cached))) == first
    assert seen == [("a", True), ("b", True)]
    assert not pool().all  # no worker was needed


def test_kernels_compile_while_the_next_are_made() -> None:
    finished: list[str] = []
    was_done: list[bool] = []

    def jobs() -> Iterator[tuple[str, str]]:
        yield returns("early", 1)
        end = time.monotonic() + PATIENCE
        number = 0
        while "early" not in finished and time.monotonic() < end:
            yield returns(f"later{number}", number)
            number += 1
            time.sleep(0.02)
        was_done.append("early" in finished)

    compile_many(jobs(), lambda name, _: finished.append(name))
    assert was_done == [True]


def test_ir_that_does_not_parse_is_an_error_with_llvms_words(tmp_path: Path) -> None:
    bad = ("bad", TRIPLE + "define i32 @bad() {\n  ret i64 0\n}\n")
    with (
        use_settings(dump=str(tmp_path / "dump")),
        pytest.raises(InternalError, match="kernel bad: LLVM IR parsing error") as caught,
    ):
        compile_many([returns("good", 1), bad])
    assert (tmp_path / "dump" / "bad.failed.ll").read_text() == bad[1]
    assert "bad.failed.ll" in caught.value.hint or str(tmp_path) in caught.value.hint


def test_a_crash_is_a_result_and_the_worker_is_replaced() -> None:
    jobs = [returns("before", 1), crashes("boom"), returns("after", 2)]
    results = {r.name: r for r in compile_each(jobs)}
    assert results["boom"].data is None
    assert "the compiler stopped" in results["boom"].error
    assert "Cannot select" in results["boom"].error
    assert call("before", results["before"].data or b"") == 1
    assert call("after", results["after"].data or b"") == 2
    with pytest.raises(InternalError, match="kernel boom: the compiler stopped"):
        compile_many([crashes("boom")])


def test_a_kernel_that_takes_too_long_is_stopped() -> None:
    (result,) = compile_each([is_slow("slow")], seconds=0.5)
    assert result.error == "compilation takes too long and is stopped"
    assert call("k", compile_many([returns("k", 5)])["k"]) == 5


def test_two_compilations_can_be_nested() -> None:
    outer = compile_each([returns("a", 1), returns("b", 2)])
    next(outer)
    assert call("c", compile_many([returns("c", 3)])["c"]) == 3
    assert len(list(outer)) == 1


def test_one_name_for_two_kernels_is_refused() -> None:
    with pytest.raises(InternalError, match="two different kernels have the name k"):
        compile_many([returns("k", 1), returns("k", 2)])


SCRIPT = """
from tests.target.test_workers import is_slow
from treadle.target.worker_pool import pool
from treadle.target.workers import compile_each, prepare
jobs = [is_slow("slow%d" % i) for i in range(2)]
prepare()
try:
    print(*[w.process.pid for w in pool().all], flush=True)
    list(compile_each(jobs))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@contextmanager
def two_busy_workers(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Give a program whose two workers compile, and the workers' numbers."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TREADLE_CACHE": str(tmp_path / "c")}
    env["TREADLE_COMPILE_WORKERS"] = "2"
    with running([sys.executable, "-c", SCRIPT], env=env) as process:
        assert process.stdout is not None
        pids = [int(p) for p in process.stdout.readline().split()]
        assert len(pids) == 2
        ready = [ticks(p) for p in pids]
        wait_until(
            lambda: all(ticks(p) > before + 10 for p, before in zip(pids, ready, strict=True)),
            "both workers compute",
        )
        yield process, pids


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), f"workers {pids} are gone")


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_ctrl_c_ends_the_workers(tmp_path: Path) -> None:
    with two_busy_workers(tmp_path) as (process, pids):
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE)[0].strip() == "interrupted"
        wait_until_gone(pids)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    with two_busy_workers(tmp_path) as (process, pids):
        process.kill()
        process.communicate(timeout=PATIENCE)
        wait_until_gone(pids)


def test_a_worker_loads_nothing_it_does_not_need() -> None:
    program = ROOT / "treadle" / "target" / "worker.py"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(program)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "llvmlite.binding" in loaded
    assert not loaded & {"numpy", "onnx", "rich", "treadle"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_keeps_no_pages_that_only_loading_llvm_takes() -> None:
    from llvmlite.utils import get_library_name

    loads = "import llvmlite.binding, sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", loads]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as plain:
        assert plain.stdout is not None
        plain.stdout.readline()
        loaded = resident_bytes(get_library_name(), plain.pid)
        plain.kill()
    worker = Worker.start()
    worker.send("facts", "", PATIENCE, "facts")
    while worker.receive()[1] is None:
        pass
    left = resident_bytes(get_library_name(), worker.process.pid)
    worker.stop(kill=True)
    assert left < loaded / 2


def test_assembly_is_text_in_the_order_of_the_jobs() -> None:
    texts = assembly(dict([returns("seven", 7), returns("eight", 8)]))
    assert list(texts) == ["seven", "eight"]
    assert "movl\t$7, %eax" in texts["seven"]


def test_a_kernel_without_assembly_is_named() -> None:
    with pytest.raises(InternalError, match="kernel broken"):
        assembly(dict([returns("fine", 1), crashes("broken")]))


def test_workers_without_work_end_and_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shut_down()
    monkeypatch.setattr("treadle.target.worker_pool.IDLE_SECONDS", 0.5)
    compile_many([returns("a", 1)])
    (worker,) = pool().all
    wait_until(lambda: worker.process.poll() is not None, "the idle worker ends")
    assert worker.process.returncode == 0
    (code,) = compile_many([returns("b", 2)]).values()
    assert call("b", code) == 2
    assert worker not in pool().all
    shut_down()
