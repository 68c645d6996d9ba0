# SPDX-License-Identifier: Apache-2.0
"""What schedules for GPUs ask of their target."""

from __future__ import annotations

from treadle.errors import InternalError
from treadle.target.base import Target
from treadle.target.gpu_machine import Gpu


def gpu_of(target: Target) -> Gpu:
    """Return the facts of a GPU. Raises: InternalError for a target that is none."""
    if target.gpu is None:
        raise InternalError(f"a schedule for GPUs is asked for {target}")
    return target.gpu
