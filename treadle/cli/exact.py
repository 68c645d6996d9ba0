# SPDX-License-Identifier: Apache-2.0
"""Who is off where two engines differ: both are held against the model computed with float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treadle.build.agreement import Agreement
from treadle.build.reading import read_model
from treadle.errors import TreadleError
from treadle.graph import interpret
from treadle.graph.widen import in_float64
from treadle.ops import elementwise
from treadle.runtime.array import NDArray


@dataclass(frozen=True)
class Verdict:
    """How far two engines' results are from the float64 copy's, and what is allowed."""

    ours: float
    theirs: float
    allowed: float

    @property
    def holds(self) -> bool:
        """True when our result is near enough, or no farther off than the other engine's."""
        return self.ours <= max(self.allowed, self.theirs)

    def __str__(self) -> str:
        text = f"from a float64 copy treadle {self.ours:.1e}, the other {self.theirs:.1e}"
        if self.holds and self.ours > self.allowed:
            return f"{text}: float32 does not tell this output better"
        return f"{text}: {'the other' if self.holds else 'treadle'} departs"


def exact_outputs(network: Path, inputs: Mapping[str, NDArray]) -> list[np.ndarray]:
    """Return the outputs of a model file computed with float64 by the operators' references.

    Raises: TreadleError when an operator's reference cannot compute it.
    """
    shapes: dict[str, Sequence[int]] = {name: value.shape for name, value in inputs.items()}
    main = read_model(network, shapes).module.main
    copy = in_float64(main, lambda x, dtype: elementwise.cast(x, dtype=dtype))
    wide = {p.name: str(getattr(p.type, "dtype", "")) for p in copy.params}
    arrays = {
        name: value.astype(np.float64) if wide[name] == "float64" else value
        for name, value in ((n, np.asarray(v)) for n, v in inputs.items())
    }
    with np.errstate(all="ignore"):
        return interpret.run(copy, arrays)


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
    try:
        exact = exact_outputs(network, inputs)
    except (TreadleError, MemoryError):
        return [None] * len(results)
    return [
        None
        if result.holds or result.problem or truth.shape != ours.shape
        else Verdict(_distance(ours, truth), _distance(theirs, truth), result.allowed)
        for ours, theirs, truth, result in zip(found, expected, exact, results, strict=True)
    ]


def _distance(values: np.ndarray, truth: np.ndarray) -> float:
    a, b = values.astype(np.float64), truth.astype(np.float64)
    finite = np.isfinite(b)
    if not np.all(np.isfinite(a[finite])):
        return float("inf")
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
