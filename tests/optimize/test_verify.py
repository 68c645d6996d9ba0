# SPDX-License-Identifier: Apache-2.0
"""Every way a graph can be malformed has a message."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.cases import constant, function, var
from treadle.errors import InternalError
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem
from treadle.graph.types import TensorType, TupleType
from treadle.ops.elementwise import add, relu
from treadle.ops.movement import split
from treadle.optimize.fuse import fuse
from treadle.optimize.verify import verify

x = var("x", 3, 4)
wrong = TensorType((4, 3), "float32")


def test_good_graphs_pass() -> None:
    parts = split(relu(x), sections=(1, 3), axis=1)
    f = function(TupleItem.of(parts, 0), add(x, constant(4)), params=[x])
    verify(f)
    verify(fuse(f))


def _wrong_constant() -> Constant:
    return Constant(np.zeros((3, 4), np.float32), wrong)


_callee = Function((x,), relu(x), "f")
BAD: dict[str, tuple[Node, str]] = {
    "a call": (Call(relu, (x,), relu.attrs_type(), wrong, "n"), r"node n, operator relu"),
    "a call that cannot be": (
        Call(add, (x, constant(4, dtype="int8")), add.attrs_type(), x.type),
        "operator add does not fit",
    ),
    "a constant": (_wrong_constant(), "a node says"),
    "a tuple": (Tuple((x,), TupleType((wrong,))), "a node says"),
    "an item": (TupleItem(Tuple.of([x]), 1, wrong), "no field 1"),
    "a variable": (relu(var("y", 3)), "y is not a parameter"),
    "arguments": (Call(_callee, (constant(3),), None, x.type), "f takes"),
    "a called function's result": (Call(_callee, (x,), None, wrong), "a node says"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    node, message = BAD[name]
    with pytest.raises(InternalError, match=message):
        verify(function(node, params=[x]))


def test_called_functions_are_verified() -> None:
    inner = Function((x,), relu(var("y", 3)), "inner")
    with pytest.raises(InternalError, match="function inner"):
        verify(function(Call(inner, (x,), None, inner.type), params=[x]))


def test_two_parameters_of_one_name() -> None:
    with pytest.raises(InternalError, match="one name"):
        verify(function(x, params=[x, var("x", 2)]))
