# SPDX-License-Identifier: Apache-2.0
"""Modules: compiled kernels that are called and timed with arrays."""

from __future__ import annotations

import difflib
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError, TreadleError, UsageError
from treadle.runtime import native
from treadle.runtime.array import (
    ArrayLike,
    Device,
    address_of,
    as_numpy,
    describe,
    empty_numpy,
    ready,
)
from treadle.runtime.extents import Extent


@dataclass(frozen=True)
class Param:
    """One buffer parameter of a kernel; a size is an int, the name of a symbol, or computed."""

    name: str
    dtype: str
    shape: tuple[int | str | Extent, ...]
    is_output: bool = False


@dataclass(frozen=True)
class KernelInfo:
    """What a caller must know of a kernel.

    `params` are its buffers in order (inputs, outputs); `symbols` the sizes it takes in `dims`, in
    order; `workspace_bytes` the scratch memory it is given after the last buffer (0: none).
    """

    name: str
    params: tuple[Param, ...]
    workspace_bytes: int | Extent = 0
    symbols: tuple[str, ...] = ()

    def __str__(self) -> str:
        params = ", ".join(
            f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]{' out' if p.is_output else ''}"
            for p in self.params
        )
        return f"{self.name}({params})"

    def __post_init__(self) -> None:
        named = {size for p in self.params for size in p.shape if isinstance(size, str)}
        for symbol in sorted(named - set(self.symbols)):
            raise UsageError(f"kernel {self.name} does not list the size {symbol!r} it uses")
        solved = {self.symbols[k] for k, _, _ in solving_order(self)}
        for symbol in self.symbols:
            if symbol not in named | solved:
                raise UsageError(
                    f"size {symbol!r} of kernel {self.name} is in no parameter's shape"
                )


def solving_order(info: KernelInfo) -> list[tuple[int, int, int]]:
    """Return how sizes that stand in no shape by themselves follow from computed extents.

    One (size, parameter, axis) per such size, each after those its extent is made of.
    """
    known = {info.symbols.index(s) for p in info.params for s in p.shape if isinstance(s, str)}
    computed = [
        (extent, place, axis)
        for place, param in enumerate(info.params)
        for axis, extent in enumerate(param.shape)
        if isinstance(extent, Extent)
    ]
    order: list[tuple[int, int, int]] = []
    found = True
    while found:
        found = False
        for extent, place, axis in computed:
            fresh = extent.sizes - known
            if len(fresh) == 1 and extent.is_linear_in(min(fresh)):
                order.append((min(fresh), place, axis))
                known |= fresh
                found = True
    return order


