# SPDX-License-Identifier: Apache-2.0
"""Cost models in Ansor's words: one model for all tasks of a run, kept over runs as a file.

What they learn from are the numbers of sketches, which mean the same for every task.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from treadle.auto_scheduler.log import Name, known_of
from treadle.auto_scheduler.outcome import MeasureResult
from treadle.auto_scheduler.state import MeasureInput
from treadle.build.records import Record
from treadle.tune.cost_model import (
    MISSING_NOTE,
    AnalyticModel,
    CostModel,
    TreeModel,
    has_xgboost,
)
from treadle.tune.sketch import SketchPoint, SketchSpace
from treadle.tune.space import Floats

_Rows = dict[bytes, tuple[Floats, float]]


class RandomModel:
    """A model that learns nothing; the analytic model of the sketches guides the search alone.

    v0.8's scores at random. What the machine's facts say costs nothing to ask, so it is asked.
    """

    def model(self, task: str, space: SketchSpace) -> CostModel:
        """Return what guides the search of a task, by the name of its kernel."""
        return AnalyticModel()

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn nothing."""


class XGBModel:
    """Gradient-boosted trees over the numbers of sketches, learned from all tasks together.

    Without xgboost (`pip install 'treadle[tune]'`) the analytic model guides alone, and a note says
    so. `seed` decides between equal trees. While little is measured the analytic model counts more,
    so there is no warm-up: `num_warmup_sample`, `verbose_eval` and `adapative_training` (sic) of
    v0.8 have no effect. `model_file` is where what was learned is written after each training.
    """

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | None = None,
        adapative_training: bool = False,
    ) -> None:
        self.model_file = model_file
        self.notes: list[str] = [] if has_xgboost() else [MISSING_NOTE]
        self._trees = TreeModel(seed=seed or 0) if has_xgboost() else None
        self._records: list[Record] = []
        self._rows: dict[str, _Rows] = {}

    def update_from_file(self, file_name: Name, n_lines: int | None = None) -> None:
        """Learn from the first lines of a log (None: from all), as soon as its tasks are tuned.

        There is nothing to learn from a log that is not there yet.

        Raises: as `read_log`.
        """
        self._records += known_of(file_name)[:n_lines]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from what was measured elsewhere, as soon as the tasks are tuned.

        Tuning itself tells the model what it measures. Candidates of records can be learned from,
        not schedules that no sketch has made.
        """
        for one, result in zip(inputs, results, strict=True):
            self._records.append(
                Record(
                    one.task.name,
                    str(one.task.target),
                    one.state.choice,
                    tuple(result.costs),
                    result.error_msg,
                    point=one.state.point,
                )
            )

    def model(self, task: str, space: SketchSpace) -> CostModel:
        """Return what guides the search of a task, by the name of its kernel."""
        if self._trees is None:
            return AnalyticModel()
        known = self._rows.setdefault(task, {})
        for record in self._records:
            point = space.from_json(record.point) if record.kernel == task else None
            if isinstance(point, SketchPoint) and record.is_trial:
                _put(known, space.features([point]), [record.time])
        found = _OfTask(self, task)
        self._train()
        return found

    def save(self, file_name: str | os.PathLike[str]) -> None:
        """Write what was learned to a file.

        Raises: UsageError where nothing was, or xgboost is missing.
        """
        self._needed().save(file_name)

    def load(self, file_name: str | os.PathLike[str]) -> None:
        """Take what `save` has written.

        Raises: UsageError where the file holds no model, or xgboost is missing.
        """
        self._needed().load(file_name)

    def _needed(self) -> TreeModel:
        return self._trees or TreeModel()  # which says what is missing

    @property
    def is_fitted(self) -> bool:
        """True once something has been learned."""
        return self._trees is not None and self._trees.is_fitted

    def learn(self, task: str, features: Floats, seconds: Sequence[float]) -> None:
        """Learn anew from all rows, those of one task being these and what files said of it."""
        _put(self._rows.setdefault(task, {}), features, seconds)
        self._train()
        if self.model_file is not None and self.is_fitted:
            self.save(self.model_file)

    def _train(self) -> None:
        rows = [(k, *row) for k, task in enumerate(self._rows) for row in self._rows[task].values()]
        if rows and self._trees is not None:
            features = np.stack([r[1] for r in rows])
            self._trees.fit(features, [r[2] for r in rows], [r[0] for r in rows])

    def scores(self, features: Floats) -> Floats:
        """Return a score per row, higher where it is faster."""
        assert self._trees is not None
        return self._trees.predict(features)


class _OfTask:
    """The part of a model that one task's search sees."""

    def __init__(self, whole: XGBModel, task: str) -> None:
        self._whole = whole
        self._task = task

    @property
    def is_fitted(self) -> bool:
        """True once something has been learned, of whatever task."""
        return self._whole.is_fitted

    def fit(
        self, features: Floats, seconds: Sequence[float], groups: Sequence[int] | None = None
    ) -> None:
        """Learn from all measurements of the task, and from those of the others."""
        self._whole.learn(self._task, features, seconds)

    def predict(self, features: Floats) -> Floats:
        """Return a score per row, higher where it is faster."""
        return self._whole.scores(features)


def _put(rows: _Rows, features: Floats, seconds: Sequence[float]) -> None:
    """Keep rows, of equal ones the best time."""
    for row, time in zip(features, seconds, strict=True):
        key = row.tobytes()
        rows[key] = row, min(time, rows[key][1] if key in rows else math.inf)
