# SPDX-License-Identifier: Apache-2.0
"""Which of a node's results a reference means: functions name an operator's outputs."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.tensorflow.graph import NodeDef, Reference

_NAMES: dict[str, tuple[str, ...]] = {
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV2": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV3": (
        "y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2",
        "reserve_space_3",
    ),
    "TopK": ("values", "indices"),
    "TopKV2": ("values", "indices"),
    "Unique": ("y", "idx"),
    "UniqueV2": ("y", "idx"),
    "UniqueWithCounts": ("y", "idx", "count"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": (
        "nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections",
    ),
    "QuantizeV2": ("output", "output_min", "output_max"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "Merge": ("output", "value_index"),
    "Switch": ("output_false", "output_true"),
    "RestoreV2": ("tensors",),
}  # fmt: skip
"""The outputs of operators that have several, in order; the others have one, maybe a list."""


def place_of_output(node: NodeDef, at: Reference) -> int:
    """Return the number of a result among all of its node's.

    Raises: ModelError for an output that the operator does not have.
    """
    names = _NAMES.get(node.op)
    if not at.part or names is None:
        return at.place
    if at.part not in names:
        raise ModelError(f"{node.op} has no output {at.part!r}")
    return names.index(at.part) + at.place
