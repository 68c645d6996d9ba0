# SPDX-License-Identifier: Apache-2.0
"""The likeliest classes are printed by their names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_main import run
from treadle.cli.labels import labelled, print_classes, read_labels
from treadle.cli.main import main
from treadle.errors import InputError

_PETS = ["cat", "dog", "hamster"]


def written(folder: Path, text: str, name: str = "labels.txt") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", "cat\ndog\n hamster \n\n"),
        ("labels.txt", "\ufeffcat\r\ndog\r\nhamster"),
        ("labels.json", json.dumps(_PETS)),
        ("labels.json", json.dumps({"1": "dog", "0": "cat", "2": "hamster"})),
        ("labels.json", json.dumps({str(k): [f"n{k}", pet] for k, pet in enumerate(_PETS)})),
    ],
)
def test_labels_come_in_four_forms(tmp_path: Path, name: str, text: str) -> None:
    assert read_labels(written(tmp_path, text, name)) == _PETS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "cannot be read"),
        ("7", "neither a list nor an object"),
        ("[1]", "label of class 0 is no text"),
        ("[[]]", "label of class 0 is no text"),
        ('{"0": "cat", "2": "dog"}', "2 labels, but none for class 1"),
        ("[]", "is empty"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_other_json_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text, "labels.json")
    with pytest.raises(InputError, match=problem) as caught:
        read_labels(path)
    assert caught.value.at == str(path)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(b"cat\n\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        read_labels(path)


def test_logits_are_shown_as_shares(capsys: pytest.CaptureFixture[str]) -> None:
    print_classes("logits", np.log(np.array([[1.0, 6.0, 3.0]], np.float32)) + 5, _PETS, 2)
    assert capsys.readouterr().out.splitlines() == [
        "logits: the 2 likeliest of 3 classes",
        "   share   class  label",
        "   60.0%       1  dog",
        "   30.0%       2  hamster",
    ]


def test_probabilities_and_integers_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_classes("p", np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], np.float16), _PETS, 1)
    print_classes("q", np.array([[3, 200, 40]], np.uint8), _PETS, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["70.0%", "2", "hamster"]
    assert lines[3].endswith("of row 1")
    assert lines[5].split() == ["50.0%", "0", "cat"]
    assert lines[8].split() == ["200", "1", "dog"]


def test_labels_go_with_the_outputs_that_have_as_many_classes() -> None:
    path = Path("labels.txt")
    assert labelled([(1, 3), (3, 1), (), (1, 5, 3)], _PETS, path) == [0, 3]
    with pytest.raises(InputError, match=r"there are 3 labels.*\[1, 4\], \[2\]"):
        labelled([(1, 4), (2,)], _PETS, path)


def test_a_run_names_classes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, artifact: Path
) -> None:
    digits = written(tmp_path, "\n".join(f"digit {k}" for k in range(10)))
    out, _ = run(capsys, "run", artifact, "--labels", digits)
    assert "the 5 likeliest of 10 classes" in out
    assert len(re.findall(r"^ .*%  +\d  digit \d$", out, re.MULTILINE)) == 5
    out, _ = run(capsys, "run", artifact, "--labels", digits, "--print-top", "2")
    assert "the 2 likeliest" in out
    path = written(tmp_path, "a\nb", "two.txt")
    assert main(["run", str(artifact), "--labels", str(path)]) == 2
    assert f"at    {path}" in capsys.readouterr().err
