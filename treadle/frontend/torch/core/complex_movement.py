# SPDX-License-Identifier: Apache-2.0
"""Converters of what treats both parts of complex numbers alike: movement, choice, sums.

The converters of real numbers do it, once for each part.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.frontend.builders.complex_numbers import Complex
from treadle.frontend.torch.core import (
    creation,
    elementwise,
    indexing,
    movement,
    primitives,
    reduce,
    scatter,
    views,
)
from treadle.frontend.torch.node import AtenNode, converter_of, of_complex
from treadle.frontend.torch.parts import by_parts
from treadle.graph.nodes import Node

_SOURCES = (creation, elementwise, indexing, movement, primitives, reduce, scatter, views)
"""The files whose converters are looked up here, so that they are registered before."""

_FIRST = """
    aten.view aten._unsafe_view aten.reshape aten.view_copy aten.unsqueeze aten.squeeze
    aten.squeeze.dim aten.squeeze.dims aten.flatten.using_ints aten.unflatten.int
    aten.squeeze_copy aten.unsqueeze_copy aten._reshape_copy aten.expand aten.expand_copy
    aten.permute aten.permute_copy aten.transpose.int aten.transpose_copy.int aten.t
    aten.slice.Tensor aten.slice_copy.Tensor aten.select.int aten.select_copy.int aten.cat
    aten.concat aten.stack aten.split_with_sizes aten.split_with_sizes_copy aten.split.Tensor
    aten.chunk aten.unsafe_split.Tensor aten.unbind.int aten.unbind_copy.int aten.repeat
    aten.flip aten.roll aten.reflection_pad1d aten.reflection_pad2d aten.reflection_pad3d
    aten.replication_pad1d aten.replication_pad2d aten.replication_pad3d aten.tril aten.triu
    aten.pixel_shuffle aten.diagonal aten.diagonal_copy aten.diag_embed aten.unfold
    aten.unfold_copy aten.unfold_backward aten.take aten.as_strided aten.as_strided_copy
    aten.resize aten.split_copy.Tensor aten.unsafe_split_with_sizes aten.hsplit.int
    aten.vsplit.int aten.dsplit.int aten.index_select aten.gather aten.embedding aten.clone
    aten.alias aten.detach aten.lift_fresh_copy aten.lift_fresh aten.contiguous aten.neg
    aten.sum aten.sum.dim_IntList aten.mean aten.mean.dim aten.cumsum prims.broadcast_in_dim
    prims.collapse prims.collapse_view prims.split_dim prims.squeeze prims.reshape
    prims.view_of prims.copy_strided prims.device_put prims.transpose prims.rev prims.clone
    prims.neg prims.cat
"""
"""Operators whose first operand alone is complex numbers, or a list of such."""

_FIRST_TWO = """
    aten.select_scatter aten.slice_scatter aten.diagonal_scatter aten.as_strided_scatter
    prims.as_strided_scatter aten.copy prims.copy_to
"""
"""Operators whose first two operands are."""

_OTHERS: dict[str, tuple[int, ...]] = {
    "aten.put": (0, 2), "aten.index_put": (0, 2), "aten._unsafe_index_put": (0, 2),
    "aten.scatter.src": (0, 3), "aten.scatter_add": (0, 3), "aten.scatter.value": (0, 3),
    "aten.where.self": (1, 2), "aten.where.ScalarSelf": (1, 2), "aten.where.ScalarOther": (1, 2),
    "aten.where.Scalar": (1, 2), "prims.where": (1, 2),
    "aten.masked_fill.Scalar": (0, 2), "aten.masked_fill.Tensor": (0, 2),
    "aten.constant_pad_nd": (0, 2), "aten.fill.Scalar": (0, 1), "aten.fill.Tensor": (0, 1),
    "aten.full": (1,), "aten.full_like": (0, 1), "aten.new_full": (0, 2),
    "aten.zeros": (), "aten.zeros_like": (0,), "aten.new_zeros": (), "aten.zero": (0,),
    "aten.ones": (), "aten.ones_like": (), "aten.new_ones": (), "aten.scalar_tensor": (0,),
    "aten.empty.memory_format": (), "aten.empty_like": (), "aten.empty_strided": (),
    "aten.empty_permuted": (), "aten.new_empty": (), "aten.new_empty_strided": (),
    "prims.full": (1,), "prims.full_like": (0, 1), "prims.scalar_tensor": (0,), "prims.empty": (),
    "prims.empty_strided": (), "prims.empty_permuted": (), "prims.sum": (0,),
}  # fmt: skip
"""Operators by the places of the operands that are."""


def _register() -> None:
    places: dict[str, tuple[int, ...]] = dict.fromkeys(_FIRST.split(), (0,))
    places |= dict.fromkeys(_FIRST_TWO.split(), (0, 1)) | _OTHERS
    for name, values in places.items():
        domain, _, op = name.partition(".")
        full = op if "." in op else f"{op}.default"
        found = converter_of(f"{domain}.{full}")
        assert found is not None, name
        of_complex(full, domain=domain)(by_parts(found, values))


_register()


@of_complex("index.Tensor", "_unsafe_index.Tensor")
def index(node: AtenNode, x: Complex, indices: Sequence[Node | None]) -> Complex:
    """Convert a choice by index tensors; where a mask holds is found once."""
    given = dict(indexing.without_masks(node, indices))
    axes: list[Node | None] = [given.get(k) for k in range(max(given, default=-1) + 1)]
    made: Complex = by_parts(indexing.index)(node, x, axes)
    return made
