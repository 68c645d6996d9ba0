# SPDX-License-Identifier: Apache-2.0
"""Shapes as the command line writes them."""

from __future__ import annotations

import pytest

from treadle.cli.arguments import parse_shapes


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
