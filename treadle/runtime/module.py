# SPDX-License-Identifier: Apache-2.0
"""Kernels in memory, called and timed with arrays, one by one or several in a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Generic, Protocol, TypeVar

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError, TreadleError, UsageError, name_hint
from treadle.runtime import native
from treadle.runtime.array import (
    ArrayLike,
    Device,
    NDArray,
    address_of,
    array,
    as_numpy,
    describe,
    empty_numpy,
    ready,
)
from treadle.runtime.extents import Extent
from treadle.runtime.fill import filled
from treadle.runtime.signature import Param, Signature
from treadle.runtime.timing import BenchmarkResult, measure, out_of_cache

Sizes = Mapping[str, int]
"""Sizes of a kernel by name."""
NO_SIZES: Sizes = {}


# ---- binding arguments ---------------------------------------------------------------------------


class Binding:
    """Arguments checked and turned into addresses; keeps their memory alive."""

    def __init__(self, signature: Signature, args: Sequence[ArrayLike], sizes: Sizes) -> None:
        self._signature = signature
        self._symbols: dict[str, tuple[int, str]] = {n: (v, "sizes") for n, v in sizes.items()}
        self._computed: list[tuple[Extent, int, str]] = []
        self.addresses: list[int] = []
        self._alive: list[np.ndarray] = []
        self._written_back: list[tuple[np.ndarray, np.ndarray]] = []
        params = signature.params
        if len(args) != len(params):
            names = ", ".join(param.name for param in params)
            raise InputError(
                f"{signature.name} takes {len(params)} arguments but is given {len(args)}",
                hint=f"its arguments are {names}",
            )
        views = [self._viewed(param, arg) for param, arg in zip(params, args, strict=True)]
        self._solve(views)
        self.dims = signature.dims({name: value for name, (value, _) in self._symbols.items()})
        """The symbolic sizes in the kernel's order."""
        self._check_computed()
        scratch = signature.workspace_bytes
        if scratch:
            self._lend(scratch if isinstance(scratch, int) else scratch.of(self.dims))

    def memory(self) -> list[np.ndarray]:
        """Return the bytes of every buffer that may be written to."""
        return [v.reshape(-1).view(np.uint8) for v in self._alive if v.flags.writeable and v.size]

    def finish(self) -> None:
        """Copy results to outputs that could not be used in place."""
        for target, made in self._written_back:
            np.copyto(target, made)

    def _lend(self, nbytes: int) -> None:
        """Add scratch memory."""
        self._keep(empty_numpy((nbytes,), "uint8"))

    def _keep(self, view: np.ndarray) -> None:
        self._alive.append(view)
        self.addresses.append(address_of(view))

    def _viewed(self, param: Param, arg: ArrayLike) -> np.ndarray:
        view = self._checked(param, arg)
        used = ready(view)
        if param.is_output and used is not view:
            self._written_back.append((view, used))
        self._keep(used)
        return view

    def _solve(self, views: Sequence[np.ndarray]) -> None:
        """Bind the sizes that only stand in computed extents."""
        signature = self._signature
        symbols = signature.symbols
        for size, place, axis in signature.solving_order():
            if symbols[size] in self._symbols:
                continue
            param, number = signature.params[place], views[place].shape[axis]
            extent = param.shape[axis]
            assert isinstance(extent, Extent)
            known = [self._symbols.get(s, (None, ""))[0] for s in symbols]
            value = extent.solved(size, known, number)
            if value is None:
                raise InputError(
                    f"argument {param.name!r} of {signature.name} is {describe(views[place])} but "
                    f"its dimension {axis} must be {extent} for a size {symbols[size]} of 0 or more"
                )
            self._symbols[symbols[size]] = (value, f"{param.name!r}")

    def _check_computed(self) -> None:
        for extent, number, found in self._computed:
            wanted = extent.of(self.dims)
            if number != wanted:
                raise InputError(f"{found} must be {extent} = {wanted}")

    def _what(self, param: Param) -> str:
        return f"argument {param.name!r} of {self._signature.name}"

    def _checked(self, param: Param, arg: ArrayLike) -> np.ndarray:
        """Return an array in the memory of the host. Raises: InputError where it does not fit."""
        what = self._what(param)
        view = as_numpy(arg, what)
        self._check_type(param, view, what)
        if param.is_output and not view.flags.writeable:
            raise InputError(f"{what} is read-only, but the kernel writes to it")
        if not view.flags.c_contiguous:
            raise InputError(
                f"{what} is not contiguous in memory",
                hint="copy it with numpy.ascontiguousarray",
            )
        return view

    def _check_type(self, param: Param, view: np.ndarray, what: str) -> None:
        if view.dtype != dtypes.to_numpy(param.dtype):
            raise InputError(
                f"{what} is {describe(view)} but {param} is expected",
                hint=f"convert it with .astype({param.dtype!r})",
            )
        if view.ndim != len(param.shape):
            raise InputError(f"{what} is {describe(view)} but {param} is expected")
        for axis, (size, wanted) in enumerate(zip(view.shape, param.shape, strict=True)):
            self._check_size(param, axis, size, wanted, f"{what} is {describe(view)}")

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
            giver = source if source == "sizes" else f"argument {source}"
            raise InputError(
                f"{found} but its dimension {axis} must be {wanted} = {value}, the size that "
                f"{giver} has given"
            )


