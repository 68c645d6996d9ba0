# SPDX-License-Identifier: Apache-2.0
"""Common extents that must equal one of their parts are written as that part."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import treadle
from tests.optimize.cases import function, var
from treadle.build.size_checks import size_checks
from treadle.errors import InputError
from treadle.expr.nodes import Var as Size
from treadle.graph.broadcasting import common_dim
from treadle.graph.nodes import Call, Function, topological
from treadle.ops.elementwise import add, exp
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import broadcast_to
from treadle.optimize.equal_sizes import with_equal_sizes

n, k, j = (Size(s, "int64") for s in "nkj")
whole = common_dim(k, j)
assert whole is not None
scores, mask = var("scores", n, k), var("mask", j)
masked = add(broadcast_to(scores, shape=(n, whole)), broadcast_to(mask, shape=(whole,)))


def _settled(before: Function) -> Function:
    return with_equal_sizes(before, [c.rule for c in size_checks(before)])


def test_a_product_says_what_a_common_extent_is() -> None:
    values = var("values", k, 5)
    before = function(matmul(masked, values), params=[scores, mask, values])
    after = _settled(before)
    assert "select" not in " ".join(str(c.type) for c in topological([after.body]))
    assert size_checks(before)  # the run checks what this was concluded from
    assert after.type == before.type


def test_without_such_a_product_it_stays() -> None:
    before = function(exp(masked), params=[scores, mask])
    assert _settled(before) is before


ATTENTION = """<ir_version: 8, opset_import: ["" : 20]> m
(float[n, 2, s, 16] q, float[n, 2, s, 16] k, float[n, 2, s, 16] v, float[n, 1, 1, t] mask)
=> (float[a, b, c, d] z) {
    turned = Transpose<perm = [0, 1, 3, 2]>(k)
    scores = MatMul(q, turned)
    masked = Add(scores, mask)
    shares = Softmax<axis = -1>(masked)
    z = MatMul(shares, v)
}"""


def test_attention_with_a_mask_of_another_name_is_one_kernel() -> None:
    proto = parser.parse_model(ATTENTION)
    executable = treadle.compile(proto, dynamic=True)
    groups = [n.op for n in topological([executable.module.main.body]) if isinstance(n, Call)]
    names = [
        {c.op.name for c in topological([g.body]) if isinstance(c, Call)}
        for g in groups
        if isinstance(g, Function)
    ]
    assert any({"matmul", "attend"} <= found for found in names)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    random = np.random.default_rng(0)
    for batch, steps, width in ((2, 5, 5), (2, 5, 1), (1, 1, 1), (1, 7, 7)):
        shapes = (*[(batch, 2, steps, 16)] * 3, (batch, 1, 1, width))
        inputs = [random.standard_normal(s).astype(np.float32) for s in shapes]
        (wanted,) = session.run(None, dict(zip(("q", "k", "v", "mask"), inputs, strict=True)))
        np.testing.assert_allclose(executable.run(inputs)[0], wanted, rtol=1e-4, atol=1e-5)
    inputs[3] = np.zeros((1, 1, 1, 3), np.float32)
    with pytest.raises(InputError, match="different sizes"):
        executable.run(inputs)
