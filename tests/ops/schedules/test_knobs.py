# SPDX-License-Identifier: Apache-2.0
"""Knobs of the templates: whatever they are set to, a kernel computes the same."""

from __future__ import annotations

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
    run(lowered, arrays, env=pool_of(3, []), workspace=lowered.workspace_bytes)
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b, example)


def one_off(kernel: Kernel, random: Random) -> list[Config]:
    """Return configurations that set one knob each to another candidate than the default."""
    found = []
    for knob in kernel.knobs:
        others = [c for c in knob.candidates if c != knob.value]
        found += [DEFAULTS.changed(knob.name, random.choice(others))] if others else []
    return found


BY_DEFAULT = ("resize", "transpose", "softmax", "layer_norm", "sum", "mean", "concat", "pack_nchwc")
"""Operators of the default schedule: element by element, transposed, by rows, by columns."""

SCHEDULED = sorted({*BY_DEFAULT, *(op.name for op, _, _ in EXAMPLES if op.schedule)})


@pytest.mark.parametrize("name", SCHEDULED)
def test_each_knob_of_a_template_can_be_set(name: str) -> None:
    """One knob after the other, then all of them at random, for the example with most."""
    examples = [(kernel_of(op, e), op, e) for op, _, e in EXAMPLES if op.name == name]
    kernel, op, example = max(examples, key=lambda x: len(x[0].knobs))
    random = Random(name)
    configs = [*one_off(kernel, random), kernel.space.sample(random)]
    assert len(configs) > 1
    text = kernel.loop_text()
    kernel.configure(Config(tuple((k.name, k.value) for k in kernel.knobs)))
    assert kernel.loop_text() == text  # all that is chosen, named
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