# ---- timing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BenchmarkResult:
    """Seconds per call, one figure per repeat; prints as the summary table in milliseconds."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Arithmetic mean in seconds."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """Median in seconds."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """Smallest in seconds."""
        return min(self.results)

    @property
    def max(self) -> float:
        """Largest in seconds."""
        return max(self.results)

    @property
    def std(self) -> float:
        """Standard deviation (of the population) in seconds."""
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        names = ("mean (ms)", "median (ms)", "max (ms)", "min (ms)", "std (ms)")
        values = (self.mean, self.median, self.max, self.min, self.std)
        head = " ".join(f"{name:^12}" for name in names)
        row = " ".join(f"{value * 1e3:^12.4f}" for value in values)
        return f"Execution time summary:\n{head}\n{row}"


def measure(
    time: Callable[[int], float], number: int, repeat: int, min_repeat_ms: float
) -> BenchmarkResult:
    """Call `time(number) -> seconds` once to warm up, then `repeat` times.

    `number` grows until one repeat takes `min_repeat_ms`.
    """
    if number < 1 or repeat < 1 or min_repeat_ms < 0:
        raise UsageError(
            f"number={number}, repeat={repeat}, min_repeat_ms={min_repeat_ms} cannot be measured",
            hint="number and repeat are 1 or more, min_repeat_ms is 0 or more",
        )
    time(1)
    results = []
    for _ in range(repeat):
        seconds = time(number)
        while seconds * 1e3 < min_repeat_ms:
            wanted = min_repeat_ms / max(seconds * 1e3 / number, 1e-6) + 1
            number = int(max(min(wanted, number * 1000.0), number * 1.618 + 1))
            seconds = time(number)
        results.append(seconds / number)
    return BenchmarkResult(tuple(results))


# ---- binding arguments ---------------------------------------------------------------------------


class _Binding:
    """Arguments checked and turned into addresses; keeps their memory alive."""

    def __init__(self, info: KernelInfo, args: Sequence[ArrayLike]) -> None:
        self._info = info
        self._symbols: dict[str, tuple[int, str]] = {}
        self._computed: list[tuple[Extent, int, str]] = []
        self.addresses: list[int] = []
        self._alive: list[np.ndarray] = []
        self._written_back: list[tuple[np.ndarray, np.ndarray]] = []
        if len(args) != len(info.params):
            names = ", ".join(param.name for param in info.params)
            raise InputError(
                f"{info.name} takes {len(info.params)} arguments but is given {len(args)}",
                hint=f"its arguments are {names}",
            )
        views = [self._viewed(param, arg) for param, arg in zip(info.params, args, strict=True)]
        self._solve(views)
        self._check_computed()
        scratch = info.workspace_bytes
        if scratch:
            nbytes = scratch if isinstance(scratch, int) else scratch.of(self.dims)
            self._keep(empty_numpy((nbytes,), "uint8"))

    @property
    def dims(self) -> list[int]:
        """The symbolic sizes in the kernel's order."""
        return [self._symbols[name][0] for name in self._info.symbols]

    def finish(self) -> None:
        """Copy results to outputs that could not be used in place."""
        for target, made in self._written_back:
            np.copyto(target, made)

    def _keep(self, view: np.ndarray) -> None:
        self._alive.append(view)
        self.addresses.append(address_of(view))

    def _viewed(self, param: Param, arg: ArrayLike) -> np.ndarray:
        what = f"argument {param.name!r} of {self._info.name}"
        view = as_numpy(arg, what)
        self._check(param, view, what)
        used = ready(view)
        if param.is_output and used is not view:
            self._written_back.append((view, used))
        self._keep(used)
        return view

    def _solve(self, views: Sequence[np.ndarray]) -> None:
        """Bind the sizes that only stand in computed extents."""
        info = self._info
        for size, place, axis in solving_order(info):
            param, number = info.params[place], views[place].shape[axis]
            extent = param.shape[axis]
            assert isinstance(extent, Extent)
            known = [self._symbols.get(s, (None, ""))[0] for s in info.symbols]
            value = extent.solved(size, known, number)
            if value is None:
                raise InputError(
                    f"argument {param.name!r} of {info.name} is {describe(views[place])} but its "
                    f"dimension {axis} must be {extent} for a size {info.symbols[size]} of 0 or "
                    "more"
                )
            self._symbols[info.symbols[size]] = (value, f"{param.name!r}")

    def _check_computed(self) -> None:
        for extent, number, found in self._computed:
            wanted = extent.of(self.dims)
            if number != wanted:
                raise InputError(f"{found} must be {extent} = {wanted}")

    def _check(self, param: Param, view: np.ndarray, what: str) -> None:
        expected = f"{param.dtype}[{', '.join(str(size) for size in param.shape)}]"
        if view.dtype != dtypes.to_numpy(param.dtype):
            raise InputError(
                f"{what} is {describe(view)} but {expected} is expected",
                hint=f"convert it with .astype({param.dtype!r})",
            )
        if view.ndim != len(param.shape):
            raise InputError(f"{what} is {describe(view)} but {expected} is expected")
        for axis, (size, wanted) in enumerate(zip(view.shape, param.shape, strict=True)):
            self._check_size(param, axis, size, wanted, f"{what} is {describe(view)}")
        if param.is_output and not view.flags.writeable:
            raise InputError(f"{what} is read-only, but the kernel writes to it")
        if not view.flags.c_contiguous:
            raise InputError(
                f"{what} is not contiguous in memory",
                hint="copy it with numpy.ascontiguousarray",
            )

    def _check_size(
        self, param: Param, axis: int, size: int, wanted: int | str | Extent, found: str
    ) -> None:
        if isinstance(wanted, Extent):
            self._computed.append((wanted, size, f"{found} but its dimension {axis}"))
            return
        if isinstance(wanted, int):
            if size != wanted:
                raise InputError(f"{found} but its dimension {axis} must be {wanted}")
            return
        value, source = self._symbols.setdefault(wanted, (size, f"{param.name!r}"))
        if size != value:
            raise InputError(
                f"{found} but its dimension {axis} must be {wanted} = {value}, the size that "
                f"argument {source} has given"
            )


