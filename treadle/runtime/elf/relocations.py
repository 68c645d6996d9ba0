# SPDX-License-Identifier: Apache-2.0
"""Filling places in: what each relocation of x86-64 and aarch64 writes.

Every place is filled relative to where it stands itself, so that nothing is left to be done when
the code is loaded at an address nobody knows yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treadle.errors import ToolchainError
from treadle.runtime.elf.objects import AARCH64, RISCV, X86_64

_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """`data[offset:]` is loaded at `address`; it is to mean the address `target`."""

    data: bytearray
    offset: int
    address: int
    target: int

    def read(self, size: int) -> int:
        """Return the unsigned number of `size` bytes that stands here."""
        piece = self.data[self.offset : self.offset + size]
        if len(piece) != size:
            raise ToolchainError("a relocation lies outside of its section")
        return int.from_bytes(piece, "little")

    def write(self, value: int, size: int) -> None:
        """Put a number there, modulo its range."""
        self.read(size)
        number = value % (1 << 8 * size)
        self.data[self.offset : self.offset + size] = number.to_bytes(size, "little")


Apply = Callable[[Place], None]


def fill_in(machine: int, kind: int, place: Place) -> None:
    """Apply relocation number `kind` of a machine.

    Raises: ToolchainError when it is unknown here, or the distance is too large for it.
    """
    apply = _KINDS.get((machine, kind))
    if apply is None:
        raise ToolchainError(f"relocations of kind {kind} are not supported for machine {machine}")
    apply(place)


POINTERS = {X86_64: 1, AARCH64: 257, RISCV: 2}
"""The relocation of each machine that asks for an address of 64 bits."""


def is_pointer(machine: int, kind: int) -> bool:
    """True for a relocation that asks for an address of 64 bits."""
    return POINTERS.get(machine) == kind


def _check_reach(value: int, bits: int) -> None:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ToolchainError(f"a distance of {value} bytes is more than a relocation can express")


def _distance(size: int) -> Apply:
    """The signed distance as a number of `size` bytes."""

    def apply(place: Place) -> None:
        distance = place.target - place.address
        _check_reach(distance, 8 * size)
        place.write(distance, size)

    return apply


def _insert(place: Place, value: int, low: int, bits: int) -> None:
    """Put the lowest `bits` of a value into the instruction, from its bit `low` on."""
    mask = (1 << bits) - 1
    word = place.read(4) & ~(mask << low)
    place.write(word | (value & mask) << low, 4)


def _branch(bits: int, low: int) -> Apply:
    """A distance in instructions, `bits` wide."""

    def apply(place: Place) -> None:
        distance = place.target - place.address
        _check_reach(distance, bits + 2)
        if distance % 4:
            raise ToolchainError("a branch goes between two instructions")
        _insert(place, distance >> 2, low, bits)

    return apply


def _split_21(place: Place, value: int) -> None:
    """adr and adrp keep the two lowest of 21 bits apart from the others."""
    _insert(place, value, 29, 2)
    _insert(place, value >> 2, 5, 19)


def _near_address(place: Place) -> None:
    distance = place.target - place.address
    _check_reach(distance, 21)
    _split_21(place, distance)


def _page_distance(place: Place) -> None:
    distance = place.target // _PAGE - place.address // _PAGE
    _check_reach(distance, 21)
    _split_21(place, distance)


def _within_page(shift: int) -> Apply:
    """The place within its page of 4096 bytes, in elements of 2**shift bytes."""

    def apply(place: Place) -> None:
        low = place.target % _PAGE
        if low % (1 << shift):
            raise ToolchainError("a constant is less aligned than the instruction that loads it")
        _insert(place, low >> shift, 10, 12)

    return apply


_KINDS: dict[tuple[int, int], Apply] = {
    (X86_64, 2): _distance(4),  # PC32
    (X86_64, 4): _distance(4),  # PLT32: the function itself, no table is between
    (X86_64, 24): _distance(8),  # PC64
    (AARCH64, 260): _distance(8),  # PREL64
    (AARCH64, 261): _distance(4),  # PREL32
    (AARCH64, 273): _branch(19, 5),  # LD_PREL_LO19
    (AARCH64, 274): _near_address,  # ADR_PREL_LO21
    (AARCH64, 275): _page_distance,  # ADR_PREL_PG_HI21
    (AARCH64, 276): _page_distance,  # ADR_PREL_PG_HI21_NC
    (AARCH64, 277): _within_page(0),  # ADD_ABS_LO12_NC
    (AARCH64, 278): _within_page(0),  # LDST8_ABS_LO12_NC
    (AARCH64, 279): _branch(14, 5),  # TSTBR14
    (AARCH64, 280): _branch(19, 5),  # CONDBR19
    (AARCH64, 282): _branch(26, 0),  # JUMP26
    (AARCH64, 283): _branch(26, 0),  # CALL26
    (AARCH64, 284): _within_page(1),  # LDST16_ABS_LO12_NC
    (AARCH64, 285): _within_page(2),  # LDST32_ABS_LO12_NC
    (AARCH64, 286): _within_page(3),  # LDST64_ABS_LO12_NC
    (AARCH64, 299): _within_page(4),  # LDST128_ABS_LO12_NC
}
