# SPDX-License-Identifier: Apache-2.0
"""A compiled model on a device, with the face of one that runs here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

from treadle.build.loaded import Runnable
from treadle.errors import UsageError
from treadle.rpc.remote import RemoteExecutor


class RemoteExecutable(Runnable):
    """A model that a session on a device has loaded."""

    def __init__(self, executor: RemoteExecutor) -> None:
        self._executor = executor
        self._plan: Mapping[str, object] | None = None

    @property
    def executor(self) -> RemoteExecutor:
        """The executor of the device."""
        return self._executor

    def describe(self) -> Mapping[str, object]:
        """Return the plan as data, see docs/design/plan.md."""
        if self._plan is None:
            plan = json.loads(self._executor.plan_text)
            assert isinstance(plan, dict)  # or the device would not have loaded it
            self._plan = plan
        return self._plan

    def loaded_kernels(self) -> NoReturn:
        """Raise UsageError: they are not in this process."""
        raise UsageError(
            "the kernels are on the device",
            hint="executor.kernels() are those of the device, to be called and timed there",
        )

    def fork(self) -> NoReturn:
        """Raise UsageError: a session runs one call at a time."""
        raise UsageError(
            "a model on a device cannot be forked", hint="load it again, or in another session"
        )
