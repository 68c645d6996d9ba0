# SPDX-License-Identifier: Apache-2.0
"""Shapes as the command line writes them, and options as another command takes them."""

from __future__ import annotations

import argparse

import pytest

from treadle.cli.arguments import add_compile_options, compile_words, parse_shapes


@pytest.mark.parametrize(
    ("given", "shapes"),
    [
        ("data:[1,3,224,224]", {"data": (1, 3, 224, 224)}),
        (" a:[1, 2]  b : [3] ", {"a": (1, 2), "b": (3,)}),
        ("a:[1],b:[2];c:[]", {"a": (1,), "b": (2,), "c": ()}),
        ("input:0:[1,2] scope/x_1.y:[0]", {"input:0": (1, 2), "scope/x_1.y": (0,)}),
        ("'my input':[4]", {"my input": (4,)}),
    ],
)
def test_shapes(given: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(given) == shapes


def test_options_of_compiling_are_words_of_another_command() -> None:
    parser = argparse.ArgumentParser()
    add_compile_options(parser)
    words = ["--input-shapes", "x:[1,2]", "--target", "llvm -mcpu=haswell", "--operators", "a.py"]
    words += ["--operators", "b.py", "--dynamic", "--no-winograd", "--weight-growth", "0.5"]
    given = parser.parse_args([*words, "--tuning-records", "r.jsonl"])
    found = compile_words(given)
    assert sorted(found) == sorted(words)
    again = parser.parse_args([*found, "--tuning-records", "r.jsonl"])
    assert vars(again) == vars(given)
    assert compile_words(parser.parse_args([])) == []
