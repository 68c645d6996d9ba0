# SPDX-License-Identifier: Apache-2.0
"""What the back ends of all GPU languages share: their list of passes, and constants as text."""

from __future__ import annotations

from treadle.expr.references import Instruction
from treadle.loop.nodes import PrimFunc
from treadle.lower.pipeline import device_lowering
from treadle.passes import Pipeline
from treadle.target.base import Target


def lowering(target: Target) -> Pipeline[PrimFunc]:
    """Return the passes over loop nests for a GPU; no intrinsic is kept."""
    del target  # the same for all

    def is_kept(instruction: Instruction) -> bool:
        del instruction
        return False

    return device_lowering(is_kept)


def constant(name: str, data: bytes, target: Target) -> str:
    """Return source text that defines a symbol of constant bytes in the memory of the device."""
    space = "__device__ const" if target.kind == "cuda" else "__constant"
    rows = [", ".join(map(str, data[k : k + 24])) for k in range(0, len(data), 24)]
    return "\n".join([f"{space} unsigned char {name}[] = {{", *(f"  {r}," for r in rows), "};\n"])
