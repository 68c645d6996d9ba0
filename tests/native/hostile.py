# SPDX-License-Identifier: Apache-2.0
"""What the tests of plans share: loading with the test kernels, refusals, damaged bytes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.runtime import artifacts
from tests.runtime.artifacts import Plan
from treadle.errors import TreadleError
from treadle.runtime.executor import Executor


def load(
    plan: Plan | bytes, kernels: Sequence[str], constants: Mapping[str, np.ndarray] | None = None
) -> Executor:
    """Return an executor of `plan` with those test kernels."""
    addresses = artifacts.kernel_addresses(*kernels)
    return Executor.from_plan(plan, constants or {}, addresses, artifacts.kernel_library())


def refused(
    plan: Plan | bytes,
    message: str,
    kernels: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Assert that loading `plan` fails with `message` in the error's text."""
    with pytest.raises(TreadleError) as caught:
        load(plan, kernels, constants)
    assert message in str(caught.value)


def damage(
    plan: Plan,
    times: int,
    random: np.random.Generator,
    kernels: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Load `plan` with one to three of its bytes replaced, over and over: an error at worst."""
    text = json.dumps(plan).encode()
    for _ in range(times):
        damaged = bytearray(text)
        for position in random.integers(0, len(text), random.integers(1, 4)):
            damaged[position] = random.integers(32, 127)
        with contextlib.suppress(TreadleError):
            load(bytes(damaged), kernels, constants).close()
