# SPDX-License-Identifier: Apache-2.0
"""Compute networks of 16-bit floats in float32, between the operators that multiply the most.

No target multiplies 16-bit floats: kernels convert each factor, and the layouts of convolutions and
products are for float32 and float64. So a product of weights reads them as float32, converted once,
and its result stays float32 through everything that can take it there:

    relu(conv(x: float16, w: float16)): float16
    ->  cast(relu(conv(cast(x, float32), w': float32)), float16)

A result is rounded where it leaves the function, where the model says so by a cast, and where an
operator needs its 16 bits. That one is rounded for all who read it: what a selection picked is
then equal to where it came from.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from treadle.cost.rewrites import pays_to_widen
from treadle.errors import TypeMismatch
from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Constant, DeferredConstant, Function, Node
from treadle.graph.operator import POINTWISE, Fusion, Operator
from treadle.graph.types import TensorType, tensor_type
from treadle.ops.bits import bitcast
from treadle.ops.elementwise import cast
from treadle.passes import decided

HALVES = ("float16", "bfloat16")
WIDE = "float32"
_FOLLOWING = POINTWISE | {Fusion.INJECTIVE, Fusion.REDUCE, Fusion.ANCHOR}


def compute_halves_wide(function: Function) -> Function:
    """Return `function` with its products of 16-bit floats, and what follows them, in float32.

    Parameters and results keep their types.
    """
    nodes = g.topological([function.body])
    if not any(_is_half(n) for n in nodes):
        return function
    return _Halves(nodes).run(function, nodes)


def _is_half(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype in HALVES


def _can_follow(node: Node) -> bool:
    """True for a call whose result depends on the values of its operands, not on their bits."""
    if not isinstance(node, Call) or not isinstance(node.op, Operator):
        return False
    is_kind = node.op.fusion in _FOLLOWING and node.op is not bitcast
    return is_kind and isinstance(node.type, TensorType)


class _Halves:
    """The declared and the float32 form of every value of the new graph, each made when needed."""

    def __init__(self, nodes: list[Node]) -> None:
        self.declared: dict[Node, Node] = {}
        self.wide: dict[Node, Node] = {}
        self.rounded: set[Node] = set()
        """Values whose 16 bits an operator needs."""
        for node in nodes:
            if isinstance(node, Call) and not _can_follow(node):
                self.rounded.update(a for a in node.args if _is_half(a))

    def run(self, function: Function, nodes: list[Node]) -> Function:
        for node in nodes:
            made = self._wide_call(node) if _can_follow(node) else None
            if made is None:
                operands = [self._declared(o) for o in g.operands(node)]
                self.declared[node] = g.with_operands(node, operands)
            elif not _is_half(node):
                self.declared[node] = made
            elif node in self.rounded:
                self.declared[node] = cast(made, dtype=_dtype(node), origin=node.origin)
                self.wide[node] = cast(self.declared[node], dtype=WIDE, origin=node.origin)
            else:
                self.wide[node] = made
        if not self.wide:
            return function
        body = self._declared(function.body)
        return Function(function.params, body, function.name, dict(function.attrs))

    # -- the two forms -------------------------------------------------------------------------

    def _declared(self, node: Node) -> Node:
        if node not in self.declared:
            self.declared[node] = cast(self.wide[node], dtype=_dtype(node), origin=node.origin)
        return self.declared[node]

    def _wide(self, node: Node) -> Node:
        if not _is_half(node):
            return self.declared[node]
        if node not in self.wide:
            made = self.declared[node]
            is_known = isinstance(made, Constant)
            self.wide[node] = _widened(made) if is_known else cast(made, dtype=WIDE)
        return self.wide[node]

    # -- calls ---------------------------------------------------------------------------------

    def _wide_call(self, node: Node) -> Node | None:
        """Return a call with its 16-bit operands in float32; None where it stays as it is."""
        assert isinstance(node, Call)
        assert isinstance(node.op, Operator)
        if not any(a in self.wide and not isinstance(a, Constant) for a in node.args):
            if not self._pays(node, node.op):
                return None
            decided(node.origin, "precision", WIDE, "no target multiplies 16-bit floats")
        operands = [self._wide(a) for a in node.args]
        if node.op is cast:  # it rounds to the type that the model names, even to one of 16 bits
            return None if _is_half(node) else cast.call(node.attrs, operands, origin=node.origin)
        try:
            made = node.op.call(_wide_attrs(node.attrs), operands, origin=node.origin)
        except TypeMismatch:
            return None
        expected = WIDE if _is_half(node) else _dtype(node)
        return made if _dtype(made) == expected else None

    def _pays(self, node: Call, op: Operator[Any]) -> bool:
        """True where each element that is converted is used often, or they are known weights."""
        if op.fusion is not Fusion.ANCHOR or op.flops is None:
            return False
        if not any(_is_half(a) for a in node.args):
            return False
        work = op.flops(node.attrs, *(a.type for a in node.args))
        data = [a for a in node.args if _is_half(a) and not isinstance(a, Constant)]
        sizes = [tensor_type(a.type).elements for a in data]
        known = [s for s in sizes if isinstance(s, int)]
        if not isinstance(work, int) or len(known) < len(sizes):
            return len(data) < len(node.args)
        return pays_to_widen(work, sum(known))


def _dtype(node: Node) -> str:
    return tensor_type(node.type).dtype


def _widened(constant: Node) -> Constant:
    assert isinstance(constant, Constant)
    compute = partial(_as_float32, constant)
    return DeferredConstant(compute, constant.type.with_dtype(WIDE), constant.origin)


def _as_float32(constant: Constant) -> np.ndarray:
    return constant.value.astype(np.float32)


def _wide_attrs(attrs: Any) -> Any:  # the attribute record of any operator
    half = [f.name for f in fields(attrs) if getattr(attrs, f.name) in HALVES]
    return replace(attrs, **dict.fromkeys(half, WIDE)) if half else attrs
