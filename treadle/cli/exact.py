# SPDX-License-Identifier: Apache-2.0
"""Who is off where two engines differ: both are held against the model computed with float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np

from treadle.build.agreement import Agreement
from treadle.build.reading import read_for
from treadle.errors import TreadleError
from treadle.graph import interpret
from treadle.graph.nodes import Function
from treadle.graph.widen import in_float64
from treadle.ops import elementwise
from treadle.runtime.array import NDArray

DRAWS = 8
"""How many times the inputs are changed by a rounding to see what that does to the outputs."""


@dataclass(frozen=True)
class Verdict:
    """How far two engines' results are from the float64 copy's, and what is allowed."""

    ours: float
    theirs: float
    allowed: float
    moved: float = 0.0
    """How far the copy's result goes when the inputs change by a rounding of their type each."""

    @property
    def holds(self) -> bool:
        """True when our result is near enough, no farther off than the other engine's, or exact for
        inputs that differ from the given ones by their rounding (backward stable in the sense of
        Higham, Accuracy and Stability of Numerical Algorithms, 1.5).
        """
        return self.ours <= max(self.allowed, self.theirs, self.moved)

    def __str__(self) -> str:
        text = f"from a float64 copy treadle {self.ours:.1e}, the other {self.theirs:.1e}"
        if self.allowed < self.ours <= self.theirs:
            return f"{text}: float32 does not tell this output better"
        if self.allowed < self.ours <= self.moved:
            return f"{text}: it moves by {self.moved:.1e} where inputs change by a rounding"
        return f"{text}: {'the other' if self.holds else 'treadle'} departs"


def exact_outputs(network: Path, inputs: Mapping[str, NDArray]) -> list[np.ndarray]:
    """Return the outputs of a model file computed with float64 by the operators' references.

    Raises: TreadleError when an operator's reference cannot compute it.
    """
    return _computed(_in_float64(network, inputs), _arrays(inputs))


def _arrays(inputs: Mapping[str, NDArray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in inputs.items()}


def _in_float64(network: Path, inputs: Mapping[str, NDArray]) -> Function:
    shapes: dict[str, Sequence[int]] = {name: value.shape for name, value in inputs.items()}
    main = read_for(network, shapes).module.main
    return in_float64(main, lambda x, dtype: elementwise.cast(x, dtype=dtype))


def _computed(copy: Function, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    wide = {p.name: str(getattr(p.type, "dtype", "")) for p in copy.params}
    arrays = {
        name: value.astype(np.float64) if wide[name] == "float64" else value
        for name, value in inputs.items()
    }
    with np.errstate(all="ignore"):
        return interpret.run(copy, arrays)


def _moves(
    copy: Function, inputs: Mapping[str, np.ndarray], exact: Sequence[np.ndarray]
) -> list[float]:
    """Return how far outputs go, at most, when every float input changes by a rounding."""
    chance, far = np.random.default_rng(0), [0.0] * len(exact)
    for _ in range(DRAWS):
        found = _computed(copy, {n: _rounded_off(v, chance) for n, v in inputs.items()})
        for k, (moved, truth) in enumerate(zip(found, exact, strict=True)):
            if moved.shape == truth.shape and truth.dtype.kind == "f":
                distance = _distance(moved, truth)
                far[k] = max(far[k], distance if isfinite(distance) else 0.0)
    return far


def _rounded_off(values: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Return numbers each of which is a rounding of its type larger or smaller; integers alike."""
    if values.dtype.kind != "f":
        return values
    away = chance.choice((-1.0, 1.0), values.shape) * float(np.finfo(values.dtype).eps)
    return np.asarray(values.astype(np.float64) * (1.0 + away))


def verdicts(
    network: Path,
    inputs: Mapping[str, NDArray],
    found: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    results: Sequence[Agreement],
) -> list[Verdict | None]:
    """Return who is off for every output on which two engines disagree, None for the others.

    None for all where the copy cannot be computed.
    """
    arrays = _arrays(inputs)
    try:
        copy = _in_float64(network, inputs)
        exact = _computed(copy, arrays)
    except (TreadleError, MemoryError):
        return [None] * len(results)
    judged = [
        None
        if result.holds or result.problem or truth.shape != ours.shape
        else Verdict(_distance(ours, truth), _distance(theirs, truth), result.allowed)
        for ours, theirs, truth, result in zip(found, expected, exact, results, strict=True)
    ]
    if all(verdict is None or verdict.holds for verdict in judged):
        return judged
    try:
        moves = _moves(copy, arrays, exact)
    except (TreadleError, MemoryError):  # an index computed from a rounded value is out of range
        return judged
    return [v and replace(v, moved=far) for v, far in zip(judged, moves, strict=True)]


def _distance(values: np.ndarray, truth: np.ndarray) -> float:
    a, b = values.astype(np.float64), truth.astype(np.float64)
    finite = np.isfinite(b)
    if not np.all(np.isfinite(a[finite])):
        return float("inf")
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
