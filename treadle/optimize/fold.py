# SPDX-License-Identifier: Apache-2.0
"""Evaluate calls of constants at compile time, and compute equal values once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.errors import InternalError, ModelError
from treadle.expr.nodes import int_value
from treadle.graph.arrays import in_place
from treadle.graph.nodes import (
    Call,
    Constant,
    Function,
    Node,
    Tuple,
    TupleItem,
    rewrite,
)
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType, Type
from treadle.limits import (
    ALL_FOLDED_BYTES,
    COMPARED_ELEMENTS,
    FOLDED_BYTES,
    FOLDED_FLOPS,
    KEPT_BYTES,
)
from treadle.runtime.pages import release_pages


class ConstantFolder:
    """The rule `operator(constants) -> constant`, by the operators' NumPy references.

    Limits keep a small hostile model from growing without bound. A call over a limit stays in the
    graph and runs on the device. Equal calls give the same constant, not equal ones: weights that
    a network reads at every step are packed once, however often it transposes them.
    """

    def __init__(self) -> None:
        self.grown = 0
        self._known: dict[tuple[object, ...], Node] = {}

    def __call__(self, call: Call, uses: object = None) -> Node | None:
        """Return the value of a call whose operands are constants, None for any other call.

        Raises:
            ModelError: the operator cannot be evaluated for these operands.
        """
        if not isinstance(call.op, Operator) or not call.op.is_kernel or not call.args:
            return None
        if is_empty(call):
            return _nothing(call)
        if not all(isinstance(a, Constant) for a in call.args):
            return None
        key = _value_key(call)
        if key is not None and key in self._known:
            return self._known[key]
        made = self._folded(call)
        if key is not None and isinstance(made, Constant) and _is_cheap_to_keep(made, call):
            self._known[key] = made
        return made

    def _folded(self, call: Call) -> Node | None:
        arrays = [a.value for a in call.args if isinstance(a, Constant)]
        size = _nbytes(call.type)
        if size is None or not self._is_affordable(call, size, sum(a.nbytes for a in arrays)):
            return None
        value = _evaluate(call, arrays)
        return _as_node(_settled(value, arrays), call.type, call.origin)

    def _is_affordable(self, call: Call, size: int, given: int) -> bool:
        if isinstance(call.op, Operator) and call.op.flops is not None:
            flops = call.op.flops(call.attrs, *(a.type for a in call.args))
            if not isinstance(flops, int) or flops > FOLDED_FLOPS:
                return False
        if size <= given:
            return True
        if size > FOLDED_BYTES or self.grown + size > ALL_FOLDED_BYTES:
            return False
        self.grown += size
        return True


def _is_cheap_to_keep(made: Constant, call: Call) -> bool:
    """True for small values, and for those that lie in the memory of what they are made of."""
    if made.type.nbytes <= KEPT_BYTES:
        return True
    return any(
        isinstance(a, Constant) and np.may_share_memory(made.value, a.value) for a in call.args
    )


def is_empty(node: Node) -> bool:
    """True for a tensor that has no elements, whatever the sizes of a run."""
    return isinstance(node.type, TensorType) and any(int_value(d) == 0 for d in node.type.shape)


def _nothing(node: Node) -> Node | None:
    """Return a constant without elements; None where the other extents are not known."""
    type_ = node.type
    if not isinstance(type_, TensorType) or not type_.is_static:
        return None
    return Constant.of(np.zeros(type_.static_shape, dt.to_numpy(type_.dtype)), origin=node.origin)


def fold_empty(function: Function) -> Function:
    """Return `function` with values that have no elements as constants: nothing computes them.

    So no estimate of work divides by what an empty tensor has none of.
    """

    def fold(node: Node) -> Node | None:
        call = node.value if isinstance(node, TupleItem) else node
        is_computed = isinstance(call, Call) and isinstance(call.op, Operator) and call.op.is_kernel
        return _nothing(node) if is_computed and is_empty(node) else None

    return rewrite(function, fold)


def fold_constants(function: Function) -> Function:
    """Return `function` with every call of constants replaced by its value."""
    folder = ConstantFolder()
    return rewrite(function, lambda n: folder(n) if isinstance(n, Call) else None)


def merge_equal(function: Function) -> Function:
    """Return `function` with equal values computed once.

    Two calls are equal when operator, attributes and operands are; small constants when their
    elements are, bit by bit.
    """
    known: dict[tuple[object, ...], Node] = {}

    def merge(node: Node) -> Node | None:
        key = _value_key(node)
        return None if key is None else known.setdefault(key, node)

    return rewrite(function, merge)


def _value_key(node: Node) -> tuple[object, ...] | None:
    if isinstance(node, Constant):
        if node.type.size > COMPARED_ELEMENTS:
            return None
        return ("constant", node.type, node.value.tobytes())
    if isinstance(node, Call):
        if isinstance(node.op, Operator) and not node.op.is_pure:
            return None
        # The repr tells 0.0 from -0.0 and True from 1, which are equal but not the same.
        return ("call", node.op, node.attrs, repr(node.attrs), node.args)
    if isinstance(node, TupleItem):
        return ("item", node.value, node.index)
    return None


def _evaluate(call: Call, arrays: list[np.ndarray]) -> Any:  # an array or a tuple of arrays
    reference: Callable[..., Any] = call.op.reference if isinstance(call.op, Operator) else _fail
    try:
        with np.errstate(all="ignore"):
            value = reference(call.attrs, *arrays)
        for array in arrays:
            release_pages(array)
        return value
    except (ArithmeticError, LookupError, ValueError) as e:
        raise ModelError(
            f"operator {call.op} cannot be evaluated: {e}",
            at=f"node {call.origin}" if call.origin else "",
            hint="its operands are constants of the model: check their values",
        ) from e


def _settled(value: Any, operands: Sequence[np.ndarray]) -> Any:
    """Return what was computed of operands, new arrays where executors read them in place."""
    if isinstance(value, tuple):
        return tuple(_settled(v, operands) for v in value)
    is_new = isinstance(value, np.ndarray) and value.flags.c_contiguous
    if not is_new or any(np.may_share_memory(value, operand) for operand in operands):
        return value
    return in_place(value)


def _fail(*args: object) -> None:
    raise InternalError("only operators have a reference")


def _as_node(value: Any, type_: Type, origin: str) -> Node:
    if isinstance(type_, TensorType):
        array = np.asarray(value)
        found = TensorType(array.shape, dt.from_numpy(array.dtype))
        if found != type_:
            raise InternalError(f"the reference gives {found} for {type_}", at=f"node {origin}")
        return Constant(array, type_, origin)
    return Tuple.of((_as_node(v, t, origin) for v, t in zip(value, type_.fields, strict=True)))


def _nbytes(type_: Type) -> int | None:
    """Return the size of a value in bytes, None where it is not known."""
    if isinstance(type_, TensorType):
        return type_.nbytes if type_.is_static else None
    sizes = [_nbytes(f) for f in type_.fields]
    return None if any(s is None for s in sizes) else sum(s for s in sizes if s is not None)
