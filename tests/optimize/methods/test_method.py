# SPDX-License-Identifier: Apache-2.0
"""How a method is chosen: the cheapest, or the recorded one; and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from tests.optimize.methods.asked import asked
from tests.targets import AVX512
from treadle.errors import ChoiceError
from treadle.graph.nodes import Call, Node
from treadle.graph.text import call_text
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.optimize.layout import choose_layouts
from treadle.optimize.methods.convolution import ConvSite
from treadle.optimize.methods.method import METHODS, Choices, Method, least_cycles, register
from treadle.settings import use

pytestmark = pytest.mark.tiny


def convolution(size: int = 14, **attrs: object) -> Call:
    pads = {"pads_before": (1, 1), "pads_after": (1, 1)}
    return conv(var("x", 1, 32, size, size), constant(32, 32, 3, 3), origin="c", **pads, **attrs)


def free(site: ConvSite) -> float:
    return 0.5


def as_in_model(site: ConvSite) -> Node:
    return site.as_in_model()


@pytest.fixture
def cheapest() -> Iterator[Method[ConvSite]]:
    """A method of somebody's own that always applies and takes no time."""
    made = register(Method("mine", conv, lambda site: None, free, as_in_model))
    yield made
    METHODS.remove(made)


def test_every_method_is_in_the_table_and_one_is_chosen() -> None:
    with use(weight_growth=4):
        found = asked(convolution(56), AVX512)
    assert set(found.candidates) == {m.name for m in METHODS.of(conv)}
    assert [name for name, c in found.candidates.items() if not c.reason] == [found.choice]
    least = min(c.cycles for c in found.candidates.values() if c.cycles is not None)
    assert found.candidates[found.choice].cycles == least
    assert found.reason == "the least of the estimates"


def test_what_is_slower_says_by_how_much() -> None:
    found = asked(convolution(), AVX512)
    assert found.choice.startswith("winograd")
    times = found.candidates["direct"].cycles / found.candidates[found.choice].cycles  # type: ignore[operator]
    assert found.against("direct") == f"takes {times:.2f} times as long"


def test_a_method_of_somebodys_own_competes(cheapest: Method[ConvSite]) -> None:
    found = asked(convolution(), AVX512)
    assert found.choice == "mine"
    assert found.made.body.op is conv  # type: ignore[union-attr]
    METHODS.remove(cheapest)
    assert asked(convolution(), AVX512).choice != "mine"
    register(cheapest)


def test_a_method_of_the_same_name_replaces_the_earlier_one(cheapest: Method[ConvSite]) -> None:
    dear = Method("mine", conv, lambda site: None, lambda site: 1e12, as_in_model)
    assert register(dear) is dear
    assert asked(convolution(), AVX512).choice != "mine"
    register(cheapest)


def test_what_must_gain_more_says_so() -> None:
    dear = Method("dear", conv, lambda site: None, free, as_in_model, worthwhile=lambda site: 1e-9)
    register(dear)
    try:
        found = asked(convolution(), AVX512)
    finally:
        METHODS.remove(dear)
    assert found.choice != "dear"
    assert found.against("dear") == "saves 100.0%, and must save 100%"


def test_an_objection_is_asked_of_the_cheapest_alone() -> None:
    heard: list[str] = []

    def objects(site: ConvSite) -> str | None:
        heard.append(site.origin)
        return "it is Sunday"

    one = Method("one", conv, lambda site: None, free, as_in_model, objects=objects)
    dear = Method("dear", conv, lambda site: None, lambda s: 1e12, as_in_model, objects=objects)
    register(one)
    register(dear)
    try:
        found = asked(convolution(), AVX512)
    finally:
        METHODS.remove(one)
        METHODS.remove(dear)
    assert found.against("one") == "it is Sunday"
    assert heard == ["c"]


def test_what_is_asked_for_decides() -> None:
    call = convolution()
    wanted = Choices({call_text(call): "direct"}, {call_text(call): "plain"})
    found = asked(call, AVX512, wanted)
    assert (found.choice, found.reason) == ("direct", "it is asked for")
    assert found.against("winograd-4") == "another is named"
    assert found.call_of(conv2d_nchwc)
    other = asked(convolution(strides=(2, 2)), AVX512, wanted)
    assert other.choice == asked(convolution(strides=(2, 2)), AVX512).choice


def test_a_record_decides() -> None:
    call = convolution()
    found = asked(call, AVX512, Choices(recorded={call_text(call): "direct"}))
    assert (found.choice, found.reason) == ("direct", "from a record")
    assert found.call_of(conv2d_nchwc)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("winograd4", "no method 'winograd4' computes conv"),
        ("strassen", "the method 'strassen' does not apply: it is for 1x1"),
    ],
)
def test_a_record_that_does_not_fit_leaves_it_to_the_estimates(name: str, problem: str) -> None:
    call = convolution()
    told: list[tuple[str, str]] = []
    choices = Choices(recorded={call_text(call): name}, on_unfit=lambda *said: told.append(said))
    found = asked(call, AVX512, choices)
    default = asked(convolution(), AVX512)
    assert (found.choice, found.reason) == (default.choice, default.reason)
    ((of, said),) = told
    assert of == call_text(call)
    assert problem in said


def test_the_text_of_a_call_names_what_decides_and_no_values() -> None:
    assert call_text(convolution(strides=(2, 2))) == (
        "conv(float32[1, 32, 14, 14], const float32[32, 32, 3, 3], strides=(2, 2), "
        "pads_before=(1, 1), pads_after=(1, 1))"
    )


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("winograd4", "no method 'winograd4' computes conv", "did you mean 'winograd-4'?"),
        ("strassen", "the method 'strassen' does not apply: it is for 1x1", "choose among "),
    ],
)
def test_a_method_that_is_asked_for_must_apply(name: str, problem: str, hint: str) -> None:
    call = convolution()
    with pytest.raises(ChoiceError) as error:
        asked(call, AVX512, Choices({call_text(call): name}))
    assert problem in error.value.problem
    assert error.value.at == "node c"
    assert hint in error.value.hint


def test_a_call_that_only_one_method_computes() -> None:
    x, w = var("x", 1, 8, 6, 6), var("w", 8, 8, 3, 3)
    found = asked(conv(x, w, origin="c"), AVX512)
    assert (found.choice, found.reason) == ("plain", "no other method applies")
    assert "weights known when compiled" in found.against("direct")


def test_estimates_make_no_node_of_the_new_graph() -> None:
    """To ask is free: what is packed for a method that lost is not in the graph."""
    call = convolution()
    made = choose_layouts(
        function(call, params=[call.args[0]]),  # type: ignore[list-item]
        AVX512,
        Choices({call_text(call): "plain"}),
    )
    assert isinstance(made.body, Call)
    assert [a.type for a in made.body.args] == [a.type for a in call.args]
    np.testing.assert_array_equal(made.body.args[1].value, call.args[1].value)  # type: ignore[union-attr]


def test_the_least_of_all_methods() -> None:
    cycles: list[float] = []

    def applies(site: ConvSite) -> str | None:
        if not cycles:  # not of itself
            cycles.append(0.0)
            cycles.append(least_cycles(site))
        return "it only looks"

    spy = register(Method("spy", conv, applies, free, as_in_model))
    try:
        found = asked(convolution(), AVX512)
        assert cycles[1] == found.candidates[found.choice].cycles
    finally:
        METHODS.remove(spy)
