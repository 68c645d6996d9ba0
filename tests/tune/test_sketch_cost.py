# SPDX-License-Identifier: Apache-2.0
"""What candidates take by the analytic model, and which are refused before they are built."""

from __future__ import annotations

import numpy as np

from tests.targets import AVX512
from tests.tune import sketch_graphs as graphs
from tests.tune.test_sketch import space_of
from treadle import te
from treadle.tune.sketch import SketchPoint, SketchSpace
from treadle.tune.sketch_cost import costs_of
from treadle.tune.sketch_limits import within_limits
from treadle.tune.sketch_nest import Nest, nests_of
from treadle.tune.sketch_plans import MOST_STATEMENTS, Tiled
from treadle.tune.sketch_slots import drawn_rows


def test_too_much_code_is_refused_before_it_is_built() -> None:
    space = space_of("interleaved")
    for point in space.sample(30, np.random.default_rng(9)):
        made = space.choice(point)
        assert made is not None
    sketched = space.sketches[0]
    rows = drawn_rows(sketched.slots, 400, np.random.default_rng(10))
    valid = within_limits(sketched, rows, AVX512)
    assert 0 < valid.sum() < len(valid)
    written = costs_of(sketched, rows, AVX512).plans[-1].tiled
    assert written is not None
    assert (written.statements[valid] <= MOST_STATEMENTS).all()


def test_a_panel_that_outgrows_the_first_cache_is_read_for_each_tile_of_rows() -> None:
    m, n, k = 64, 64, 512
    space = SketchSpace(graphs.matmul(m, n, k).schedule(), AVX512)
    data = space.to_json(space.start()[0])
    assert isinstance(data, dict)
    tiles = {"3.tile0": [16, 1, 4], "3.tile1": [1, 1, 64], "3.tile2": [1]}
    choices = {**data["choices"], "3.at": 1, "3.unroll": 1, "3.first": 0}
    point = space.from_json({"sketch": 0, "tiles": tiles, "choices": choices})
    assert point is not None
    costs = costs_of(space.sketches[0], np.array([point.places]), AVX512)
    panel = k * n * 4
    assert panel > AVX512.l1_bytes
    assert costs.plans[0].traffic[0, 0] >= panel * m / 4


def _reads(rows: int, length: int) -> Nest:
    a, w = te.placeholder((rows, length), "float32"), te.placeholder((length, 16), "float32")
    r = te.reduce_axis((0, length))
    c = te.compute((rows, 16), lambda i, j: te.sum(a[i, r] * w[r, j], r))
    schedule = te.create_schedule([c.op])
    return nests_of(schedule)[schedule[c].number]


def test_rows_a_page_apart_take_a_page_of_the_first_cache_each() -> None:
    page, ones = 4096, np.ones((3, 1))
    tile = ones * np.array([[26.0], [16.0], [16.0]])
    apart, beside = _reads(64, 1024).reads[0], _reads(64, 1024 + 16).reads[0]
    assert apart.taken(tile, page)[0] == 26 * page
    assert beside.taken(tile, page)[0] == 26 * 16 * 4
    whole = ones * np.array([[26.0], [16.0], [1024.0]])
    assert apart.taken(whole, page)[0] == 26 * 1024 * 4


def test_what_ends_within_a_block_is_not_fetched_ahead() -> None:
    a = te.placeholder((64, 256), "float32", "A")
    b = te.placeholder((12, 256, 64), "float32", "B")
    r = te.reduce_axis((0, 256), "k")
    c = te.compute((64, 768), lambda i, j: te.sum(a[i, r] * b[j // 64, r, j % 64], r), name="C")
    space = SketchSpace(te.create_schedule([c.op]), AVX512)
    points = space.sample(600, np.random.default_rng(12))
    plan = space.sketches[0].plans[0]
    assert isinstance(plan, Tiled)
    assert [r.blocks(1) for r in plan.nest.reads] == [1, 64]

    def of(point: SketchPoint) -> tuple[int, bool]:
        data = space.to_json(point)
        assert isinstance(data, dict)
        width = next(v[-1] for k, v in data["tiles"].items() if k.endswith("tile1"))
        ahead = [v for k, v in data["choices"].items() if ".fetch" in k or ".panel" in k]
        return width, any(ahead)

    found = {of(p) for p in points}
    assert any(width % 64 and 64 % width and not ahead for width, ahead in found)
    assert any(ahead for _, ahead in found)
    assert not any(width % 64 and 64 % width and ahead for width, ahead in found)
