# SPDX-License-Identifier: Apache-2.0
"""Whatever is drawn from a space of sketches computes the same as no schedule at all."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.ops.test_operators import call_of, each_example, function_of, inputs_of
from tests.target.kernel import native
from tests.targets import AVX512
from tests.tune.sketch_graphs import GRAPHS, Graph
from tests.tune.sketch_points import check_example
from treadle import te
from treadle.build.kernel import Kernel, Scheduled
from treadle.graph.operator import OPERATORS, Example, Operator
from treadle.te.choice import Script
from treadle.tune.sketch import SketchPoint, SketchSpace
from treadle.tune.sketch_plans import Tiled


def check_points(graph: Graph, points: list[SketchPoint], space: SketchSpace) -> int:
    """Compare the results of points with NumPy; return how many were refused."""
    numbers = np.random.default_rng(1)
    arrays = [numbers.uniform(-1, 1, [int(str(d)) for d in t.shape]).astype("float32")
              for t in graph.inputs]  # fmt: skip
    expected = graph.meaning(*arrays)
    refused = 0
    for point in points:
        choice = space.choice(point)
        if choice is None:
            refused += 1
            continue
        made = graph.schedule().replay(Script.from_json(choice.to_json()).steps)
        work = Scheduled(made, [*graph.inputs, graph.result], "kernel")
        actual = np.full(expected.shape, np.nan, "float32")
        Kernel(work, native())(*arrays, actual)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4, err_msg=str(point))
    return refused


@pytest.mark.parametrize("name", GRAPHS)
def test_points_mean_what_numpy_does(name: str) -> None:
    graph = GRAPHS[name]()
    space = SketchSpace(graph.schedule(), native())
    points = [space.start()[0], *space.sample(2, np.random.default_rng(7))]
    assert check_points(graph, points, space) == 0


def test_a_single_value_is_used_for_all_its_vectors_at_once() -> None:
    x, w = te.placeholder((14, 256), "float32", "X"), te.placeholder((8, 256, 16), "float32", "W")
    r = te.reduce_axis((0, 256), "k")
    c = te.compute((8, 14, 16), lambda o, i, lane: te.sum(x[i, r] * w[o, r, lane], r), name="C")
    space = SketchSpace(te.create_schedule([c.op]), AVX512)
    plan = space.sketches[0].plans[0]
    assert isinstance(plan, Tiled)
    assert plan.register_order == (1, 0, 2)
    data = space.to_json(space.start()[0])
    assert isinstance(data, dict)
    stage = plan.stage
    tiles = {**data["tiles"], f"{stage}.tile0": [1, 1, 2], f"{stage}.tile1": [1, 1, 7]}
    point = space.from_json({**data, "tiles": tiles})
    assert point is not None
    choice = space.choice(point)
    assert choice is not None
    made = te.create_schedule([c.op]).replay(choice.steps)
    text = str(Kernel(Scheduled(made, [x, w, c], "kernel"), AVX512).loops)
    inside = text[: text.index("fma(")]
    assert "unrolled(7)" in inside
    assert inside.rindex("unrolled(7)") < inside.rindex("unrolled(2)")


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_many_points_mean_what_numpy_does(name: str) -> None:
    graph = GRAPHS[name]()
    space = SketchSpace(graph.schedule(), native())
    points = space.sample(40, np.random.default_rng(11))
    assert check_points(graph, points, space) <= len(points) // 10


@pytest.mark.parametrize("name", ["conv2d_nchwc", "depthwise_conv2d_nchwc", "dense_packed"])
def test_lowered_forms_of_networks_have_sketches(name: str) -> None:
    op = OPERATORS.get(name)
    assert op is not None
    for example in op.examples[:2]:
        assert not check_example(op, example, 2)


@pytest.mark.parametrize(("name", "count"), [("conv2d_nchwc", 3), ("conv2d_winograd_nchwc", 1)])
def test_channels_without_weights_are_skipped_right(name: str, count: int) -> None:
    op = OPERATORS.get(name)
    assert op is not None
    examples = [e for e in op.examples if dict(e.attrs).get("unused")]
    assert len(examples) == count
    for example in examples:
        assert not check_example(op, example, 2)


def test_channels_without_weights_are_skipped() -> None:
    """A third of the channels of three blocks: as the operator's own schedule does."""
    op = OPERATORS.get("conv2d_nchwc")
    assert op is not None
    examples = [e for e in op.examples if dict(e.attrs).get("unused")]
    for example in examples:
        assert not check_example(op, example, 2)
    inputs = inputs_of(examples[0])
    space = SketchSpace.of_function(function_of(call_of(op, examples[0], inputs)), AVX512)
    made = [space.choice(p) for p in space.start()]
    skips = [[s for s in c.steps if s.primitive == "skip_past"] for c in made if c is not None]
    assert all(len(found) == 1 and found[0].args[-1] == 3 * 8 - 5 for found in skips)


@pytest.mark.slow
@each_example
def test_every_operator_has_sketches(op: Operator, example: Example) -> None:  # type: ignore[type-arg]  # any attributes
    if op.compute is None:
        pytest.skip(f"{op.name} has no compute")
    assert not check_example(op, example, 2)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_point_always_gives_the_same_steps(name: str) -> None:
    spaces = [SketchSpace(GRAPHS[name]().schedule(), AVX512) for _ in range(2)]
    drawn = [space.sample(8, np.random.default_rng(3)) for space in spaces]
    assert drawn[0] == drawn[1]
    for point in drawn[0]:
        first, second = (space.choice(point) for space in spaces)
        assert first is not None
        assert first == second
        data = json.loads(json.dumps(first.to_json()))
        assert Script.from_json(data) == first


@pytest.mark.parametrize("name", GRAPHS)
def test_hardly_a_point_is_refused(name: str) -> None:
    space = SketchSpace(GRAPHS[name]().schedule(), AVX512)
    points = space.sample(30, np.random.default_rng(5))
    assert len(points) == 30
    assert sum(space.choice(p) is None for p in points) < 3
