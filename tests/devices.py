# SPDX-License-Identifier: Apache-2.0
"""Devices for tests: which there are, kernels written by hand, and small models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, helper

from treadle.errors import DeviceError
from treadle.runtime.extents import Formula
from treadle.runtime.gpu import nvrtc
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.devices import opened
from treadle.runtime.launches import Launch
from treadle.runtime.signature import Param, Signature

ADD_ONE = """
__kernel void add_one(__global const float* a, __global float* b, long n) {
  long i = get_global_id(0);
  if (i < n) b[i] = a[i] + 1.0f;
}
"""
"""Adds 1 to each of n elements."""

BLOCK = 64


@cache
def opencl_trouble() -> str:
    """Return why no kernel can be built for a device of OpenCL here; "" where one can.

    A driver may be there and refuse every kernel: PoCL does so on CPUs newer than itself.
    """
    try:
        opened("opencl").driver.load(ADD_ONE.encode()).close()
    except DeviceError as error:
        return str(error)
    return ""


def has_nvrtc() -> bool:
    """True where NVRTC is installed."""
    try:
        return bool(nvrtc.nvrtc_version())
    except DeviceError:
        return False


def blocks_of(size: Formula) -> Formula:
    """Return how many blocks of threads have a thread for each of so many elements."""
    return ["floordiv", ["add", size, BLOCK - 1], BLOCK]


def add_one() -> tuple[Signature, GpuCode]:
    """Return a kernel of any size, with its code."""
    params = (Param("a", "float32", ("n",)), Param("b", "float32", ("n",), True))
    launch = Launch("add_one", (blocks_of(["size", 0]), 1, 1), (BLOCK, 1, 1), (0, 1, "size:0"))
    return Signature("add_one", params, 0, ("n",)), GpuCode("opencl", "", (launch,), ADD_ONE)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int | str, ...]],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    types: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """Return an ONNX model; inputs are float32 unless `types` says otherwise."""
    kinds = types or {}
    given = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
        for name, shape in inputs.items()
    ]
    results = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None)
        for name in outputs
    ]
    constants = [onnx.numpy_helper.from_array(v, n) for n, v in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "model", given, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def small_network(batch: int | str = 1) -> onnx.ModelProto:
    """Return two convolutions with a residual, a softmax and a mean, for images [n, 3, 12, 12]."""
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype("float32"),
        "v": rng.standard_normal((8, 8, 3, 3)).astype("float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"], axis=1),
        helper.make_node("ReduceMean", ["e"], ["y"], axes=[2, 3], keepdims=0),
    ]
    return model_of(nodes, {"x": (batch, 3, 12, 12)}, ["y"], weights)


def image(batch: int = 1, seed: int = 0) -> np.ndarray:
    """Return an input of `small_network`."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((batch, 3, 12, 12)).astype("float32")
