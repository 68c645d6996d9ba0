# SPDX-License-Identifier: Apache-2.0
"""Archives of torch.export: what they hold is read, never run."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


class _Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


class _Doubled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((4,), 3.0))

    def forward(self, x: Any) -> Any:
        return torch.cat([x, x * self.scale])  # [2 n, 4]


def _saved(path: Path) -> Path:
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(_Doubled(), (torch.zeros(5, 4),), dynamic_shapes=({0: rows},))
    torch.export.save(program, path)
    return path


def _changed(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    made = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return made


def _pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_a_program_whose_sizes_are_expressions_is_read(tmp_path: Path) -> None:
    exe = treadle.compile(_saved(tmp_path / "m.pt2"))
    assert np.asarray(exe.run([np.ones((9, 4), "float32")])[0]).shape == (18, 4)


def test_example_inputs_that_are_code_are_refused_and_not_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    evil = _pickled((_Touch(touched),))
    path = _changed(_saved(tmp_path / "m.pt2"), lambda n, d: evil if "sample_inputs" in n else d)
    with pytest.raises(treadle.TreadleError, match="a pickle of more than tensors") as caught:
        treadle.compile(path)
    assert "changed.pt2" in str(caught.value)
    assert not touched.exists()


def test_weights_that_are_code_are_refused_and_not_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    evil = _pickled(_Touch(touched))

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("weights/weight_0"):
            return evil
        return data.replace(b'"use_pickle": false', b'"use_pickle": true')

    with pytest.raises(treadle.TreadleError, match="a pickle of more than tensors"):
        treadle.compile(_changed(_saved(tmp_path / "m.pt2"), change))
    assert not touched.exists()


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getpid()",
        "eval(chr(49)+chr(50))",
        "s0.__class__",
        "exec(s0)",
        "eval('s0')",
    ],
)
def test_sizes_that_are_code_are_refused(tmp_path: Path, text: str) -> None:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        start = data.index(b'"expr_str": "') + len(b'"expr_str": "')
        return data[:start] + text.encode() + data[data.index(b'"', start) :]

    with pytest.raises(treadle.TreadleError, match="a size that is no arithmetic"):
        treadle.compile(_changed(_saved(tmp_path / "m.pt2"), change))


def test_machine_code_in_a_program_is_refused(tmp_path: Path) -> None:
    path = _saved(tmp_path / "m.pt2")
    with zipfile.ZipFile(path, "a") as archive:
        root = archive.namelist()[0].split("/")[0]
        archive.writestr(f"{root}/data/aotinductor/model/model.so", b"\x7fELF")
    with pytest.raises(treadle.TreadleError, match="machine code of AOTInductor"):
        treadle.compile(path)
