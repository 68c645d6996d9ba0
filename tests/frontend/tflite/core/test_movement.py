# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements against the reference interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite


def ints(g: Graph, *values: object) -> int:
    return g.constant(values, "int32")


def test_transpose() -> None:
    g = Graph()
    check(
        g.result(g.op("TRANSPOSE", (g.input("x", (2, 3, 4, 5)), ints(g, 3, 1, 0, 2)), (5, 3, 2, 4)))
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenation(axis: int) -> None:
    g = Graph()
    a, b = g.input("a", (2, 3, 4)), g.input("b", (2, 3, 4))
    shape = [2, 3, 4]
    shape[axis] *= 2
    check(g.result(g.op("CONCATENATION", (a, b), shape, options={"axis": axis})))


def test_parts_of_other_scales_are_brought_to_one() -> None:
    g = Graph()
    a, b = (
        g.input("a", (2, 8), "uint8", Scale(0.1, 120)),
        g.input("b", (2, 8), "uint8", Scale(0.2, 90)),
    )
    check(g.result(g.op("CONCATENATION", (a, b), (4, 8), "uint8", Scale(0.2, 100), {"axis": 0})))


def test_pack_and_unpack() -> None:
    g = Graph()
    a, b = g.input("a", (2, 3)), g.input("b", (2, 3))
    packed = g.op("PACK", (a, b), (2, 2, 3), options={"values_count": 2, "axis": 1})
    parts = g.multi("UNPACK", (packed,), [((2, 2), "float32", None)] * 3, {"num": 3, "axis": -1})
    check(g.result(packed, *parts))


def test_split() -> None:
    g = Graph()
    x = g.input("x", (2, 6))
    equal = g.multi(
        "SPLIT", (g.constant(1, "int32"), x), [((2, 2), "float32", None)] * 3, {"num_splits": 3}
    )
    given = [((2, n), "float32", None) for n in (1, 2, 3)]
    parts = g.multi(
        "SPLIT_V", (x, ints(g, 1, -1, 3), g.constant(1, "int32")), given, {"num_splits": 3}
    )
    check(g.result(*equal, *parts))


def test_slice() -> None:
    g = Graph()
    x = g.input("x", (4, 6, 5))
    check(g.result(g.op("SLICE", (x, ints(g, 1, 0, 2), ints(g, 2, -1, 3)), (2, 6, 3))))


def test_slice_from_a_computed_begin() -> None:
    g = Graph()
    x, begin = g.input("x", (6, 5)), g.input("begin", (2,), "int32")
    made = g.op("SLICE", (x, begin, ints(g, 2, 3)), (2, 3))
    given = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    check(g.result(made), inputs={"x": given, "begin": np.array([3, 1], "int32")})


MASKS = [
    (([1, 0, -1], [3, 4, 5], [1, 2, 1]), {}, (2, 2, 1)),
    (([0, 0, 0], [0, 0, 2], [1, 1, 1]), {"begin_mask": 3, "end_mask": 3}, (4, 6, 2)),
    (([1, 2, 0], [2, 3, 5], [1, 1, 1]), {"shrink_axis_mask": 3}, (5,)),
    (([-1, 0, 0], [0, 0, 0], [1, 1, 1]), {"shrink_axis_mask": 1, "end_mask": 6}, (6, 5)),
    (([0, 1], [0, 3], [1, 1]), {"ellipsis_mask": 1}, (4, 6, 2)),
    (([0, 0, 1], [0, 0, 3], [1, 1, 1]), {"new_axis_mask": 1, "end_mask": 2}, (1, 4, 2, 5)),
    (([3, 5, 4], [0, 0, 0], [-1, -2, -1]), {"end_mask": 6}, (3, 3, 5)),
]


@pytest.mark.parametrize(("bounds", "masks", "shape"), MASKS)
def test_strided_slice(
    bounds: tuple[Sequence[int], ...], masks: dict[str, int], shape: tuple[int, ...]
) -> None:
    g = Graph()
    x = g.input("x", (4, 6, 5))
    options = dict.fromkeys(
        ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0
    )
    spec = [ints(g, *b) for b in bounds]
    check(g.result(g.op("STRIDED_SLICE", (x, *spec), shape, options={**options, **masks})))


def test_pad() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    pairs = g.constant([[1, 0], [2, 1]], "int32")
    zeros = g.op("PAD", (x, pairs), (3, 6))
    check(g.result(zeros, g.op("PADV2", (x, pairs, g.constant(-7.5, "float32")), (3, 6))))


def test_padding_of_integers_holds_their_zero() -> None:
    g = Graph()
    x = g.input("x", (2, 3), "int8", Scale(0.1, 9))
    check(
        g.result(
            g.op("PAD", (x, g.constant([[1, 0], [2, 1]], "int32")), (3, 6), "int8", Scale(0.1, 9))
        )
    )


@pytest.mark.parametrize("mode", [0, 1])
def test_mirror_pad(mode: int) -> None:
    g = Graph()
    x = g.input("x", (3, 4))
    pairs = g.constant([[1, 2], [2, 0]], "int32")
    check(g.result(g.op("MIRROR_PAD", (x, pairs), (6, 6), options={"mode": mode})))


def test_tile() -> None:
    g = Graph()
    check(g.result(g.op("TILE", (g.input("x", (2, 3)), ints(g, 2, 3)), (4, 9))))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int) -> None:
    g = Graph()
    shape = [4, 5, 6]
    x, places = g.input("x", shape), g.constant([[0, 3], [2, 1]], "int32")
    at = axis % 3
    made = g.op(
        "GATHER",
        (x, places),
        (*shape[:at], 2, 2, *shape[at + 1 :]),
        options={"axis": axis, "batch_dims": 0},
    )
    check(g.result(made))


