# SPDX-License-Identifier: Apache-2.0
"""Memory that ends where nobody may touch: TREADLE_GUARD=1."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.processes import PATIENCE
from tests.runtime.artifacts import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is for Linux")

BLOCK = """
import ctypes
from treadle.runtime import native
block = native.Block(100)
fresh = {*(ctypes.c_ubyte * 100).from_address(block.pointer)}
ctypes.memset(block.pointer, 0, 128)
del block
block = native.Block(5 << 20)
print(len(fresh), fresh.pop(), block.pointer % 64, flush=True)
ctypes.memset(block.pointer + (5 << 20), 0, 1)
"""

PAST_THE_END = """
import numpy as np, treadle
from onnx import TensorProto, helper
port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1024]) for n in "xy"]
graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", port[:1], port[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
compiled = treadle.compile(model.SerializeToString())
x, short = treadle.runtime.native.Block(4096), treadle.runtime.native.Block(64)
print(compiled.kernels[0].name, flush=True)
with compiled.executor._streams.held() as handle:
    handle.run([x.pointer], [short.pointer])
"""


def run(code: str, guard: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TREADLE_GUARD": guard}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_what_goes_past_the_end_of_a_block_faults() -> None:
    done = run(BLOCK, "1")
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "1 255 0\n"), done.stderr


def test_the_kernel_that_goes_past_is_named() -> None:
    done = run(PAST_THE_END, "1")
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert done.stdout.startswith("fused_exp")
    assert done.stderr == f"treadle: a fault in or after kernel {done.stdout}"


def test_random_graphs_stay_in_their_memory() -> None:
    variables = {**os.environ, "TREADLE_GUARD": "1"}
    command = [sys.executable, "-m", "tests.fuzz", "--count", "20", "--seed", "9000", "--jobs", "1"]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
