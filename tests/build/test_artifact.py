# SPDX-License-Identifier: Apache-2.0
"""Saved models: three members in TVM v0.8's formats, and the same bits on every road."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.processes import PATIENCE
from treadle.build.compile import compile_model
from treadle.build.executable import Executable
from treadle.build.load import load
from treadle.errors import UsageError
from treadle.runtime import native, native_build

ROOT = Path(__file__).resolve().parents[2]

Json = dict[str, Any]  # Any: parsed JSON


def network() -> onnx.ModelProto:
    """Convolutions, a concatenation, integers, booleans, a constant and an input as outputs."""
    random = np.random.default_rng(0)

    def weight(name: str, value: np.ndarray) -> onnx.TensorProto:
        return numpy_helper.from_array(value, name)

    weights = [
        weight("w1", random.standard_normal((8, 3, 3, 3), np.float32)),
        weight("w2", random.standard_normal((8, 8, 1, 1), np.float32)),
        weight("k", np.array([[3, -2, 1]], np.int64)),
        weight("mask", np.array([[True, False, True]])),
        weight("table", random.standard_normal((5, 4)).astype(np.float16)),
        weight("fixed", random.standard_normal((2, 2))),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="second"),
        helper.make_node("Concat", ["b", "c"], ["d"], axis=1),
        helper.make_node("Softmax", ["d"], ["soft"], axis=1),
        helper.make_node("Sigmoid", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["mean"]),
        helper.make_node("Mul", ["n", "k"], ["m"]),
        helper.make_node("And", ["flag", "mask"], ["both"]),
        helper.make_node("Gather", ["table", "n"], ["rows"]),
        helper.make_node("Identity", ["fixed"], ["constant"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    F, T = helper.make_tensor_value_info, TensorProto
    inputs = [F("x", T.FLOAT, [1, 3, 6, 5]), F("n", T.INT64, [1, 3]), F("flag", T.BOOL, [1, 3])]
    outputs = [
        F("soft", T.FLOAT, [1, 16, 6, 5]), F("mean", T.FLOAT, [1, 16, 1, 1]),
        F("m", T.INT64, [1, 3]), F("both", T.BOOL, [1, 3]), F("rows", T.FLOAT16, [1, 3, 4]),
        F("constant", T.DOUBLE, [2, 2]), F("same", T.FLOAT, [1, 3, 6, 5]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "mixed", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inputs_of() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "x": random.standard_normal((1, 3, 6, 5), np.float32),
        "n": np.array([[4, 0, 2]], np.int64),
        "flag": np.array([[True, True, False]]),
    }


@pytest.fixture(scope="module")
def executable() -> Executable:
    return compile_model(network())


@pytest.fixture(scope="module")
def expected(executable: Executable) -> list[np.ndarray]:
    return [np.asarray(o) for o in executable.run(inputs_of())]


@pytest.fixture(scope="module")
def artifact(executable: Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "mixed.tar"
    executable.save(path)
    return path


def member(artifact: Path, name: str) -> bytes:
    with tarfile.open(artifact) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def assert_same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


# ---- roads ---------------------------------------------------------------------------------------


def test_loaded_here(artifact: Path, executable: Executable, expected: list[np.ndarray]) -> None:
    loaded = load(artifact)
    assert loaded.inputs == executable.inputs
    assert loaded.outputs == executable.outputs
    assert_same_bits([np.asarray(o) for o in loaded.run(inputs_of())], expected)


def test_loaded_in_a_fresh_process(
    artifact: Path, expected: list[np.ndarray], tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", **inputs_of())
    program = (
        "import sys, numpy as np\n"
        "from treadle.build.load import load\n"
        "with np.load('in.npz') as arrays: inputs = dict(arrays)\n"
        "outputs = load(sys.argv[1]).run(inputs)\n"
        "np.savez('out.npz', *[np.asarray(o) for o in outputs])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(artifact)]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    with np.load(tmp_path / "out.npz") as arrays:
        assert_same_bits([arrays[f"arr_{i}"] for i in range(len(expected))], expected)


def test_run_by_a_c_program(artifact: Path, expected: list[np.ndarray], tmp_path: Path) -> None:
    library = native.find_library()
    compilers = native_build.find_compilers()
    if not compilers:
        pytest.skip("no C compiler is found")
    command = [*compilers[0], "-std=c11", str(ROOT / "native" / "examples" / "run_model.c")]
    command += [f"-I{ROOT / 'native' / 'include'}", "-o", "run_model", str(library)]
    command += [f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    for name, value in inputs_of().items():
        value.tofile(tmp_path / name)
    outputs = [f"out{i}" for i in range(len(expected))]
    command = ["./run_model", str(artifact), *inputs_of(), *outputs]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=PATIENCE)
    found = [
        np.fromfile(tmp_path / name, e.dtype).reshape(e.shape)
        for name, e in zip(outputs, expected, strict=True)
    ]
    assert_same_bits(found, expected)


def test_saved_twice_is_the_same_file(
    artifact: Path, executable: Executable, tmp_path: Path
) -> None:
    executable.save(tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == artifact.read_bytes()


def test_a_failed_save_keeps_the_old_file(executable: Executable, tmp_path: Path) -> None:
    path = tmp_path / "old.tar"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="is not a folder"):
        executable.save(tmp_path / "absent" / "x.tar")
    with pytest.raises(UsageError, match="it is a folder"):
        executable.save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["old.tar"]
    executable.save(path)
    assert tarfile.is_tarfile(path)


# ---- members -------------------------------------------------------------------------------------


def test_the_members_are_those_of_v08(artifact: Path) -> None:
    with tarfile.open(artifact) as archive:
        assert sorted(archive.getnames()) == ["mod.json", "mod.params", "mod.so"]
        assert all(i.isfile() and i.mode == 0o644 for i in archive.getmembers())
    assert member(artifact, "mod.so").startswith(b"\x7fELF")


def read_params(data: bytes) -> dict[str, np.ndarray]:
    """Read v0.8's list of named arrays, from its description alone."""
    place = 0

    def take(form: str) -> tuple[Any, ...]:  # Any: whatever the form says
        nonlocal place
        values = struct.unpack_from(f"<{form}", data, place)
        place += struct.calcsize(f"<{form}")
        return values

    def text() -> str:
        (length,) = take("Q")
        return bytes(take(f"{length}s")[0]).decode()

    assert take("QQ") == (0xF7E58D4F05049CB7, 0)
    names = [text() for _ in range(take("Q")[0])]
    assert take("Q") == (len(names),)
    kinds = {0: "i", 1: "u", 2: "f"}
    arrays = {}
    for name in names:
        assert take("QQ") == (0xDD5E40F096B4A13F, 0)
        device, number, ndim, code, bits, lanes = take("iiiBBH")
        assert (device, number, lanes) == (1, 0, 1)
        shape = take(f"{ndim}q")
        (nbytes,) = take("q")
        kind = "?" if (code, bits) == (1, 1) else f"{kinds.get(code, 'V')}{(bits + 7) // 8}"
        if code == 4:
            kind = ml_dtypes.bfloat16
        arrays[name] = np.frombuffer(take(f"{nbytes}s")[0], kind).reshape(shape)
    assert place == len(data)
    return arrays


