# SPDX-License-Identifier: Apache-2.0
"""Memory access in LLVM IR: loads and stores of one element or of the lanes of a vector.

Indices and values are already emitted. Under a mask nothing is touched of a lane that is off.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.dtype import itemsize
from treadle.errors import InternalError
from treadle.loop.nodes import Buffer
from treadle.target.llvm_builder import Builder, Machine, memory_type, suffix, vector
from treadle.target.llvm_facts import flat_size
from treadle.target.machine import SHUFFLED_STRIDE

_ZERO = 'call i64 asm sideeffect "", "=r,0"(i64 0) nounwind'


class Mask(NamedTuple):
    """The lanes that are on: the name of a vector of `lanes` bits."""

    text: str
    lanes: int

    def of(self, lanes: int) -> str:
        """Return the bits, for an access of that many lanes.

        Raises: InternalError where the mask has another number of lanes.
        """
        if self.lanes != lanes:
            raise InternalError(f"an access of {lanes} lanes stands under a mask of {self.lanes}")
        return self.text


class Memory:
    """Emits accesses to buffers; `pointers` holds their addresses, by identity."""

    def __init__(self, builder: Builder, machine: Machine) -> None:
        self.b = builder
        self.machine = machine
        self.pointers: dict[int, str] = {}
        self.apart: dict[tuple[int, ...], str] = {}  # zeros that LLVM takes for any numbers

    # -- addresses

    def pointer(self, buffer: Buffer) -> str:
        """Return the address of a buffer."""
        found = self.pointers.get(id(buffer))
        if found is None:
            raise InternalError(f"buffer {buffer.name} has no address in generated code")
        return found

    def address(self, buffer: Buffer, index: str) -> str:
        """Return the address of one element of a buffer."""
        pointer = self.pointer(buffer)
        if index == "0":
            return pointer
        element = memory_type(buffer.dtype)
        return self.b.let(f"getelementptr inbounds {element}, ptr {pointer}, i64 {index}")

    def _addresses(self, buffer: Buffer, index: str, lanes: int) -> str:
        element = memory_type(buffer.dtype)
        return self.b.let(
            f"getelementptr inbounds {element}, ptr {self.pointer(buffer)}, <{lanes} x i64> {index}"
        )

    # -- loads

    def load(
        self, buffer: Buffer, index: str, lanes: int, mask: Mask | None = None, multiple: int = 1
    ) -> str:
        """Return `lanes` elements that follow each other, zero where the mask is off.

        The index is a multiple of `multiple`, a power of two.
        """
        type_ = vector(memory_type(buffer.dtype), lanes)
        address = self.address(buffer, index)
        align = itemsize(buffer.dtype)
        if mask is not None:
            return self.b.intrinsic(
                type_,
                f"masked.load.{suffix(type_)}.p0",
                (f"ptr align {align}", address),
                (vector("i1", lanes), mask.of(lanes)),
                (type_, "zeroinitializer"),
            )
        if self._fills_no_register(buffer, lanes):
            return self._partial_load(buffer, address, lanes)
        align = min(align * multiple, buffer.align)
        return self.b.let(f"load {type_}, ptr {address}, align {align}")

    def strided_load(
        self,
        buffer: Buffer,
        base: str,
        stride: int,
        lanes: int,
        mask: Mask | None,
        multiple: int = 1,
    ) -> str | None:
        """Return every `stride`-th element from `base` on, None where only a gather does it.

        `base` is a multiple of `multiple`, a power of two.
        """
        if stride == 0 and mask is None:
            element = self.load(buffer, base, 1)
            return self.b.splat(element, memory_type(buffer.dtype), lanes)
        if stride == 1:
            return self.load(buffer, base, lanes, mask, multiple)
        if stride == -1 and mask is None:
            return self._reversed_load(buffer, base, lanes)
        is_small = 1 < stride <= SHUFFLED_STRIDE and lanes >= 4
        if is_small and (mask is None or self._has_masks(buffer)):
            return self._shuffled_load(buffer, base, stride, lanes, mask)
        return None

    def picked_load(
        self, buffer: Buffer, base: str, places: tuple[int, ...], multiple: int = 1
    ) -> str:
        """Return the elements at `places` of the vector at `base`, as long as there are places.

        Loads of the same vector for other places are others to LLVM: a shared one would take a
        register until the last of them. Local buffers may be registers, and are not hidden. `base`
        is a multiple of `multiple`, a power of two.
        """
        lanes, index = len(places), base
        if self.machine.wide_registers and buffer.scope != "local":
            if places not in self.apart:
                self.apart[places] = self.b.let_entry(_ZERO)
            index = self.b.let(f"add i64 {base}, {self.apart[places]}")
        raw = self.load(buffer, index, lanes, None, multiple)
        return self._shuffle(buffer, raw, raw, lanes, list(places))

    def gather(self, buffer: Buffer, index: str, lanes: int, mask: Mask | None) -> str:
        """Return the elements at a vector of indices."""
        type_ = vector(memory_type(buffer.dtype), lanes)
        addresses = self._addresses(buffer, index, lanes)
        return self.b.intrinsic(
            type_,
            f"masked.gather.{suffix(type_)}.v{lanes}p0",
            (f"<{lanes} x ptr> align {itemsize(buffer.dtype)}", addresses),
            (vector("i1", lanes), "splat (i1 true)" if mask is None else mask.of(lanes)),
            (type_, "zeroinitializer"),
        )

    def _reversed_load(self, buffer: Buffer, index: str, lanes: int) -> str:
        first = self.b.let(f"sub i64 {index}, {lanes - 1}")
        raw = self.load(buffer, first, lanes)
        return self._shuffle(buffer, raw, raw, lanes, list(range(lanes - 1, -1, -1)))

    def _shuffled_load(
        self, buffer: Buffer, index: str, stride: int, lanes: int, mask: Mask | None
    ) -> str:
        """Read every `stride`-th element through `stride` contiguous loads that stay inside.

        The loads start at multiples of lanes - 1, so that together they end exactly at the last
        element: 0 .. lanes-1, lanes-1 .. 2*lanes-2, and so on. Every other element of a local
        buffer is read as two vectors side by side, which may be registers.
        """
        pair = _pair_of(buffer, index, stride, lanes) if mask is None else None
        if pair is not None:
            low = self.load(buffer, str(pair), lanes)
            high = self.load(buffer, str(pair + lanes), lanes)
            odd = int(index) - pair
            return self._shuffle(buffer, low, high, lanes, list(range(odd, 2 * lanes, 2)))
        result, filled = "poison", 0
        for part in range(stride):
            start = part * (lanes - 1)
            at = index if start == 0 else self.b.let(f"add i64 {index}, {start}")
            picks = list(range(lanes))
            while filled < lanes and filled * stride <= start + lanes - 1:
                picks[filled] = lanes + filled * stride - start
                filled += 1
            raw = self._picked_load(buffer, at, lanes, picks, mask)
            result = self._shuffle(buffer, result, raw, lanes, picks)
        return result

    def _picked_load(
        self, buffer: Buffer, index: str, lanes: int, picks: list[int], mask: Mask | None
    ) -> str:
        """Load lanes of which lane `p - lanes` becomes lane i where `picks[i]` is p; under a mask
        only those that become a lane it holds for."""
        if mask is None:
            return self.load(buffer, index, lanes)
        bits = vector("i1", lanes)
        owners = (picks.index(p) if p in picks else lanes for p in range(lanes, 2 * lanes))
        order = ", ".join(f"i32 {i}" for i in owners)
        picked = self.b.let(
            f"shufflevector {bits} {mask.of(lanes)}, {bits} zeroinitializer, "
            f"<{lanes} x i32> <{order}>"
        )
        return self.load(buffer, index, lanes, Mask(picked, lanes))

    def _shuffle(self, buffer: Buffer, a: str, b: str, lanes: int, picks: list[int]) -> str:
        type_ = vector(memory_type(buffer.dtype), lanes)
        order = ", ".join(f"i32 {p}" for p in picks)
        return self.b.let(f"shufflevector {type_} {a}, {type_} {b}, <{lanes} x i32> <{order}>")

    # -- lanes that fill no register

    def _has_masks(self, buffer: Buffer) -> bool:
        return 0 < self.machine.least_masked <= itemsize(buffer.dtype)

    def _fills_no_register(self, buffer: Buffer, lanes: int) -> bool:
        """True for lanes that would be moved in several pieces, where a mask does it in one.

        Local buffers stay as they are: they become registers of exactly these lanes.
        """
        odd = lanes & (lanes - 1) != 0 and 4 * lanes * itemsize(buffer.dtype) > 64
        return odd and self._has_masks(buffer) and buffer.scope != "local"

    def _partial_load(self, buffer: Buffer, address: str, lanes: int) -> str:
        element = memory_type(buffer.dtype)
        full = 1 << lanes.bit_length()
        type_ = vector(element, full)
        raw = self.b.intrinsic(
            type_,
            f"masked.load.{suffix(type_)}.p0",
            (f"ptr align {itemsize(buffer.dtype)}", address),
            (vector("i1", full), _first(lanes, full)),
            (type_, "poison"),
        )
        return self._resized(element, raw, full, lanes)

    def _partial_store(self, buffer: Buffer, address: str, value: str, lanes: int) -> None:
        element = memory_type(buffer.dtype)
        full = 1 << lanes.bit_length()
        type_ = vector(element, full)
        self.b.intrinsic_void(
            f"masked.store.{suffix(type_)}.p0",
            (type_, self._resized(element, value, lanes, full)),
            (f"ptr align {itemsize(buffer.dtype)}", address),
            (vector("i1", full), _first(lanes, full)),
        )

    def _resized(self, element: str, value: str, lanes: int, to: int) -> str:
        """Return the first lanes of a vector, or a wider one that begins with it."""
        type_ = vector(element, lanes)
        order = ", ".join(f"i32 {i}" if i < lanes else "i32 poison" for i in range(to))
        return self.b.let(f"shufflevector {type_} {value}, {type_} poison, <{to} x i32> <{order}>")

    # -- stores and hints

    def store(
        self,
        buffer: Buffer,
        index: str,
        value: str,
        lanes: int,
        mask: Mask | None = None,
        multiple: int = 1,
    ) -> None:
        """Store `lanes` elements that follow each other; `multiple` as in `load`."""
        type_ = vector(memory_type(buffer.dtype), lanes)
        size = itemsize(buffer.dtype)
        address = self.address(buffer, index)
        if mask is not None:
            self.b.intrinsic_void(
                f"masked.store.{suffix(type_)}.p0",
                (type_, value),
                (f"ptr align {size}", address),
                (vector("i1", lanes), mask.of(lanes)),
            )
        elif self._fills_no_register(buffer, lanes):
            self._partial_store(buffer, address, value, lanes)
        else:
            align = min(size * multiple, buffer.align)
            self.b.line(f"store {type_} {value}, ptr {address}, align {align}")

    def scatter(
        self, buffer: Buffer, index: str, value: str, lanes: int, mask: Mask | None
    ) -> None:
        """Store elements at a vector of indices."""
        type_ = vector(memory_type(buffer.dtype), lanes)
        addresses = self._addresses(buffer, index, lanes)
        self.b.intrinsic_void(
            f"masked.scatter.{suffix(type_)}.v{lanes}p0",
            (type_, value),
            (f"<{lanes} x ptr> align {itemsize(buffer.dtype)}", addresses),
            (vector("i1", lanes), "splat (i1 true)" if mask is None else mask.of(lanes)),
        )

    def prefetch(self, buffer: Buffer, index: str, locality: int) -> None:
        """Emit a hint to fetch a line, as near as LLVM's `locality` says.

        Its address may be that of no element.
        """
        element = memory_type(buffer.dtype)
        place = self.b.let(f"getelementptr {element}, ptr {self.pointer(buffer)}, i64 {index}")
        how = [("i32", "0"), ("i32", str(locality)), ("i32", "1")]  # to read, data
        self.b.intrinsic_void("prefetch.p0", ("ptr", place), *how)

    # -- bool: a bit in registers, a byte in memory

    def from_memory(self, raw: str, dtype: str, lanes: int) -> str:
        """Return loaded elements as values in registers."""
        if dtype != "bool":
            return raw
        zero = "0" if lanes == 1 else "zeroinitializer"
        return self.b.let(f"icmp ne {vector('i8', lanes)} {raw}, {zero}")

    def to_memory(self, value: str, dtype: str, lanes: int) -> str:
        """Return values as elements to be stored."""
        if dtype != "bool":
            return value
        return self.b.let(f"zext {vector('i1', lanes)} {value} to {vector('i8', lanes)}")


def _pair_of(buffer: Buffer, index: str, stride: int, lanes: int) -> int | None:
    """Return where two whole vectors hold every second element from a constant index on."""
    size = flat_size(buffer)
    if stride != 2 or buffer.scope != "local" or size is None or not index.isdecimal():
        return None
    start = int(index) - int(index) % 2
    return start if start % lanes == 0 and start + 2 * lanes <= size else None


def _first(lanes: int, full: int) -> str:
    """Return the mask of the first `lanes` of `full` lanes."""
    return "<" + ", ".join(f"i1 {'true' if i < lanes else 'false'}" for i in range(full)) + ">"
