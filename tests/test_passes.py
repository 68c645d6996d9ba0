# SPDX-License-Identifier: Apache-2.0
"""Pipelines: order, verification, blame, dumps, overrides, times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.errors import InternalError, ModelError
from treadle.passes import Pipeline, pipeline
from treadle.settings import use


def _verify(words: list[str]) -> None:
    if "bad" in words:
        raise InternalError("there is a bad word", at="word 1")


def _adds(word: str) -> tuple[str, Callable[[list[str]], list[str]]]:
    return f"add_{word}", lambda words: [*words, word]


def _make(*words: str) -> Pipeline[list[str]]:
    passes = [_adds(w) for w in words]
    return pipeline(
        "sentence",
        passes,
        verify=_verify,
        text=" ".join,
        parse=lambda text, words: text.split(),
    )


def test_passes_run_in_order() -> None:
    assert _make("a", "b", "c").run([]) == ["a", "b", "c"]


@pytest.mark.parametrize("level", [1, 2])
def test_culprit_is_named(level: int) -> None:
    with use(verify=level), pytest.raises(InternalError) as error:
        _make("a", "bad", "c").run([], label="greeting")
    place = "pass add_bad of sentence on greeting (passes before: add_a), word 1"
    assert error.value.at == place
    assert "there is a bad word" in error.value.problem
    assert "TREADLE_DUMP" in error.value.hint


def test_verification_can_be_switched_off() -> None:
    with use(verify=0):
        assert _make("bad").run(["bad"]) == ["bad", "bad"]


@pytest.mark.parametrize("level", [1, 2])
def test_what_another_pipeline_has_verified_is_not_looked_at_again(level: int) -> None:
    seen: list[list[str]] = []
    watched = replace(_make("a"), verify=seen.append)
    with use(verify=level):
        watched.run(["x"], is_verified=True)
        watched.run(["y"])
    assert seen == [["x", "a"], ["y"], ["y", "a"]]


def test_malformed_input_blames_no_pass() -> None:
    with use(verify=1), pytest.raises(InternalError) as error:
        _make("a").run(["bad"])
    assert error.value.at == "the input of sentence, sentence, word 1"


def test_crash_of_a_pass_is_an_internal_error() -> None:
    def crash(words: list[str]) -> list[str]:
        raise KeyError("lost")

    steps = pipeline("sentence", [("first", lambda w: w), ("crash", crash)])
    with pytest.raises(InternalError, match="KeyError: 'lost'") as error:
        steps.run(["x"])
    assert "pass crash of sentence" in error.value.at
    assert "passes before: first" in error.value.at
    assert isinstance(error.value.__cause__, KeyError)


def test_mistake_of_the_user_passes_through() -> None:
    def refuse(words: list[str]) -> list[str]:
        raise ModelError("this word is not supported")

    with pytest.raises(ModelError, match="not supported"):
        pipeline("sentence", [("refuse", refuse)]).run(["x"])


def test_dump_skips_what_did_not_change(tmp_path: Path) -> None:
    steps = pipeline("sentence", [("same", list), ("reverse", lambda w: w[::-1])], text=" ".join)
    with use(dump=tmp_path):
        steps.run(["a", "b"], label="two/words")
    files = {p.name: p.read_text() for p in (tmp_path / "two_words" / "sentence").iterdir()}
    assert files == {"00_input.txt": "a b\n", "02_reverse.txt": "b a\n"}


@pytest.mark.parametrize(("pattern", "names"), [
    ("add_b", ["02_add_b.txt"]),
    ("greet*", ["00_input.txt", "01_add_a.txt", "02_add_b.txt"]),
])  # fmt: skip
def test_dump_only(pattern: str, names: list[str], tmp_path: Path) -> None:
    with use(dump=tmp_path, dump_only=pattern):
        _make("a", "b").run([], label="greeting")
    assert sorted(p.name for p in (tmp_path / "greeting" / "sentence").iterdir()) == names


def test_label_cannot_leave_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "dump"
    with use(dump=inside):
        _make("a").run([], label="../../escape")
    assert [p.name for p in tmp_path.iterdir()] == ["dump"]
    assert len(list(inside.iterdir())) == 1


def test_override_replaces_a_stage(tmp_path: Path) -> None:
    (tmp_path / "sentence" / "sentence").mkdir(parents=True)
    (tmp_path / "sentence" / "sentence" / "01_add_a.txt").write_text("edited words")
    with use(override=tmp_path):
        assert _make("a", "b").run([]) == ["edited", "words", "b"]


def test_mistake_in_an_override_names_the_file(tmp_path: Path) -> None:
    def parse(text: str, words: list[str]) -> list[str]:
        raise ModelError("no such word", at="line 1")

    (tmp_path / "sentence" / "sentence").mkdir(parents=True)
    (tmp_path / "sentence" / "sentence" / "01_same.txt").write_text("x")
    steps = pipeline("sentence", [("same", list)], parse=parse)
    with use(override=tmp_path), pytest.raises(ModelError) as error:
        steps.run(["x"])
    assert error.value.at.endswith("01_same.txt, line 1")


def test_times_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with use(time=True):
        _make("a", "b").run([], label="greeting")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("sentence on greeting: ")
    assert [line.split()[-1] for line in lines[1:]] == ["add_a", "add_b"]


def test_debug_prints_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with use(debug=6):
        _make("a").run([])
    assert "--- sentence: 01_add_a\na\n" in capsys.readouterr().err


def test_failed_run_still_has_dumps_up_to_the_culprit(tmp_path: Path) -> None:
    with use(verify=2, dump=tmp_path), pytest.raises(InternalError):
        _make("a", "bad").run([])
    assert sorted(p.name for p in (tmp_path / "sentence" / "sentence").iterdir()) == [
        "00_input.txt",
        "01_add_a.txt",
        "02_add_bad.txt",
    ]


def test_pipelines_of_one_program_do_not_overwrite_each_other(tmp_path: Path) -> None:
    with use(dump=tmp_path):
        for name in ("loops", "lower"):
            pipeline(name, [("same", list)], text=" ".join).run([name], label="kernel")
    for name in ("loops", "lower"):
        assert (tmp_path / "kernel" / name / "00_input.txt").read_text() == f"{name}\n"
