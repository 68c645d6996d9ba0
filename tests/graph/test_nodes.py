# SPDX-License-Identifier: Apache-2.0
"""Graph nodes: traversal without recursion, rewriting, use counts."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import TypeMismatch
from treadle.graph.nodes import (
    Call,
    Constant,
    DeferredConstant,
    Function,
    Node,
    Tuple,
    TupleItem,
    Var,
    operands,
    outputs_of,
    rewrite,
    topological,
    users,
    with_operands,
)
from treadle.graph.types import TensorType
from treadle.ops.elementwise import add, exp, relu
from treadle.ops.movement import split
from treadle.ops.reshaping import transpose

x = Var("x", TensorType((2, 3), "float32"))


def test_constants_are_not_copied() -> None:
    array = np.ones((2, 3), np.float32)
    assert Constant.of(array).value is array
    assert Constant.of(3, "int8").type == TensorType((), "int8")


def test_constants_lie_in_row_major_order() -> None:
    constant = Constant.of(np.arange(6).reshape(2, 3).T)
    assert constant.value.flags.c_contiguous
    np.testing.assert_array_equal(constant.value, [[0, 3], [1, 4], [2, 5]])


def test_item_of_a_tuple_is_its_field() -> None:
    y = relu(x)
    assert TupleItem.of(Tuple.of([x, y]), 1) is y


@pytest.mark.parametrize(("value", "index"), [
    (x, 0), (Tuple.of([x]), 1), (Tuple.of([x]), -1),
])  # fmt: skip
def test_item_that_is_not_there(value: Node, index: int) -> None:
    with pytest.raises(TypeMismatch, match="has no field"):
        TupleItem.of(value, index)


def test_operands_come_before_users_and_once() -> None:
    y = relu(x)
    total = add(y, exp(y))
    order = topological([total])
    assert order == [x, y, total.args[1], total]


def test_order_of_a_deep_graph() -> None:
    node: Node = x
    for _ in range(20_000):
        node = relu(node)
    assert len(topological([node])) == 20_001


def test_users_count_every_use() -> None:
    y = relu(x)
    total = add(y, y)
    found = users([total])
    assert found == {x: [y], y: [total, total], total: []}


def test_unchanged_operands_give_the_same_node() -> None:
    y = relu(x)
    assert with_operands(y, [x]) is y


def test_changed_operands_give_a_new_type_and_the_old_origin() -> None:
    y = transpose(x, perm=(1, 0), origin="n")
    changed = with_operands(y, [Var("y", TensorType((5, 7), "float32"))])
    assert isinstance(changed, Call)
    assert changed.type == TensorType((7, 5), "float32")
    assert changed.origin == "n"


def test_operands_that_do_not_fit_name_the_node() -> None:
    y = add(x, x, origin="sum1")
    with pytest.raises(TypeMismatch, match="operator add, node sum1"):
        with_operands(y, [x, Var("y", TensorType((4,), "float32"))])


def test_rewrite_replaces_operands_first() -> None:
    seen: list[str] = []

    def rule(node: Node) -> Node | None:
        if not isinstance(node, Call):
            return None
        seen.append(node.op.name)
        return exp(node.args[0]) if node.op is relu else None

    f = Function((x,), add(relu(x), x), attrs={"k": 1})
    changed = rewrite(f, rule)
    assert seen == ["relu", "add"]
    assert isinstance(changed.body, Call)
    assert changed.body.args[0].op is exp  # type: ignore[union-attr]
    assert changed.attrs == f.attrs


def test_rewrite_keeps_shared_values_shared() -> None:
    y = relu(x)
    changed = rewrite(
        Function((x,), add(y, y)),
        lambda n: exp(x) if isinstance(n, Call) and n.op is relu else None,
    )
    a, b = operands(changed.body)
    assert a is b


def test_rewrite_maps_parameters() -> None:
    z = Var("z", TensorType((4,), "float32"))
    changed = rewrite(Function((x,), relu(x)), lambda n: None, {x: z})
    assert changed.params == (z,)
    assert changed.type == z.type


def test_outputs() -> None:
    assert outputs_of(x) == (x,)
    assert outputs_of(Tuple.of([x, x])) == (x, x)
    parts = split(x, sections=(1, 2), axis=1)
    assert outputs_of(parts) == (parts,)


def test_deferred_constants_are_computed_when_asked_for_and_not_kept() -> None:
    made = []

    def compute() -> np.ndarray:
        made.append(1)
        return np.arange(3, dtype=np.float32)

    constant = DeferredConstant(compute, TensorType((3,), "float32"))
    assert made == []
    first = constant.value
    assert constant.value is first
    del first
    np.testing.assert_array_equal(constant.value, [0, 1, 2])
    assert len(made) == 2
    kept = compute()
    constant.store(kept)
    assert constant.value is kept
    assert len(made) == 3
