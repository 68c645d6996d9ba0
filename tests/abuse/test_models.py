# SPDX-License-Identifier: Apache-2.0
"""`treadle compile` refuses files that are no models, or models that break a rule."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.abuse.conftest import Cli
from tests.abuse.models import good_model, model, relu, tensor, with_external

# ---- files that are no models --------------------------------------------------------------------

NOT_A_MODEL = {
    "empty": (b"", "empty"),
    "text": (b"This is a letter, not a model.\n", "not an ONNX file"),
    "zeros": (bytes(5000), "not an ONNX file"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an ONNX file"),
    "pickle": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.", "not an ONNX file"),
}


@pytest.mark.parametrize("case", NOT_A_MODEL)
@pytest.mark.parametrize("command", ["compile", "run", "bench"])
def test_no_model(cli: Cli, tmp_path: Path, case: str, command: str) -> None:
    content, said = NOT_A_MODEL[case]
    path = tmp_path / "strange.onnx"
    path.write_bytes(content)
    error = cli.fails(command, path)
    assert said in error
    assert "strange.onnx" in error


@pytest.mark.parametrize("command", ["compile", "run", "bench"])
def test_no_file_and_a_folder(cli: Cli, tmp_path: Path, command: str) -> None:
    assert "does not exist" in cli.fails(command, "absent.onnx")
    assert "is a folder" in cli.fails(command, tmp_path)


def test_pipe(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    assert "not a regular file" in cli.fails("compile", tmp_path / "pipe.onnx")


def test_truncated_anywhere(cli: Cli, tmp_path: Path) -> None:
    whole = good_model().SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(1, len(whole), max(1, len(whole) // 20)):
        path.write_bytes(whole[:length])
        cli.fails("compile", path)


def test_damaged_anywhere(cli: Cli, tmp_path: Path) -> None:
    """A changed byte gives an error or a model, never a traceback."""
    whole = bytearray(good_model().SerializeToString())
    path = tmp_path / "damaged.onnx"
    for position in range(0, len(whole), max(1, len(whole) // 40)):
        changed = bytearray(whole)
        changed[position] ^= 0xFF
        path.write_bytes(changed)
        result = cli("compile", path, "-o", tmp_path / "out.tar")
        assert result.code in (0, 2), (position, result)


# ---- models that break a rule --------------------------------------------------------------------


def cyclic() -> onnx.ModelProto:
    add = helper.make_node("Add", ["x", "b"], ["a"], name="first")
    return model([add, helper.make_node("Relu", ["a"], ["b"], name="second"), relu("b")])


def unsorted() -> onnx.ModelProto:
    return model([relu("t"), relu("x", "t")])


def unknown_operators() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="one"),
        helper.make_node("Frobnicate", ["a"], ["b"], name="two"),
        helper.make_node("Quux", ["b"], ["c"], name="three", domain="com.example"),
        relu("c"),
    ]
    return model(nodes, domains=["com.example"])


def undeclared_domain() -> onnx.ModelProto:
    return model([helper.make_node("Quux", ["x"], ["y"], domain="com.example")])


def open_sizes() -> onnx.ModelProto:
    return model([relu()], [tensor("x", ["N", "C", "H"])], [tensor("y", ["N", "C", "H"])])


def huge_input() -> onnx.ModelProto:
    shape = [1 << 39, 1 << 39]
    return model([relu()], [tensor("x", shape)], [tensor("y", shape)])


def huge_dimension() -> onnx.ModelProto:
    return model([relu()], [tensor("x", [1 << 62])], [tensor("y", [1 << 62])])


def negative_dimension() -> onnx.ModelProto:
    return model([relu()], [tensor("x", [-3, 3])], [tensor("y", [-3, 3])])


def huge_weight() -> onnx.ModelProto:
    made = good_model()
    made.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    return made


def wrong_weight_size() -> onnx.ModelProto:
    made = good_model()
    made.graph.initializer[0].dims[:] = [2, 4]
    return made


def huge_fill() -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "s")
    fill = helper.make_node("ConstantOfShape", ["s"], ["t"], name="fill")
    out = [tensor("y", [1 << 20, 1 << 20])]
    return model([fill, relu("t")], outputs=out, weights=[shape])


def shape_mismatch() -> onnx.ModelProto:
    w = numpy_helper.from_array(np.zeros((7, 5), np.float32), "w")
    return model([helper.make_node("Add", ["x", "w"], ["y"], name="sum")], weights=[w])


def strings() -> onnx.ModelProto:
    return model([relu()], [tensor("x", [2], TensorProto.STRING)])


def twice() -> onnx.ModelProto:
    return model([relu("x", "y"), relu("x", "y")])


def no_outputs() -> onnx.ModelProto:
    made = good_model()
    del made.graph.output[:]
    return made


def missing_result() -> onnx.ModelProto:
    return model([relu("x", "t")])


def future_opset() -> onnx.ModelProto:
    made = good_model()
    made.opset_import[0].version = 9999
    return made


def no_opset() -> onnx.ModelProto:
    made = good_model()
    del made.opset_import[:]
    return made


def endless_function() -> onnx.ModelProto:
    made = model([helper.make_node("F", ["x"], ["y"], domain="d")], domains=["d"])
    inner = [helper.make_node("F", ["a"], ["b"], domain="d")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    made.functions.append(helper.make_function("d", "F", ["a"], ["b"], inner, opsets))
    return made


def exponential_functions() -> onnx.ModelProto:
    made = model([helper.make_node("F30", ["x"], ["y"], domain="d")], domains=["d"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    for k in range(31):
        if k:
            inner = [
                helper.make_node(f"F{k - 1}", ["a"], ["t"], domain="d"),
                helper.make_node(f"F{k - 1}", ["t"], ["b"], domain="d"),
            ]
        else:
            inner = [relu("a", "b")]
        made.functions.append(helper.make_function("d", f"F{k}", ["a"], ["b"], inner, opsets))
    return made


def bad_attribute() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="r", wings=2)])


RULE_BREAKERS: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[str, ...]]] = {
    "cyclic": (cyclic, ("cycle", "first")),
    "unsorted": (unsorted, ("before", "make_t")),
    "unknown operators": (
        unknown_operators,
        ("2 operators (3 nodes)", "ai.onnx.Frobnicate-17: 2 nodes", "com.example.Quux-1: 1 node"),
    ),
    "undeclared domain": (undeclared_domain, ("com.example",)),
    "open sizes": (open_sizes, ("x[N, C, H]", "--input-shapes")),
    "huge input": (huge_input, ("x", "fits in no memory")),
    "huge dimension": (huge_dimension, ("x", str(1 << 62))),
    "negative dimension": (negative_dimension, ("x", "-3")),
    "huge weight": (huge_weight, ("w",)),
    "wrong weight size": (wrong_weight_size, ("w", "[2, 4]")),
    "huge fill": (huge_fill, ("fill",)),
    "shape mismatch": (shape_mismatch, ("sum",)),
    "strings": (strings, ("x", "string")),
    "twice": (twice, ("y",)),
    "no outputs": (no_outputs, ("no outputs",)),
    "missing result": (missing_result, ("y",)),
    "future opset": (future_opset, ("9999",)),
    "no opset": (no_opset, ("opset",)),
    "endless function": (endless_function, ("F",)),
    "exponential functions": (exponential_functions, ("function",)),
    "bad attribute": (bad_attribute, ("wings", "node r")),
}


@pytest.mark.parametrize("case", RULE_BREAKERS)
def test_rule_breakers(cli: Cli, tmp_path: Path, case: str) -> None:
    make, said = RULE_BREAKERS[case]
    path = tmp_path / "bad.onnx"
    path.write_bytes(make().SerializeToString())
    error = cli.fails("compile", path, "-o", tmp_path / "out.tar")
    for words in said:
        assert words in error


def test_names_do_not_drive_the_terminal(cli: Cli, tmp_path: Path) -> None:
    name = "evil\x1b[2J\x07[red]name[/red]"
    path = tmp_path / "bad.onnx"
    path.write_bytes(model([helper.make_node("Nope", ["x"], ["y"], name=name)]).SerializeToString())
    error = cli.fails("compile", path)
    assert "\x1b" not in error
    assert "\\x1b[2J\\x07[red]name[/red]" in error
    good = model([relu("x", name)], outputs=[tensor(name)])
    path.write_bytes(good.SerializeToString())
    result = cli("run", path)
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "[red]name" in result.out


def test_names_become_symbols_not_code(cli: Cli, tmp_path: Path) -> None:
    name = '"; rm -rf / #\n../../x y'
    path = tmp_path / "odd.onnx"
    made = model([relu("x", name)], outputs=[tensor(name)])
    made.graph.name = made.graph.node[0].name = name
    path.write_bytes(made.SerializeToString())
    assert cli("compile", path, "-o", tmp_path / "odd.tar").code == 0
    assert cli("run", tmp_path / "odd.tar", "--outputs", tmp_path / "odd.npz").code == 0
    with np.load(tmp_path / "odd.npz") as arrays:
        assert arrays.files == [name]


# ---- weights in other files ----------------------------------------------------------------------

OUTSIDE = {
    "parent": ("../secret.bin", "outside"),
    "hidden parent": ("a/../../secret.bin", "outside"),
    "backslash parent": ("..\\secret.bin", "outside"),
    "absolute": ("/etc/hostname", "absolute"),
    "drive": ("C:\\secret.bin", "absolute"),
    "nothing": ("", "not a file name"),
    "absent": ("absent.bin", "absent.bin"),
    "folder": (".", "bad.onnx"),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_external_data_outside(cli: Cli, tmp_path: Path, case: str) -> None:
    location, said = OUTSIDE[case]
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    folder = tmp_path / "models"
    (folder / "a").mkdir(parents=True)
    path = folder / "bad.onnx"
    path.write_bytes(with_external(location).SerializeToString())
    error = cli.fails("compile", path, "-o", tmp_path / "out.tar")
    assert said in error
    assert "w" in error


@pytest.mark.parametrize("link", ["symbolic", "hard", "folder", "pipe"])
def test_external_data_through_links(cli: Cli, tmp_path: Path, link: str) -> None:
    secret = tmp_path / "outside" / "secret.bin"
    secret.parent.mkdir()
    secret.write_bytes(bytes(24))
    folder = tmp_path / "models"
    folder.mkdir()
    location = "weights.bin"
    if link == "symbolic":
        (folder / location).symlink_to(secret)
    elif link == "hard":
        os.link(secret, folder / location)
    elif link == "folder":
        (folder / "sub").symlink_to(secret.parent)
        location = "sub/secret.bin"
    else:
        os.mkfifo(folder / location)
    path = folder / "bad.onnx"
    path.write_bytes(with_external(location).SerializeToString())
    error = cli.fails("compile", path, "-o", tmp_path / "out.tar")
    assert location in error
    said = {"symbolic": "symbolic link", "hard": "hard link", "folder": "symbolic link"}
    assert said.get(link, "not a regular file") in error


@pytest.mark.parametrize(
    ("offset", "length"),
    [("0", "23"), ("8", "24"), ("-8", "24"), ("0", "1e9"), (str(1 << 70), "24"), ("0", "x" * 99)],
)
def test_external_data_that_does_not_fit(
    cli: Cli, tmp_path: Path, offset: str, length: str
) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(24))
    path = tmp_path / "bad.onnx"
    path.write_bytes(with_external("weights.bin", offset, length).SerializeToString())
    assert "weights.bin" in cli.fails("compile", path) or "byte count" in cli.fails("compile", path)


def test_external_data_inside_works(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(24))
    path = tmp_path / "fine.onnx"
    path.write_bytes(with_external("weights.bin").SerializeToString())
    assert cli("compile", path, "-o", tmp_path / "fine.tar").code == 0
