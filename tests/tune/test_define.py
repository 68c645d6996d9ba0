# SPDX-License-Identifier: Apache-2.0
"""Templates in AutoTVM's words: what may be chosen, what is chosen, what is done with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import comb, prod
from typing import Any

import numpy as np
import pytest

import treadle
from tests.optimize.cases import function, inputs_of, var
from treadle import te
from treadle.errors import ConfigError, ScheduleError, UsageError
from treadle.graph.nodes import Call, Module
from treadle.graph.operator import Group
from treadle.ops.matmul import matmul
from treadle.te.knobs import Config, Knobs, Space
from treadle.tune.define import Annotation, Definitions, Split
from treadle.tune.template import TemplateSpace

pytestmark = pytest.mark.tiny


def values_of(define: Callable[[Definitions], None]) -> list[Any]:
    """Return the candidates of the one thing that is defined."""
    knobs = Knobs()
    define(Definitions(knobs))
    (knob,) = knobs.made
    return list(knob.candidates)


def test_factors_of_an_axis_are_its_splits() -> None:
    found = values_of(lambda c: c.define_split("tile", 12, num_outputs=2))
    assert found == [(12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12)]
    found = values_of(lambda c: c.define_split("tile", 64, num_outputs=3))
    assert len(found) == comb(8, 2)  # six twos among three loops
    assert all(prod(size) == 64 for size in found)


def test_powers_of_two_may_leave_a_rest() -> None:
    found = values_of(lambda c: c.define_split("tile", 12, num_outputs=2, policy="power2"))
    assert found == [(12, 1), (6, 2), (3, 4), (2, 8)]
    found = values_of(lambda c: c.define_split("tile", 6, num_outputs=2, policy="verbose"))
    assert [inner for _, inner in found] == [1, 2, 3, 4, 6]


def test_splits_are_limited_filtered_or_listed() -> None:
    found = values_of(lambda c: c.define_split("tile", 60, num_outputs=2, max_factor=5))
    assert [inner for _, inner in found] == [1, 2, 3, 4, 5]

    def is_long(split: Split) -> bool:
        return split.size[-1] >= 16

    found = values_of(lambda c: c.define_split("tile", 32, num_outputs=2, filter=is_long))
    assert found == [(2, 16), (1, 32)]
    listed = [[-1, 2, 4], [2, -1, 8], [1, 1, 32]]
    found = values_of(lambda c: c.define_split("tile", 30, num_outputs=3, candidate=listed))
    assert found == [(4, 2, 4), (2, 2, 8), (1, 1, 32)]


def test_orders_are_all_those_of_chains_or_listed() -> None:
    axes = ["y", "x", "k"]
    found = values_of(lambda c: c.define_reorder("order", axes))
    assert (len(set(found)), found[0]) == (6, (0, 1, 2))
    chains = [["yo", "yi"], ["xo", "xi"], ["k"]]
    found = values_of(lambda c: c.define_reorder("order", chains, policy="interleave"))
    assert len(set(found)) == len(found) == 30  # 5! / (2! 2!)
    assert all(p.index(0) < p.index(1) and p.index(2) < p.index(3) for p in found)
    some = [["x", "k", "y"], ["k", "y", "x"]]
    found = values_of(lambda c: c.define_reorder("order", axes, policy="candidate", candidate=some))
    assert found == [(1, 2, 0), (2, 0, 1)]


def test_annotations_are_what_the_policy_tries() -> None:
    found = values_of(lambda c: c.define_annotate("how", [1, 2, 3]))
    assert found[0] == ("none", "none", "none")
    assert ("none", "none", "vec") in found
    assert ("none", "unroll", "vec") in found
    assert ("unroll", "unroll", "unroll") in found
    assert len(set(found)) == len(found)
    assert values_of(lambda c: c.define_annotate("how", [1, 2], policy="vec")) == [("none", "vec")]
    assert len(values_of(lambda c: c.define_annotate("how", [1], policy="try_vec"))) == 2


def test_the_size_of_the_space_is_known() -> None:
    config = Definitions(Knobs())
    assert len(config) == 1
    config.define_split("tile", 64, num_outputs=2)
    config.define_knob("unroll", [0, 512, 1500])
    assert len(config) == 7 * 3
    assert config["unroll"].val == 0
    assert config["tile"].size == (64, 1)


def test_a_configuration_says_what_is_chosen() -> None:
    config = Definitions(Knobs(Config.of({"tile": [4, 16], "unroll": 512, "fast": True})))
    config.define_split("tile", 64, num_outputs=2)
    config.define_knob("unroll", [0, 512, 1500])
    config.define_knob("fast", [False, True])
    assert (config["tile"].size, config["unroll"].val, config["fast"].val) == ((4, 16), 512, True)
    with pytest.raises(ConfigError, match="no candidate of knob tile"):
        Definitions(Knobs(Config.of({"tile": [4, 17]}))).define_split("tile", 64, num_outputs=2)


def test_a_rule_makes_configurations_invalid() -> None:
    def template(knobs: Knobs) -> None:
        config = Definitions(knobs)
        config.define_knob("rows", [1, 2, 4])
        config.define_knob("columns", [1, 2, 4])
        config.check(config["rows"].val * config["columns"].val <= 8, "too many registers")

    space = TemplateSpace(Space(template))
    assert space.size == 9
    points = list(dict.fromkeys(space.sample(200, np.random.default_rng(0))))
    assert [space.choice(p) is None for p in points].count(True) == 1
    with pytest.raises(ConfigError, match="too many registers"):
        template(Knobs(Config.of({"rows": 4, "columns": 4})))


def test_what_a_template_says_of_itself() -> None:
    config = Definitions(Knobs(Config.of({"tile": [4, 16]})))
    outer, inner = config.define_split("tile", config.axis(64), "factors", num_outputs=2)
    assert (outer.length, inner.length) == (4, 16)
    config.define_knob("unroll", [0, 1])
    config.define_reorder("order", [outer, inner], "all")
    config.define_annotate("how", [inner], "try_vec")
    assert [name for name, _ in config.entities] == ["tile", "unroll", "order", "how"]
    assert config.descriptions["tile"] == "Split(policy=factors, product=64, num_outputs=2)"
    assert not config.is_fallback
    config.add_flop(10)
    config.add_flop(5.0)
    assert config.flop == 15
    with pytest.raises(ConfigError, match="too many threads"):
        config.raise_error("too many threads")


def test_loops_that_are_too_long_or_of_odd_length_are_not_annotated() -> None:
    stage: Any = None
    unrolled, lanes = Annotation(("none", "unroll")), Annotation(("none", "vec"))
    with pytest.raises(ConfigError, match="a loop of 17 is not unrolled: more than 16"):
        unrolled.apply(stage, stage, [], axis_lens=[1, 17], max_unroll=16)
    with pytest.raises(ConfigError, match="a loop of 3 is not vectorized"):
        lanes.apply(stage, stage, [], axis_lens=[1, 3], vec_size=[4, 8])


MISTAKES: list[tuple[str, Callable[[Definitions], object]]] = [
    ("policy 'prime'", lambda c: c.define_split("t", 8, num_outputs=2, policy="prime")),  # type: ignore[arg-type]
    ("policy 'some'", lambda c: c.define_reorder("t", [1], policy="some")),  # type: ignore[arg-type]
    ("policy 'bind'", lambda c: c.define_annotate("t", [1], policy="bind")),  # type: ignore[arg-type]
    (
        "known at run time only",
        lambda c: c.define_split("t", te.reduce_axis((0, te.var("n"))), num_outputs=2),
    ),
    ("no axes", lambda c: c.define_annotate("t", [])),
    ("no candidates", lambda c: c.define_knob("t", [])),
    ("no candidates", lambda c: c.define_split("t", 8, num_outputs=2, filter=lambda s: False)),
    ("cannot split", lambda c: c.define_split("t", 0, num_outputs=2)),
    ("cannot split", lambda c: c.define_split("t", 1 << 62, num_outputs=2)),  # not for hours
    ("no split", lambda c: c.define_split("t", 8, num_outputs=2, candidate=[[8]])),
    ("no split", lambda c: c.define_split("t", 8, num_outputs=2, candidate=[[-1, -1]])),
    ("does not cover", lambda c: c.define_split("t", 8, num_outputs=2, candidate=[[2, 2]])),
    ("no order", lambda c: c.define_reorder("t", [1, 2], policy="candidate", candidate=[[1, 1]])),
    ("more than", lambda c: c.define_reorder("t", list(range(12)))),
    ("not defined 'u'", lambda c: c["u"]),
]


@pytest.mark.parametrize(("text", "mistake"), MISTAKES)
def test_mistakes_are_named(text: str, mistake: Callable[[Definitions], object]) -> None:
    with pytest.raises(UsageError, match=text):
        mistake(Definitions(Knobs()))


def test_a_name_is_defined_once() -> None:
    config = Definitions(Knobs())
    config.define_knob("t", [1])
    with pytest.raises(ScheduleError, match="asks for knob t twice"):
        config.define_knob("t", [1])


def schedule(group: Group, _target: object, knobs: Knobs) -> None:
    """A product as users of AutoTVM write it."""
    config = Definitions(knobs)
    s, result = group.schedule, group.outputs[0]
    op: Any = s[result].op
    y, x, k = *op.axis, *op.reduce_axis
    config.define_split("tile_y", y, num_outputs=2)
    config.define_split("tile_x", x, num_outputs=2, policy="power2", max_factor=8)
    config.define_reorder("order", [["yo", "yi"], ["xo", "k"]], policy="interleave")
    config.define_annotate("inner", [x], policy="try_vec")
    outer_y, inner_y = config["tile_y"].apply(s, result, y)
    outer_x, inner_x = config["tile_x"].apply(s, result, x)
    config["order"].apply(s, result, [outer_y, inner_y, outer_x, k])
    config["inner"].apply(s, result, [inner_x])


def test_a_template_of_a_user_computes_the_same_in_every_configuration() -> None:
    params = [var("x", 12, 5), var("y", 5, 10)]
    call = matmul(*params)
    assert isinstance(call, Call)
    own = replace(matmul, name="own_product", schedule={"cpu": schedule})  # type: ignore[type-var]
    whole = function(replace(call, op=own), params=params)
    (kernel,) = treadle.compile(Module(whole)).kernels
    inputs = inputs_of(whole)
    expected = inputs["x"] @ inputs["y"]
    space = TemplateSpace(kernel.space)
    assert space.size == 6 * 4 * 6 * 2
    seen = set()
    for point in space.sample(12, np.random.default_rng(0)):
        config = space.choice(point)
        if config is None:
            continue
        kernel.configure(config)
        seen.add(kernel.loop_text())
        result = np.zeros_like(expected)
        kernel(inputs["x"], inputs["y"], result)
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert len(seen) > 8
