# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and kill end a command quickly: no partial file, no process and no folder stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.processes import (
    PATIENCE,
    children,
    heed_interrupts,
    is_alive,
    running,
    ticks,
    wait_until,
)
from treadle.build import artifact
from treadle.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
KERNELS = 60
SOME_TICKS = 30
"""A worker that has computed for so long has loaded LLVM and is at work."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of convolutions that all differ: many seconds of compilation."""
    random = np.random.default_rng(0)
    nodes, weights, source = [], [], "x"
    for k in range(KERNELS):
        before, after = 16 + k, 17 + k
        weight = random.standard_normal((after, before, 3, 3), np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{k}"))
        conv = helper.make_node("Conv", [source, f"w{k}"], [f"v{k}"], pads=[1, 1, 1, 1])
        nodes.append(conv)
        source = f"v{k}"
    size = 12
    graph = helper.make_graph(
        nodes,
        "many",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, size, size])],
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, [1, 16 + KERNELS, size, size])],
        weights,
    )
    path = tmp_path_factory.mktemp("many") / "many.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture
def compiling(network: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`treadle compile` at work in a folder of its own, with two workers and no cached kernel."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "out").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path / "tmp"),
        "TREADLE_COMPILE_WORKERS": "2",
        "TREADLE_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-m", "treadle", "compile", str(network), "-o", "out/many.tar"]
    with running(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as process:
        yield process


def workers_of(process: subprocess.Popen[str]) -> set[int]:
    """Wait until a command's workers compute; return them."""
    found: set[int] = set()

    def are_at_work() -> bool:
        assert process.poll() is None, process.communicate()
        found.clear()  # a compiler of the runtime or the like may have come and gone
        found.update(children(process.pid))
        return len(found) >= 2 and all(ticks(w) >= SOME_TICKS for w in found)

    wait_until(are_at_work, "two workers compute")
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals(
    compiling: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as under nohup, and so by what is started")
    workers = workers_of(compiling)
    compiling.send_signal(number)
    _, errors = compiling.communicate(timeout=PATIENCE)
    assert compiling.returncode == code, errors
    assert "Traceback" not in errors
    if number == signal.SIGINT:
        assert errors.endswith("interrupted\n")
    assert not any(is_alive(w) for w in workers)
    assert not list((tmp_path / "out").iterdir())
    assert not list((tmp_path / "tmp").iterdir())


def test_workers_end_with_a_command_that_is_killed(
    compiling: subprocess.Popen[str], tmp_path: Path
) -> None:
    workers = workers_of(compiling)
    compiling.kill()
    compiling.communicate(timeout=PATIENCE)
    wait_until(lambda: not any(is_alive(w) for w in workers), "the workers are gone")
    assert not list((tmp_path / "out").iterdir())


def test_interrupt_while_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(artifact, "_manifest", interrupted)
    model = ROOT / "examples" / "digits" / "digits.onnx"
    old = tmp_path / "digits.tar"
    old.write_bytes(b"the old one")
    assert main(["compile", str(model), "-o", str(old)]) == 130
    assert [p.name for p in tmp_path.iterdir()] == ["digits.tar"]
    assert old.read_bytes() == b"the old one"
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    "call_hang",
    [
        "type('Dying', (), {'__del__': hang})()",
        "held = {1}; watch = weakref.ref(held, hang); del held",
        "held = type('Plain', (), {})(); weakref.finalize(held, hang); del held",
        "ctypes.CFUNCTYPE(None)(hang)()",
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_a_callback_is_not_lost(call_hang: str, number: signal.Signals) -> None:
    script = f"""
import ctypes, os, signal, sys, time, weakref
from treadle.cli import main

def hang(*_):
    os.kill(os.getpid(), {int(number)})
    time.sleep(0.1)

try:
    with main._ended_by_signals():
        {call_hang}
        time.sleep(60)
except KeyboardInterrupt:
    sys.exit(128 + signal.SIGINT)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=heed_interrupts,
    )
    assert done.returncode == 128 + number, done.stderr
    assert not done.stderr


def test_an_interrupt_while_the_package_is_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "treadle").mkdir()
    slow = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
    (tmp_path / "treadle" / "__init__.py").write_text(slow)
    entry = f"import runpy; runpy.run_path({str(ROOT / 'treadle_command.py')!r}, {{}}, '__main__')"
    done = subprocess.run(
        [sys.executable, "-c", entry],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=heed_interrupts,
    )
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")


def test_an_interrupt_before_the_command_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(loaded: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("treadle.cli.main.make_parser", interrupted)
    assert main(["doctor"]) == 130
    assert "interrupted" in capsys.readouterr().err