def test_gather_per_batch() -> None:
    g = Graph()
    x, places = g.input("x", (2, 5, 3)), g.constant([[0, 3, 1], [2, 1, 4]], "int32")
    check(g.result(g.op("GATHER", (x, places), (2, 3, 3), options={"axis": 1, "batch_dims": 1})))


def test_gather_and_scatter_by_coordinates() -> None:
    g = Graph()
    x, places = g.input("x", (3, 4, 5)), g.constant([[0, 3], [2, 1], [0, 3]], "int32")
    rows = g.op("GATHER_ND", (x, places), (3, 5))
    check(g.result(rows, g.op("SCATTER_ND", (places, rows, ints(g, 3, 4, 5)), (3, 4, 5))))


def test_embedding() -> None:
    g = Graph()
    numbers = g.constant([2, 0, 1, 2], "int32")
    check(g.result(g.op("EMBEDDING_LOOKUP", (numbers, g.input("table", (3, 6))), (4, 6))))


@pytest.mark.parametrize("begin", [(1, 2), (4, 9), (-3, 0)])
def test_update_of_a_part_stays_inside(begin: tuple[int, int]) -> None:
    g = Graph()
    x, part, at = g.input("x", (4, 6)), g.input("part", (2, 3)), g.input("begin", (2,), "int32")
    made = g.op("DYNAMIC_UPDATE_SLICE", (x, part, at), (4, 6))
    random = np.random.default_rng(0)
    whole, new = (random.normal(size=s).astype("float32") for s in ((4, 6), (2, 3)))
    given = {"x": whole, "part": new, "begin": np.array(begin, "int32")}
    check(g.result(made), inputs=given)


def test_reverse() -> None:
    g = Graph()
    x = g.input("x", (3, 4, 5))
    whole = g.op("REVERSE_V2", (x, ints(g, 1)), (3, 4, 5))
    lengths = ints(g, 2, 4, 1)
    options = {"seq_dim": 1, "batch_dim": 0}
    check(g.result(whole, g.op("REVERSE_SEQUENCE", (x, lengths), (3, 4, 5), options=options)))


def test_blocks_of_pixels() -> None:
    g = Graph()
    x = g.input("x", (1, 4, 6, 8))
    deep = g.op("SPACE_TO_DEPTH", (x,), (1, 2, 3, 32), options={"block_size": 2})
    wide = g.op("DEPTH_TO_SPACE", (x,), (1, 8, 12, 2), options={"block_size": 2})
    check(g.result(deep, wide))


def test_space_to_batch_and_back() -> None:
    g = Graph()
    x = g.input("x", (2, 4, 6, 3))
    block = ints(g, 2, 3)
    many = g.op(
        "SPACE_TO_BATCH_ND", (x, block, g.constant([[1, 1], [0, 3]], "int32")), (12, 3, 3, 3)
    )
    back = g.op(
        "BATCH_TO_SPACE_ND", (many, block, g.constant([[1, 1], [0, 3]], "int32")), (2, 4, 6, 3)
    )
    check(g.result(many, back))
