# SPDX-License-Identifier: Apache-2.0
"""Whole networks give what onnxruntime gives, at every optimisation level."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import treadle
from benchmarks import engines, measure, networks
from treadle.build.loaded import Runnable

QUICK = ("squeezenet", "shufflenet", "mobilenet_v2")


def cases() -> list[object]:
    """Every network; the large ones are slow, those exported by torch need it."""
    found = []
    for name in networks.BUILDERS:
        if name.endswith("_torch"):
            marks = [pytest.mark.torch]
        else:
            marks = [] if name in QUICK else [pytest.mark.slow]
        found.append(pytest.param(name, marks=marks))
    return found


@pytest.mark.parametrize("name", cases())
def test_network_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    networks.write(networks.build(name), path)
    inputs = engines.random_inputs(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    for level in (0, 3):
        executable = treadle.compile(path, opt_level=level)
        outputs = [np.asarray(output) for output in executable.run(inputs)]
        assert measure.largest_error(outputs, expected) < 1e-4, f"level {level}"
        _check_threads(executable, inputs, outputs)


def _check_threads(
    executable: Runnable, inputs: Mapping[str, np.ndarray], outputs: list[np.ndarray]
) -> None:
    """The bits of a result do not depend on the number of threads."""
    for threads in (1, 2, 3, 4):
        executable.executor.num_threads = threads
        again = executable.run(inputs)
        for before, after in zip(outputs, again, strict=True):
            assert before.tobytes() == np.asarray(after).tobytes(), f"{threads} threads"