def without_paddings(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights without the arrays that only move them to aligned places in the file."""
    return {name: value for name, value in arrays.items() if not name.startswith("padding")}


def test_params_are_in_the_format_of_v08(artifact: Path, executable: Executable) -> None:
    arrays = without_paddings(read_params(member(artifact, "mod.params")))
    assert arrays.keys() == executable.memory.constants.keys()
    for name, value in executable.memory.constants.items():
        assert arrays[name].dtype == value.dtype
        np.testing.assert_array_equal(arrays[name], value)
    assert {a.dtype.name for a in arrays.values()} >= {"float32", "float16", "int64", "bool"}


def test_bfloat16_params(tmp_path: Path) -> None:
    values = np.arange(300).astype(ml_dtypes.bfloat16)
    w = helper.make_tensor("w", TensorProto.BFLOAT16, [300], values.tobytes(), raw=True)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "g",
        [info("i", TensorProto.INT64, [7])],
        [info("y", TensorProto.BFLOAT16, [7])],
        [w],
    )
    made = compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    made.save(tmp_path / "b.tar")
    (array,) = without_paddings(read_params(member(tmp_path / "b.tar", "mod.params"))).values()
    assert array.tobytes() == values.tobytes()
    index = np.arange(7, dtype=np.int64) * 40
    (found,) = load(tmp_path / "b.tar").run([index])
    assert np.asarray(found).tobytes() == values[index].tobytes()


def entries_of(manifest: Json) -> Iterator[tuple[int, list[list[int]]]]:
    for position, node in enumerate(manifest["nodes"]):
        yield position, node["inputs"]


def test_the_manifest_is_a_graph_as_v08_reads_it(artifact: Path, executable: Executable) -> None:
    manifest = json.loads(member(artifact, "mod.json"))
    nodes, pointer = manifest["nodes"], manifest["node_row_ptr"]
    assert all(n["op"] in ("null", "tvm_op") for n in nodes)
    assert len({n["name"] for n in nodes}) == len(nodes)
    assert manifest["arg_nodes"] == [i for i, n in enumerate(nodes) if n["op"] == "null"]
    counts = [int(n["attrs"]["num_outputs"]) if "attrs" in n else 1 for n in nodes]
    assert pointer[0] == 0
    assert [b - a for a, b in pairwise(pointer)] == counts
    kinds = {
        "dltype": "list_str", "shape": "list_shape", "storage_id": "list_int",
        "device_index": "list_int",
    }  # fmt: skip
    assert {k: v[0] for k, v in manifest["attrs"].items()} == kinds
    assert all(len(v[1]) == pointer[-1] for v in manifest["attrs"].values())
    for position, inputs in [*entries_of(manifest), (len(nodes), manifest["heads"])]:
        for node, index, version in inputs:
            assert node < position
            assert 0 <= index < counts[node]
            assert version == 0
    names = {n["name"] for n in nodes if n["op"] == "null"}
    assert names == {*executable.memory.constants, *(n for n, _, _ in executable.inputs)}


def test_the_graph_says_the_same_as_the_plan(artifact: Path) -> None:
    """Every edge of the v0.8 graph carries a value of the type the kernel is given."""
    manifest = json.loads(member(artifact, "mod.json"))
    plan, pointer, attrs = manifest["treadle"], manifest["node_row_ptr"], manifest["attrs"]

    def row(node: int, index: int) -> tuple[str, int]:
        at = pointer[node] + index
        return attrs["dltype"][1][at], int(np.prod(attrs["shape"][1][at]))

    def value(number: int) -> tuple[str, int]:
        found = plan["values"][number]
        return found["dtype"], int(np.prod(found["shape"]))

    heads = [row(n, i) for n, i, _ in manifest["heads"]]
    assert heads == [value(o["value"]) for o in plan["outputs"]]
    steps = [n for n in manifest["nodes"] if n["op"] == "tvm_op"]
    calls = [i for i in plan["instructions"] if i["op"] == "call"]
    kernels = [n for n in steps if not n["attrs"]["func_name"].startswith("__")]
    assert "__concat" in {n["attrs"]["func_name"] for n in steps}
    assert [n["attrs"]["func_name"] for n in kernels] == [i["kernel"] for i in calls]
    for node, call in zip(kernels, calls, strict=True):
        assert node["attrs"]["num_inputs"] == str(len(node["inputs"]))
        taken = [value(v) for v in call["args"][: len(node["inputs"])]]
        assert [row(n, i) for n, i, _ in node["inputs"]] == taken
