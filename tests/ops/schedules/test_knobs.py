# SPDX-License-Identifier: Apache-2.0
"""Knobs of the templates: whatever they are set to, a kernel computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.ops.schedules.test_symbolic import OPEN, Dims
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
from treadle.expr.nodes import Var as ExprVar
from treadle.graph.nodes import Var
from treadle.graph.operator import OPERATORS, Example, Operator
from treadle.graph.types import TensorType
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


def dynamic_kernel(name: str, shapes: Sequence[Dims], attrs: dict[str, Any], dtype: str) -> Kernel:
    """Return an operator's kernel where the sizes that are named are those of a run."""
    op = OPERATORS.get(name)
    assert op is not None
    symbols = {c: ExprVar(c) for c in "nsm"}
    types = [TensorType(tuple(symbols.get(str(d), d) for d in s), dtype) for s in shapes]  # type: ignore[misc]
    call = op(*(Var(f"x{k}", t) for k, t in enumerate(types)), **attrs)
    return Kernel(function_of(call), native())


ATTENTION: list[Dims] = [(2, "s", "n"), (2, "s", 24)]
"""Scores [batch, keys, rows], values [batch, keys, columns]."""


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "dtype"),
    [*OPEN, ("attend", ATTENTION, {}, "float32")],
    ids=[f"{c[0]}-{c[1][0]}-{c[3]}" for c in OPEN] + ["attend"],
)
def test_configurations_hold_at_all_sizes(
    name: str, shapes: list[Dims], attrs: dict[str, Any], dtype: str
) -> None:
    kernel = dynamic_kernel(name, shapes, attrs, dtype)
    kernel.configure(kernel.space.sample(Random(name)))
    op = OPERATORS.get(name)
    assert op is not None
    for sizes in ({"n": 2, "s": 17, "m": 16}, {"n": 1, "s": 61, "m": 5}, {"n": 40, "s": 9, "m": 1}):
        rng = np.random.default_rng(sizes["s"])
        extents = [[sizes.get(str(d), d) for d in s] for s in shapes]
        arrays = [(1 + 9 * rng.random(e)).astype(dtype) for e in extents]  # type: ignore[arg-type]
        expected = op.reference(op.make_attrs(attrs), *arrays)
        output = np.zeros(expected.shape, expected.dtype)
        kernel(*arrays, output, sizes={v.name: sizes[v.name] for v in kernel.sizes})
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5, err_msg=str(sizes))


def test_each_case_of_symbolic_sizes_has_knobs_of_its_own() -> None:
    kernel = dynamic_kernel("attend", ATTENTION, {}, "float32")
    names = [k.name for k in kernel.knobs]
    assert {n.partition(".")[0] for n in names} == {"case1", "case2", "case3", "case4"}
    before = [s.schedule.as_python() for s in kernel.scheduled]
    kernel.configure(DEFAULTS.changed("case3.parallel", False))
    after = [s.schedule.as_python() for s in kernel.scheduled]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True]


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
