# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the key that each run draws; what is made of it are operators of other modules.

Kernels keep no state. A random number is a function of a key and of its element's place, and the
executor, which advances, gives each run (and each iteration of a loop) other keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import TensorType

KEY = TensorType((), "uint64")


@dataclass(frozen=True, slots=True)
class KeyAttrs(Attrs):
    """`label` tells the keys of a model apart: each is drawn, none is another one."""

    label: str


random_key: Operator[KeyAttrs] = register(
    Operator(
        name="random_key",
        infer=lambda a: KEY,
        reference=lambda a: np.array(crc32(a.label.encode()), np.uint64),
        attrs_type=KeyAttrs,
        is_pure=False,
        examples=(Example((), {"label": "node"}),),
    )
)
"""A number that every use of the node shares; its reference is the same in every run."""
