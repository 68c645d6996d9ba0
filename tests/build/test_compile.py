# SPDX-License-Identifier: Apache-2.0
"""Small graphs of every kind give the same at both ends of the optimisation levels."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.optimize.cases import constant, data, function, inputs_of, var
from treadle.build.compile import Report
from treadle.graph import interpret
from treadle.graph.nodes import Constant, Function, Module, Node, TupleItem, Var
from treadle.loop.nodes import PrimFunc
from treadle.ops import activation
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.ops.movement import concat, slice_, split
from treadle.ops.norm import layer_norm, softmax
from treadle.ops.pool import avg_pool, max_pool
from treadle.ops.reduce import max_, mean, sum_
from treadle.ops.reshaping import broadcast_to, reshape, transpose
from treadle.runtime.executor import Executor
from treadle.settings import use


def scalar(value: float, dtype: str = "float32") -> Constant:
    return Constant.of(value, dtype)


def rank_zero() -> Function:
    x, y = var("x"), var("y")
    return function(ew.add(ew.exp(x), ew.multiply(x, y)), params=[x, y])


def rank_zero_with_images() -> Function:
    x, y = var("x"), var("y", 1, 9, 4, 4)
    made = ew.relu(conv(ew.multiply(y, x), constant(5, 9, 3, 3)))
    return function(ew.add(made, x), params=[x, y])


def reduce_to_rank_zero() -> Function:
    x = var("x", 3, 5)
    total = sum_(x, axes=(0, 1))
    return function(total, ew.divide(x, ew.add(ew.abs(total), scalar(1.0))), params=[x])


def doubles() -> Function:
    x = var("x", 1, 9, 5, 5, dtype="float64")
    made = conv(x, constant(12, 9, 3, 3, dtype="float64"), pads_before=(1, 1), pads_after=(1, 1))
    return function(mean(ew.relu(made), axes=(2, 3)), params=[x])


def halves() -> Function:
    x = var("x", 4, 9, dtype="float16")
    w = constant(9, 7, dtype="float16")
    return function(ew.relu(ew.add(matmul(x, w), scalar(0.5, "float16"))), params=[x])


def integers() -> Function:
    x, y = var("x", 5, 7, dtype="int64"), var("y", 7, dtype="int64")
    return function(ew.maximum(ew.multiply(x, y), ew.subtract(x, y)), params=[x, y])


def integer_products() -> Function:
    x = var("x", 3, 6, dtype="int32")
    return function(matmul(x, constant(6, 5, dtype="int32")), params=[x])


def booleans() -> Function:
    x, y = var("x", 3, 4), var("y", 4)
    test = ew.logical_and(ew.less(x, y), ew.not_(ew.equal(x, y)))
    return function(test, ew.where(test, x, y), params=[x, y])


def casts() -> Function:
    x = var("x", 17)
    as_int = ew.cast(ew.multiply(x, scalar(10.0)), dtype="int32")
    return function(as_int, ew.cast(as_int, dtype="float64"), params=[x])


def mixed_widths() -> Function:
    x = var("x", 2, 33)
    narrow = ew.cast(ew.greater(x, scalar(0.0)), dtype="uint8")
    return function(ew.multiply(ew.cast(narrow, dtype="float32"), x), params=[x])


def gathers() -> Function:
    x, at = var("x", 9, 4), Constant.of(np.array([[1, 8], [0, 3]]))
    return function(ew.relu(gather(x, at, axis=0)), params=[x])


def splits() -> Function:
    x = var("x", 2, 9)
    parts = split(x, sections=(2, 3, 4), axis=1)
    fields = [TupleItem.of(parts, k) for k in range(3)]
    return function(ew.relu(fields[2]), ew.add(fields[0], scalar(1.0)), params=[x])


def a_transformer_block() -> Function:
    x = var("x", 1, 6, 16)
    q, k, v = (
        transpose(reshape(matmul(x, constant(16, 16, key=n)), shape=(1, 6, 2, 8)),
                  perm=(0, 2, 1, 3))
        for n in "qkv"
    )  # fmt: skip
    scores = softmax(matmul(q, transpose(k, perm=(0, 1, 3, 2))), axis=3)
    mixed = reshape(transpose(matmul(scores, v), perm=(0, 2, 1, 3)), shape=(1, 6, 16))
    normed = layer_norm(ew.add(x, mixed), constant(16, key="s"), constant(16, key="b"), axis=2)
    return function(activation.gelu(matmul(normed, constant(16, 32))), params=[x])


def pooled_twice() -> Function:
    x = var("x", 2, 10, 9, 9)
    first = max_pool(x, kernel=(3, 3), strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1))
    second = avg_pool(first, kernel=(2, 2))
    return function(concat(second, second, axis=1), params=[x])


def one_channel() -> Function:
    """An image of one channel in the middle (found by random networks)."""
    x = var("x", 1, 17, 6, 6)
    thin = ew.relu(ew.add(conv(x, constant(1, 17, 1, 1)), constant(1, 1, 1, 1)))
    return function(conv(concat(thin, thin, axis=1), constant(3, 2, 3, 3)), params=[x])


def roots_of_padding_lanes() -> Function:
    """What padding lanes hold must not become NaN: the next convolution adds 0 * NaN."""
    x = var("x", 1, 9, 4, 4)
    small = ew.multiply(ew.tanh(conv(x, constant(9, 9, 1, 1))), scalar(0.1))
    angles = Constant.of(np.linspace(3.0, 3.2, 9, dtype="float32").reshape(1, 9, 1, 1))
    turned = ew.cos(ew.add(small, angles))  # about -1, of padding 1
    root = ew.sqrt(ew.subtract(scalar(0.5), turned))
    return function(conv(root, constant(4, 9, 1, 1)), params=[x])


def slices_of_channels() -> Function:
    x = var("x", 1, 24, 5, 5)
    made = conv(x, constant(24, 24, 1, 1))
    lower = slice_(made, begin=(0,), end=(12,), axes=(1,))
    upper = slice_(made, begin=(8,), end=(20,), axes=(1,))
    return function(conv(ew.multiply(lower, upper), constant(8, 12, 3, 3)), params=[x])


def an_empty_tensor() -> Function:
    x = var("x", 0, 4)
    return function(ew.relu(x), matmul(x, constant(4, 3)), params=[x])


def broadcasts() -> Function:
    x, y = var("x", 3, 1, 5), var("y", 4, 1)
    return function(ew.add(x, y), broadcast_to(y, shape=(2, 4, 3)), params=[x, y])


def reductions() -> Function:
    x = var("x", 3, 7, 11)
    return function(
        max_(x, axes=(1,)), mean(x, axes=(0, 2), keepdims=True), softmax(x, axis=1), params=[x]
    )


def nothing_but_constants() -> Function:
    return function(ew.add(constant(3), constant(3)), scalar(2.0), params=[])


GRAPHS: list[Callable[[], Function]] = [
    rank_zero, rank_zero_with_images, reduce_to_rank_zero, doubles, halves, integers,
    integer_products, booleans, casts, mixed_widths, gathers, splits, a_transformer_block,
    pooled_twice, one_channel, roots_of_padding_lanes, slices_of_channels, an_empty_tensor,
    broadcasts, reductions, nothing_but_constants,
]  # fmt: skip


@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_levels_agree(make: Callable[[], Function]) -> None:
    f = make()
    inputs = inputs_of(f)
    wanted = interpret.run(f, inputs)
    for level in (0, 1, 3):
        executable = treadle.compile(Module(f), opt_level=level)
        got = [np.asarray(o) for o in executable.run(inputs)]
        for mine, theirs in zip(got, wanted, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            exact = theirs.dtype.kind in "iub"
            rtol = 0 if exact else 1e-2 if theirs.dtype == np.float16 else 1e-5
            atol = 0 if exact else rtol * float(np.abs(theirs).max(initial=1))
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol, err_msg=str(level))


def chain(nodes: int) -> Function:
    x = var("x", 1, 16)
    value: Node = x
    w = Constant.of(np.eye(16, dtype="float32"))
    for k in range(nodes):
        value = matmul(value, w) if k % 2 else ew.relu(value)
    return function(value, params=[x])


@pytest.mark.parametrize("level", [0, 3])
def test_five_thousand_nodes(level: int) -> None:
    """Nothing recurses over the graph, and time grows with the number of nodes."""
    f = chain(5000)
    executable = treadle.compile(Module(f), opt_level=level)
    (got,) = executable.run(inputs_of(f))
    np.testing.assert_allclose(np.asarray(got), np.maximum(data(1, 16, key="x"), 0), rtol=1e-6)
    assert executable.nodes == 5000
    assert executable.memory.arena_bytes <= 2 * 64


def test_the_report_tells_what_happened() -> None:
    seen: list[tuple[str, int, int]] = []
    report = Report(on_progress=lambda *told: seen.append(told))
    executable = treadle.compile(Module(chain(4)), report=report)
    assert {"read", "optimize", "build", "plan"} <= set(report.seconds)
    assert executable.seconds == report.seconds
    stages = [stage for stage, _, _ in seen]
    assert stages.index("read") < stages.index("optimize") < stages.index("build")
    assert executable.weight_bytes >= 1024


def test_what_is_compiled_is_loaded() -> None:
    """The first run has nothing to do that later ones have not."""
    executable = treadle.compile(Module(chain(4)))
    assert executable._executor is not None
    assert "load" in executable.seconds


def test_what_cannot_be_loaded_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise treadle.TreadleError("no memory")

    monkeypatch.setattr(Executor, "from_plan", refused)
    executable = treadle.compile(Module(chain(4)))
    assert executable.objects
    with pytest.raises(treadle.TreadleError, match="no memory"):
        executable.run(inputs_of(chain(4)))


def loop_nests() -> int:
    """Return how many loop nests there are in this process."""
    gc.collect()
    return sum(type(thing) is PrimFunc for thing in gc.get_objects())


def test_no_kernel_keeps_its_loops(tmp_path: Path) -> None:
    """What a kernel is lowered through is gone when its code is there, however it came."""
    with use(cache=str(tmp_path)):
        before = loop_nests()
        executables = [treadle.compile(Module(chain(4))) for _ in range(2)]
        assert loop_nests() == before
        assert executables[0].kernels[0].lowered.sizes == ()
        assert loop_nests() > before
        executables[0].kernels[0].release()
        assert loop_nests() == before


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(treadle.UsageError) as caught:
        treadle.compile(Module(chain(1)), opt_level=7)
    assert str(caught.value) == "opt_level is 7\n  hint  it is one of 0, 1, 2, 3, 4"


def test_output_names_are_the_modules() -> None:
    f = chain(2)
    named = Module(f, ("y",))
    assert [name for name, _, _ in treadle.compile(named).outputs] == ["y"]
    assert [name for name, _, _ in treadle.compile(Module(f)).outputs] == ["output_0"]


def test_inputs_keep_their_names_and_order() -> None:
    a, b = var("a", 2), var("b", 2)
    made = treadle.compile(Module(function(ew.subtract(b, a), params=[a, b])))
    assert [name for name, _, _ in made.inputs] == ["a", "b"]
    (got,) = made(np.zeros(2, "float32"), np.ones(2, "float32"))
    np.testing.assert_array_equal(np.asarray(got), [1, 1])


def test_an_unused_input_stays() -> None:
    a, b = var("a", 2), Var("unused", var("b", 3).type)
    made = treadle.compile(Module(function(ew.relu(a), params=[a, b])))
    assert [name for name, _, _ in made.inputs] == ["a", "unused"]
    made.run({"a": np.ones(2, "float32"), "unused": np.ones(3, "float32")})


def test_messages_name_the_functions_that_users_call() -> None:
    x = var("x", 3)
    module = Module(function(ew.relu(x), params=[x]), ("y",), "net")
    with pytest.raises(TypeError, match=r"^compile\(\) got an unexpected keyword"):
        treadle.compile(module, shape={})  # type: ignore[call-arg]
    made = treadle.compile(module)
    assert made.output_sizes() == [(3,)]
