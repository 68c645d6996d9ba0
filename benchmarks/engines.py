# SPDX-License-Identifier: Apache-2.0
"""One way to open a network in Treadle and in each of its peers."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx
    from torch import nn

    from treadle import Executable

Arrays: TypeAlias = dict[str, NDArray[np.generic]]
Run: TypeAlias = Callable[[], list[NDArray[np.generic]]]
"""One inference on inputs given beforehand."""


class NotAvailableError(Exception):
    """An engine is not installed, or has no form of the network it could run."""


@dataclass(frozen=True)
class TreadleRun:
    """A network that Treadle compiled, on inputs given beforehand."""

    executable: Executable
    inputs: Arrays

    def __call__(self) -> list[NDArray[np.generic]]:
        """Return the outputs of one inference."""
        return [np.asarray(output) for output in self.executable.run(self.inputs)]

    def operations(self) -> int:
        """Return the floating-point operations of the plain algorithms, a multiply-add being 2."""
        from treadle.cli.roofline import layer_of, sizes_of_inputs
        from treadle.runtime.array import array

        sizes = sizes_of_inputs(self.executable, {n: array(x) for n, x in self.inputs.items()})
        return sum(layer_of(row, sizes, 0.0).flops for row in self.executable.instructions())


def open_treadle(model: Path, inputs: Arrays, threads: int) -> TreadleRun:
    """Compile `model` with Treadle."""
    os.environ["TREADLE_NUM_THREADS"] = str(threads)
    import treadle

    return TreadleRun(treadle.compile(model, opt_level=3), inputs)


def open_onnxruntime(model: Path, inputs: Arrays, threads: int) -> Run:
    """Open `model` in onnxruntime, in float32, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Its threads spin while it works; after a run they must leave the cores to the next engine.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: [np.asarray(output) for output in session.run(None, inputs)]


def open_openvino(model: Path, inputs: Arrays, threads: int) -> Run:
    """Open `model` in OpenVINO, held to float32: its default is bfloat16 where the CPU has it."""
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda: list(request.infer(inputs, share_outputs=True).values())


def open_inductor(model: Path, inputs: Arrays, threads: int) -> Run:
    """Compile the torch module of a network with torch.compile; it needs a C++ compiler."""
    if importlib.util.find_spec("torch") is None:
        raise NotAvailableError(model.stem)
    import torch

    torch.set_num_threads(threads)
    compiled = torch.compile(_torch_module(model))
    given = [torch.from_numpy(value) for value in inputs.values()]

    def run() -> list[NDArray[np.generic]]:
        with torch.inference_mode():
            made = compiled(*given)
        return [x.numpy() for x in (made if isinstance(made, tuple) else (made,))]

    return run


def _torch_module(model: Path) -> nn.Module:
    """Return the torch form of a network; NotAvailableError where it has none."""
    from benchmarks import torch_networks, torch_transformers
    from benchmarks.architectures import ARCHITECTURES

    name = model.stem.removesuffix("_torch")
    if name in torch_transformers.MODULES:
        return torch_transformers.MODULES[name](model).eval()
    if name in ARCHITECTURES:
        return torch_networks.network(name)
    raise NotAvailableError(name)


@dataclass(frozen=True)
class PeakRun:
    """A loop of multiply-adds on every thread: what the machine can do at most, as an engine."""

    operations: float
    work: Callable[[], object]

    def __call__(self) -> list[NDArray[np.generic]]:
        """Run the loop; it has no outputs."""
        self.work()
        return []


def open_peak(threads: int) -> PeakRun:
    """Return the float32 multiply-adds of the widest vectors that Treadle compiles for here."""
    from treadle.cli.peak import compile_probe
    from treadle.target.parse import parse_target
    from treadle.target.probes import chain_count, fma_kernel, lanes_of

    target = parse_target("llvm")
    types = (ctypes.c_int64, ctypes.c_float, ctypes.c_float)
    probe = compile_probe(fma_kernel(target), ctypes.c_float, *types)
    pool = ThreadPoolExecutor(threads)

    def loop() -> object:
        return probe.call(_PEAK_LOOPS, 0.5, 1.0)

    def loops() -> None:
        others = [pool.submit(loop) for _ in range(threads - 1)]
        loop()
        for other in others:
            other.result()

    operations = 2.0 * _PEAK_LOOPS * threads * chain_count(target) * lanes_of(target)
    return PeakRun(operations, loops)


_PEAK_LOOPS = 2_000_000
"""Milliseconds: long beside the start of a thread, short beside a turn of the engines."""


def is_installed(engine: str) -> bool:
    """True when the package of an engine can be imported."""
    return importlib.util.find_spec(_PACKAGES.get(engine, engine)) is not None


_PACKAGES = {"inductor": "torch"}

ENGINES: dict[str, Callable[[Path, Arrays, int], Run]] = {
    "treadle": open_treadle,
    "onnxruntime": open_onnxruntime,
    "openvino": open_openvino,
    "inductor": open_inductor,
}


def random_inputs(model: Path) -> Arrays:
    """Return one seeded random input per input of `model`; an unknown size counts as 1.

    Indices stay inside what they index; other integers are 0 or 1.
    """
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    random = np.random.default_rng(0)
    inputs: Arrays = {}
    for value in graph.input:
        if value.name in stored:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if np.issubdtype(dtype, np.floating):
            inputs[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            end = _index_limit(graph, value.name)
            inputs[value.name] = random.integers(0, end, shape).astype(dtype)
    return inputs


def _index_limit(graph: onnx.GraphProto, name: str) -> int:
    """Return the end of the indices that input `name` holds, 2 where it holds none."""
    sizes = {tensor.name: tensor.dims for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in sizes:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            return int(sizes[node.input[0]][axis])
    return 2
