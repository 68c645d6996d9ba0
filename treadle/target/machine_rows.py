# SPDX-License-Identifier: Apache-2.0
"""One row for each family of CPUs: its facts, and where they stand or how they were found.

Caches differ within a family where licensees or product lines choose them: a row then holds one
common part, which its source names; options of a target string say better. Rates and costs that
nobody has measured for a family are those of Zen 5 where it has caches of its own kind, and scaled
by the width of its vectors where it has not; their source then says "estimated".
`treadle doctor --measure` finds the figures of a machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from treadle.target.cpus import architecture_of, has_system
from treadle.target.machine import K, Machine
from treadle.target.machine_family import Family
from treadle.target.machine_rows_32 import GENERIC_32
from treadle.target.machine_rows_arm import ARM, GENERIC_ARM
from treadle.target.machine_rows_riscv import GENERIC_RISCV, RISCV
from treadle.target.machine_rows_x86 import GENERIC_X86, X86

FAMILIES: tuple[Family, ...] = (*X86, *ARM, *RISCV)

GENERIC = {
    "x86": GENERIC_X86,
    "aarch64": GENERIC_ARM,
    "riscv": GENERIC_RISCV,
    "arm": GENERIC_32,
    "riscv32": GENERIC_32,
}
"""By architecture: for CPUs without a row."""

BARE_STACK_BYTES = 1 * K
"""What the buffers of kernels may take of the stack on machines without a system, whatever their
CPU: half of the 2 KB that the SDK of the Raspberry Pi Pico (`PICO_STACK_SIZE`) and TI's Arm linker
(`--stack_size`) give unless told otherwise; STM32CubeIDE asks for 1 KB at least. What compilers
keep there, and the program itself, need the rest."""

_BY_CPU = {cpu: family for family in FAMILIES for cpu in family.cpus}


def family_of(triple: str, cpu: str) -> Family | None:
    """Return the row of a CPU, its architecture's generic one; None for an unknown architecture."""
    architecture = architecture_of(triple)
    if architecture is None:
        return None
    is_listed = cpu in architecture.cpus and cpu in _BY_CPU
    return _BY_CPU[cpu] if is_listed else GENERIC[architecture.name]


@cache
def machine_of(triple: str, cpu: str) -> Machine:
    """Return the facts schedules count on for a CPU; those of a generic x86-64 for none known."""
    family = family_of(triple, cpu)
    machine = GENERIC_X86.machine if family is None else family.machine
    return machine if has_system(triple) else replace(machine, stack_bytes=BARE_STACK_BYTES)