# ---- modules -------------------------------------------------------------------------------------


class Kernel:
    """One kernel of a module; call it with arrays, inputs first."""

    def __init__(
        self,
        info: KernelInfo,
        address: int,
        keep_alive: object,
        unfit: TreadleError | None = None,
    ) -> None:
        """`unfit` says why the kernel cannot run on this machine; it has no address then."""
        self.info = info
        self._unfit = unfit
        self._address = address
        self._keep_alive = keep_alive

    def _bind(self, args: Sequence[ArrayLike]) -> tuple[_Binding, native.KernelCall]:
        if self._unfit is not None:
            raise self._unfit
        binding = _Binding(self.info, args)
        kernel_env = native.env()
        return binding, native.KernelCall(
            self._address, kernel_env, binding.addresses, binding.dims
        )

    def __call__(self, *args: ArrayLike) -> None:
        """Run the kernel; results are in the output arguments.

        Raises: InputError when an argument does not fit; TargetError when the kernel is made for
        another machine.
        """
        binding, call = self._bind(args)
        call.run()
        binding.finish()

    def time_evaluator(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes the kernel's arguments and times it."""

        def evaluate(*args: ArrayLike) -> BenchmarkResult:
            binding, call = self._bind(args)
            result = measure(call.time, number, repeat, min_repeat_ms)
            binding.finish()
            return result

        return evaluate


class Module:
    """A set of kernels in loaded machine code."""

    def __init__(
        self,
        kernels: Mapping[str, KernelInfo],
        addresses: Mapping[str, int],
        keep_alive: object,
        entry: str | None = None,
        unfit: TreadleError | None = None,
    ) -> None:
        """`addresses` are the kernels' functions, valid as long as `keep_alive` lives.

        `entry` is the kernel that runs when the module itself is called (default: the first).
        `unfit` is what a call raises on a machine that cannot run the code.
        """
        if not kernels:
            raise UsageError("a module needs at least one kernel")
        self._kernels = {
            name: Kernel(info, addresses[name], keep_alive, unfit) for name, info in kernels.items()
        }
        self.entry = self[entry] if entry is not None else next(iter(self._kernels.values()))

    @classmethod
    def load(
        cls,
        code: str | os.PathLike[str] | bytes,
        kernels: Mapping[str, KernelInfo],
        entry: str | None = None,
    ) -> Module:
        """Load kernels from a shared object (a path, or its content).

        Raises: ArtifactError when it is damaged, made for another machine, or lacks a kernel.
        """
        library = native.Library(code)
        addresses = {name: library.kernel(info.name) for name, info in kernels.items()}
        return cls(kernels, addresses, library, entry)

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            close = difflib.get_close_matches(name, self._kernels, 1)
            names = ", ".join(self._kernels)
            hint = f"did you mean {close[0]!r}?" if close else f"its kernels are {names}"
            raise UsageError(f"the module has no kernel {name!r}", hint=hint)
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __call__(self, *args: ArrayLike) -> None:
        """Run the entry kernel."""
        self.entry(*args)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes a kernel's arguments and times it.

        Each of `repeat` figures is the mean of `number` calls in a row (more, until
        `min_repeat_ms` have passed).
        """
        if dev is not None and dev.kind != "cpu":
            raise UsageError(f"kernels on {dev} are not possible", hint="use treadle.cpu()")
        return self[func_name].time_evaluator(number, repeat, min_repeat_ms)
