# SPDX-License-Identifier: Apache-2.0
"""A product with constant weights as its methods see it, and what several of them share."""

from __future__ import annotations

from math import prod

from treadle.dtype import bits
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.lowered.matmul_strassen import BLOCKS, PRODUCTS
from treadle.ops.schedules.estimates import MatmulShape
from treadle.ops.schedules.tiles import best_panel, best_row_panel, row_pitch
from treadle.optimize.blocked import Values
from treadle.optimize.channel_order import pack_panels, packed_constant
from treadle.optimize.methods.method import Site
from treadle.optimize.methods.shared import Shared
from treadle.optimize.tied_tables import place_of
from treadle.target.base import Target


def extra_bytes(steps: int, columns: int) -> int:
    """Return how much larger float32 weights of steps x columns are for Strassen's algorithm."""
    return (PRODUCTS - BLOCKS) * steps * columns


class ProductSite(Site):
    """A call of `matmul` whose second operand is a constant matrix [steps, columns]."""

    def __init__(self, node: Call, values: Values, shared: Shared) -> None:
        super().__init__(node, values, shared)
        self.data = tensor_type(node.args[0].type)

    @property
    def weights(self) -> Constant:
        """The constant matrix."""
        weights = self.node.args[1]
        assert isinstance(weights, Constant)
        return weights

    @property
    def rows(self) -> int:
        """The rows of all matrices of values together, 0 where they are not known."""
        if not self.data.is_static:
            return 0
        return self.data.size // self.data.static_shape[-1]

    @property
    def shape(self) -> MatmulShape:
        """The sizes of the product; matrices count as 1, rows and columns as 0 where unknown."""
        *batch, rows, columns = tensor_type(self.node.type).shape
        steps = tensor_type(self.node.args[1].type).shape[-2]
        m, n, k = (d if isinstance(d, int) else 0 for d in (rows, columns, steps))
        matrices = prod(d if isinstance(d, int) else 1 for d in batch)
        # Shorter types are summed in 32 bits, and so many lanes are computed at once.
        return MatmulShape(matrices, m, n, k, max(32, bits(self.data.dtype)))

    def padding_bytes(self) -> int:
        """Return the bytes of the zeros that fill the last panel of one float32 matrix."""
        type_ = self.weights.type
        if type_.ndim != 2 or {type_.dtype, self.data.dtype} != {"float32"}:
            return 0
        steps, columns = type_.static_shape
        width = panel_width(self.rows, columns, steps, self.data.dtype, self.target)
        return type_.nbytes * (-columns % width) // columns

    @property
    def sharing(self) -> int:
        """How many products read the same values."""
        return max(1, self.shared.readers[self.node.args[0]])

    def plain_values(self) -> Node:
        """Return the first factor in the new graph."""
        return self.values.as_plain(self.node.args[0])

    def panels(self, width: int, multiple: int = 1) -> Constant:
        """Return the weights in panels of `width` columns, once for all products of them.

        The number of panels is a `multiple`.
        """
        weights = self.weights
        columns = weights.type.static_shape[1]
        count = multiple * -(-columns // (width * multiple))
        made = self.shared.once(
            (weights, width, count),
            lambda: packed_constant(pack_panels(weights.value, width, multiple), weights),
        )
        self.shared.panels.setdefault(weights, made)
        return made

    @property
    def is_looked_up(self) -> bool:
        """True where rows of the transposed weights are looked up, too, which panels allow."""
        return place_of(self.weights) in self.shared.looked_up


def as_type(x: Node, dtype: str, origin: str) -> Node:
    """Return a value cast to an element type, itself where it has that."""
    return x if tensor_type(x.type).dtype == dtype else ew.cast(x, dtype=dtype, origin=origin)


def panel_width(rows: int, columns: int, steps: int, dtype: str, target: Target) -> int:
    """Return how many columns of weights `[steps, columns]` lie together, in whole vectors.

    `rows` are those of the other factor, 0 where they are not known.
    """
    lanes = target.lanes(bits(dtype))
    vectors = -(-columns // lanes)
    if rows == 1:
        return lanes * best_row_panel(vectors, steps, target)
    pitch = row_pitch(rows, vectors, steps, bits(dtype) // 8, target)
    return lanes * best_panel(rows, vectors, pitch, target)
