# SPDX-License-Identifier: Apache-2.0
"""A compiled model: call it, time it, look inside it, save it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from treadle.build.coverage import Coverage
from treadle.build.huge_pages import share_huge_pages
from treadle.build.kernel import Kernel
from treadle.build.loaded import Runnable
from treadle.build.memory_plan import MemoryPlan
from treadle.errors import TreadleError
from treadle.graph.nodes import Module
from treadle.graph.text import function_text
from treadle.runtime.executor import Executor, aligned_constants
from treadle.runtime.module import LoadedKernel
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.target.host import why_not_here


class GraphView:
    """The optimised graph of a compiled model."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def text(self) -> str:
        """Return the graph as text, fused functions first."""
        return function_text(self.module.main)

    def __str__(self) -> str:
        return self.text()


@dataclass(eq=False)
class Executable(Runnable):
    """A model compiled in this process.

    `kernels` shows every kernel at every stage, calls and times it alone; `memory` where values
    live; `seconds` the time per compile stage; `nodes` how many calls the model had before fusion;
    `coverage` which kernels the records are of, where it was compiled with records; `files` those
    that were read in addition to the model's own, by their names in its folder.
    """

    module: Module
    kernels: list[Kernel]
    plan: dict[str, object]
    memory: MemoryPlan
    target: Target
    nodes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    coverage: Coverage | None = None
    files: tuple[str, ...] = ()
    _executor: Executor | None = None

    @property
    def objects(self) -> dict[str, bytes]:
        """The machine code of every kernel by name."""
        return {k.name: k.object_code().code for k in self.kernels}

    @property
    def graph(self) -> GraphView:
        """The optimised graph."""
        return GraphView(self.module)

    @property
    def executor(self) -> Executor:
        """The native executor, made at the first use. Raises: TargetError for another machine."""
        if self._executor is None:
            if (error := why_not_here(self.target)) is not None:
                raise error
            code = backend_of(self.target).load(self.objects.values())
            addresses = {k.name: code.address(k.name) for k in self.kernels}
            # One set of weights: copies take the place of what they were made from.
            share_huge_pages(self.memory.constants, self.module.main)
            self.memory.constants.update(aligned_constants(self.memory.constants))
            self._executor = Executor.from_plan(
                self.plan, self.memory.constants, addresses, keep_alive=code
            )
        return self._executor

    def make_ready(self) -> None:
        """Load it, where it runs on this machine: the first run then takes as long as any.

        What keeps it from being loaded, such as too little memory, the first run raises.
        """
        if why_not_here(self.target) is None and not self.target.is_source_only:
            with suppress(TreadleError):
                _ = self.executor

    def loaded_kernels(self) -> list[LoadedKernel]:
        """Return the kernels, each ready to be called and timed alone."""
        return [kernel.load() for kernel in self.kernels]

    def fork(self) -> Executable:
        """Return a second one of the same model; see `Runnable.fork`."""
        return replace(self, _executor=self.executor.fork())

    def describe(self) -> Mapping[str, object]:
        """Return the plan as data, see docs/design/plan.md."""
        return self.plan

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights."""
        return sum(v.nbytes for v in self.memory.constants.values())

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        linker: str | Sequence[str] | None = None,
    ) -> None:
        """Write the model: as "tar", "so", "o", "c" or "mlf", see docs/design/formats.md.

        Without `format` the suffix of `path` decides: .so, .o, .c; anything else is a tar.
        `linker` names the linker or C compiler to use, as a command or a list of its words
        (default: Treadle links itself for x86-64 and aarch64, the first one found does for other
        machines).

        Raises:
            ToolchainError: nothing links for the target. UsageError: the folder does not exist, or
            the format does not fit the name or the target.
        """
        from treadle.build.format_names import format_of
        from treadle.build.formats import save_as

        save_as(self, path, format_of(Path(path), format), linker)

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        fcompile: Callable[..., object] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        **kwargs: object,
    ) -> None:
        """Write the model as a shared object, as `export_library` of TVM v0.8 does.

        `fcompile(file_name, files, **kwargs)` links `files`, the paths in `addons` and then the
        model's object file, into `file_name` (treadle.runtime.cc has some; default: as `save`). A
        `file_name` that ends in .tar becomes an artifact. `workspace_dir` is where the object file
        is kept (default: a temporary folder).

        Raises:
            UsageError: there are `addons` or options, and no `fcompile`.
            ToolchainError: see `save`.
        """
        from treadle.build.library import export_library

        export_library(self, Path(file_name), fcompile, addons, workspace_dir, kwargs)

    def __repr__(self) -> str:
        return f"Executable({self.module.name}, {len(self.kernels)} kernels, {self.target})"
