# SPDX-License-Identifier: Apache-2.0
"""What it costs to move values between the layout of the model and blocks of channels.

A call pays for the layout of its result, too: what reads it asks for one. That is looked at before
any method is chosen, from the results of a function back to its inputs (`following`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from treadle.cost.memory import level_cycles
from treadle.cost.unknown import IMAGE_EXTENT
from treadle.dtype import itemsize
from treadle.graph.nodes import Call, Node
from treadle.graph.types import Dim, TensorType
from treadle.target.base import Target


def known(size: Dim) -> int:
    """Return an extent, a typical one where only a run knows it."""
    return size if isinstance(size, int) else IMAGE_EXTENT


def bytes_of(type_: TensorType, block: int = 1) -> int:
    """Return the bytes of a value, in blocks of channels with all that they have in them.

    Of one image where the batch is not known.
    """
    batch = type_.shape[0] if type_.shape and isinstance(type_.shape[0], int) else 1
    channels, *rest = [*map(known, type_.shape[1:]), 1]
    return batch * -(-channels // block) * block * prod(rest) * itemsize(type_.dtype)


def move_cycles(type_: TensorType, target: Target) -> float:
    """Return the cycles in which a value is read and written again in another layout."""
    return copy_cycles(bytes_of(type_), target)


def copy_cycles(size: float, target: Target) -> float:
    """Return the cycles in which `size` bytes are read and written again by a pass of its own."""
    return level_cycles(2 * size, 3, target)


@dataclass(frozen=True, slots=True)
class Following:
    """The bytes that move after a call, by the layout that its result is made in.

    `packed` of a result in the layout of the model: what follows reads blocks of channels.
    `unpacked` of a result in blocks: what follows reads the layout of the model.
    """

    packed: int = 0
    unpacked: int = 0


def following(
    users: dict[Node, list[Node]],
    result: Node,
    wants_blocks: Callable[[Call, Node], int],
    carries_blocks: Callable[[Call], bool],
) -> Mapping[Node, Following]:
    """Return what moves after each node, in the order and by the users of `graph.nodes.users`.

    A reader takes blocks of `wants_blocks(reader, operand)` channels where that is not 0. One for
    which `carries_blocks(reader)` holds takes either layout, and has its result in the same. All
    others, and who calls the function, take the layout of the model.
    """
    found: dict[Node, Following] = {}
    for node in reversed(users):
        if not isinstance(node.type, TensorType):
            continue
        here = bytes_of(node.type)
        read = [Following(unpacked=here)] if node is result else []
        for reader in users[node]:
            block = wants_blocks(reader, node) if isinstance(reader, Call) else 0
            if block:
                read.append(Following(packed=bytes_of(node.type, block)))
            elif isinstance(reader, Call) and carries_blocks(reader):
                read.append(found[reader])
            else:
                read.append(Following(unpacked=here))
        packed = max((f.packed for f in read), default=0)
        found[node] = Following(packed, max((f.unpacked for f in read), default=0))
    return found
