# SPDX-License-Identifier: Apache-2.0
"""Small models and artifacts, good and hostile, that the abuse tests feed to the commands."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (2, 3)

Members = dict[str, bytes]


def tensor(name: str, shape: Sequence[int | str] = SHAPE, kind: int = TensorProto.FLOAT) -> object:
    return helper.make_tensor_value_info(name, kind, list(shape))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[object] = (),
    outputs: Sequence[object] = (),
    weights: Sequence[onnx.TensorProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        list(inputs) or [tensor("x")],
        list(outputs) or [tensor("y")],
        list(weights),
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def good_model() -> onnx.ModelProto:
    """y = relu(x + w)."""
    w = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(SHAPE) - 3, "w")
    nodes = [
        helper.make_node("Add", ["x", "w"], ["t"], name="add"),
        helper.make_node("Relu", ["t"], ["y"], name="relu"),
    ]
    return model(nodes, weights=[w])


def relu(source: str = "x", result: str = "y") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], name=f"make_{result}")


def with_external(location: str, offset: str = "0", length: str = "24") -> onnx.ModelProto:
    """A model whose weight is said to lie in another file."""
    made = good_model()
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": length}
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return made


# ---- artifacts -----------------------------------------------------------------------------------


def members_of(artifact: Path) -> Members:
    with tarfile.open(artifact) as archive:
        found = {}
        for info in archive.getmembers():
            file = archive.extractfile(info)
            assert file is not None
            found[info.name] = file.read()
        return found


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def add_special(path: Path, name: str, kind: bytes, target: str = "") -> Path:
    """Append a member that is no plain file."""
    with tarfile.open(path, "a") as archive:
        info = tarfile.TarInfo(name)
        info.type = kind
        info.linkname = target
        archive.addfile(info)
    return path


def with_manifest(members: Members, change: Callable[[dict[str, object]], None]) -> Members:
    """Return members whose mod.json is changed and carries no checksum of its plan."""
    manifest = json.loads(members["mod.json"])
    manifest["checksums"].pop("treadle", None)
    change(manifest)
    return {**members, "mod.json": json.dumps(manifest).encode()}
