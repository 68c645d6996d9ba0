# SPDX-License-Identifier: Apache-2.0
"""Every operator compiles where an extent of an operand is 0, and gives what its reference says."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treadle.ops  # registers the operators
from tests.ops.test_operators import call_of, field_types, inputs_of, reference_of
from treadle.build.compile import compile_model
from treadle.build.size_checks import size_checks
from treadle.errors import ModelError, TypeMismatch
from treadle.graph.nodes import Call, Function, Module, Tuple, TupleItem, Var
from treadle.graph.operator import OPERATORS, Example, Operator
from treadle.graph.types import TensorType, TupleType

assert treadle.ops

Shapes = tuple[tuple[int, ...], ...]

LOWERED = ("blocks", "nchwc", "packed", "phased", "strassen", "winograd")
"""Forms no model contains, which values without elements never get."""


def emptied(shapes: Shapes) -> Iterator[Shapes]:
    """Yield shapes with one extent set to 0: of one operand, or alike wherever it may be shared."""
    found: dict[Shapes, None] = {}
    for i, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            one = [tuple(0 if (j, k) == (i, axis) else d for k, d in enumerate(s))
                   for j, s in enumerate(shapes)]  # fmt: skip
            same = [tuple(0 if d == size else d for d in s) for s in shapes]
            first = [tuple(0 if (k, d) == (axis, size) else d for k, d in enumerate(s))
                     for s in shapes]  # fmt: skip
            found |= dict.fromkeys(map(tuple, (one, same, first)))
    found.pop(shapes, None)
    yield from found


def resized(e: Example, shapes: Shapes) -> Example:
    given = {
        k: np.resize(v, shapes[k]) if np.prod(shapes[k]) else np.zeros(shapes[k], v.dtype)
        for k, v in e.inputs.items()
    }
    return replace(e, shapes=shapes, inputs=given)


def is_plain(e: Example) -> bool:
    kinds = ("float32", "int64", "int32", "uint8", "int8", "bool")
    return all(t in kinds for t in e.dtypes) and any(e.shapes)


def module_of(call: Call) -> Module:
    """Return a model of one call."""
    fields = field_types(call.type)
    body: Call | Tuple = call
    if isinstance(call.type, TupleType):
        body = Tuple.of(TupleItem.of(call, k) for k in range(len(fields)))
    params = tuple(a for a in call.args if isinstance(a, Var))
    return Module(Function(params, body), tuple(f"y{k}" for k in range(len(fields))), "empty")


def check(op: Operator[Any], e: Example, levels: Sequence[int]) -> bool:
    """Check one example; False where the operator does not take such operands."""
    try:
        inputs = inputs_of(e)
        call = call_of(op, e, inputs)
    except (TypeMismatch, TypeError):
        return False
    if not all(isinstance(f, TensorType) for f in field_types(call.type)):
        return False
    module = module_of(call)
    if any(c.rule.never_holds for c in size_checks(module.main)):
        with pytest.raises(ModelError, match=r"empty|elements along axis|different sizes"):
            compile_model(module)
        return True
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
        wanted = reference_of(op, call, inputs)
    for level in levels:
        made = compile_model(module, opt_level=level).run(inputs)
        for result, want in zip(made, wanted, strict=True):
            assert result.shape == want.shape
            np.testing.assert_allclose(
                np.asarray(result).astype(np.float64), want.astype(np.float64), rtol=1e-2, atol=1e-2
            )
    return True


def is_of_models(op: Operator[Any]) -> bool:
    return op.is_kernel and not any(word in op.name for word in LOWERED)


def check_all(examples: int, levels: Sequence[int]) -> int:
    """Return how many calls were checked: of every operator the first `examples`."""
    done = 0
    for op in filter(is_of_models, OPERATORS.all()):
        chosen = [e for e in op.examples if is_plain(e)][:examples]
        done += sum(check(op, resized(e, s), levels) for e in chosen for s in emptied(e.shapes))
    return done


def test_operators_take_empty_operands() -> None:
    assert check_all(1, (3,)) > 200


@pytest.mark.slow
def test_more_examples_of_operators_take_empty_operands() -> None:
    assert check_all(4, (0, 3)) > 700
