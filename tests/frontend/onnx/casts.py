# SPDX-License-Identifier: Apache-2.0
"""Which values of the onnx package's tests of casts the standard defines."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx


def defined(model: onnx.ModelProto, x: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Return where `result` is defined, given the first input `x` of a test's model: a mask.

    A cast of a float to an integer type is undefined beyond the type's range. What the package
    expects there is what ml_dtypes does, which is not the same in all of its versions: 0.6 wraps
    the value of a type of 2 or 4 bits, as onnxruntime does, and 0.7 gives 0.
    """
    kinds = {node.op_type for node in model.graph.node}
    floating = x.dtype.kind in "fV" and "int" not in x.dtype.name
    if kinds not in ({"Cast"}, {"CastLike"}) or not floating or "int" not in result.dtype.name:
        return np.ones(result.shape, bool)
    ends, values = ml_dtypes.iinfo(result.dtype), x.astype("float64")
    return (values > int(ends.min) - 1) & (values < int(ends.max) + 1)
