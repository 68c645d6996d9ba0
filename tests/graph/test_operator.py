# SPDX-License-Identifier: Apache-2.0
"""Operator records: attributes, typed calls, the table of names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from treadle.errors import TypeMismatch
from treadle.graph.nodes import Constant, Var
from treadle.graph.operator import Attrs, Operator, OperatorTable, constant_value
from treadle.graph.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ScaleAttrs(Attrs):
    factor: float
    axes: tuple[int, ...] = ()


def _infer(attrs: Attrs, x: Type) -> Type:
    if isinstance(x, TensorType) and x.dtype == "bool":
        raise TypeMismatch("a bool cannot be scaled")
    return x


scale: Operator[ScaleAttrs] = Operator(
    "scale", _infer, lambda a, x: x * a.factor, attrs_type=ScaleAttrs
)
x = Var("x", TensorType((2,), "float32"))


def test_calls_are_typed() -> None:
    call = scale(x, factor=2.0, origin="n1")
    assert call.type == x.type
    assert call.attrs == ScaleAttrs(2.0)
    assert call.origin == "n1"
    assert str(scale) == "scale"


def test_attributes_are_plain_and_hashable() -> None:
    attrs = scale.make_attrs({"factor": np.float32(0.5), "axes": [np.int64(1), 2]})
    assert attrs == ScaleAttrs(0.5, (1, 2))
    assert isinstance(attrs, ScaleAttrs)
    assert type(attrs.factor) is float
    assert hash(attrs) == hash(ScaleAttrs(0.5, (1, 2)))


def test_unknown_attribute() -> None:
    with pytest.raises(TypeMismatch, match=r"no attribute 'axis'(.|\n)*axes, factor"):
        scale(x, factor=1.0, axis=0)


def test_missing_attribute() -> None:
    with pytest.raises(TypeMismatch, match=r"operator scale.*factor"):
        scale(x)


def test_operands_that_do_not_fit() -> None:
    flag = Var("flag", TensorType((), "bool"))
    with pytest.raises(TypeMismatch, match=r"cannot be scaled\n  at    operator scale, node n2"):
        scale(flag, factor=1.0, origin="n2")


def test_table() -> None:
    table = OperatorTable()
    assert table.register(scale) is scale
    assert table.get("scale") is scale
    assert table.get("other") is None
    assert table.all() == [scale]
    with pytest.raises(TypeMismatch, match="already registered"):
        table.register(scale)


def test_constant_values() -> None:
    array = np.ones(2, np.float32)
    assert constant_value(Constant.of(array)) is array
    assert constant_value(x) is None
