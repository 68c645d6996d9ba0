# SPDX-License-Identifier: Apache-2.0
"""The forms in which a model is written: names, content, and what is refused."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from tests.processes import PATIENCE
from treadle.build.format_names import format_of
from treadle.errors import ArtifactError, UsageError
from treadle.runtime import cc
from treadle.runtime.elf.link import link_objects

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def digits() -> treadle.Executable:
    return treadle.compile(DIGITS)


@pytest.fixture(scope="module")
def shared(digits: treadle.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "digits.so"
    digits.save(path)
    return path


def image() -> np.ndarray:
    return np.random.default_rng(0).random((1, 1, 8, 8), np.float32)


def onnx_model(
    nodes: list[object], inputs: Sequence[object], outputs: Sequence[object], **weights: np.ndarray
) -> object:
    given = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "model", list(inputs), list(outputs), given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def port(name: str, *shape: int | str, dtype: int = TensorProto.FLOAT) -> object:
    return helper.make_tensor_value_info(name, dtype, list(shape))


def of_all_types() -> object:
    """Weights of several types, one of them without an element, and a branch."""
    then = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["a"])], "then", [], [port("a", 4)]
    )
    other = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["b"])], "other", [], [port("b", 4)]
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Gather", ["i", "at"], ["z"]),
        helper.make_node("And", ["c", "t"], ["u"]),
    ]
    return onnx_model(
        nodes,
        [port("x", 4), port("c", dtype=TensorProto.BOOL), port("at", 2, dtype=TensorProto.INT64)],
        [
            port("y", 4),
            port("z", 2, dtype=TensorProto.INT8),
            port("u", 3, dtype=TensorProto.BOOL),
        ],
        w=np.array([1, -2, 3, 0.5], np.float32),
        i=np.arange(-5, 5, dtype=np.int8),
        t=np.array([True, False, True]),
    )


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("name", "chosen", "form"),
    [
        ("m.tar", None, "tar"),
        ("m", None, "tar"),
        ("m.so", None, "so"),
        ("m.o", None, "o"),
        ("m.c", None, "c"),
        ("m.tar", "mlf", "mlf"),
        ("m.bin", "tar", "tar"),
    ],
)
def test_the_name_says_the_format_unless_it_is_chosen(
    name: str, chosen: str | None, form: str
) -> None:
    assert format_of(Path(name), chosen) == form


@pytest.mark.tiny
def test_a_name_that_promises_another_format_is_refused() -> None:
    for name, chosen in (("m.so", "o"), ("m.o", "tar"), ("m", "so"), ("m.c", "mlf")):
        with pytest.raises(UsageError, match="is named as another file"):
            format_of(Path(name), chosen)
    with pytest.raises(UsageError, match="'zip' is none of the formats tar, so, o, c, mlf"):
        format_of(Path("m"), "zip")


def test_what_does_not_fit_is_refused(digits: treadle.Executable, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="code for the target llvm is not C source"):
        digits.save(tmp_path / "m.c")
    with pytest.raises(UsageError, match="links nothing"):
        digits.save(tmp_path / "m.o", linker="cc")
    (tmp_path / "m.h").mkdir()
    with pytest.raises(UsageError, match="it is a folder"):
        digits.save(tmp_path / "m.o")
    assert [p.name for p in tmp_path.iterdir()] == ["m.h"]


# ---- shared objects ------------------------------------------------------------------------------


def test_a_shared_object_is_loaded_like_an_artifact(
    digits: treadle.Executable, shared: Path
) -> None:
    for loaded in (treadle.load(shared, verify=True), treadle.load(shared.read_bytes())):
        np.testing.assert_array_equal(loaded(image())[0], digits(image())[0])
        assert loaded.describe() == digits.describe()
        np.testing.assert_array_equal(loaded.fork()(image())[0], digits(image())[0])
    library = ctypes.CDLL(str(shared))
    library.digits_model.restype = ctypes.POINTER(ctypes.c_uint32)
    assert library.digits_model()[:3] == [1, len(digits.kernels), len(digits.memory.constants)]
    with pytest.raises(ArtifactError, match="does not say what its kernels take"):
        _ = treadle.load(shared).kernels
    kernel = digits.kernels[0].name
    assert not hasattr(library, kernel)  # two models in one program share no names


def test_a_shared_object_may_be_loaded_twice_and_closed_in_any_order(
    shared: Path, digits: treadle.Executable, tmp_path: Path
) -> None:
    """The loader takes all for one library, which it knows by every path it was opened by."""
    x, opened = image(), len(os.listdir("/proc/self/fd"))
    digits.save(tmp_path / "digits.tar")
    kept = []
    for _ in range(3):
        first, second = treadle.load(shared), treadle.load(shared)
        del first
        kept += [treadle.load(tmp_path / "digits.tar") for _ in range(3)]
        np.testing.assert_array_equal(second(x)[0], digits(x)[0])
        del second
        kept.append(treadle.load(tmp_path / "digits.tar"))
    for loaded in kept:
        np.testing.assert_array_equal(loaded(x)[0], digits(x)[0])
    del loaded
    kept.clear()
    assert len(os.listdir("/proc/self/fd")) <= opened + 1  # others may hold the library, too


def test_weights_of_all_types_and_branches(tmp_path: Path) -> None:
    model = treadle.compile(of_all_types())
    model.save(tmp_path / "m.so")
    loaded = treadle.load(tmp_path / "m.so", verify=True)
    for c in (True, False):
        given = [np.ones(4, np.float32), np.array(c), np.array([3, -1])]
        for want, got in zip(model(*given), loaded(*given), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_a_model_without_kernels(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    model = treadle.compile(onnx_model([node], [port("x", 3)], [port("y", 3)]))
    assert not model.kernels
    model.save(tmp_path / "m.so")
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(treadle.load(tmp_path / "m.so")(x)[0], x)


def test_a_model_that_runs_at_any_size(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    ports = [port("x", "n", 2)], [port("y", "n", 2)]
    model = treadle.compile(onnx_model(nodes, *ports, w=np.ones(2, np.float32)), dynamic=True)
    model.save(tmp_path / "m.so")
    loaded = treadle.load(tmp_path / "m.so")
    for n in (1, 7):
        np.testing.assert_array_equal(loaded(np.zeros((n, 2), np.float32))[0], np.ones((n, 2)))


def test_damage_is_found(shared: Path, tmp_path: Path) -> None:
    data = shared.read_bytes()
    path = tmp_path / "m.so"
    for at in (100, 6000, len(data) // 2, len(data) - 40, len(data) - 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match="does not match the hash at its end"):
            treadle.load(path)
    for size in (5, 63, 3000, len(data) - 20000):
        path.write_bytes(data[:size])
        with pytest.raises(ArtifactError):
            treadle.load(path)
    path.write_bytes(data[:-32])  # as tools that rewrite it leave it
    treadle.load(path)
    with pytest.raises(ArtifactError, match="does not end with its hash"):
        treadle.load(path, verify=True)


def test_other_shared_objects_hold_no_model(tmp_path: Path, digits: treadle.Executable) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(link_objects(list(digits.objects.values())))
    with pytest.raises(ArtifactError, match="the shared object holds no model"):
        treadle.load(path)


def test_a_shared_object_for_another_machine(tmp_path: Path) -> None:
    other = "aarch64" if treadle.parse_target("llvm").triple.startswith("x86_64") else "x86_64"
    model = treadle.compile(DIGITS, target=f"llvm -mtriple={other}-linux-gnu")
    model.save(tmp_path / "m.so")
    with pytest.raises(ArtifactError, match=f"the machine code is made for {other}"):
        treadle.load(tmp_path / "m.so")


# ---- object files --------------------------------------------------------------------------------


def test_an_object_file_shows_one_name(digits: treadle.Executable, tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    digits.save(tmp_path / "a b-1.o")
    command = ["nm", "--extern-only", str(tmp_path / "a b-1.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert [line.split()[1:] for line in done.stdout.splitlines()] == [["T", "a_b_1_model"]]
    header = (tmp_path / "a b-1.h").read_text()
    assert "const td_linked* a_b_1_model(void);" in header
    assert 'input 0 "image": float32[1, 1, 8, 8]' in header


# ---- C -------------------------------------------------------------------------------------------


def test_names_and_texts_in_c_source_are_quoted(tmp_path: Path) -> None:
    """What stands in a model's names ends no comment and no text, and is no trigraph."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    nodes = [helper.make_node("Add", ['*/ ??/ "x\\', "w\n??="], ["y"], name='"n"*/')]
    model = onnx_model(
        nodes, [port('*/ ??/ "x\\', 4)], [port("y", 4)], **{"w\n??=": np.ones(4, np.float32)}
    )
    treadle.compile(model, target="c").save(tmp_path / "m.c")
    include = f"-I{DIGITS.parents[2] / 'native' / 'include'}"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    command = ["cc", *strict, include, "-c", "m.c", "-o", "m.o"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    with pytest.raises(UsageError, match="is no name of C"):
        treadle.compile(model, target="c").save(tmp_path / "my-model.c")


# ---- Model Library Format ------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_the_library_format_has_every_part(target: str, tmp_path: Path) -> None:
    model = treadle.compile(DIGITS, target=target)
    model.save(tmp_path / "digits.tar", format="mlf")
    with tarfile.open(tmp_path / "digits.tar") as archive:
        parts = {m.name: archive.extractfile(m) for m in archive.getmembers()}
        data = {name: part.read() for name, part in parts.items() if part is not None}
    code = {"llvm": "codegen/host/lib/lib0.o", "c": "codegen/host/src/lib0.c"}[target]
    assert set(data) == {
        "metadata.json",
        code,
        "codegen/host/include/digits.h",
        "executor-config/graph/graph.json",
        "parameters/digits.params",
        "src/relay.txt",
    }
    metadata = json.loads(data["metadata.json"])
    assert metadata["model_name"] == "digits"
    assert metadata["executors"] == ["graph"]
    (main,) = metadata["memory"]["functions"]["main"]
    assert main["io_size_bytes"] == 4 * (64 + 10)
    assert {s.get("input_binding") for s in metadata["memory"]["sids"]} >= {"image"}
    assert json.loads(data["executor-config/graph/graph.json"])["treadle"] == model.plan
    for kernel in model.kernels:
        assert kernel.name.encode() in data[code]
        assert f"int32_t {kernel.name}(" in data["codegen/host/include/digits.h"].decode()


# ---- export_library ------------------------------------------------------------------------------


def test_export_library_links_as_it_is_told(digits: treadle.Executable, tmp_path: Path) -> None:
    calls: list[tuple[str, list[str], dict[str, object]]] = []

    def fcompile(output: str, files: list[str], **options: object) -> None:
        calls.append((output, files, options))
        Path(output).write_bytes(Path(files[-1]).read_bytes()[:4])

    addons = ["other.o"]
    place = tmp_path / "m.so"
    digits.export_library(place, fcompile, addons, tmp_path, options=["-O1"])
    assert addons == ["other.o"]  # TVM changes the caller's list
    assert calls == [(str(place), ["other.o", str(tmp_path / "lib0.o")], {"options": ["-O1"]})]
    assert (tmp_path / "lib0.o").is_file()
    with pytest.raises(UsageError, match="addons, options of export_library"):
        digits.export_library(place, addons=addons, options=["-O1"])
    with pytest.raises(UsageError, match="a list of object files"):
        digits.export_library(place, fcompile, "-shared")  # type: ignore[arg-type]


def test_export_library_makes_something_to_load(digits: treadle.Executable, tmp_path: Path) -> None:
    ways: dict[str, Callable[..., object] | None] = {"own.so": None, "own.tar": None}
    if shutil.which("cc") is not None:
        ways |= {
            "cc.so": cc.create_shared,
            "cross.so": cc.cross_compiler("cc", options=["-Wl,-O1"]),
            "twice.so": cc.cross_compiler(cc.create_shared, options=["-s"]),
        }
    for name, fcompile in ways.items():
        digits.export_library(tmp_path / name, fcompile)
        loaded = treadle.load(tmp_path / name)
        np.testing.assert_array_equal(loaded(image())[0], digits(image())[0])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(ways)
