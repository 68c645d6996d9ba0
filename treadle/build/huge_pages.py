# SPDX-License-Identifier: Apache-2.0
"""Small weights of a compiled model on huge pages, which they share.

Memory of 2 MB and more lies on huge pages wherever the runtime makes it, so that one entry of the
processor's table of addresses covers 2 MB of a large weight. Smaller ones would lie on pages of
4 KB, and a network has more of those than the table has entries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle.build.weights import constants_of
from treadle.graph.nodes import Constant, Function
from treadle.limits import MOVED_BYTES
from treadle.runtime.array import empty_numpy
from treadle.runtime.native import ALIGNMENT
from treadle.runtime.pages import HUGE_PAGE, release_all_pages, release_heap


def share_huge_pages(constants: dict[str, np.ndarray], main: Function) -> None:
    """Move arrays smaller than a huge page together, in `constants` and in the graph of `main`.

    Nothing is done where all of them would not fill one.
    """
    sizes = {name: v.nbytes for name, v in constants.items() if 0 < v.nbytes < HUGE_PAGE}
    if sum(sizes.values()) < HUGE_PAGE:
        return
    holders = _holders(main)
    for names in _chunks(sizes):
        _move(names, constants, holders)
        release_heap()


def _holders(main: Function) -> dict[int, list[Constant]]:
    """Return the constants of a graph by the identity of their arrays."""
    found: dict[int, list[Constant]] = {}
    for node in constants_of(main):
        found.setdefault(id(node.value), []).append(node)
    return found


def _chunks(sizes: dict[str, int]) -> Iterator[list[str]]:
    """Yield names whose arrays together fill at most a chunk."""
    names: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if filled + _padded(size) > MOVED_BYTES:
            yield names
            names, filled = [], 0
        names.append(name)
        filled += _padded(size)
    yield names


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _move(
    names: list[str], constants: dict[str, np.ndarray], holders: dict[int, list[Constant]]
) -> None:
    """Move the arrays of a chunk into memory of its own."""
    sizes = [_padded(constants[name].nbytes) for name in names]
    memory = empty_numpy((-(-sum(sizes) // HUGE_PAGE) * HUGE_PAGE,), "uint8")
    left, start = [], 0
    for name, size in zip(names, sizes, strict=True):
        value = constants[name]
        copy = memory[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
        np.copyto(copy, value)
        for node in holders.get(id(value), ()):
            node.store(copy)
        constants[name] = copy
        left.append(value)
        start += size
    release_all_pages(left)
