# SPDX-License-Identifier: Apache-2.0
"""The whole story of a device without Python, by the commands that users type, on loopback alone.

A tracker and the server in C are started, the device is listed; a network is compiled for it,
copied there, run, compared with this machine and timed; a convolution is tuned there; the best of
its candidates is exported and run by the program in C, without Python and without the server. The
device is this machine, or AArch64 in QEMU.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import treadle
from benchmarks import networks
from tests.processes import wait_until
from tests.rpc.services import Service, server_for_arm, server_in_c, service
from tests.rpc.test_server_c import serving
from tests.runtime.artifacts import ROOT
from treadle.rpc.keys import make_key
from treadle.runtime.native_package import STATIC

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SHAPE = (1, 16, 28, 28)
_LONGEST = 3600
"""Seconds that a command, or a call of the device, may take: QEMU runs ResNet-50 in minutes."""


@dataclass(frozen=True)
class Machine:
    """Where the device is: its package, how programs for it are built, and run here."""

    package: Path
    compiler: str
    runner: tuple[str, ...]
    name: str


def machine(name: str) -> Machine:
    if name == "here":
        return Machine(server_in_c().parent, "cc", (), "")
    server, runner = server_for_arm()
    return Machine(server.parent, "aarch64-linux-gnu-gcc", tuple(runner.split()), "aarch64")


def said(*words: str | Path, code: int = 0) -> str:
    """Run a command to its end; return what it prints."""
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def treadle_says(*words: str | Path) -> str:
    return said(sys.executable, "-m", "treadle", *words)


@contextmanager
def device(folder: Path, there: Machine, tracker: Service) -> Iterator[list[str]]:
    """Start the server, which registers as a board; give the options that name it to commands."""
    key_file = str(folder / "key")
    place = f"127.0.0.1:{tracker.port}"
    program = [*there.runner, str(there.package / "treadle-rpc-server")]
    options = ["--key-file", key_file, "--call-timeout", str(_LONGEST)]
    with serving(folder, program, "--tracker", place, "--key", "board", *options) as found:
        wait_until(lambda: b"registered as" in found.log.read_bytes(), "registered")
        yield ["--rpc-tracker", place, "--rpc-key", "board", "--rpc-key-file", key_file]


def convolution(path: Path) -> Path:
    """Write a network of one kernel, which is what there is to tune."""
    weight = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def run_in_c(there: Machine, artifact: Path, folder: Path) -> np.ndarray:
    """Build the program that runs a model, as its page says, and run it where the device is."""
    given = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    given.tofile(folder / "x.bin")
    program = folder / "run_model"
    said(there.compiler, "-std=c11", "-O2", "-pthread", f"-I{ROOT}/native/include",
         ROOT / "native/examples/run_model.c", there.package / STATIC, "-ldl", "-lm",
         "-o", program)  # fmt: skip
    said(*there.runner, program, artifact, folder / "x.bin", folder / "y.bin")
    return np.fromfile(folder / "y.bin", np.float32).reshape(SHAPE)


def tune(there: Machine, on: list[str], trials: int, folder: Path) -> None:
    """Tune a kernel on the device; the winner runs in a program without any of this."""
    network, records = convolution(folder / "one.onnx"), folder / "records.jsonl"
    options = ["--trials", str(trials), "--seed", "1", *on]
    treadle_says("tune", network, "-o", records, *options)
    assert len(records.read_text().splitlines()) >= trials
    target = f"llvm -mtriple={there.name}-linux-gnu" if there.name else "llvm"
    best = folder / "best.tar"
    compiled = treadle_says(
        "compile", network, "--target", target, "--tuning-records", records, "-o", best
    )
    assert "tuned" in compiled
    given = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    wanted = treadle.compile(network).run([given])[0].numpy()
    found = run_in_c(there, best, folder)
    assert np.max(np.abs(found - wanted)) < 1e-4 * np.max(np.abs(wanted))


@pytest.mark.parametrize(
    ("where", "network", "trials"),
    [
        pytest.param("here", "digits", 8, id="digits here"),
        pytest.param("arm", "digits", 50, marks=pytest.mark.slow, id="digits on aarch64"),
        pytest.param("here", "resnet50", 50, marks=pytest.mark.slow, id="resnet50 here"),
        pytest.param("arm", "resnet50", 50, marks=pytest.mark.slow, id="resnet50 on aarch64"),
    ],
)
def test_a_device_from_its_start_to_a_program(
    where: str, network: str, trials: int, tmp_path: Path
) -> None:
    there = machine(where)
    make_key(tmp_path / "key")
    key = ("--key-file", str(tmp_path / "key"))
    model = DIGITS
    if network != "digits":
        model = tmp_path / "network.onnx"
        networks.write(networks.build(network), model)
    with service(tmp_path, "tracker", *key) as tracker, device(tmp_path, there, tracker) as on:
        listed = treadle_says("rpc", "query", "--port", str(tracker.port), *key)
        assert re.search(r"127\.0\.0\.1:\d+\tserver:board", listed)
        board = f"rpc:127.0.0.1:{tracker.port}/board"
        options = ["--rpc-key-file", tmp_path / "key", "--tolerance", "1e-4", "--repeat", "1"]
        options += ["--call-timeout", str(_LONGEST)]
        deployed = treadle_says("deploy", model, "--board", board, *options)
        assert there.name in deployed.partition("target")[2].splitlines()[0]
        assert re.search(r"(?m)^  output .*(equal|is allowed)$", deployed)
        assert re.search(r"(?m)^board +\d+ +\d+\.\d", deployed)
        tune(there, on, trials, tmp_path)
