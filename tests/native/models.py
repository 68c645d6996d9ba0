# SPDX-License-Identifier: Apache-2.0
"""Models of every kind of plan, with the results they must give: for tests that run them a lot."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.testing  # now: a lazy import may be under way when a test forks

from tests.native import hostile, test_blocks, test_dynamic
from tests.native.test_dynamic import call
from tests.runtime import artifacts
from tests.runtime.artifacts import Plan
from treadle.build.artifact import add_params
from treadle.runtime import native
from treadle.runtime.array import NDArray
from treadle.runtime.executor import Executor

_LONG = 1 << 17
_STEPS = 12


@dataclass
class Model:
    """An executor, inputs for it, and what it makes of any."""

    executor: Executor
    inputs: list[np.ndarray]
    long_inputs: list[np.ndarray]
    expected: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    steps: int

    def compare(self, results: Sequence[NDArray], inputs: Sequence[np.ndarray] = ()) -> None:
        """Assert that the results are those of `inputs` (default: of the model's)."""
        wanted = self.expected(inputs or self.inputs)
        for found, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(found.numpy(), want)

    def check(self) -> None:
        """Run the model once and compare."""
        self.compare(self.executor.run(self.inputs))

    def run_long(self) -> None:
        """Run it on inputs that take milliseconds."""
        self.executor.run(self.long_inputs)


def _with_threads(executor: Executor, threads: int) -> Executor:
    executor.num_threads = threads
    return executor


def static_plan(n: int, steps: int) -> Plan:
    """out = x * 2 ** steps over n elements."""

    def value(kind: str, **place: object) -> Plan:
        return {"kind": kind, "dtype": "float32", "shape": [n], "bytes": 4 * n, **place}

    room = -(-4 * n // 64) * 64
    arena = [value("arena", offset=i * room) for i in range(steps - 1)]
    return {
        "version": 1,
        "target": "llvm",
        "triple": "",
        "cpu_features": [],
        "arena_bytes": (steps - 1) * room,
        "values": [value("input"), *arena, value("output")],
        "inputs": [{"name": "x", "value": 0}],
        "outputs": [{"name": "out", "value": steps}],
        "instructions": [call("add", [i, i, i + 1], [n], f"add_{i}") for i in range(steps)],
    }


def static(threads: int) -> Model:
    """A model of fixed sizes, all of whose runs take milliseconds."""
    executor = hostile.load(static_plan(_LONG, _STEPS), ["add"])
    inputs = [np.arange(_LONG, dtype=np.float32)]
    return Model(
        _with_threads(executor, threads), inputs, inputs, lambda i: [i[0] * 2**_STEPS], _STEPS
    )


def dynamic(threads: int) -> Model:
    """A model of open sizes."""
    executor = hostile.load(test_dynamic.dynamic_plan(), test_dynamic.KERNELS)
    small = [np.arange(35, dtype=np.float32).reshape(5, 7), np.ones((5, 7), np.float32)]
    large = [np.ones((512, 513), np.float32)] * 2
    return Model(_with_threads(executor, threads), small, large, lambda i: [2 * (i[0] + i[1]).T], 3)


def loop(threads: int) -> Model:
    """A model with a loop that carries a state and collects rows."""
    executor = hostile.load(test_blocks.looping_plan(), test_blocks.KERNELS)

    def inputs(n: int) -> list[np.ndarray]:
        return [np.arange(n, dtype=np.float32), np.array(3), np.array(True)]

    def expected(given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        x = given[0]
        added = np.arange(len(x), len(x) + 3, dtype=np.float32)
        return [np.concatenate([x, added]), np.stack([2 * x] * 3)]

    return Model(_with_threads(executor, threads), inputs(9), inputs(_LONG), expected, 1)


# ---- weights large enough to be mapped -----------------------------------------------------------

LARGE = 1 << 20
"""Elements of the large weights: 4 MiB."""


def large_plan() -> Plan:
    """out = x + p0 + p1; p1 is small."""

    def value(kind: str, **place: object) -> Plan:
        return {"kind": kind, "dtype": "float32", "shape": [LARGE], "bytes": 4 * LARGE, **place}

    return {
        "version": 1,
        "target": "llvm",
        "triple": "",
        "cpu_features": [],
        "arena_bytes": 4 * LARGE,
        "values": [
            value("input"),
            value("constant", param="p0"),
            value("constant", param="p1"),
            value("arena", offset=0),
            value("output"),
        ],
        "inputs": [{"name": "x", "value": 0}],
        "outputs": [{"name": "out", "value": 4}],
        "instructions": [
            call("add", [0, 1, 3], [LARGE], "add_0"),
            call("add", [3, 2, 4], [LARGE], "add_1"),
        ],
    }


def large_constants() -> dict[str, np.ndarray]:
    """Return the weights of `large_plan`."""
    return {
        "p0": np.arange(LARGE, dtype=np.float32),
        "p1": np.full(LARGE, 3, np.float32),
    }


def aligned_params(constants: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of mod.params as Treadle writes it where it is the first member."""
    file = io.BytesIO()
    add_params(file, constants)
    file.write(bytes(2 * tarfile.BLOCKSIZE))
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        member = archive.extractfile("mod.params")
        assert member is not None
        return member.read()


def large_members(*, is_aligned: bool = True, unused: int = 0) -> dict[str, bytes]:
    """Return the members of an artifact of `large_plan`, weights first, aligned or not.

    Those that no kernel reads have so many elements.
    """
    constants = large_constants()
    if unused:
        constants["unused"] = np.zeros(unused, np.float32)
    params = aligned_params(constants) if is_aligned else artifacts.params_bytes(constants)
    checksums = {"mod.params": native.hash64(params)}
    made = artifacts.members(large_plan(), params=params, checksums=checksums)
    return {"mod.params": made.pop("mod.params"), **made}


def large_artifact(path: Path, *, is_aligned: bool = True, unused: int = 0) -> Path:
    """Write an artifact of `large_plan`; see `large_members`."""
    made = large_members(is_aligned=is_aligned, unused=unused)
    return artifacts.write_artifact(path, made)


def check_large(executor: Executor) -> None:
    """Run a model of `large_plan` and compare."""
    x = np.ones(LARGE, np.float32)
    (out,) = executor.run([x])
    np.testing.assert_array_equal(out.numpy(), np.arange(LARGE, dtype=np.float32) + 4)
