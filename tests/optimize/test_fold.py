# SPDX-License-Identifier: Apache-2.0
"""What is known at compile time is computed there, within limits; equal values are one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, function, var
from treadle.errors import ModelError
from treadle.expr import nodes as ex
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem, topological
from treadle.graph.operator import Attrs, Operator
from treadle.ops.elementwise import add, divide, exp, multiply, relu
from treadle.ops.matmul import matmul
from treadle.ops.movement import pad, split, tile
from treadle.ops.reshaping import broadcast_to, transpose
from treadle.optimize import fold
from treadle.optimize.fold import fold_constants, fold_empty, merge_equal

x = var("x", 3, 4)


def _calls(f: Function) -> list[str]:
    return [n.op.name for n in topological([f.body]) if isinstance(n, Call)]


def test_constants_fold() -> None:
    before = function(add(x, exp(multiply(constant(4), constant(3, 1)))), params=[x])
    after = fold_constants(before)
    assert _calls(after) == ["add"]
    assert_same(before, after)


def test_tuples_fold() -> None:
    parts = split(constant(3, 4), sections=(1, 2), axis=0)
    before = function(TupleItem.of(parts, 0), TupleItem.of(parts, 1), params=[])
    after = fold_constants(before)
    assert isinstance(after.body, Tuple)
    assert all(isinstance(f, Constant) for f in after.body.fields)
    assert_same(before, after)


def test_folding_is_silent_about_division_by_zero() -> None:
    zeros = Constant.of(np.zeros(2, np.float32))
    after = fold_constants(function(divide(constant(2), zeros), params=[]))
    assert isinstance(after.body, Constant)
    assert np.isinf(after.body.value).all()


def test_origin_is_kept() -> None:
    after = fold_constants(function(exp(constant(2), origin="n7"), params=[]))
    assert after.body.origin == "n7"


def test_small_bomb_is_not_evaluated() -> None:
    big = broadcast_to(constant(1, 1), shape=(1 << 20, 1 << 20))
    after = fold_constants(function(relu(big), params=[]))
    assert _calls(after) == ["broadcast_to", "relu"]


def test_many_small_bombs_hit_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "ALL_FOLDED_BYTES", 1000)
    outputs = [tile(constant(4, key=str(k)), repeats=(20,)) for k in range(5)]
    after = fold_constants(function(*outputs, params=[]))
    assert len(_calls(after)) == 2


def test_large_weights_are_moved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transposed weight is no larger than the weight: it folds however large it is."""
    monkeypatch.setattr(fold, "FOLDED_BYTES", 10)
    after = fold_constants(function(transpose(constant(30, 40), perm=(1, 0)), params=[]))
    assert isinstance(after.body, Constant)


def test_moved_weights_are_not_copied() -> None:
    weights = constant(30, 40)
    after = fold_constants(function(transpose(weights, perm=(1, 0)), params=[]))
    assert isinstance(after.body, Constant)
    assert np.shares_memory(after.body.value, weights.value)


def test_expensive_calls_run_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "FOLDED_FLOPS", 1000)
    before = function(matmul(constant(20, 20), constant(20, 20)), params=[])
    assert _calls(fold_constants(before)) == ["matmul"]


def _raise_lookup(attrs: object, array: np.ndarray) -> np.ndarray:
    raise IndexError("index 9 is out of bounds")


def test_wrong_constants_are_the_users_mistake() -> None:
    lookup: Operator[Attrs] = Operator(
        name="lookup", infer=lambda a, t: t, compute=lambda a, t: t, reference=_raise_lookup
    )
    before = function(lookup(constant(3), origin="n3"), params=[])
    with pytest.raises(ModelError, match=r"lookup cannot be evaluated: index 9(.|\n)*node n3"):
        fold_constants(before)


def test_equal_calls_become_one() -> None:
    before = function(
        add(relu(pad(x, before=(1, 0), after=(0, 0))), exp(pad(x, before=(1, 0), after=(0, 0)))),
        params=[x],
    )
    after = merge_equal(before)
    assert sorted(_calls(after)) == ["add", "exp", "pad", "relu"]
    assert_same(before, after)


def test_equal_small_constants_become_one() -> None:
    a, b = (multiply(x, Constant.of(0.5, "float32")) for _ in range(2))
    after = merge_equal(function(a, b, params=[x]))
    assert isinstance(after.body, Tuple)
    assert after.body.fields[0] is after.body.fields[1]


@pytest.mark.parametrize("pair", [
    (Constant.of(0.0, "float32"), Constant.of(-0.0, "float32")),
    (Constant.of(1, "int32"), Constant.of(True)),
])  # fmt: skip
def test_constants_that_only_compare_equal_stay(pair: tuple[Node, Node]) -> None:
    after = merge_equal(function(*pair, params=[]))
    assert isinstance(after.body, Tuple)
    assert after.body.fields == pair


def test_attributes_that_only_compare_equal_stay() -> None:
    outputs = [pad(x, before=(1, 0), after=(0, 0), value=v) for v in (0.0, -0.0)]
    after = merge_equal(function(*outputs, params=[x]))
    assert isinstance(after.body, Tuple)
    assert after.body.fields[0] is not after.body.fields[1]


def test_nothing_computes_what_has_no_elements() -> None:
    rows = var("rows", 0, 4)
    parts = split(var("y", 2, 4), sections=(0, 4), axis=1)
    products = matmul(rows, constant(4, 5))
    nothing = matmul(var("a", 2, 0), var("b", 0, 3))  # which is six zeros
    before = function(
        exp(products), TupleItem.of(parts, 0), nothing,
        params=[rows, *parts.args, *nothing.args],  # type: ignore[list-item]  # variables
    )  # fmt: skip
    after = fold_empty(before)
    assert _calls(after) == ["matmul"]
    assert after.type == before.type
    assert_same(before, after)


def test_open_sizes_beside_an_empty_one_stay() -> None:
    n = ex.Var("n")
    rows = var("rows", n, 0)
    before = function(exp(rows), params=[rows])
    assert _calls(fold_empty(before)) == ["exp"]


def test_equal_calls_of_large_weights_give_one_constant() -> None:
    """A product at every step of a loop that was written out turns its weights round each time."""
    w = constant(600, 500)
    steps = [matmul(var(f"x{k}", 2, 500), transpose(w, perm=(1, 0))) for k in range(3)]
    other = matmul(var("y", 2, 600), transpose(w, perm=(0, 1)))
    after = fold_constants(function(*steps, other, params=[a.args[0] for a in (*steps, other)]))
    products = [n for n in topological([after.body]) if isinstance(n, Call)]
    assert len({n.args[1] for n in products[:3]}) == 1
    assert products[3].args[1] is not products[0].args[1]
