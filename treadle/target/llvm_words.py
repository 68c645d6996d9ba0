# SPDX-License-Identifier: Apache-2.0
"""Loads of words of neighbouring elements, one for every lane: operands of intrinsics."""

from __future__ import annotations

from collections.abc import Callable

from treadle.dtype import itemsize
from treadle.loop.nodes import Buffer
from treadle.target.llvm_builder import Builder, memory_type, suffix, vector

_LARGEST_SHUFFLED_STEP = 4


class WordLoads:
    """Emits loads of `count` elements for each lane; `pointer` gives the address of a buffer."""

    def __init__(self, builder: Builder, pointer: Callable[[Buffer], str]) -> None:
        self.b = builder
        self.pointer = pointer

    def load(self, buffer: Buffer, base: str, stride: int, lanes: int, count: int) -> str:
        """Return the elements of all lanes, those of a lane together, as one vector.

        Lane k has the `count` elements from base + k * stride on: lanes that follow each other are
        one load, one word for all lanes is repeated, every second word is picked from two vectors
        and so on, and others are gathered.
        """
        type_ = vector(memory_type(buffer.dtype), lanes * count)
        align = itemsize(buffer.dtype)
        if lanes == 1 or stride == count:
            return self.b.let(f"load {type_}, ptr {self._at(buffer, base)}, align {align}")
        word = f"i{8 * align * count}"
        step, rest = divmod(stride, count)
        if stride == 0:
            raw = self.b.let(f"load {word}, ptr {self._at(buffer, base)}, align {align}")
            words = self.b.splat(raw, word, lanes)
        elif rest == 0 and 1 < step <= _LARGEST_SHUFFLED_STEP and lanes >= 4:
            words = self._picked(buffer, base, step, lanes, count, word)
        else:
            words = self._gathered(buffer, base, stride, lanes, word)
        return self.b.let(f"bitcast {vector(word, lanes)} {words} to {type_}")

    def _at(self, buffer: Buffer, index: str, more: int = 0) -> str:
        place = self.b.let(f"add i64 {index}, {more}") if more else index
        if place == "0":
            return self.pointer(buffer)
        element = memory_type(buffer.dtype)
        return self.b.let(
            f"getelementptr inbounds {element}, ptr {self.pointer(buffer)}, i64 {place}"
        )

    def _picked(
        self, buffer: Buffer, base: str, step: int, lanes: int, count: int, word: str
    ) -> str:
        """Read every `step`-th word through `step` vectors of words that follow each other.

        They start at multiples of lanes - 1 words, so that together they end exactly at the last.
        """
        type_, result, filled = vector(word, lanes), "poison", 0
        for part in range(step):
            start = part * (lanes - 1)
            address = self._at(buffer, base, start * count)
            raw = self.b.let(f"load {type_}, ptr {address}, align {itemsize(buffer.dtype)}")
            picks = list(range(lanes))
            while filled < lanes and filled * step <= start + lanes - 1:
                picks[filled] = lanes + filled * step - start
                filled += 1
            order = ", ".join(f"i32 {p}" for p in picks)
            mask = f"<{lanes} x i32> <{order}>"
            result = self.b.let(f"shufflevector {type_} {result}, {type_} {raw}, {mask}")
        return result

    def _gathered(self, buffer: Buffer, base: str, stride: int, lanes: int, word: str) -> str:
        index, element = vector("i64", lanes), memory_type(buffer.dtype)
        steps = ", ".join(f"i64 {stride * lane}" for lane in range(lanes))
        places = self.b.let(f"add {index} {self.b.splat(base, 'i64', lanes)}, <{steps}>")
        addresses = self.b.let(
            f"getelementptr inbounds {element}, ptr {self.pointer(buffer)}, {index} {places}"
        )
        type_ = vector(word, lanes)
        return self.b.intrinsic(
            type_,
            f"masked.gather.{suffix(type_)}.v{lanes}p0",
            (f"<{lanes} x ptr> align {itemsize(buffer.dtype)}", addresses),
            (vector("i1", lanes), "splat (i1 true)"),
            (type_, "poison"),
        )
