# SPDX-License-Identifier: Apache-2.0
"""The schedule of operators that have none of their own, for each family of targets."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.graph.operator import ScheduleFn
from treadle.ops.schedules.default import schedule_default
from treadle.ops.schedules.gpu.default import schedule_gpu

DEFAULT_SCHEDULES: Mapping[str, ScheduleFn] = {"cpu": schedule_default, "gpu": schedule_gpu}
"""By the family of a target."""
