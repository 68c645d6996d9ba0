# SPDX-License-Identifier: Apache-2.0
"""The schedule for GPUs of attention: one launch, written by hand, where its tiles fit a block."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cost.gpu import AttentionTile, attention_cycles_on_gpu, attention_tiles
from treadle.expr.nodes import Expr, int_value
from treadle.graph.operator import Group
from treadle.loop.nodes import Buffer, Stmt
from treadle.ops.schedules.gpu.attention_elements import Elements, elements_of
from treadle.ops.schedules.gpu.attention_nest import attention_nest
from treadle.ops.schedules.gpu.default import schedule_gpu
from treadle.ops.schedules.gpu.facts import gpu_of
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import ExternOp


def schedule_device_attention(group: Group, target: Target, knobs: Knobs) -> None:
    """Compute rows of attention in blocks that go through the keys once; knob `tile`.

    Where that cannot be, in other element types for instance, its stages are launched one after
    the other.
    """
    elements = elements_of(group)
    tiles = [] if elements is None else _tiles(elements, target)
    if elements is None or not tiles:
        schedule_gpu(group, target, knobs)
        return
    gpu = gpu_of(target)
    heads, rows, keys = _counts(elements)

    def cost(tile: AttentionTile) -> float:
        depth, width = elements.depth, elements.columns
        return attention_cycles_on_gpu(heads, rows, keys, depth, width, tile, gpu)

    _write(elements, knobs.pick("tile", tiles, cost=cost), group)


def _tiles(elements: Elements, target: Target) -> list[AttentionTile]:
    return attention_tiles(elements.depth, elements.columns, gpu_of(target))


def _counts(elements: Elements) -> tuple[int, int, int]:
    """Return how many heads, rows and keys there are, 0 where that is not known."""
    heads = 1
    for axis in elements.heads:
        heads *= int_value(axis.extent) or 1
    return heads, int_value(elements.rows) or 0, int_value(elements.keys) or 0


def _write(elements: Elements, tile: AttentionTile, group: Group) -> None:
    """Put the hand-written nest in the place of the stages of a group."""
    result, attrs = elements.result, group.attrs

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        (out,) = outs
        return attention_nest(
            elements, tile, ins, out, nan_is_zero=attrs.nan_is_zero, ahead=attrs.ahead
        )

    old = result.op
    shape: tuple[Expr, ...] = old.output(0).shape
    result.become(ExternOp(old.name, elements.tensors, (shape,), (old.output(0).dtype,), build))
    result.schedule.replaced(result, old)
