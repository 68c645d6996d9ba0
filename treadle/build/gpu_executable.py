# SPDX-License-Identifier: Apache-2.0
"""A model compiled for a GPU: `Executable` with an executor on a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from treadle.build.executable import Executable
from treadle.build.gpu_places import host_target
from treadle.build.kernel import Kernel
from treadle.errors import TreadleError, UsageError
from treadle.runtime.executor import aligned_constants
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.devices import opened
from treadle.runtime.gpu.executor import GpuExecutor
from treadle.runtime.gpu.program import HostKernel
from treadle.target.backend import backend_of
from treadle.target.host import why_not_here


def _outputs(kernel: Kernel) -> tuple[bool, ...]:
    return tuple(p.is_output for p in kernel.signature.params)


@dataclass(eq=False)
class GpuExecutable(Executable):
    """A model compiled for a GPU; kernels without a form for GPUs run on the CPU."""

    _on_device: GpuExecutor | None = None

    @property
    def on_device(self) -> list[Kernel]:
        """The kernels of the device."""
        return [k for k in self.kernels if k.target.family == "gpu"]

    @property
    def on_host(self) -> list[Kernel]:
        """The kernels of the CPU."""
        return [k for k in self.kernels if k.target.family == "cpu"]

    @property
    def executor(self) -> GpuExecutor:  # type: ignore[override]  # as `ModelRunner` has it
        """What runs it, made at the first use. Raises: DeviceError without a device that fits."""
        if self._on_device is None:
            if (error := why_not_here(self.target)) is not None:
                raise error
            hosts, code = self.on_host, None
            kernels: dict[str, HostKernel] = {}
            if hosts:
                code = backend_of(host_target()).load(k.object_code().code for k in hosts)
                kernels = {k.name: HostKernel(code.address(k.name), _outputs(k)) for k in hosts}
            self.memory.constants.update(aligned_constants(self.memory.constants))
            self._on_device = GpuExecutor(
                self.plan,
                self.memory.constants,
                {k.name: GpuCode.from_bytes(k.object_code().code) for k in self.on_device},
                kernels,
                {k.name: _outputs(k) for k in self.on_device},
                opened(self.target.kind),
                code,
            )
        return self._on_device

    def make_ready(self) -> None:
        """Load it, where this machine has a device for it."""
        if why_not_here(self.target) is None:
            with suppress(TreadleError):
                _ = self.executor

    def fork(self) -> GpuExecutable:
        """Return a second one of the same model; see `Runnable.fork`."""
        return replace(self, _on_device=self.executor.fork())

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        linker: str | Sequence[str] | None = None,
    ) -> None:
        """Write the model as an artifact for `treadle.load`; see `Executable.save`.

        Raises: UsageError for a format other than "tar".
        """
        from treadle.build.format_names import format_of
        from treadle.build.gpu_artifact import save_gpu_artifact

        form = format_of(Path(path), format)
        if form != "tar":
            raise UsageError(
                f"a model for {self.target.kind} is not written as {form!r}",
                hint="write a .tar, which treadle.load reads",
            )
        save_gpu_artifact(self, Path(path), linker)

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        fcompile: Callable[..., object] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **kwargs: object,
    ) -> None:
        """Write the model as an artifact: the name must be one of a .tar. Raises: UsageError."""
        self.save(file_name)
