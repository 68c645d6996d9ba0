# SPDX-License-Identifier: Apache-2.0
"""Cost models: which of many candidates are fast, learned from those that were measured.

`TreeModel` are gradient-boosted trees of xgboost (extra `tune`), as AutoTVM and Ansor use them:
Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018. Without the extra `AnalyticModel`
stands in, which learns nothing. `Scorer` joins either with what a space estimates itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Hashable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from treadle.errors import UsageError
from treadle.files import replacing
from treadle.tune.space import Floats, SearchSpace

if TYPE_CHECKING:
    from types import ModuleType

Candidate = TypeVar("Candidate", bound=Hashable)

Objective = Literal["reg", "rank"]

MISSING_NOTE = (
    "xgboost is not installed: the search is guided by the analytic model alone "
    "(pip install 'treadle[tune]')"
)
"""What to print once where the extra is missing."""

FEW_ROWS = 16
"""After so many measurements the learned model counts as much as the analytic one."""

_LEAST_ROWS = 4
"""Fewer than these say nothing."""

_MOST_ROWS = 2000
"""More than these are not learned from: the latest stay."""

_REFERENCES = 256
"""Candidates that scores are compared with."""

_ROUNDS = 40
_LEARNING = {
    "max_depth": 4,
    "eta": 0.2,
    "min_child_weight": 1.0,
    "gamma": 0.0,
    "tree_method": "hist",
    "max_bin": 32,
    "verbosity": 0,
}


class CostModel(Protocol):
    """Says of rows of features which are faster."""

    @property
    def is_fitted(self) -> bool:
        """True once it has learned something; until then `predict` says the same of all."""

    def fit(
        self, features: Floats, seconds: Sequence[float], groups: Sequence[int] | None = None
    ) -> None:
        """Learn anew from measured rows; `seconds` are inf of what failed.

        Rows of one group (a task) are compared with each other alone; by default all are one.
        """

    def predict(self, features: Floats) -> Floats:
        """Return a score per row, higher where it is faster; in no unit."""


class AnalyticModel:
    """A model that learns nothing: what a space estimates is all there is."""

    is_fitted = False

    def fit(
        self, features: Floats, seconds: Sequence[float], groups: Sequence[int] | None = None
    ) -> None:
        """Do nothing."""

    def predict(self, features: Floats) -> Floats:
        """Return zeros."""
        return np.zeros(len(features), np.float32)


class TreeModel:
    """Gradient-boosted trees over features.

    `objective` "reg" learns the speed relative to the best of the group, "rank" ("rank-binary" in
    v0.8's words) which of two is faster. Training is on one thread unless said: 50 ms for 1,000
    rows of 100 columns on a core of Zen 4.

    Raises: UsageError where the objective is none of these, or xgboost cannot be imported.
    """

    def __init__(self, objective: str = "reg", threads: int = 1, seed: int = 0) -> None:
        self.objective = objective_of(objective)
        self._threads = threads
        self._seed = seed
        self.is_fitted = False
        self._booster: Any = None  # of a library without types everywhere
        self._xgboost = _import_xgboost()

    def fit(
        self, features: Floats, seconds: Sequence[float], groups: Sequence[int] | None = None
    ) -> None:
        """Learn from rows; fewer than 4, or none that ran, teach nothing."""
        group = np.zeros(len(seconds), np.int64) if groups is None else np.array(groups, np.int64)
        taken = _latest(group)
        group = group[taken]
        speed = _speeds(np.array(seconds, np.float64)[taken], group)
        if len(taken) < _LEAST_ROWS or np.ptp(speed) == 0.0:
            return
        rows = np.asarray(features, np.float32)[taken]
        threads = self._threads
        settings: dict[str, object] = {
            **_LEARNING, "base_score": 0.0, "nthread": threads, "seed": self._seed,
        }  # fmt: skip
        if self.objective == "rank":
            settings |= {"objective": "rank:pairwise", "lambdarank_num_pair_per_sample": 8,
                         "lambdarank_pair_method": "mean"}  # fmt: skip
            data = self._xgboost.DMatrix(rows, label=speed, qid=group, nthread=threads)
        else:
            settings |= {"objective": "reg:squarederror"}
            data = self._xgboost.DMatrix(rows, label=speed, nthread=threads)
        self._booster = self._xgboost.train(settings, data, num_boost_round=_ROUNDS)
        self._booster.set_param({"nthread": threads})
        self.is_fitted = True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees to a file, as JSON of xgboost.

        Raises: UsageError while it is not fitted, or where the system refuses to write.
        """
        if not self.is_fitted:
            raise UsageError("the cost model has learned nothing yet", hint="fit it first")
        with replacing(Path(path)) as file:
            file.write(bytes(self._booster.save_raw("json")))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take the trees that `save` has written.

        Raises: UsageError where the file cannot be read, or holds none.
        """
        try:
            data = Path(path).read_bytes()
            json.loads(data)
            booster = self._xgboost.Booster()
            booster.load_model(bytearray(data))
        except OSError as error:
            raise UsageError(
                f"the cost model {os.fspath(path)} cannot be read: {error.strerror}",
                hint="name a file that save() has written",
            ) from None
        except (ValueError, RecursionError):  # xgboost's own error is a ValueError
            raise UsageError(
                f"{os.fspath(path)} holds no cost model", hint="name a file that save() has written"
            ) from None
        self._booster = booster
        self._booster.set_param({"nthread": self._threads})
        self.is_fitted = True

    def predict(self, features: Floats) -> Floats:
        """Return scores; zeros while it is not fitted, and where the trees are of other columns."""
        if not self.is_fitted or len(features) == 0:
            return np.zeros(len(features), np.float32)
        if features.shape[1] != self._booster.num_features():
            return np.zeros(len(features), np.float32)
        scores = self._booster.inplace_predict(np.asarray(features, np.float32))
        return np.asarray(scores, np.float32)


def objective_of(name: str) -> Objective:
    """Return the objective of a name, v0.8's `rank-binary` among them.

    Raises: UsageError where there is none such.
    """
    if name == "reg":
        return "reg"
    if name in ("rank", "rank-binary"):
        return "rank"
    raise UsageError(
        f"{name!r} is no objective of a cost model", hint="there is reg, rank and rank-binary"
    )


def has_xgboost() -> bool:
    """Return whether the extra is there, without importing it."""
    return importlib.util.find_spec("xgboost") is not None


def make_model(objective: str = "reg", threads: int = 1) -> tuple[CostModel, str | None]:
    """Return the best model there is, and a note to print where that is the analytic one.

    Raises: UsageError where there is no such objective.
    """
    wanted = objective_of(objective)
    if has_xgboost():
        return TreeModel(wanted, threads), None
    return AnalyticModel(), MISSING_NOTE


class Scorer(Generic[Candidate]):
    """Scores the candidates of a space: by its estimates first, more and more by what was measured.

    Both scores are brought to mean 0 and deviation 1 over a sample of the space. After n
    measurements the learned one counts n / (n + 16) of the sum, and the estimates as much of the
    rest as they agree with the measurements: times their correlation, of which 1 is assumed as if
    it had been seen 16 times. Scores are comparable until the next `fit`.
    """

    def __init__(self, space: SearchSpace[Candidate], model: CostModel | None = None) -> None:
        self._space = space
        self._model: CostModel = AnalyticModel() if model is None else model
        self._measured = 0
        self._trust = 1.0
        self._prior_scale: _Scale | None = None
        self._learned_scale: _Scale | None = None

    @property
    def is_fitted(self) -> bool:
        """True when measurements say more than how far to trust the estimates."""
        return self._model.is_fitted

    def fit(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        """Learn from all measurements of the task; inf where one failed."""
        self._model.fit(self._space.features(candidates), seconds)
        self._measured = len(candidates)
        self._learned_scale = None
        agreed = _correlation(self._prior(candidates), -np.log(np.array(seconds, np.float64)))
        seen = 0 if agreed is None else self._measured
        self._trust = max(0.0, (FEW_ROWS + seen * (agreed or 0.0)) / (FEW_ROWS + seen))

    def score(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Return a score of each, higher where it should be faster; 0 where nothing is known."""
        if not candidates:
            return np.zeros(0)
        if self._prior_scale is None:
            self._prior_scale = _Scale(self._prior(self._reference))
        prior = self._trust * self._prior_scale.apply(self._prior(candidates))
        if not self._model.is_fitted:
            return prior
        if self._learned_scale is None:
            self._learned_scale = _Scale(self._learned(self._reference))
        learned = self._learned_scale.apply(self._learned(candidates))
        weight = self._measured / (self._measured + FEW_ROWS)
        return weight * learned + (1.0 - weight) * prior

    @cached_property
    def _reference(self) -> list[Candidate]:
        return self._space.sample(_REFERENCES, np.random.default_rng(0))

    def _prior(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.log(self._space.estimate(candidates).astype(np.float64))

    def _learned(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return self._model.predict(self._space.features(candidates)).astype(np.float64)


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Return the correlation of the ranks of what is finite in both; None where there is none.

    It is Spearman's, of which outliers do not make much.
    """
    finite = np.isfinite(a) & np.isfinite(b)
    if finite.sum() < _LEAST_ROWS or np.ptp(a[finite]) == 0.0 or np.ptp(b[finite]) == 0.0:
        return None
    first, second = (np.argsort(np.argsort(x[finite], kind="stable")) for x in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


class _Scale:
    """Brings numbers to the mean and deviation of a sample; what is not finite becomes 0."""

    def __init__(self, sample: NDArray[np.float64]) -> None:
        finite = sample[np.isfinite(sample)]
        self._mean = float(finite.mean()) if len(finite) else 0.0
        self._deviation = (float(finite.std()) if len(finite) else 0.0) or 1.0

    def apply(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return numbers on the scale."""
        scaled = (numbers - self._mean) / self._deviation
        return np.where(np.isfinite(scaled), scaled, 0.0)


def _latest(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of the rows to learn from, in the order of their groups."""
    order = np.argsort(groups, kind="stable")
    if len(order) <= _MOST_ROWS:
        return order
    latest = np.arange(len(groups)) >= len(groups) - _MOST_ROWS
    return order[latest[order]]


def _speeds(seconds: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the speed of each row over the best of its group: 0 of what failed."""
    valid = np.isfinite(seconds) & (seconds > 0.0)
    speeds = np.zeros(len(seconds))
    speeds[valid] = 1.0 / seconds[valid]
    for group in np.unique(groups).tolist():
        here = groups == group
        speeds[here] /= speeds[here].max() or 1.0
    return speeds


def _import_xgboost() -> ModuleType:
    if not has_xgboost():
        raise UsageError("xgboost is not installed", hint="pip install 'treadle[tune]'")
    try:
        import xgboost
    except (ImportError, OSError, ValueError) as error:  # ValueError: of its own library
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"xgboost is installed and cannot be imported: {why}",
            hint="install it again; where it is removed, the schedules' own cost models guide",
        ) from None
    return xgboost  # type: ignore[no-any-return, unused-ignore]
