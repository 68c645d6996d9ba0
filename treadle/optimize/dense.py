# SPDX-License-Identifier: Apache-2.0
"""Products with constant weights: panels of weights, and which run by Strassen's algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from treadle.dtype import bits, is_integer
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import TensorType, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.lowered.dot import dense_dot, grouped
from treadle.ops.lowered.matmul_strassen import dense_strassen, strassen_blocks
from treadle.ops.matmul import matmul
from treadle.ops.schedules.tiles import best_panel
from treadle.optimize.channels import pack_panels, packed_constant
from treadle.optimize.dots import Factors, in_whole_steps, small_factors
from treadle.optimize.strassen import (
    MOST_BYTES,
    Budget,
    ProductShape,
    are_rows_even,
    column_units,
    extra_bytes,
    half_of,
    pack_strassen,
    strassen_width,
    why_strassen,
)
from treadle.passes import decided
from treadle.target.base import Target

_PACKED = ("float32", "float64", "int32")
"""Types that are summed in themselves, by schedules that keep whole vectors in registers."""


class DenseLayouts:
    """The packed weights of a function's products: made once for all products that share them."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.panels: dict[tuple[Constant, int], Constant] = {}
        self.steps: dict[tuple[Constant, int, str], Constant] = {}
        self.strassen: dict[tuple[Constant, int], tuple[Constant, Constant | None]] = {}
        """By weights and columns of a panel: the panels, and what results are multiplied by."""
        self.sums: dict[Node, Node] = {}
        self.readers: Counter[Node] = Counter()
        self.budget = Budget(MOST_BYTES)

    def count_readers(self, nodes: Sequence[Node]) -> None:
        """Note how many products read the same values."""
        self.readers.update(n.args[0] for n in nodes if isinstance(n, Call) and _is_dense(n))

    def clear(self) -> None:
        """Let go of the weights."""
        self.panels.clear()
        self.steps.clear()
        self.strassen.clear()
        self.sums.clear()
        self.readers.clear()

    def packed(self, node: Node, fresh: Node) -> Node:
        """Return `fresh`, made of `node`; a product with constant weights reads them in panels."""
        if not isinstance(node, Call) or not isinstance(fresh, Call) or not _is_dense(fresh):
            return fresh
        a, b = fresh.args
        assert isinstance(b, Constant)
        data, (steps, n) = tensor_type(a.type), tensor_type(b.type).static_shape
        rows = data.size // max(1, data.static_shape[-1]) if data.is_static else 0
        factors = small_factors(a, b, steps, self.target)
        if factors is not None:
            return self._by_steps(fresh, b, factors, rows)
        if data.dtype not in _PACKED:
            return self._widened(node, fresh)
        decided(fresh.origin, "layout", "weights in panels", "they are known when compiled")
        shape = _product_shape(data, n, max(1, self.readers[node.args[0]]))
        width = None if shape is None else self._strassen_width(fresh.origin, shape, b)
        if shape is not None and width is not None:
            return self._by_strassen(fresh, b, shape, width)
        width = panel_width(rows, n, steps, data.dtype, self.target)
        if (b, width) not in self.panels:
            self.panels[b, width] = packed_constant(pack_panels(b.value, width), b)
        return dense_packed(a, self.panels[b, width], n=n, origin=fresh.origin)

    def _by_steps(self, node: Call, weights: Constant, factors: Factors, rows: int) -> Node:
        """Return a product whose factors are small, several steps at a time."""
        decided(node.origin, "layout", "weights in panels", "they are known when compiled")
        decided(node.origin, "method", factors.method, factors.why)
        k, n = factors.weights.shape
        data, steps = factors.data, factors.steps
        words = -(-k // steps)
        width = panel_width(rows, n, words, "int32", self.target)
        key = weights, width, factors.weights.dtype.name
        if key not in self.steps:
            panels = pack_panels(factors.weights, width)
            self.steps[key] = packed_constant(grouped(panels, 1), weights)
        x = in_whole_steps(data, tensor_type(data.type).ndim - 1, k, steps, node.origin)
        total = dense_dot(x, self.steps[key], n=n, origin=node.origin)
        made = factors.less_zero(total, (0,), 0, node.origin)
        return _as_type(made, tensor_type(node.type).dtype, node.origin)

    def _widened(self, node: Call, fresh: Call) -> Node:
        """Return a product of small integers as one of int32; other types stay as they are."""
        a, b = fresh.args
        if not is_integer(tensor_type(a.type).dtype):
            return fresh
        assert isinstance(b, Constant)
        weights = packed_constant(b.value.astype("int32"), b)
        made = matmul(_as_type(a, "int32", fresh.origin), weights, origin=fresh.origin)
        return _as_type(self.packed(node, made), tensor_type(fresh.type).dtype, fresh.origin)

    def _strassen_width(self, origin: str, shape: ProductShape, weights: Constant) -> int | None:
        width = strassen_width(shape, self.target)
        against = "" if width is None else self._objection(shape, weights, width)
        is_fast = width is not None and not against

        def reason() -> str:
            return why_strassen(shape, self.target) + against

        decided(origin, "method", "Strassen" if is_fast else "direct", reason)
        return width if is_fast else None

    def _objection(self, shape: ProductShape, weights: Constant, width: int) -> str:
        """Return why weights stay as they are although that is slower."""
        if (weights, width) in self.strassen:
            return ""
        if extra_bytes(shape) > self.budget.spare_bytes:
            return "; the weights of the model would grow too much"
        if not are_rows_even(weights.value):
            return "; rows of small weights would lose digits beside rows of large ones"
        return ""

    def _by_strassen(self, node: Call, weights: Constant, shape: ProductShape, width: int) -> Node:
        a = node.args[0]
        half = half_of(shape.rows)
        if a not in self.sums:
            self.sums[a] = strassen_blocks(a, half=half, origin=node.origin)
        key = weights, width
        if key not in self.strassen:
            factors = column_units(weights.value)
            packed = packed_constant(pack_strassen(weights.value, width, factors), weights)
            self.strassen[key] = packed, None if factors is None else Constant.of(factors)
            self.budget.spare_bytes -= extra_bytes(shape)
        panels, units = self.strassen[key]
        sizes = {"m": shape.rows, "n": shape.columns, "half": half}
        made = dense_strassen(self.sums[a], panels, **sizes, origin=node.origin)
        return made if units is None else ew.multiply(made, units, origin=node.origin)


def _is_dense(node: Call) -> bool:
    """True for a product of full-width values with constant weights."""
    if node.op is not matmul or not isinstance(node.args[1], Constant):
        return False
    data, weights = (tensor_type(x.type) for x in node.args)
    is_known = data.dtype in _PACKED or bits(data.dtype) <= 16
    return weights.ndim == 2 and is_known and weights.size > 0


def _as_type(x: Node, dtype: str, origin: str) -> Node:
    return x if tensor_type(x.type).dtype == dtype else ew.cast(x, dtype=dtype, origin=origin)


def _product_shape(data: TensorType, columns: int, sharing: int) -> ProductShape | None:
    """Return the sizes of a product that Strassen's algorithm may compute."""
    if data.dtype != "float32" or not data.is_static:
        return None
    *batch, rows, steps = data.static_shape
    return ProductShape(prod(batch), rows, columns, steps, sharing)


def panel_width(rows: int, columns: int, steps: int, dtype: str, target: Target) -> int:
    """Return how many columns of weights `[steps, columns]` lie together, in whole vectors.

    `rows` are those of the other factor, 0 where they are not known. One row has few sums: more
    columns keep the FMA units busy.
    """
    lanes = target.lanes(bits(dtype))
    vectors = -(-columns // lanes)
    if rows != 1:
        return lanes * best_panel(rows, vectors, steps * bits(dtype) // 8, target)
    width = 8
    while width > 1 and width * lanes >= 2 * columns:
        width //= 2
    return width * lanes
