# SPDX-License-Identifier: Apache-2.0
"""A saved model for a GPU, loaded; nothing of the compiler is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from treadle.build.loaded import Runnable
from treadle.files import check_writable, replacing
from treadle.runtime.artifact_file import ArtifactFile
from treadle.runtime.gpu.artifact import executor_of, kernels_of, read_gpu_artifact
from treadle.runtime.gpu.executor import GpuExecutor
from treadle.runtime.module import LoadedKernel


class LoadedGpuExecutable(Runnable):
    """A saved model for a GPU: it runs as the compiled one did."""

    def __init__(self, file: ArtifactFile, *, verify: bool = False) -> None:
        """See `treadle.load`; the open file is taken over.

        Raises: ArtifactError where it is damaged, DeviceError where there is no device for it.
        """
        self._file = file
        self._artifact = read_gpu_artifact(file, verify=verify)
        self._executor = executor_of(self._artifact)
        self._kernels: list[LoadedKernel] | None = None

    @property
    def path(self) -> str:
        """The path it was loaded from, or what else it was loaded from."""
        return self._file.name

    @property
    def executor(self) -> GpuExecutor:
        """What runs it."""
        return self._executor

    @property
    def kernels(self) -> list[LoadedKernel]:
        """The kernels, each ready to be called and timed alone; their stages were not saved."""
        if self._kernels is None:
            self._kernels = kernels_of(self._artifact)
        return self._kernels

    def loaded_kernels(self) -> list[LoadedKernel]:
        """Return `kernels`."""
        return self.kernels

    def describe(self) -> Mapping[str, object]:
        """Return the plan as data, see docs/design/plan.md."""
        plan: Mapping[str, object] = self._artifact.head["plan"]
        return plan

    def fork(self) -> LoadedGpuExecutable:
        """Return a second one of the same model; see `Runnable.fork`."""
        made = object.__new__(LoadedGpuExecutable)
        made.__dict__ |= self.__dict__
        made._executor = self._executor.fork()
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to another file, as it was loaded. Raises: as `LoadedExecutable.save`."""
        target = Path(path)
        check_writable(target)
        with replacing(target) as file:
            self._file.copy_to(file)

    def __repr__(self) -> str:
        return f"LoadedGpuExecutable({self.path})"
