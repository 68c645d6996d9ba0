# SPDX-License-Identifier: Apache-2.0
"""The schedules of kernels are data: written down and made again, they give the same loops."""

from __future__ import annotations

from dataclasses import replace

import pytest

import treadle.ops  # registers the operators
from benchmarks import networks
from benchmarks.kernel_texts import NAMES
from tests.ops.test_operators import call_of, function_of, inputs_of
from tests.targets import MACHINES
from tests.te.round_trip import again
from treadle.build.compile import kernels_of
from treadle.build.group import _GroupBuilder
from treadle.build.kernel import Kernel
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.nodes import Function
from treadle.graph.operator import OPERATORS
from treadle.loop.from_schedule import cases_to_func
from treadle.loop.nodes import func_text
from treadle.optimize.pipeline import optimize
from treadle.target.base import Target
from treadle.te.knobs import Knobs

assert treadle.ops

TEMPLATES = sorted(op.name for op in OPERATORS.all() if op.schedule and op.examples)
"""Operators with a schedule of their own."""


def check_replay(function: Function, target: Target, name: str = "kernel") -> None:
    """Replay the schedules of a kernel, from JSON and from Python."""
    builder = _GroupBuilder(function, target)
    cases = builder.scheduled(builder.build()[0], Knobs())
    loops = func_text(cases_to_func(cases, name))
    made = [again(case.schedule) for case in cases]
    for which in (0, 1):
        other = [replace(c, schedule=m[which]) for c, m in zip(cases, made, strict=True)]
        assert [c.schedule.steps for c in other] == [c.schedule.steps for c in cases]
        assert func_text(cases_to_func(other, name)) == loops, cases[-1].schedule.as_python()


@pytest.mark.parametrize("name", TEMPLATES)
def test_schedules_of_operators_replay(name: str) -> None:
    op = OPERATORS.get(name)
    assert op is not None
    example = op.examples[0]
    check_replay(function_of(call_of(op, example, inputs_of(example))), MACHINES["avx512"])


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_schedules_of_networks_replay(name: str, machine: str) -> None:
    target = MACHINES[machine]
    main = optimize(import_onnx(networks.build(name)).module.main, target)
    for kernel in kernels_of(main, target)[0]:
        check_replay(kernel.function, target, kernel.name)


def test_a_kernel_prints_its_schedule_as_python() -> None:
    op = OPERATORS.get("matmul")
    assert op is not None
    example = op.examples[0]
    kernel = Kernel(function_of(call_of(op, example, inputs_of(example))), MACHINES["avx512"])
    lines = kernel.schedule.splitlines()
    assert lines[0].endswith("]")
    assert ".tensors[" in lines[0]
    compile(kernel.schedule, "schedule", "exec")
