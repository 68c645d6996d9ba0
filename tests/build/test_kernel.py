# SPDX-License-Identifier: Apache-2.0
"""Kernels can be read at every stage, and are named by their content."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.optimize.cases import constant, function, inputs_of, var
from treadle import te
from treadle.build.kernel import Kernel, Scheduled
from treadle.expr.nodes import Var
from treadle.graph import interpret
from treadle.graph.nodes import Call, Function, Module, Node
from treadle.graph.nodes import Var as GraphVar
from treadle.graph.operator import Group
from treadle.graph.types import TensorType
from treadle.loop.nodes import PrimFunc
from treadle.lower.pipeline import LOOPS
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.matmul import matmul
from treadle.ops.norm import softmax
from treadle.ops.reduce import mean
from treadle.optimize.fuse import fuse
from treadle.target.parse import parse_target

ROOT = Path(__file__).resolve().parents[2]


def network() -> Function:
    x = var("x", 1, 3, 8, 8)
    made: Node = ew.relu(conv(x, constant(8, 3, 3, 3), pads_before=(1, 1), pads_after=(1, 1)))
    made = softmax(matmul(mean(made, axes=(2, 3)), constant(8, 5)), axis=1)
    return function(made, params=[x])


@pytest.fixture(scope="module")
def executable() -> treadle.Executable:
    return treadle.compile(Module(network()), target="llvm -mcpu=x86-64-v3 -num-cores=2")


def test_every_stage_is_text(executable: treadle.Executable) -> None:
    assert executable.kernels
    for kernel in executable.kernels:
        assert kernel.graph_text().startswith("fn ")
        assert f"{kernel.function.params[0].name}: float32[" in kernel.te_text()
        assert kernel.loop_text().startswith(f"def {kernel.name}(")
        assert f"@{kernel.name}(" in kernel.source()
        assert f"{kernel.name}:" in kernel.asm()
        assert "s[" in kernel.schedule
        assert repr(kernel) == f"Kernel({kernel.name})"
        assert kernel.lowered.name == kernel.name
    assert "conv" in executable.graph.text()


def test_stages_are_made_again_after_release(executable: treadle.Executable) -> None:
    kernel = executable.kernels[0]
    before = kernel.loop_text(), kernel.source()
    kernel.release()
    assert (kernel.loop_text(), kernel.source()) == before


def one_kernel(scale: float, name: str = "fused_0") -> Kernel:
    x = var("x", 4)
    made = ew.multiply(ew.relu(x), constant_scalar(scale))
    return Kernel(Function((x,), made, name), parse_target("llvm -num-cores=2"))


def constant_scalar(value: float) -> Node:
    from treadle.graph.nodes import Constant

    return Constant.of(value, "float32")


def test_every_form_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = one_kernel(2.0)
    seen: list[PrimFunc] = []
    passes = replace(kernel.backend.lowering(kernel.target), verify=seen.append)
    backend = replace(kernel.backend, lowering=lambda _: passes)
    module = sys.modules[Kernel.__module__]
    monkeypatch.setattr(module, "LOOPS", replace(LOOPS, verify=seen.append))
    monkeypatch.setattr(module, "backend_of", lambda _: backend)
    lowered = kernel.lowered
    assert [id(f) for f in seen[1:]] == [id(kernel.loops), id(lowered)]
    assert Kernel(kernel.loops, kernel.target).lowered.name == kernel.name
    assert seen[3] is kernel.loops, "a loop nest of the caller's is looked at"


def test_names_depend_on_content_only() -> None:
    assert one_kernel(2.0).name == one_kernel(2.0).name == one_kernel(2.0, "fused_17").name
    assert one_kernel(2.0).name != one_kernel(3.0).name
    assert one_kernel(2.0).name.startswith("fused_")
    assert one_kernel(2.0).name.isidentifier()


def test_names_are_equal_across_processes(executable: treadle.Executable) -> None:
    script = (
        "import treadle\n"
        "from tests.build.test_kernel import network\n"
        "from treadle.graph.nodes import Module\n"
        "e = treadle.compile(Module(network()), target='llvm -mcpu=x86-64-v3 -num-cores=2')\n"
        "print(*[k.name for k in e.kernels])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == [k.name for k in executable.kernels]


def test_equal_groups_share_a_kernel() -> None:
    value: Node = var("x", 1, 16)
    params = [value]
    weights = [constant(16, 16, key=str(k)) for k in range(6)]
    for w in weights:
        value = ew.relu(matmul(value, w))
    f = function(value, params=params)  # type: ignore[arg-type]
    exe = treadle.compile(Module(f))
    assert len(exe.kernels) == 1
    assert len(exe.memory.steps) == 6
    (got,) = exe.run(inputs_of(f))
    (want,) = interpret.run(f, inputs_of(f))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4)


def test_kernels_know_what_they_came_from() -> None:
    x = var("x", 4)
    f = function(ew.relu(ew.abs(x, origin="first"), origin="second"), params=[x])
    (kernel,) = treadle.compile(Module(f)).kernels
    assert len(kernel.origins) == 1
    assert "second" in kernel.origins[0]


def test_a_schedule_that_does_not_apply_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from treadle.build import group

    def broken(g: group.Group, _target: object, _knobs: object) -> None:
        stage = g.schedule[g.outputs[0]]
        stage.split(stage.op.axis[0], factor=0)  # type: ignore[union-attr]

    monkeypatch.setitem(group.DEFAULT_SCHEDULES, "cpu", broken)
    main = fuse(function(ew.relu(var("x", 4)), params=[var("x", 4)]), limit=1)
    call = main.body
    with pytest.raises(treadle.InternalError) as caught:
        Kernel(call.op, parse_target("llvm")).loop_text()  # type: ignore[union-attr, arg-type]
    assert "split of i0 needs a positive integer factor, got 0" in str(caught.value)
    assert "the schedule of kernel" in str(caught.value)


def test_a_mistake_in_the_schedule_of_a_users_operator_is_the_users() -> None:
    def broken(g: Group, _target: object, _knobs: object) -> None:
        stage = g.schedule[g.outputs[0]]
        stage.split(stage.op.axis[0], factor=0)  # type: ignore[union-attr]

    params = [var("x", 4, 4), var("y", 4, 4)]
    product = matmul(*params)
    assert isinstance(product, Call)
    operator = replace(matmul, name="own_product", schedule={"cpu": broken})  # type: ignore[type-var]
    own = replace(product, op=operator)
    main = fuse(function(own, params=params), limit=1)
    with pytest.raises(treadle.ScheduleError) as caught:
        Kernel(main.body.op, parse_target("llvm")).loop_text()  # type: ignore[union-attr, arg-type]
    assert caught.value.problem == "split of m needs a positive integer factor, got 0"
    assert caught.value.at.startswith("the schedule of operator own_product, ")


# ---- called and timed alone ----------------------------------------------------------------------


def test_a_kernel_of_a_network_is_called_and_timed_alone() -> None:
    x = var("x", 4, 6)
    f = function(softmax(x, axis=1), params=[x])
    (kernel,) = treadle.compile(Module(f)).kernels
    given, out = kernel.random_arguments(seed=5)
    kernel(given, out)
    (want,) = interpret.run(f, {"x": given.numpy()})
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)
    result = kernel.time_evaluator(number=2, repeat=3, flush=True)(given, out)
    assert len(result.results) == 3
    assert kernel.load() is kernel.load()
    assert str(kernel.signature).endswith("(p0: float32[4, 6], out: float32[4, 6] out)")


def test_sizes_of_a_kernel_are_told_by_its_arguments() -> None:
    n = Var("n")
    x = GraphVar("x", TensorType((n, n * 2), "float32"))
    kernel = Kernel(Function((x,), ew.relu(x), "open"), parse_target("llvm"))
    given, out = kernel.random_arguments(sizes={"n": 3})
    assert given.shape == (3, 6)
    kernel(given, out)
    np.testing.assert_array_equal(out.numpy(), np.maximum(given.numpy(), 0))
    with pytest.raises(treadle.InputError, match="size 'n' of kernel"):
        kernel.random_arguments()


def test_a_kernel_for_another_machine_has_texts_and_is_not_called() -> None:
    kernel = Kernel(
        one_kernel(2.0).function, parse_target("llvm -mtriple=riscv64-linux-gnu -num-cores=2")
    )
    assert "riscv" in kernel.source()
    with pytest.raises(treadle.TargetError):
        kernel(*kernel.random_arguments())


def test_kernels_of_an_artifact_are_called_and_timed_alone(tmp_path: Path) -> None:
    n = Var("n")
    x = GraphVar("x", TensorType((n, 6), "float32"))
    f = function(softmax(x, axis=1), params=[x])
    treadle.compile(Module(f)).save(tmp_path / "m.tar")
    loaded = treadle.load(tmp_path / "m.tar")
    (kernel,) = loaded.kernels
    given, out = kernel.random_arguments(seed=5, sizes={"n": 4})
    kernel(given, out)
    (want,) = loaded.run([given])
    np.testing.assert_array_equal(out.numpy(), want.numpy())
    assert kernel.time_evaluator(number=2)(given, out).min > 0


def test_an_artifact_that_does_not_tell_its_kernels_runs_all_the_same(tmp_path: Path) -> None:
    x = var("x", 4)
    exe = treadle.compile(Module(function(ew.relu(x), params=[x])))
    exe.save(tmp_path / "m.tar")
    old = (tmp_path / "m.tar").read_bytes().replace(b'"kernels":', b'"kermits":')
    (tmp_path / "old.tar").write_bytes(old)
    loaded = treadle.load(tmp_path / "old.tar")
    assert np.asarray(loaded.run([np.full(4, -1.0, "float32")])[0]).tolist() == [0] * 4
    with pytest.raises(treadle.ArtifactError, match="does not say what its kernels take"):
        _ = loaded.kernels
    (tmp_path / "bad.tar").write_bytes(old.replace(b'"kermits":', b'"kernels":', 1))
    with pytest.raises(treadle.ArtifactError, match="cannot be read"):
        _ = treadle.load(tmp_path / "bad.tar").kernels


# ---- kernels that are made of no graph -----------------------------------------------------------


def scheduled() -> Kernel:
    a = te.placeholder((8, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b)
    s[b].split(b.op.axis[0], factor=2)
    return Kernel(Scheduled(s, [a, b], "row sums"), parse_target("llvm"))


def test_a_kernel_of_a_schedule_has_every_stage_but_the_graph() -> None:
    kernel = scheduled()
    assert kernel.name == "row_sums"
    assert kernel.te_text().splitlines() == [
        "A: float32[8, 4]",
        "B: float32[8]; B[i] = sum(A[i, k], [k: 4])",
    ]
    assert kernel.schedule.endswith("i_outer, i_inner = s[B].split(i, factor=2)")
    assert "for i.outer in range(4):" in kernel.loop_text()
    assert "row_sums:" in kernel.asm()
    with pytest.raises(treadle.UsageError, match="is made of a te schedule: it has no graph"):
        kernel.graph_text()
    given, out = kernel.random_arguments()
    kernel(given, out)
    np.testing.assert_allclose(out.numpy(), given.numpy().sum(1), rtol=1e-5)


def test_a_kernel_of_a_loop_nest_begins_there() -> None:
    made = scheduled()
    kernel = Kernel(made.loops, made.target)
    assert kernel.loop_text() == made.loop_text()
    assert kernel.source() == made.source()
    for stage in ("te_text", "schedule"):
        with pytest.raises(treadle.UsageError, match="is made of a loop nest: it has no"):
            getattr(kernel, stage)()
