# SPDX-License-Identifier: Apache-2.0
"""Indices that come as data, refused where they are outside of what they index.

    %1 = check_indices(%ids, extents=(1000,)) : int64[n]
    %2 = gather(%table, %1)

Kernels never read or write outside of their operands: they clamp what `gather` takes and drop what
`scatter` writes elsewhere. `check_indices` makes an error of it, before the kernel runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError, TypeMismatch
from treadle.expr.nodes import int_value
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import Dim, Type
from treadle.ops.numeric import check_elements

INDEX_TYPES = ("int32", dt.INDEX)


@dataclass(frozen=True, slots=True)
class CheckAttrs(Attrs):
    """The extents of the axes from `axis` on that indices are for.

    With several extents the last axis of the indices has an entry for each.
    """

    extents: tuple[Dim, ...]
    axis: int = 0


def _infer_check(a: CheckAttrs, indices: Type) -> Type:
    at = check_elements(indices, INDEX_TYPES, "the indices")
    if not a.extents or (len(a.extents) > 1 and at.shape[-1:] != (len(a.extents),)):
        raise TypeMismatch(f"{at} are no indices of {len(a.extents)} axes")
    return at


def outside(extents: tuple[Dim, ...], indices: np.ndarray) -> tuple[int, int] | None:
    """Return the first index (and its place among the extents) that is outside of its extent.

    Extents that are not known let everything pass.
    """
    known = [int_value(e) for e in extents]
    flat = indices.reshape(-1, len(extents))
    bad = np.zeros(flat.shape, bool)
    for k, extent in enumerate(known):
        if extent is not None:
            bad[:, k] = (flat[:, k] < -extent) | (flat[:, k] >= extent)
    places = np.argwhere(bad)
    return (int(flat[tuple(places[0])]), int(places[0, 1])) if len(places) else None


def _checked(a: CheckAttrs, indices: np.ndarray) -> np.ndarray:
    found = outside(a.extents, indices)
    if found is not None:
        index, k = found
        raise ModelError(
            f"element {index} of axis {a.axis + k}, which has {a.extents[k]}, does not exist",
            hint="check the indices",
        )
    return indices


check_indices: Operator[CheckAttrs] = register(
    Operator(
        name="check_indices",
        infer=_infer_check,
        reference=_checked,
        attrs_type=CheckAttrs,
        examples=(
            Example(((3,),), {"extents": (4,)}, ("int64",), -4, 4),
            Example(((3, 2),), {"extents": (4, 4), "axis": 1}, ("int32",), -4, 4),
        ),
    )
)
"""The indices themselves; the plan looks at them before anything uses them."""
