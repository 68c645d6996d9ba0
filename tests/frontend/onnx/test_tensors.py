# SPDX-License-Identifier: Apache-2.0
"""Tensors of low precision are read raw and from fields."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.frontend.onnx.test_low_precision_weights import _all_values
from treadle.dtype import NARROW
from treadle.errors import ModelError
from treadle.frontend.onnx.external import ExternalFiles
from treadle.frontend.onnx.tensors import to_array


@pytest.mark.parametrize("name", NARROW)
def test_tensors_are_read_raw_and_from_fields(name: str) -> None:
    values = _all_values(name)[:-1]  # an odd number of them
    packed = numpy_helper.from_array(values, "w")
    fields = onnx.TensorProto(data_type=packed.data_type, dims=packed.dims)
    fields.int32_data.extend(packed.raw_data)
    for tensor in (packed, fields):
        found = to_array(tensor, ExternalFiles(None))
        np.testing.assert_array_equal(found.view("uint8"), values.view("uint8"))
    packed.raw_data += b"0"
    with pytest.raises(ModelError, match=r"needs \d+ bytes, the file holds"):
        to_array(packed, ExternalFiles(None))
