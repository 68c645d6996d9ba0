# SPDX-License-Identifier: Apache-2.0
"""What a model should compute: by onnxruntime, or by the NumPy meanings of its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from treadle.build.reading import read_for
from treadle.cli.engines import open_onnxruntime
from treadle.errors import ToolchainError, UsageError
from treadle.graph import interpret
from treadle.runtime.array import NDArray

_REASON = 160
"""How many characters of a refusal are shown."""


def expected_outputs(
    model: Path, inputs: Mapping[str, NDArray], threads: int
) -> tuple[list[np.ndarray], str]:
    """Return the outputs of a model file, and who computed them.

    onnxruntime does where it is installed and takes the model; else the operators' references.
    """
    try:
        engine = open_onnxruntime(model, dict(inputs), threads)
        return engine.run(), engine.name
    except ToolchainError:
        reason = "onnxruntime is not installed"
    except UsageError as error:
        reason = " ".join(error.problem.split())[:_REASON]
    shapes: dict[str, Sequence[int]] = {name: value.shape for name, value in inputs.items()}
    module = read_for(model, shapes).module
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    return interpret.run(module.main, arrays), f"the operators' NumPy references ({reason})"
