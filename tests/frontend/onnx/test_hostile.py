# SPDX-License-Identifier: Apache-2.0
"""Broken and hostile models: each ends in one clear error, quickly."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.onnx_ml_pb2 import StringStringEntryProto

from tests.frontend.onnx.models import make
from treadle.errors import InputError, ModelError, TreadleError, UnsupportedOperators
from treadle.frontend.onnx.importer import import_onnx

pytestmark = pytest.mark.tiny
node = helper.make_node


def _relu(**changes: object) -> onnx.ModelProto:
    model = make([node("Relu", ["x"], ["y"])], {"x": [1, 3]}, ["y"])
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def _weighted(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = make([node("Add", ["x", "w"], ["y"])], {"x": [1, 3]}, ["y"])
    tensor.name = "w"
    model.graph.initializer.append(tensor)
    return model


def _error(model: object, **options: object) -> TreadleError:
    start = time.process_time()
    with pytest.raises(TreadleError) as caught:
        import_onnx(model, **options)
    assert time.process_time() - start < 60
    return caught.value


def _without_opset() -> onnx.ModelProto:
    model = _relu()
    del model.opset_import[:]
    return model


def _future_opset() -> onnx.ModelProto:
    model = _relu()
    model.opset_import[0].version = 999
    return model


def _duplicate_weights() -> onnx.ModelProto:
    model = _weighted(numpy_helper.from_array(np.ones(3, "float32")))
    model.graph.initializer.append(model.graph.initializer[0])
    return model


def _tensor(dims: list[int], raw: bytes = b"") -> onnx.ModelProto:
    return _weighted(onnx.TensorProto(dims=dims, data_type=1, raw_data=raw))


def _recursive() -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    a = helper.make_function("f", "a", ["x"], ["y"], [node("b", ["x"], ["y"], domain="f")], imports)
    b = helper.make_function("f", "b", ["x"], ["y"], [node("a", ["x"], ["y"], domain="f")], imports)
    call = node("a", ["x"], ["y"], domain="f")
    return make([call], {"x": [1]}, ["y"], functions=[a, b], domains=["f"])


def _exponential() -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    functions = [
        helper.make_function("f", "f0", ["x"], ["y"], [node("Relu", ["x"], ["y"])], imports)
    ]
    for k in range(1, 60):
        body = [
            node(f"f{k - 1}", ["x"], ["t"], domain="f"),
            node(f"f{k - 1}", ["t"], ["y"], domain="f"),
        ]
        functions.append(helper.make_function("f", f"f{k}", ["x"], ["y"], body, imports))
    call = node("f59", ["x"], ["y"], domain="f")
    return make([call], {"x": [1]}, ["y"], functions=functions, domains=["f"])


def _graph(*nodes: onnx.NodeProto, opset: int = 21) -> onnx.ModelProto:
    return make(nodes, {"x": [1, 3]}, ["y"], opset)


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "no opset": (_without_opset, "the model does not say which operator set it uses"),
    "future opset": (
        _future_opset,
        f"the model uses opset 999; the installed onnx package knows up to "
        f"{onnx.defs.onnx_opset_version()}",
    ),
    "cycle": (
        lambda: _graph(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])),
        "the graph has a cycle: 'b' depends on a result of this node",
    ),
    "own output": (
        lambda: _graph(node("Add", ["x", "y"], ["y"])),
        "the graph has a cycle: 'y' depends on a result of this node",
    ),
    "unsorted": (
        lambda: _graph(node("Relu", ["a"], ["y"]), node("Relu", ["x"], ["a"], name="first")),
        "'a' is used before node first computes it",
    ),
    "undefined name": (
        lambda: _graph(node("Relu", ["z"], ["y"])),
        "the input 'z' is no graph input, initializer or result of a node",
    ),
    "assigned twice": (
        lambda: _graph(node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])),
        "the value 'y' is defined twice",
    ),
    "input assigned": (
        lambda: _graph(node("Relu", ["x"], ["x"]), node("Abs", ["x"], ["y"])),
        "the value 'x' is defined twice",
    ),
    "output nobody computes": (
        lambda: _graph(node("Relu", ["x"], ["z"])),
        "the graph output 'y' is computed by no node",
    ),
    "two weights of one name": (
        _duplicate_weights,
        "the graph has two initializers named 'w'",
    ),
    "negative dimension": (
        lambda: _tensor([-1, 3]),
        "a tensor has the shape [-1, 3] with a negative dimension",
    ),
    "size bomb": (
        lambda: _tensor([1 << 40]),
        "a tensor of shape [1099511627776] and type float32 needs 4398046511104 bytes, "
        "the file holds 0",
    ),
    "overflowing size": (
        lambda: _tensor([1 << 32, 1 << 32]),
        "a tensor of shape [4294967296, 4294967296] fits in no memory",
    ),
    "too little data": (
        lambda: _tensor([3], b"\0" * 8),
        "a tensor of shape [3] and type float32 needs 12 bytes, the file holds 8",
    ),
    "unknown attribute": (
        lambda: _graph(node("Relu", ["x"], ["y"], slope=0.5)),
        "Relu-14 has no attribute 'slope'",
    ),
    "attribute of another type": (
        lambda: _graph(node("LeakyRelu", ["x"], ["y"], alpha=1)),
        "attribute 'alpha' of LeakyRelu must be of type FLOAT, not INT",
    ),
    "missing attribute": (
        lambda: _graph(node("Concat", ["x", "x"], ["y"])),
        "Concat lacks its attribute 'axis'",
    ),
    "missing input": (
        lambda: _graph(node("Add", ["x"], ["y"])),
        "Add has 1 inputs; it takes 2",
    ),
    "shapes that do not fit": (
        lambda: _weighted(numpy_helper.from_array(np.ones((2, 2), "float32"))),
        "the shapes [1, 3] and [2, 2] do not broadcast: 3 against 2",
    ),
    "function that calls itself": (
        _recursive,
        "a function calls itself: f.a -> f.b -> f.a",
    ),
    "functions that explode": (
        _exponential,
        "the model has more than 10**12 nodes after its functions are inlined; the limit is 100000",
    ),
    "constant bomb": (
        lambda: _graph(
            node("Constant", [], ["s"], value_ints=[1 << 40]),
            node("ConstantOfShape", ["s"], ["y"]),
        ),
        "a constant of shape [1099511627776] is larger than 1024 MB",
    ),
    "range bomb": (
        lambda: _graph(
            node("Constant", [], ["a"], value_int=0),
            node("Constant", [], ["b"], value_int=1 << 60),
            node("Constant", [], ["c"], value_int=1),
            node("Range", ["a", "b", "c"], ["y"]),
        ),
        "a constant of shape [1152921504606846976] is larger than 64 MB",
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_broken_model(case: str) -> None:
    make_model, problem = MODELS[case]
    error = _error(make_model())
    assert isinstance(error, ModelError)
    assert error.problem == problem
    assert error.at
    assert _error(make_model().SerializeToString()).problem == problem


def test_error_names_node_operator_opset_and_shapes() -> None:
    bias = np.ones(5, "float32")
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "w"], ["y"], name="plus")]
    error = _error(make(nodes, {"x": [1, 3]}, ["y"], constants={"w": bias}))
    assert error.at == (
        "test, node plus (index 1), operator Add-14, opset 21, inputs (float32[1, 3], float32[5])"
    )


def test_all_unsupported_operators_at_once() -> None:
    nodes = [
        node("StringSplit", ["x"], ["a"]),
        node("Foo", ["x"], ["b"], domain="com.example", name="foo_1"),
        node("Foo", ["x"], ["c"], domain="com.example"),
        node("Relu", ["x"], ["y"]),
        node("Bar", ["x"], ["d"], domain="elsewhere"),
    ]
    error = _error(make(nodes, {"x": [2]}, ["y"], domains=["com.example"]))
    assert isinstance(error, UnsupportedOperators)
    assert error.problem.splitlines() == [
        "3 operators (4 nodes) of this model are not supported:",
        "  com.example.Foo-1: 2 nodes, first foo_1",
        "  ai.onnx.StringSplit-20: 1 node, first StringSplit_0",
        "  elsewhere.Bar-0: 1 node, first Bar_4 (the model does not import the domain 'elsewhere')",
    ]


def test_operator_of_another_opset() -> None:
    problem = _error(_graph(node("Upsample", ["x"], ["y"], mode="nearest"), opset=13)).problem
    assert problem.splitlines()[1:] == [
        "  ai.onnx.Upsample-10: 1 node, first Upsample_0 (removed from ONNX in this opset)"
    ]
    problem = _error(_graph(node("Gelu", ["x"], ["y"]), opset=13)).problem
    assert problem.splitlines()[1:] == [
        "  ai.onnx.Gelu-13: 1 node, first Gelu_0 (ONNX has it only in later opsets than 13)"
    ]


FILES: dict[str, tuple[bytes | None, str]] = {
    "empty": (b"", "the file is empty"),
    "text": (
        b"this is a text about networks\n" * 9,
        "this is not an ONNX file: byte 0 starts no protobuf field",
    ),
    "html": (b"<!DOCTYPE html><html>", "this is not an ONNX file: byte 0 starts no protobuf field"),
    "zip": (b"PK\3\4" + b"\0" * 60, "this is not an ONNX file: byte 2 starts no protobuf field"),
    "no graph": (b"\x08\x08", "this is not an ONNX file: it holds no graph"),
    "missing": (None, "the file cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("case", FILES)
def test_not_a_model_file(case: str, tmp_path: Path) -> None:
    data, problem = FILES[case]
    path = tmp_path / "m.onnx"
    if data is not None:
        path.write_bytes(data)
    error = _error(path)
    assert isinstance(error, ModelError)
    assert error.problem == problem
    assert error.at == str(path)
    assert (
        error.hint == "Treadle reads ONNX models (.onnx); check that the file is one and complete"
    )


def test_folder_and_pipe_are_not_model_files(tmp_path: Path) -> None:
    assert _error(tmp_path).problem == "this is a folder, not an ONNX file"
    os.mkfifo(tmp_path / "pipe")
    assert _error(tmp_path / "pipe").problem == "this is not a regular file"


def test_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_weighted(numpy_helper.from_array(np.ones((512, 3), "float32")))
                     .SerializeToString()[:3000])  # fmt: skip
    problem = _error(path).problem
    assert problem.startswith("the ONNX data is cut off: the field at byte ")


def _external(tmp_path: Path, location: str, **entries: object) -> onnx.ModelProto:
    tensor = onnx.TensorProto(dims=[1, 3], data_type=1, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.append(StringStringEntryProto(key=key, value=str(value)))
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(_weighted(tensor).SerializeToString())
    (tmp_path / "secret.bin").write_bytes(b"\1" * 12)
    (path.parent / "w.bin").write_bytes(b"\0" * 16)
    (path.parent / "short.bin").write_bytes(b"\0" * 8)
    (path.parent / "folder").mkdir(exist_ok=True)
    return path


EXTERNAL: dict[str, tuple[str, dict[str, object], str]] = {
    "parent": ("../secret.bin", {}, "'../secret.bin' leads outside the model's folder"),
    "hidden parent": ("folder/../../secret.bin", {}, "leads outside the model's folder"),
    "windows parent": ("..\\secret.bin", {}, "leads outside the model's folder"),
    "absolute": ("/etc/passwd", {}, "'/etc/passwd' is an absolute path"),
    "drive": ("C:\\secret.bin", {}, "is an absolute path"),
    "symbolic link": ("link.bin", {}, "'link.bin' is or passes through a symbolic link"),
    "linked folder": ("up/secret.bin", {}, "'up/secret.bin' is or passes through a symbolic link"),
    "hard link": ("hard.bin", {}, "'hard.bin' is a hard link (2 names on disk)"),
    "folder": ("folder", {}, "'folder' is not a regular file"),
    "pipe": ("pipe", {}, "'pipe' is not a regular file"),
    "missing": ("none.bin", {}, "'none.bin' cannot be opened: No such file or directory"),
    "no name": ("", {}, "'' is not a file name"),
    "too short": ("short.bin", {}, "'short.bin' has 8 bytes, the tensor needs bytes 0 to 12"),
    "offset at the end": ("w.bin", {"offset": 8}, "has 16 bytes, the tensor needs bytes 8 to 20"),
    "negative offset": ("w.bin", {"offset": -4}, "the offset of external data is '-4'"),
    "huge offset": ("w.bin", {"offset": 2**70}, "is '1180591620717411303424', not a byte count"),
    "other length": ("w.bin", {"length": 4}, "has 4 bytes for a tensor of 12 bytes"),
}


@pytest.mark.parametrize("case", EXTERNAL)
def test_unsafe_external_data(case: str, tmp_path: Path) -> None:
    location, entries, problem = EXTERNAL[case]
    path = _external(tmp_path, location, **entries)
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    (path.parent / "up").symlink_to(tmp_path)
    os.link(tmp_path / "secret.bin", path.parent / "hard.bin")
    os.mkfifo(path.parent / "pipe")
    error = _error(path)
    assert isinstance(error, ModelError)
    assert problem in error.problem
    assert error.at == "m.onnx, initializer w"


def test_external_data_is_mapped(tmp_path: Path) -> None:
    path = _external(tmp_path, "w.bin", offset=4, length=12)
    (path.parent / "w.bin").write_bytes(np.arange(4, dtype="float32").tobytes())
    module = import_onnx(path).module
    (_, weight) = module.main.body.args
    np.testing.assert_array_equal(weight.value, [[1, 2, 3]])
    assert not weight.value.flags.owndata


def test_external_data_of_a_model_without_a_folder(tmp_path: Path) -> None:
    path = _external(tmp_path, "w.bin")
    model = onnx.load(path, load_external_data=False)
    assert _error(model).problem == (
        "the weights are in the external file 'w.bin', but the model has no folder"
    )


def test_unsafe_external_data_in_attributes_and_sparse_tensors(tmp_path: Path) -> None:
    tensor = onnx.load(_external(tmp_path, "../secret.bin"), load_external_data=False)
    tensor = tensor.graph.initializer[0]
    del tensor.dims[0]
    sparse = onnx.SparseTensorProto(dims=[5], values=tensor)
    sparse.indices.CopyFrom(numpy_helper.from_array(np.arange(3)))
    path = tmp_path / "model" / "n.onnx"
    for value in ({"value": tensor}, {"sparse_value": sparse}):
        path.write_bytes(_graph(node("Constant", [], ["y"], **value)).SerializeToString())
        assert "'../secret.bin' leads outside" in _error(path).problem
    model = _graph(node("Relu", ["w"], ["y"]))
    model.graph.sparse_initializer.append(sparse)
    path.write_bytes(model.SerializeToString())
    assert "'../secret.bin' leads outside" in _error(path).problem


OPEN = {"image": ["n", 3, "h", "w"], "mask": ["n", "h"]}
SHAPES: dict[str, tuple[dict[str, list[int]], type[TreadleError], str, str]] = {
    "open sizes": (
        {},
        ModelError,
        "the model leaves sizes of its inputs open:\n  image[n, 3, h, w]\n  mask[n, h]",
        'give them, for example --input-shapes "image:[1,3,128,128] mask:[1,128]"',
    ),
    "wrong name": (
        {"imaeg": [1, 3, 8, 8]},
        InputError,
        "the model has no input 'imaeg'",
        "did you mean 'image'?",
    ),
    "wrong rank": (
        {"image": [3, 8, 8]},
        InputError,
        "input 'image' has 4 dimensions, the shape [3, 8, 8] has 3",
        "the model declares image[n, 3, h, w]",
    ),
    "fixed size": (
        {"image": [1, 4, 8, 8]},
        InputError,
        "dimension 1 of input 'image' is 3 in the model, not 4",
        "the model declares image[n, 3, h, w]",
    ),
    "symbol with two values": (
        {"image": [1, 3, 8, 8], "mask": [1, 9]},
        InputError,
        "dimension 1 of input 'mask' is h = 8 in the model, not 9",
        "the model declares mask[n, h]",
    ),
    "negative": (
        {"image": [1, 3, -8, 8]},
        InputError,
        "the shape [1, 3, -8, 8] of input 'image' has a negative size",
        "",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes_that_do_not_fit(case: str) -> None:
    shapes, kind, problem, hint = SHAPES[case]
    nodes = [node("Relu", ["image"], ["y"]), node("Relu", ["mask"], ["z"])]
    error = _error(make(nodes, OPEN, ["y", "z"]), shapes=shapes)
    assert isinstance(error, kind)
    assert (error.problem, error.hint) == (problem, hint)


def test_deep_chain_and_wide_names() -> None:
    count = 5000
    nodes = [node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(count)]
    module = import_onnx(make(nodes, {"v0": [2]}, [f"v{count}"])).module
    assert module.main.body.origin == f"Relu_{count - 1}"


def test_deeply_nested_functions() -> None:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    functions = [
        helper.make_function("f", "f0", ["x"], ["y"], [node("Relu", ["x"], ["y"])], imports)
    ]
    for k in range(1, 3000):
        body = [node(f"f{k - 1}", ["x"], ["y"], domain="f")]
        functions.append(helper.make_function("f", f"f{k}", ["x"], ["y"], body, imports))
    call = node("f2999", ["x"], ["y"], domain="f")
    model = make([call], {"x": [1]}, ["y"], functions=functions, domains=["f"])
    assert import_onnx(model).module.main.body.op.name == "relu"
