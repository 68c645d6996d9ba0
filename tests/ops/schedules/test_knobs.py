# SPDX-License-Identifier: Apache-2.0
"""Knobs of the templates: whatever they are set to, a kernel computes the same."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.ops.test_operators import (
    EXAMPLES,
    assert_close,
    call_of,
    each_example,
    function_of,
    inputs_of,
    reference_of,
)
from tests.target.kernel import native, pool_of, run
from treadle.build.group import build_group
from treadle.build.kernel import Kernel
from treadle.graph.operator import Example, Operator
from treadle.te.knobs import DEFAULTS, Config


def kernel_of(op: Operator[Any], example: Example) -> Kernel:
    return Kernel(function_of(call_of(op, example, inputs_of(example))), native())


def check(op: Operator[Any], example: Example, config: Config) -> None:
    """Run an operator with a configuration of its schedule beside its reference."""
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    expected = reference_of(op, call, inputs)
    outputs = [np.zeros(e.shape, e.dtype) for e in expected]
    lowered = Kernel(function_of(call), native(), config).lowered
    arrays = [np.array(x, order="C") for x in inputs] + outputs
    assert run(lowered, arrays, env=pool_of(3, []), workspace=lowered.workspace_bytes) == 0
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b, example)


def one_off(kernel: Kernel, random: Random) -> list[Config]:
    """Return configurations that set one knob each to another candidate than the default."""
    found = []
    for knob in kernel.knobs:
        others = [c for c in knob.candidates if c != knob.value]
        found += [DEFAULTS.changed(knob.name, random.choice(others))] if others else []
    return found


@cache
def examples_by_template() -> dict[str, tuple[Operator[Any], Example]]:
    """Return for each schedule function the example of the package with the most knobs."""
    best: dict[str, tuple[int, Operator[Any], Example]] = {}
    for op, _, example in EXAMPLES:
        if op.compute is None or not op.name.isidentifier():
            continue
        function = function_of(call_of(op, example, inputs_of(example)))
        name = build_group(function, native())[1].__name__
        count = sum(len(k.candidates) > 1 for k in Kernel(function, native()).knobs)
        if name not in best or count > best[name][0]:
            best[name] = count, op, example
    return {name: (op, example) for name, (_, op, example) in best.items()}


TEMPLATES = (
    "_schedule",
    "schedule_attention",
    "schedule_conv2d_nchwc",
    "schedule_conv_strassen",
    "schedule_default",
    "schedule_dense_blocks",
    "schedule_dense_packed",
    "schedule_dense_strassen",
    "schedule_depthwise_nchwc",
    "schedule_matmul",
    "schedule_phased_conv",
    "schedule_plain_conv",
    "schedule_pool",
    "schedule_strassen_blocks",
    "schedule_strassen_blocks_nchwc",
    "schedule_winograd",
)


def test_every_template_is_tried() -> None:
    assert sorted(examples_by_template()) == list(TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_knob_of_a_template_can_be_set(template: str) -> None:
    op, example = examples_by_template()[template]
    kernel, random = kernel_of(op, example), Random(template)
    configs = [*one_off(kernel, random), kernel.space.sample(random)]
    assert len(configs) > 1
    for config in configs:
        check(op, example, config)


@pytest.mark.slow
@each_example
def test_sampled_configurations_mean_the_reference(op: Operator[Any], example: Example) -> None:
    if op.compute is None:
        pytest.skip(f"{op.name} has no compute")
    kernel, random = kernel_of(op, example), Random(op.name)
    if kernel.space.size == 1:
        pytest.skip("there is nothing to choose")
    for _ in range(3):
        check(op, example, kernel.space.sample(random))
