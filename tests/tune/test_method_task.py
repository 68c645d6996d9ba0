# SPDX-License-Identifier: Apache-2.0
"""Calls of which the methods are candidates: which, in which layouts, built and measured whole."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from treadle.build.compile import fused_model
from treadle.build.kernel import ObjectCode
from treadle.build.records import Records
from treadle.errors import ChoiceError
from treadle.graph.nodes import Call, Constant, Module, Node, topological
from treadle.graph.text import call_text
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.matmul import matmul
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.method_task import MethodSpace, MethodTask, method_tasks
from treadle.tune.runner import MeasureOptions, Runner

QUICK = MeasureOptions(repeat=2, min_repeat_ms=0.1, threads=1)
TARGET = "llvm -mcpu=znver4 -num-cores=1"


def convolution(x: Node, filters: int, name: str) -> Call:
    channels = x.type.static_shape[1]  # type: ignore[union-attr]
    made = conv(
        x, constant(filters, channels, 3, 3), pads_before=(1, 1), pads_after=(1, 1), origin=name
    )
    assert isinstance(made, Call)
    return made


def chain() -> tuple[Module, Sequence[Call]]:
    """Three convolutions; the second and the third are the same call, amid blocks of channels."""
    x = var("x", 1, 16, 10, 10)
    first = convolution(x, 32, "first")
    second = convolution(ew.relu(first), 32, "second")
    third = convolution(ew.relu(second), 32, "third")
    return Module(function(ew.relu(third), params=[x])), [first, second, third]


def tasks_of(
    module: Module, target: str = "llvm", records: Records | None = None, **compiling: object
) -> list[MethodTask]:
    fused = fused_model(module, target=target, records=records or Records(), **compiling)  # type: ignore[arg-type]
    return method_tasks(fused.method_calls, fused.target, {}, is_cold=False)


def measured(task: MethodTask, *methods: str) -> dict[str, tuple[tuple[float, ...], str]]:
    with Runner([task], QUICK) as runner:
        made = {m: task.built(task.choice_of(m)) for m in methods}
        found = {m: runner.measure(0, code, inf) for m, code in made.items()}
    return {m: (one.seconds, one.error) for m, one in found.items()}


def test_calls_of_one_text_are_one_task_in_their_layouts() -> None:
    module, (first, second, _) = chain()
    big, small = tasks_of(module, TARGET)
    assert (big.call, big.uses, big.origins) == (call_text(second), 2, ["second", "third"])
    assert (small.call, small.uses) == (call_text(first), 1)
    assert small.layouts == "plain to blocks of 16"
    assert big.layouts == "blocks of 16 to blocks of 16"
    assert {"direct", "winograd-2", "plain"} <= {*big.estimates}
    assert big.methods[0] == big.default
    estimates = [big.estimates[m] for m in big.methods[1:]]
    assert estimates == sorted(estimates)
    assert max(estimates) <= 4 * min(big.estimates.values())


def test_a_call_alone_has_the_layouts_of_the_model_around_it() -> None:
    module, _ = chain()
    big, _ = tasks_of(module, TARGET)
    operators = [n.op for n in topological([big.function.body]) if isinstance(n, Call)]
    assert operators == [unpack_nchwc, conv, pack_nchwc]
    (param,) = big.function.params
    assert param.type.static_shape == (1, 2, 10, 10, 16)  # type: ignore[union-attr]
    made = fused_model(Module(big.function), target=TARGET, methods={big.call: "direct"})
    names = " ".join(k.name for k in made.kernels)
    assert "conv2d_nchwc" in names
    assert "unpack" not in names  # the transforms around it cancel with those of the method
    plain = fused_model(Module(big.function), target=TARGET, methods={big.call: "plain"})
    assert "unpack" in " ".join(k.name for k in plain.kernels)


def test_every_method_is_measured_whole_and_right() -> None:
    module, _ = chain()
    task = tasks_of(module)[0]
    methods = [m for m in task.methods if m in ("direct", "winograd-2", "plain")]
    assert len(methods) >= 2
    for seconds, error in measured(task, *methods).values():
        assert not error
        assert all(0 < s < 1 for s in seconds)


def test_a_wrong_result_is_no_time() -> None:
    module, calls = chain()
    task = tasks_of(module)[0]
    (weights,) = (a for a in calls[1].args if isinstance(a, Constant))
    right = task.built(DEFAULTS)
    weights.value[...] *= 2.0
    with Runner([task], QUICK) as runner:
        found = runner.measure(0, ObjectCode(right.code, right.workspace), inf)
    assert "the result is wrong" in found.error


def test_weights_come_from_memory_where_the_model_has_many() -> None:
    module, _ = chain()
    fused = fused_model(module, records=Records())
    (task, _) = method_tasks(fused.method_calls, fused.target, {}, is_cold=True)
    made = task.built(DEFAULTS)
    kernel = task.loaded(made.code, made.workspace)
    assert len(kernel._models) > 1
    (seconds, error) = measured(task, task.default)[task.default]
    assert seconds
    assert not error


def test_products_have_methods_too() -> None:
    x = var("x", 64, 96)
    made = matmul(x, constant(96, 128))
    (task,) = tasks_of(Module(function(made, params=[x])))
    assert {"panels", "plain"} <= {*task.estimates}
    assert task.layouts == "plain to plain"
    assert not any(error for _, error in measured(task, *task.methods[:2]).values())


def test_choices_name_methods() -> None:
    task = tasks_of(chain()[0])[0]
    other = task.methods[1]
    assert task.choice_of(task.default) == DEFAULTS
    assert task.choice_of(other) == Config.of({"method": other})
    assert [task.method_of(task.choice_of(m)) for m in task.methods] == task.methods
    space = MethodSpace(task)
    assert (space.size, space.start(), list(space)) == (len(task.methods),) + (task.methods,) * 2
    assert space.from_json("no_such_method") is None
    assert space.estimate(task.methods).tolist() == pytest.approx(
        [task.estimates[m] for m in task.methods]
    )
    assert {*space.sample(20, np.random.default_rng(0))} <= {*task.methods}


def test_a_method_that_does_not_apply_is_an_error_of_its_candidate() -> None:
    task = tasks_of(chain()[0])[0]
    with pytest.raises(ChoiceError, match="it is for 1x1"):
        task.built(Config.of({"method": "strassen"}))


def test_what_is_asked_for_or_has_no_other_method_is_no_task() -> None:
    module, (first, second, _) = chain()
    (left,) = tasks_of(module, methods={call_text(second): "direct"})
    assert left.call == call_text(first)
    x = var("x", 8, 8)
    assert not tasks_of(Module(function(ew.relu(x), params=[x])))
