# SPDX-License-Identifier: Apache-2.0
"""Kernels on a device, called and timed with arrays of the host or of the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import DeviceError, TreadleError
from treadle.runtime.array import ArrayLike, Device, address_of
from treadle.runtime.extents import Extent
from treadle.runtime.gpu.array import DeviceArray
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.devices import Block, GpuDevice, opened
from treadle.runtime.gpu.driver import Argument, GpuModule
from treadle.runtime.launches import Launch
from treadle.runtime.module import NO_SIZES, Binding, LoadedKernel, Sizes
from treadle.runtime.signature import Param, Signature


def check_fits(code: GpuCode, device: GpuDevice, name: str) -> None:
    """Raise DeviceError where code is made for devices of another architecture."""
    facts = device.facts
    if code.kind == "cuda" and code.architecture != facts.architecture:
        raise DeviceError(
            f"kernel {name} is made for {code.architecture}, {device.name} ({facts.name}) is "
            f"{facts.architecture}",
            hint=f'compile it again for this device: target "{code.kind}"',
        )


class CodeOnDevice:
    """Code of one kernel on a device; unloaded by `close`, or with the object."""

    def __init__(self, code: GpuCode, device: GpuDevice, name: str) -> None:
        """Load it. Raises: DeviceError where it does not fit the device."""
        check_fits(code, device, name)
        self.name = name
        self.launches = code.launches
        self.device = device
        self._module: GpuModule | None = None
        if code.launches:
            self._module = device.driver.load(code.loadable)

    def starts(self, buffers: Sequence[int], dims: Sequence[int]) -> list[Callable[[], None]]:
        """Return what starts the kernel on buffers given by address, in order."""
        module = self._module
        made: list[Callable[[], None]] = []
        for launch in self.launches:
            grid = grid_of(launch, dims)
            if 0 in grid:
                continue
            assert module is not None
            arguments = [_argument(a, buffers, dims) for a in launch.arguments]
            made.append(
                self.device.driver.prepared(module, launch.symbol, grid, launch.block, arguments)
            )
        return made

    def close(self) -> None:
        """Unload the code."""
        module, self._module = self._module, None
        if module is not None:
            module.close()

    def __del__(self) -> None:
        if getattr(self, "_module", None) is not None:
            self.close()


def _argument(argument: int | str, buffers: Sequence[int], dims: Sequence[int]) -> Argument:
    if isinstance(argument, int):
        return buffers[argument]
    if argument == "workspace":
        return buffers[-1]
    return (dims[int(argument.removeprefix("size:"))],)


def grid_of(launch: Launch, dims: Sequence[int]) -> tuple[int, ...]:
    """Return how many blocks a launch has along each axis for given sizes."""
    return tuple(g if isinstance(g, int) else Extent("", g).of(dims) for g in launch.grid)


class _DeviceBinding(Binding):
    """Arguments in device memory: arrays of the host are copied there, and results back."""

    def __init__(
        self, device: GpuDevice, signature: Signature, args: Sequence[ArrayLike], sizes: Sizes
    ) -> None:
        self._device = device
        self._blocks: list[Block] = []
        self._results: list[tuple[np.ndarray, Block]] = []
        self._arrays: list[DeviceArray] = []
        super().__init__(signature, args, sizes)

    def finish(self) -> None:
        """Copy results to the outputs that are arrays of the host."""
        for view, block in self._results:
            self._device.driver.copy_out(address_of(view), block.pointer, view.nbytes)

    def _lend(self, nbytes: int) -> None:
        self._take(nbytes)

    def _take(self, nbytes: int) -> Block:
        block = self._device.pool.take(nbytes)
        self._blocks.append(block)
        self.addresses.append(block.pointer)
        return block

    def _viewed(self, param: Param, arg: ArrayLike) -> np.ndarray:
        if isinstance(arg, DeviceArray):
            return self._on_device(param, arg)
        view = self._checked(param, arg)
        block = self._take(view.nbytes)
        self._device.driver.copy_in(block.pointer, address_of(view), view.nbytes)
        if param.is_output:
            self._results.append((view, block))
        return view

    def _on_device(self, param: Param, arg: DeviceArray) -> np.ndarray:
        what = self._what(param)
        if str(arg.device) != self._device.name:
            raise DeviceError(
                f"{what} is on {arg.device}, the kernel runs on {self._device.name}",
                hint="copy it there: treadle.array(x.numpy(), device=...)",
            )
        element = np.empty((), dtypes.to_numpy(arg.dtype))
        shown = np.broadcast_to(element, arg.shape)  # its type and shape, without its memory
        self._check_type(param, shown, what)
        self._arrays.append(arg)
        self.addresses.append(arg.pointer)
        return shown


class _DeviceCall:
    """A kernel with its arguments bound."""

    def __init__(self, device: GpuDevice, starts: Sequence[Callable[[], None]]) -> None:
        self._driver = device.driver
        self._starts = starts

    def run(self) -> None:
        """Start it; what is read from the device afterwards waits for it."""
        for start in self._starts:
            start()

    def time(self, number: int) -> float:
        """Run it `number` times in a row; return the seconds it took by the device's clock."""
        return self._driver.seconds(self._driver.sequence(self._starts), number)


class DeviceKernel(LoadedKernel):
    """A kernel on a device: called and timed like one of the CPU."""

    def __init__(
        self,
        signature: Signature,
        code: GpuCode,
        device: Device | None = None,
        unfit: TreadleError | None = None,
        sizes: Sizes = NO_SIZES,
    ) -> None:
        """The device is opened, and the code loaded, at the first call.

        `unfit` says why the kernel cannot run here; `sizes` are those of every call that says no
        others.
        """
        super().__init__(signature, 0, None, unfit, sizes)
        self._code = code
        self._device = device or Device(code.kind)
        self._loaded: CodeOnDevice | None = None

    @property
    def device_kind(self) -> str:
        """The kind of the device it runs on."""
        return self._device.kind

    def _bind(self, args: Sequence[ArrayLike], sizes: Sizes) -> tuple[Binding, _DeviceCall]:
        if self._unfit is not None:
            raise self._unfit
        device = opened(self._device.kind, self._device.index)
        if self._loaded is None:
            self._loaded = CodeOnDevice(self._code, device, self.name)
        binding = _DeviceBinding(device, self.signature, args, sizes or self._sizes)
        starts = self._loaded.starts(binding.addresses, binding.dims)
        return binding, _DeviceCall(device, starts)
