# SPDX-License-Identifier: Apache-2.0
"""Models that are kept: found by everything that decides them, and never in the place of others."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.build import model_cache
from treadle.build.loaded import LoadedExecutable
from treadle.build.model_cache import Compilation, compilation, find, keep, model_folder
from treadle.settings import use
from treadle.target.parse import parse_target

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
OPTIONS: Mapping[str, object] = {"shapes": {"image": [1, 1, 8, 8]}, "level": 3}
ROWS = [("read", "9 nodes")]
LONG_AGO = 1_000_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder in which models are kept."""
    with use(cache=tmp_path / "cache", model_cache=100):
        yield model_folder()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's file that was not written just now."""
    return aged(Path(shutil.copy(MODEL, tmp_path / "digits.onnx")))


def aged(path: Path) -> Path:
    """Let the clock of a file's changes lie behind: tests write and compile in one breath."""
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


@pytest.fixture(autouse=True)
def _changes_are_seen_by_time_of_content(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(file: Path, began_ns: int) -> bool:
        return file.stat().st_mtime_ns > began_ns

    monkeypatch.setattr(model_cache, "_changed_since", changed)


def wanted_of(path: Path, target: str = "llvm", **options: object) -> Compilation:
    found = compilation(path, parse_target(target), {**OPTIONS, **options})
    assert found is not None
    return found


def kept(path: Path, wanted: Compilation, files: tuple[str, ...] = ()) -> None:
    """Compile a model and keep it."""
    made = treadle.compile(path, shapes={"image": (1, 1, 8, 8)} if not files else None)
    keep(wanted, files, ROWS, made.weight_bytes, made.save)


def test_a_model_that_was_compiled_is_found_and_runs(model: Path) -> None:
    wanted = wanted_of(model)
    assert find(wanted) is None
    kept(model, wanted)
    found = find(wanted_of(model))
    assert found is not None
    assert found.rows == ROWS
    image = np.ones((1, 1, 8, 8), np.float32)
    (expected,) = treadle.compile(model, shapes={"image": image.shape})(image)
    (result,) = LoadedExecutable(found.artifact)(image)
    assert np.array_equal(result, expected)


def test_what_decides_a_model_decides_which_is_found(model: Path, tmp_path: Path) -> None:
    kept(model, wanted_of(model))
    other = aged(Path(shutil.copy(model, tmp_path / "same.onnx")))
    assert find(wanted_of(other)) is not None  # by content, not by name
    assert find(wanted_of(model, level=0)) is None
    assert find(wanted_of(model, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")) is None
    assert find(wanted_of(model, "llvm -num-cores=7")) is None
    records = tmp_path / "records.jsonl"
    records.write_text("{}\n")
    target = parse_target("llvm")
    by_records = compilation(model, target, OPTIONS, records)
    assert by_records is not None
    assert find(by_records) is None
    other.write_bytes(model.read_bytes() + b"\x7a\x00")  # another content under the same name
    assert find(wanted_of(aged(other))) is None


def test_nothing_is_kept_where_more_decides(model: Path, tmp_path: Path) -> None:
    target = parse_target("llvm")
    for settings in (
        {"model_cache": 0},
        {"dump": tmp_path},
        {"override": tmp_path},
        {"debug": 1},
        {"time": True},
        {"verify": 2},
    ):
        with use(**settings):
            assert compilation(model, target, OPTIONS) is None
    assert compilation(tmp_path, target, OPTIONS) is None  # a folder
    assert compilation(model, target, OPTIONS, tmp_path / "no records") is None


def test_a_file_that_changes_while_it_is_compiled_is_not_kept(model: Path, folder: Path) -> None:
    wanted = wanted_of(model)
    os.utime(model, ns=(wanted.began_ns + 1, wanted.began_ns + 1))
    kept(model, wanted)
    assert find(wanted) is None
    assert not list(folder.iterdir())


@pytest.mark.parametrize("damage", ["artifact", "cut", "gone", "entry", "other", "link"])
def test_damaged_entries_are_misses_and_disappear(damage: str, model: Path, folder: Path) -> None:
    wanted = wanted_of(model)
    kept(model, wanted)
    artifact, entry = (folder / f"{wanted.name}{suffix}" for suffix in (".tar", ".json"))
    content = bytearray(artifact.read_bytes())
    if damage == "artifact":
        content[len(content) // 2] ^= 1
        artifact.write_bytes(content)
    elif damage == "cut":
        artifact.write_bytes(content[:-512])
    elif damage == "gone":
        artifact.unlink()
    elif damage == "entry":
        entry.write_text("[1, 2")
    elif damage == "other":
        said = json.loads(entry.read_text())
        said["facts"]["model"] = "another"
        entry.write_text(json.dumps(said))
    else:
        target = entry.rename(folder / "elsewhere")
        entry.symlink_to(target)
    assert find(wanted) is None
    kept(model, wanted)
    assert find(wanted) is not None


def test_records_that_change_while_a_model_is_compiled_keep_nothing(
    model: Path, tmp_path: Path, folder: Path
) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text("")
    aged(records)
    wanted = compilation(model, parse_target("llvm"), OPTIONS, records)
    assert wanted is not None
    os.utime(records, ns=(wanted.began_ns + 1, wanted.began_ns + 1))
    kept(model, wanted)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "said", ["[" * 200_000, "[]", '{"facts": 3}', "null", '{"files": {"../a": "b"}}', "\0"]
)
def test_an_entry_of_another_form_is_a_miss(said: str, model: Path, folder: Path) -> None:
    wanted = wanted_of(model)
    kept(model, wanted)
    (folder / f"{wanted.name}.json").write_text(said)
    assert find(wanted) is None


def test_an_entry_does_not_lead_out_of_the_models_folder(model: Path, folder: Path) -> None:
    wanted = wanted_of(model)
    kept(model, wanted)
    entry = folder / f"{wanted.name}.json"
    said = json.loads(entry.read_text())
    for name in ("../weights", "/etc/hostname"):
        said["files"] = {name: "0" * 64}
        entry.write_text(json.dumps(said))
        assert find(wanted) is None


def external_model(folder: Path, value: float) -> Path:
    """Write y = x + w with w in a file of its own."""
    weights = numpy_helper.from_array(np.full(4096, value, np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4096]) for n in "xy")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def test_weights_in_other_files_decide_too(tmp_path: Path) -> None:
    path = external_model(tmp_path, 1.0)
    weights = aged(tmp_path / "w.bin")
    wanted = wanted_of(aged(path))
    made = treadle.compile(path)
    assert made.files == ("w.bin",)
    kept(path, wanted, made.files)
    assert find(wanted_of(path)) is not None
    weights.write_bytes(np.full(4096, 2.0, np.float32).tobytes())
    assert find(wanted_of(path)) is None
    weights.unlink()
    assert find(wanted_of(path)) is None


def test_models_unused_for_longest_make_room(model: Path, folder: Path) -> None:
    names = []
    for level in range(4):
        wanted = wanted_of(model, level=level)
        kept(model, wanted)
        os.utime(folder / f"{wanted.name}.json", (LONG_AGO + level, LONG_AGO + level))
        names.append(wanted.name)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert find(wanted_of(model, level=0)) is not None  # used again just now
    leftover = folder / ".abc.tar.xyz"
    leftover.write_bytes(bytes(1000))
    os.utime(leftover, (1, 1))
    with use(model_cache=1):
        pad = model_cache._MEGABYTE
        (folder / f"{names[2]}.tar").write_bytes(bytes(pad))
        wanted = wanted_of(model, level=9)
        kept(model, wanted)
    left = {path.stem for path in folder.iterdir()}
    assert size < pad
    assert not leftover.exists()
    assert {names[0], wanted.name} <= left
    assert not {names[1], names[2]} & left


def test_a_model_too_large_for_the_folder_is_not_kept(model: Path, folder: Path) -> None:
    wanted = wanted_of(model)
    keep(wanted, (), ROWS, 51 << 20, lambda path: pytest.fail("written"))
    assert find(wanted) is None
    assert not list(folder.iterdir())


def test_a_disk_that_refuses_is_a_miss(model: Path, folder: Path) -> None:
    def full(path: Path) -> None:
        path.write_bytes(b"some")
        raise OSError(28, "No space left on device")

    wanted = wanted_of(model)
    keep(wanted, (), ROWS, 1000, full)
    assert find(wanted) is None
    folder.parent.joinpath("models").rename(folder.parent / "gone")
    folder.write_text("a file in the folder's place")
    assert find(wanted) is None
    keep(wanted, (), ROWS, 1000, full)
