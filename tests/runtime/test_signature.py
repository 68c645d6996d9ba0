# SPDX-License-Identifier: Apache-2.0
"""Signatures: sizes that arguments tell or hide, shapes at given sizes, JSON both ways."""

from __future__ import annotations

import json

import pytest

from treadle.errors import InputError, UsageError
from treadle.runtime.extents import Extent
from treadle.runtime.signature import Param, Signature

DOUBLE = Extent("(n * 2)", ["mul", ["size", 0], 2])
SCALED = Signature(
    "scaled",
    (Param("A", "float32", ("m", 4)), Param("C", "bfloat16", (DOUBLE,), is_output=True)),
    Extent("(m * 64)", ["mul", ["size", 1], 64]),
    ("n", "m", "k"),
)


def test_sizes_that_no_shape_tells() -> None:
    assert SCALED.hidden_sizes() == ["k"]
    assert SCALED.solving_order() == [(0, 1, 0)]
    assert str(SCALED) == "scaled(A: float32[m, 4], C: bfloat16[(n * 2)] out)"
    with pytest.raises(UsageError, match="kernel k does not list the size 'n' it uses"):
        Signature("k", (Param("A", "float32", ("n",)),))


def test_shapes_at_given_sizes() -> None:
    assert SCALED.shapes({"n": 3, "m": 5, "k": 0}) == [(5, 4), (6,)]
    for sizes, problem in (
        ({"n": 3, "m": 5}, "size 'k' of kernel scaled is not given"),
        ({"n": 3, "m": 5, "k": 1, "x": 1}, "no size 'x'; its sizes are n, m, k"),
        ({"n": 3, "m": -5, "k": 1}, "size 'm' of kernel scaled is -5"),
    ):
        with pytest.raises(InputError, match=problem):
            SCALED.shapes(sizes)


def test_signatures_go_through_json() -> None:
    data = json.loads(json.dumps(SCALED.to_json()))
    assert Signature.from_json("scaled", data) == SCALED


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"params": {}, "workspace_bytes": 0, "symbols": []},
        {"params": [[]], "workspace_bytes": 0, "symbols": []},
        {"params": [], "workspace_bytes": "n", "symbols": ["n"]},
        {"params": [], "workspace_bytes": 0},
    ],
)
def test_other_data_is_no_signature(data: object) -> None:
    with pytest.raises((TypeError, KeyError)):
        Signature.from_json("k", data)
