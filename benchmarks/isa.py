# SPDX-License-Identifier: Apache-2.0
"""Holds the engines of a comparison to fewer instructions than the machine has.

An AVX-512 machine then shows how they compare where there is only AVX2. Treadle compiles for a CPU
that has no more (TREADLE_HOST_CPU). The peers have no switch that holds all of their kernels:
oneDNN has one (ONEDNN_MAX_CPU_ISA), but the products of OpenVINO and all of onnxruntime do not ask
oneDNN. Both ask the processor itself which registers the system saves: XGETBV, as the manuals of
Intel and AMD demand before AVX-512 is used. So they run from copies of their packages in which that
answer lacks the larger registers.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine


class NotBoundError(Exception):
    """An engine cannot be held to an instruction set; the text says why and what to do."""


@dataclass(frozen=True)
class Isa:
    """An instruction set: the CPU that Treadle compiles for, and which registers peers may see.

    `saved` are the bits of XCR0 that stay: 0 to 4 are those of x87, SSE, AVX and MPX.
    """

    name: str
    cpu: str
    saved: int
    needs: str
    exceeded_by: str

    @property
    def exceeds(self) -> bool:
        """True when this machine has more, so that the engines must be held."""
        return self.exceeded_by in machine.features()

    @property
    def is_here(self) -> bool:
        """True when this machine has the instructions."""
        return self.needs in machine.features()


ISAS = {"avx2": Isa("avx2", "haswell", 0x1F, "avx2", "avx512f")}

_LIBRARIES = {
    "onnxruntime": "capi/onnxruntime_pybind11_state*.so",
    "openvino": "libs/libopenvino_intel_cpu_plugin.so*",
}
"""By engine: the library in its package that asks for the CPU."""

_OTHER_DEVICES = shutil.ignore_patterns("*_gpu_plugin*", "*_npu_plugin*")

_XGETBV = bytes.fromhex("0f01d0")
_JOINS: Mapping[bytes, bytes] = {
    # mov eax,eax; shl rdx,32; or rdx,rax  ->  and eax,..; mov rdx,rax; nop
    bytes.fromhex("89c048c1e2204809c2"): bytes.fromhex("83e0004889c20f1f00"),
    # shl rdx,32; mov eax,eax; mov rdi,rdx; or rdi,rax  ->  and eax,..; mov rdi,rax; nop
    bytes.fromhex("48c1e22089c04889d74809c7"): bytes.fromhex("83e0004889c7660f1f440000"),
}
"""How compilers join the two halves of the answer in one register, and the same of a masked one.

The upper half has no bits that CPUs use; the third byte of what replaces it is the mask.
"""
_MASK = 2


def masked(code: bytes, saved: int) -> tuple[bytes, int]:
    """Return machine code whose answers of XGETBV keep only the bits `saved`, and how many do.

    Answers that are tested for less than a register of 64 bits stay: those ask for AVX alone.
    """
    places = 0
    for join, bound in _JOINS.items():
        places += code.count(_XGETBV + join)
        with_mask = bound[:_MASK] + bytes([saved]) + bound[_MASK + 1 :]
        code = code.replace(_XGETBV + join, _XGETBV + with_mask)
    return code, places


def bound_copies(engines: Iterable[str], isa: Isa, folder: Path) -> None:
    """Copy the packages of peers to `folder`, held to `isa`: PYTHONPATH shall begin with it.

    Raises: NotBoundError for an engine that cannot be held.
    """
    for engine in engines:
        if engine not in _LIBRARIES:
            raise NotBoundError(f"{engine} cannot be held to {isa.name}; leave it out of --peers")
        source = importlib.util.find_spec(engine)
        if source is None or source.origin is None:
            raise NotBoundError(f"{engine} is not installed; leave it out of --peers")
        copy = folder / engine
        shutil.copytree(Path(source.origin).parent, copy, ignore=_OTHER_DEVICES)
        places = sum(_mask_file(path, isa.saved) for path in copy.glob(_LIBRARIES[engine]))
        if not places:
            raise NotBoundError(
                f"this build of {engine} asks for its CPU in a way that is not known here, so it "
                f"cannot be held to {isa.name}; leave it out of --peers"
            )


def _mask_file(path: Path, saved: int) -> int:
    code, places = masked(path.read_bytes(), saved)
    path.write_bytes(code)
    return places
