# SPDX-License-Identifier: Apache-2.0
"""Models of one operator of classical machine learning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.frontend.onnx.models import outputs_of

DOMAIN = "ai.onnx.ml"


def model_of(
    kind: str,
    x: np.ndarray,
    outputs: Sequence[str] = ("y",),
    *,
    is_open: bool = False,
    **attributes: object,
) -> onnx.ModelProto:
    """Return a model of one operator on `x`, or on however many rows like those of `x`."""
    given = {name: value for name, value in attributes.items() if value not in (None, [])}
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], list(outputs), domain=DOMAIN, **given)],
        "one",
        [helper.make_tensor_value_info("x", number, ["n", *x.shape[1:]] if is_open else x.shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check_with_reference(model: onnx.ModelProto, x: np.ndarray, rtol: float = 2e-5) -> None:
    """Fail unless the imported model computes what onnx.reference computes."""
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    for got, want in zip(outputs_of(model, {"x": x}), expected, strict=True):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-6)
