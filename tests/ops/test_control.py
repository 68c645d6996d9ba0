# SPDX-License-Identifier: Apache-2.0
"""Branches, loops and sizes given by values: types, meaning, and text."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as SizeVar
from treadle.graph.interpret import run
from treadle.graph.nodes import Constant, Function, Node, Tuple, TupleItem, Var
from treadle.graph.parse import parse
from treadle.graph.text import function_text, listed_constants
from treadle.graph.types import TensorType
from treadle.ops import elementwise as ew
from treadle.ops.control import CONDITION, COUNT, IfAttrs, LoopAttrs, if_, loop
from treadle.ops.movement import concat
from treadle.ops.select import bind_size, head, nonzero
from treadle.optimize.verify import verify

VECTOR = TensorType((4,), "float32")
X = np.array([1, -2, 3, 0], "float32")


def positions(x: Node, size: SizeVar) -> Node:
    """Return int64[size]: the positions of what is not zero."""
    found = nonzero(x)
    whole = bind_size(TupleItem.of(found, 0), TupleItem.of(found, 1), size=size)
    return head(whole, size=size)


def branch(name: str, make: object) -> Function:
    """Return a function of one vector."""
    p = Var("p", VECTOR)
    return Function((p,), make(p), name)  # type: ignore[operator]


def if_of(then: Function, orelse: Function, *sizes: SizeVar) -> Function:
    """Return a function of a condition and a vector."""
    c, x = Var("c", CONDITION), Var("x", VECTOR)
    call = if_.call(IfAttrs(then, orelse, sizes), (c, x))
    return Function((c, x), TupleItem.of(call, 0), "main")


def counting_loop(grows: bool) -> Function:
    """Return a loop that doubles a vector, or joins it to what it has, until it is large."""
    n = SizeVar("n", "int64")
    state = TensorType((n if grows else 4,), "float32")
    i, c, s, x = Var("i", COUNT), Var("c", CONDITION), Var("s", state), Var("x", VECTOR)
    more = concat(s, x, axis=0) if grows else ew.add(s, x)
    goes_on = ew.less(i, Constant.of(2, "int64"))
    body = Function((i, c, s, x), Tuple.of([goes_on, more, x]), "body")
    limit, start = Var("limit", COUNT), Var("start", VECTOR)
    count, final = SizeVar("count", "int64"), SizeVar("final", "int64")
    sizes = (final, count) if grows else (count,)
    true = Constant.of(True, "bool")
    call = loop.call(LoopAttrs(body, 1, sizes), (limit, true, start, start))
    return Function((limit, start), Tuple.of(TupleItem.of(call, k) for k in range(2)), "main")


def round_trip(f: Function) -> None:
    text = function_text(f)
    again = parse(text, constants=listed_constants(f))
    assert function_text(again) == text
    verify(again)


def test_sizes_given_by_values() -> None:
    x = Var("x", VECTOR)
    f = Function((x,), positions(x, SizeVar("n", "int64")), "main")
    assert str(f.type) == "int64[n]"
    (y,) = run(f, {"x": X})
    np.testing.assert_array_equal(y, [0, 1, 2])
    round_trip(f)


def test_if_runs_one_branch() -> None:
    f = if_of(branch("then", ew.negative), branch("orelse", ew.relu))
    assert f.type == VECTOR
    for c, want in ((True, -X), (False, np.maximum(X, 0))):
        np.testing.assert_array_equal(run(f, {"c": np.array(c), "x": X})[0], want)
    round_trip(f)


def test_branches_of_different_sizes_need_a_name_for_the_result() -> None:
    n, m = SizeVar("n", "int64"), SizeVar("m", "int64")
    then = branch("then", lambda p: positions(p, m))
    orelse = branch("orelse", lambda p: Constant.of(np.array([7], "int64")))
    f = if_of(then, orelse, n)
    assert str(f.type) == "int64[n]"
    assert run(f, {"c": np.array(True), "x": X})[0].tolist() == [0, 1, 2]
    assert run(f, {"c": np.array(False), "x": X})[0].tolist() == [7]
    round_trip(f)
    with pytest.raises(TypeMismatch, match="fewer `sizes`"):
        if_of(then, orelse)


def test_branches_must_agree() -> None:
    scalar = branch("orelse", lambda p: Constant.of(1.0, "float32"))
    with pytest.raises(TypeMismatch, match="one branch gives"):
        if_of(branch("then", ew.relu), scalar)


@pytest.mark.parametrize("grows", [False, True])
def test_loop_carries_states_and_stacks_rows(grows: bool) -> None:
    f = counting_loop(grows)
    for limit in (0, 2, 9):
        final, rows = run(f, {"limit": np.array(limit), "start": X})
        turns = min(limit, 3)  # the condition ends it
        want = np.concatenate([X] * (turns + 1)) if grows else X * (turns + 1)
        np.testing.assert_array_equal(final, want)
        np.testing.assert_array_equal(rows, np.stack([X] * turns) if turns else np.zeros((0, 4)))
    round_trip(f)
