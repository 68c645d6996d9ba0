# SPDX-License-Identifier: Apache-2.0
"""A saved model, loaded, and what it has in common with one that is compiled here.

Nothing of the compiler is imported: who loads a model waits for the runtime only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np

from treadle.files import check_writable, replacing
from treadle.runtime.array import ArrayLike, NDArray
from treadle.runtime.artifact_file import ArtifactFile, Content
from treadle.runtime.executor import Executor, ProfileRow, cannot_be_pickled
from treadle.runtime.kernel_files import load_kernels
from treadle.runtime.module import LoadedKernel
from treadle.runtime.native_executor import TensorInfo
from treadle.runtime.timing import BenchmarkResult

Size = int | str
"""A size of an input: a number, or the name of what each run decides."""


def _rows_of(plan: Mapping[str, object], name: str) -> list[dict[str, object]]:
    rows = plan.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _sizes_of(plan: Mapping[str, object], value: object) -> tuple[Size, ...]:
    assert isinstance(value, int)
    shape = _rows_of(plan, "values")[value]["shape"]
    assert isinstance(shape, list)
    names = [str(row.get("name", f"size {k}")) for k, row in enumerate(_rows_of(plan, "sizes"))]
    return tuple(dim if isinstance(dim, int) else names[dim["size"]] for dim in shape)


class ModelRunner(Protocol):
    """What runs a compiled model: an executor here, or one on a device."""

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Its inputs, in order."""

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Its outputs, in order."""

    @property
    def num_threads(self) -> int:
        """Threads a run may use."""

    @num_threads.setter
    def num_threads(self, count: int) -> None: ...

    def run(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None = None,
        outputs: Sequence[NDArray] | None = None,
    ) -> list[NDArray]:
        """Run the model; return its outputs in order."""

    def __call__(self, *args: ArrayLike, **named: ArrayLike) -> list[NDArray]:
        """Run with inputs in order, by name, or both."""

    def seed(self, number: int) -> None:
        """Begin the random numbers of a seed."""

    def benchmark(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None = None,
        *,
        number: int = 1,
        repeat: int = 10,
        min_repeat_ms: float = 0,
    ) -> BenchmarkResult:
        """Return the seconds of `repeat` measurements, each the mean of `number` runs."""

    def profile(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None = None,
        runs: int = 10,
    ) -> list[ProfileRow]:
        """Return the time of every instruction."""

    def watch(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None,
        observer: Callable[[int, np.ndarray], None],
        wanted: Iterable[int] | None = None,
    ) -> list[NDArray]:
        """Run the model; `observer` gets what each instruction, or each `wanted` one, writes."""


class Runnable:
    """What a compiled model and a loaded artifact have in common: running and timing."""

    @property
    def executor(self) -> ModelRunner:
        """What runs it."""
        raise NotImplementedError

    def describe(self) -> Mapping[str, object]:
        """Return the plan as data, see docs/design/plan.md."""
        raise NotImplementedError

    def instructions(self) -> list[dict[str, object]]:
        """Return the instructions of the plan: kernel, origin, flops and bytes of each."""
        return _rows_of(self.describe(), "instructions")

    def input_sizes(self) -> dict[str, tuple[Size, ...]]:
        """Return the sizes of every input; inputs that share a name agree about that size."""
        plan = self.describe()
        return {str(i["name"]): _sizes_of(plan, i["value"]) for i in _rows_of(plan, "inputs")}

    def output_sizes(self) -> list[tuple[Size, ...]]:
        """Return the sizes of every output, in order; those that are computed are "size K"."""
        plan = self.describe()
        return [_sizes_of(plan, o["value"]) for o in _rows_of(plan, "outputs")]

    @property
    def inputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of every input."""
        return [(i.name, i.dtype, tuple(i.shape)) for i in self.executor.inputs]

    @property
    def outputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of every output."""
        return [(o.name, o.dtype, tuple(o.shape)) for o in self.executor.outputs]

    def loaded_kernels(self) -> list[LoadedKernel]:
        """Return the kernels, each ready to be called and timed alone.

        Raises: ArtifactError when an artifact does not say what its kernels take.
        """
        raise NotImplementedError

    def fork(self) -> Runnable:
        """Return a second one of the same model that shares code and weights with this one.

        It has working memory, results and settings of its own. Threads that share one executable
        need no forks: its runs go on at the same time, see `Executor.max_streams`.
        """
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled()

    def run(self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike]) -> list[NDArray]:
        """Return the outputs for inputs by name or by position (NumPy or DLPack arrays).

        Threads may call this at the same time; each gets the outputs for its own inputs.

        Raises:
            InputError: an input is missing, unknown, or has the wrong dtype or shape.
        """
        return self.executor.run(inputs)

    def __call__(self, *args: ArrayLike, **named: ArrayLike) -> list[NDArray]:
        if len(args) == 1 and isinstance(args[0], Mapping) and not named:
            return self.run(args[0])
        return self.executor(*args, **named)

    def seed(self, number: int) -> None:
        """Begin the random numbers of a seed: the runs from now on draw the same for the same seed.

        Without it every executable draws others in each run. Nodes of the model that have a seed
        of their own draw the same numbers in every run.
        """
        self.executor.seed(number)

    def benchmark(
        self,
        inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike],
        *,
        number: int = 1,
        repeat: int = 10,
        min_repeat_ms: float = 0,
    ) -> BenchmarkResult:
        """Return the seconds of `repeat` measurements, each the mean of `number` runs."""
        return self.executor.benchmark(
            inputs, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms
        )

    def profile(
        self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike], repeat: int = 10
    ) -> list[ProfileRow]:
        """Return the time of every instruction, summed over `repeat` runs."""
        return self.executor.profile(inputs, repeat)


class LoadedExecutable(Runnable):
    """A saved model, loaded: it runs as the compiled one did.

    What it tells is what was loaded, whatever becomes of the file's name or the folder one is in.
    """

    def __init__(
        self,
        artifact: str | os.PathLike[str] | Content | ArtifactFile,
        *,
        verify: bool = False,
    ) -> None:
        """See `treadle.load`; an open file is taken over."""
        self._file = artifact if isinstance(artifact, ArtifactFile) else ArtifactFile(artifact)
        self._executor = Executor.open(self._file, verify=verify)
        self._plan: Mapping[str, object] | None = None
        self._kernels: list[LoadedKernel] | None = None

    @property
    def path(self) -> str:
        """The path it was loaded from, or what else it was loaded from."""
        return self._file.name

    @property
    def executor(self) -> Executor:
        """The native executor."""
        return self._executor

    @property
    def kernels(self) -> list[LoadedKernel]:
        """The kernels, each ready to be called and timed alone; their texts were not saved.

        Raises: ArtifactError when the artifact does not say what they take.
        """
        if self._kernels is None:
            self._kernels = load_kernels(self._file)
        return self._kernels

    def loaded_kernels(self) -> list[LoadedKernel]:
        """Return `kernels`."""
        return self.kernels

    def fork(self) -> LoadedExecutable:
        """Return a second one of the same model; see `Runnable.fork`."""
        made = object.__new__(LoadedExecutable)
        made._file = self._file
        made._executor = self._executor.fork()
        made._plan = self._plan
        made._kernels = self._kernels
        return made

    def describe(self) -> Mapping[str, object]:
        """Return the plan as data, see docs/design/plan.md."""
        if self._plan is None:
            plan = json.loads(self._executor.plan_text)
            assert isinstance(plan, dict)  # or it would not have been loaded
            self._plan = plan
        return self._plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to another file, as it was loaded.

        Raises:
            UsageError: the folder does not exist. ArtifactError: the file it was loaded from has
            been written to since.
        """
        target = Path(path)
        check_writable(target)
        with replacing(target) as file:
            self._file.copy_to(file)

    def __repr__(self) -> str:
        return f"LoadedExecutable({self.path})"
