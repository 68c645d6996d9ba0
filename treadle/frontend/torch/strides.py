# SPDX-License-Identifier: Apache-2.0
"""Views by strides in fx graphs, which read memory that their operand may be a part of."""

from __future__ import annotations

import torch
from torch import fx


def read_from_bases(graph: fx.Graph) -> None:
    """Let every view by strides read the tensor that its operand is a view of.

    What a piece computes lies in memory without gaps, a view of it too: strides of torch's view
    would read other elements there, or past its end.

    before: y = slice(x, 1, 0, 9, 2); as_strided(y, [3, 4], [2, 5])
    after:  y = slice(x, 1, 0, 9, 2); as_strided(x, [3, 4], [2, 5], y.storage_offset())
    """
    for node in graph.find_nodes(
        op="call_function", target=torch.ops.aten.as_strided.default, sort=False
    ):
        source, size, stride, *offset = node.args
        base = _base_of(source)
        if base is not source:
            given = offset[0] if offset and offset[0] is not None else None
            start = source.meta["val"].storage_offset() if given is None else given
            node.args = (base, size, stride, start)


def _base_of(node: fx.Node) -> fx.Node:
    """Return the value whose memory a chain of views shares."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        source = node.args[0]
        if not getattr(node.target, "is_view", False) or not _share(node, source):
            break
        node = source
    return node


def _share(a: fx.Node, b: fx.Node) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return False
    if x.dtype != y.dtype:  # strides and offsets of one count other elements than the other's
        return False
    return bool(x.untyped_storage()._cdata == y.untyped_storage()._cdata)
