# SPDX-License-Identifier: Apache-2.0
"""Products of 16-bit floats are computed in float32, and what follows them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, function, inputs_of, var
from tests.optimize.in_blocks import in_blocks  # noqa: F401  # for every test here
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Function, Node, TupleItem, Var, topological
from treadle.graph.types import tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.matmul import matmul
from treadle.ops.movement import concat
from treadle.ops.norm import batch_norm
from treadle.ops.reduce import max_
from treadle.ops.reshaping import transpose
from treadle.ops.sort import topk
from treadle.optimize.halves import compute_halves_wide
from treadle.optimize.layout import choose_layouts
from treadle.optimize.pipeline import graph_pipeline
from treadle.target.parse import parse_target

UNIT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def wide(body: Node, *params: Var, dtype: str = "float16") -> Function:
    """Return the function with products in float32; the meaning is kept but for rounding."""
    before = function(body, params=params)
    after = compute_halves_wide(before)
    assert_same(before, after, rtol=8 * UNIT[dtype])
    return after


def types(f: Function) -> dict[str, list[str]]:
    """Return the element types of the calls of every operator but casts, in order."""
    found: dict[str, list[str]] = {}
    for n in topological([f.body]):
        if isinstance(n, Call) and n.op is not ew.cast:
            found.setdefault(str(n.op), []).append(tensor_type(n.type).dtype)
    return found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_convolution_and_what_follows_are_float32(dtype: str) -> None:
    x = var("x", 1, 8, 6, 6, dtype=dtype)
    made = conv(x, constant(8, 8, 3, 3, dtype=dtype), pads_before=(1, 1), pads_after=(1, 1))
    shifted = ew.relu(ew.add(made, constant(1, 8, 1, 1, dtype=dtype)))
    after = wide(concat(shifted, x, axis=1), x, dtype=dtype)
    assert {t for found in types(after).values() for t in found} == {"float32"}
    weights = [n for n in topological([after.body]) if isinstance(n, Constant)]
    assert {w.type.dtype for w in weights} == {"float32"}


def test_what_multiplies_nothing_stays() -> None:
    x = var("x", 4, 6, dtype="float16")
    f = function(ew.relu(transpose(ew.add(x, x), perm=(1, 0))), params=[x])
    assert compute_halves_wide(f) is f


def test_a_matrix_that_is_read_once_is_not_converted() -> None:
    """One row by a matrix that is no weight: converting costs as much as the product."""
    x, m = var("x", 1, 64, dtype="float16"), var("m", 64, 64, dtype="float16")
    f = function(matmul(x, m), params=[x, m])
    assert compute_halves_wide(f) is f
    many = var("x", 64, 64, dtype="float16")
    assert types(wide(matmul(many, m), many, m)) == {"matmul": ["float32"]}


def test_a_cast_of_the_model_rounds() -> None:
    x = var("x", 3, 40, dtype="float16")
    product = matmul(x, constant(40, 5, dtype="float16"))
    again = ew.cast(ew.cast(product, dtype="bfloat16"), dtype="float32")
    f = function(again, params=[x])
    (found,) = run(compute_halves_wide(f), inputs_of(f))
    assert np.all(found.view(np.uint32) & 0xFFFF == 0)  # digits of a bfloat16


def test_what_a_selection_picks_is_equal_to_where_it_comes_from() -> None:
    """topk reads 16 bits: the value is rounded for all, else the comparison finds fewer."""
    x = var("x", 4, 40, dtype="float16")
    product = matmul(x, constant(40, 16, dtype="float16"))
    least = TupleItem.of(topk(product, k=3, axis=1), 0)
    kept = ew.greater_equal(
        product, ew.negative(max_(ew.negative(least), axes=(1,), keepdims=True))
    )
    before = function(kept, params=[x])
    (found,) = run(compute_halves_wide(before), inputs_of(before))
    assert found.sum(axis=1).tolist() == [3] * 4


def test_a_result_that_is_also_read_is_rounded_for_the_caller_alone() -> None:
    x = var("x", 4, 40, dtype="float16")
    product = matmul(x, constant(40, 16, dtype="float16"))
    before = function(product, ew.relu(product), params=[x])
    after = compute_halves_wide(before)
    assert_same(before, after, rtol=1e-3)
    relu = next(n for n in topological([after.body]) if isinstance(n, Call) and n.op is ew.relu)
    assert relu.args[0] in {n for n in topological([after.body]) if isinstance(n, Call)
                            and n.op is matmul}  # fmt: skip


def test_a_network_of_halves_gets_the_layouts_of_float32() -> None:
    """Normalisations fold into the weights, and convolutions run in blocks of channels."""
    target = parse_target("llvm -mcpu=skylake-avx512")
    x = var("x", 1, 16, 12, 12, dtype="float16")
    vectors = [constant(32, dtype="float16", key=str(k)) for k in range(3)]
    variance = Constant.of(np.abs(vectors[0].value) + np.float16(1))
    made = batch_norm(conv(x, constant(32, 16, 1, 1, dtype="float16")), *vectors, variance)
    before = function(ew.relu(made), params=[x])
    passes = graph_pipeline(target).passes
    after = before
    for step in passes[: [p.name for p in passes].index("choose_layouts") + 1]:
        after = step.run(after)
    assert after.type == before.type
    assert "conv2d_nchwc" in types(after)
    assert "batch_norm" not in types(after)
    assert choose_layouts(before, target).type == before.type