class Call(Protocol):
    """A kernel with its arguments bound."""

    def run(self) -> None:
        """Call it once."""

    def time(self, number: int) -> float:
        """Call it `number` times in a row; return the elapsed seconds."""


# ---- kernels -------------------------------------------------------------------------------------


class LoadedKernel:
    """Machine code of one kernel in memory; call it with arrays in the order of its parameters."""

    def __init__(
        self,
        signature: Signature,
        address: int,
        keep_alive: object,
        unfit: TreadleError | None = None,
        sizes: Sizes = NO_SIZES,
    ) -> None:
        """`address` is its function, valid as long as `keep_alive` lives.

        `unfit` says why the kernel cannot run on this machine; it has no address then. `sizes` are
        those of every call that says no others.
        """
        self.signature = signature
        self._sizes = sizes
        self._unfit = unfit
        self._address = address
        self._keep_alive = keep_alive

    @property
    def name(self) -> str:
        """Its symbol in the machine code."""
        return self.signature.name

    @property
    def device_kind(self) -> str:
        """The kind of the device it runs on."""
        return "cpu"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.signature})"

    def load(self) -> LoadedKernel:
        """Return the kernel itself: it is in memory already."""
        return self

    def _bind(self, args: Sequence[ArrayLike], sizes: Sizes) -> tuple[Binding, Call]:
        if self._unfit is not None:
            raise self._unfit
        binding = Binding(self.signature, args, sizes or self._sizes)
        kernel_env = native.env()
        return binding, native.KernelCall(
            self._address, kernel_env, binding.addresses, binding.dims
        )

    def __call__(self, *args: ArrayLike, sizes: Sizes = NO_SIZES) -> None:
        """Run the kernel; results are in the output arguments.

        `sizes` are those that no argument's shape tells (`signature.hidden_sizes()`).

        Raises: InputError when an argument does not fit; TargetError when the kernel is made for
        another machine.
        """
        binding, call = self._bind(args, sizes)
        call.run()
        binding.finish()

    def random_arguments(self, seed: int = 0, sizes: Sizes = NO_SIZES) -> list[NDArray]:
        """Return arguments to try the kernel on: inputs of random numbers, outputs of zeros.

        Floats are normally distributed, integers are 0 or 1; the same seed gives the same numbers.
        `sizes` says what the symbols of the signature are.

        Raises: InputError when a size is missing or unknown.
        """
        random = np.random.default_rng(seed)
        shaped = zip(self.signature.params, self.signature.shapes(sizes), strict=True)
        return [
            array(filled("zeros" if p.is_output else "random", p.dtype, shape, random))
            for p, shape in shaped
        ]

    def rotation_timer(self, *arguments: Sequence[ArrayLike]) -> Callable[[int], float]:
        """Return a function that calls the kernel some times, with each of `arguments` in turn.

        It returns the seconds of a call. Lists of arguments that share all but the weights time the
        kernel as a model runs it whose weights are more than the caches hold. The next
        use begins where the last one ended.

        Raises: InputError when an argument does not fit.
        """
        bound = [self._bind(args, NO_SIZES) for args in arguments]
        following = cycle(bound)
        return lambda number: sum(next(following)[1].time(1) for _ in range(number)) / number

    def time_evaluator(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, *, flush: bool = False
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes the kernel's arguments and times it.

        Each of `repeat` figures is the mean of `number` calls in a row (more, until
        `min_repeat_ms` have passed). With `flush` no cache holds the arguments when a call begins.
        """

        def evaluate(*args: ArrayLike, sizes: Sizes = NO_SIZES) -> BenchmarkResult:
            binding, call = self._bind(args, sizes)
            timer = out_of_cache(call.time, binding.memory()) if flush else call.time
            result = measure(timer, number, repeat, min_repeat_ms)
            binding.finish()
            return result

        return evaluate


# ---- modules -------------------------------------------------------------------------------------


class TimedKernel(Protocol):
    """What a module holds: a kernel that can be called and timed, loaded or not yet."""

    @property
    def device_kind(self) -> str:
        """The kind of the device it runs on."""

    def __call__(self, *args: ArrayLike, sizes: Sizes = NO_SIZES) -> None:
        """Run the kernel; results are in the output arguments."""

    def time_evaluator(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, *, flush: bool = False
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes the kernel's arguments and times it."""


K = TypeVar("K", bound=TimedKernel)


class Module(Generic[K]):
    """A set of kernels by name; called itself, it runs one of them."""

    def __init__(self, kernels: Mapping[str, K], entry: str | None = None) -> None:
        """`entry` is the kernel that runs when the module itself is called (default: the first)."""
        if not kernels:
            raise UsageError("a module needs at least one kernel")
        self._kernels = dict(kernels)
        self.entry = self[entry] if entry is not None else next(iter(self._kernels.values()))

    def __getitem__(self, name: str) -> K:
        if name not in self._kernels:
            names = ", ".join(self._kernels)
            hint = name_hint(name, self._kernels, f"its kernels are {names}")
            raise UsageError(f"the module has no kernel {name!r}", hint=hint)
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __call__(self, *args: ArrayLike, sizes: Sizes = NO_SIZES) -> None:
        """Run the entry kernel."""
        self.entry(*args, sizes=sizes)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        *,
        flush: bool = False,
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes a kernel's arguments and times it.

        Each of `repeat` figures is the mean of `number` calls in a row (more, until
        `min_repeat_ms` have passed). With `flush` no cache holds the arguments when a call begins.
        """
        kernel = self[func_name]
        if dev is not None and dev.kind != kernel.device_kind:
            raise UsageError(
                f"kernel {func_name!r} runs on {kernel.device_kind}, not on {dev}",
                hint=f"use treadle.{kernel.device_kind}()",
            )
        return kernel.time_evaluator(number, repeat, min_repeat_ms, flush=flush)


def loaded_kernels(
    code: str | os.PathLike[str] | bytes | native.Library, signatures: Mapping[str, Signature]
) -> dict[str, LoadedKernel]:
    """Return the kernels of a shared object (a path, its content, or the library) by name.

    Raises: ArtifactError when it is damaged, made for another machine, or lacks a kernel.
    """
    library = code if isinstance(code, native.Library) else native.Library(code)
    return {
        name: LoadedKernel(signature, library.kernel(signature.name), library)
        for name, signature in signatures.items()
    }
