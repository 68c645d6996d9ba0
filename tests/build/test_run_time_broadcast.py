# SPDX-License-Identifier: Apache-2.0
"""Operands of which only a run knows whether they are repeated, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import treadle
from treadle.build.group import lower_group
from treadle.build.sizes import size_from_json, size_to_json
from treadle.errors import InputError
from treadle.expr.nodes import Select, Var
from treadle.expr.traversal import walk
from treadle.graph.broadcasting import common_dim
from treadle.graph.nodes import Call, Function, topological
from treadle.graph.types import same_dim
from treadle.loop import nodes as lp
from treadle.target.parse import parse_target

Arrays = list[np.ndarray]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng([3, *shape]).standard_normal(shape).astype(np.float32)


def mask(*shape: int) -> np.ndarray:
    return floats(*shape) > 0


def model(text: str) -> onnx.ModelProto:
    proto = parser.parse_model('<ir_version: 8, opset_import: ["" : 20]> m ' + text)
    for node in proto.graph.node:
        node.name = node.output[0]
    return proto


TWO = "(float[n, m] x, float[k, j] y) => "
CASES: dict[str, tuple[str, Callable[..., Arrays], tuple[tuple[int, ...], ...]]] = {
    "add": (
        TWO + "(float[a, b] z) { z = Add(x, y) }",
        lambda n, m, k, j: [floats(n, m), floats(k, j)],
        ((1, 3), (0, 1, 2, 17), (1, 3), (0, 1, 2, 17)),
    ),
    "less": (
        TWO + "(bool[a, b] z) { z = Less(x, y) }",
        lambda n, m, k, j: [floats(n, m), floats(k, j)],
        ((1, 2), (1, 5), (1, 2), (1, 5)),
    ),
    "power_of_another_rank": (
        "(float[n, m] x, float[k] y) => (float[a, b] z) { z = Pow(x, y) }",
        lambda n, m, k: [np.abs(floats(n, m)), floats(k)],
        ((0, 1, 2), (0, 1, 4), (0, 1, 4)),
    ),
    "against_a_known_extent": (
        "(float[n, m] x, float[4] y) => (float[a, b] z) { z = Sub(y, x) }",
        lambda n, m: [floats(n, m), floats(4)],
        ((0, 1, 2), (0, 1, 2, 4)),
    ),
    "where": (
        "(bool[n, m] c, float[k, m] x, float[j] y) => (float[a, b] z) { z = Where(c, x, y) }",
        lambda n, k, j: [mask(n, 3), floats(k, 3), floats(j)],
        ((0, 1, 2), (0, 1, 2), (1, 3)),
    ),
    "several": (
        TWO + "(float[a, b] z) { s = Sum(x, y, x) t = Max(s, y) z = Mean(t, x, y) }",
        lambda n, m, k, j: [floats(n, m), floats(k, j)],
        ((1, 2), (1, 3), (1, 2), (1, 3)),
    ),
    "prelu": (
        "(float[n, m] x, float[k] y) => (float[a, b] z) { z = PRelu(x, y) }",
        lambda n, m, k: [floats(n, m), floats(k)],
        ((0, 2), (0, 1, 3), (1, 3)),
    ),
    "matmul": (
        "(float[n, m, 3] x, float[k, 3, j] y) => (float[a, b, c] z) { z = MatMul(x, y) }",
        lambda n, m, k: [floats(n, m, 3), floats(k, 3, 5)],
        ((0, 1, 2), (1, 9), (0, 1, 2)),
    ),
    "gemm": (
        "(float[n, 3] x, float[3, m] y, float[k, j] c) => (float[a, b] z) { z = Gemm(x, y, c) }",
        lambda n, m, k, j: [floats(n, 3), floats(3, m), floats(k, j)],
        ((0, 1, 2), (1, 4), (1, 2), (1, 4)),
    ),
    "einsum": (
        TWO + '(float[a, b] z) { z = Einsum<equation = "ij,jk->ik">(x, y) }',
        lambda m, k: [floats(2, m), floats(k, 3)],
        ((1, 4), (1, 4)),
    ),
    "layer_norm": (
        "(float[n, m] x, float[k] s, float[j] b) => (float[a, c] z)"
        " { z = LayerNormalization(x, s, b) }",
        lambda m, k, j: [floats(2, m), floats(k), floats(j)],
        ((1, 4), (1, 4), (1, 4)),
    ),
    "residual_chain": (
        TWO + "(float[c] z) { e = Mul(x, y) g = Sigmoid(e) h = Add(g, x) i = Add(y, h)"
        " last = Constant<value_ints = [-1]>() z = ReduceSum<keepdims = 0>(i, last) }",
        lambda n, m, k, j: [floats(n, m), floats(k, j)],
        ((1, 2), (1, 19), (1, 2), (1, 19)),
    ),
    "convolution": (
        "(float[n, 2, h, w] x, float[k, 2, i, j] y) => (float[a, c, d, e] z) { s = Add(x, y)"
        " f = Constant<value = float[2, 2, 1, 1] {1, 2, 3, 4}>() z = Conv(s, f) }",
        lambda n, h, k, i: [floats(n, 2, h, 5), floats(k, 2, i, 5)],
        ((1, 2), (1, 3), (1, 2), (1, 3)),
    ),
}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", CASES)
def test_extents_that_are_sometimes_1(name: str, level: int) -> None:
    text, inputs_of, extents = CASES[name]
    proto = model(text)
    executable = treadle.compile(proto, dynamic=True, opt_level=level)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    names = [i.name for i in session.get_inputs()]
    for sizes in product(*extents):
        inputs = inputs_of(*sizes)
        try:
            (wanted,) = session.run(None, dict(zip(names, inputs, strict=True)))
        except Exception:  # its errors have no common base
            with pytest.raises(InputError, match="combines tensors of different sizes"):
                executable.run(inputs)
            continue
        (made,) = executable.run(inputs)
        assert made.shape == wanted.shape
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


IMAGE = "(float[b, 3, 5, 5] x, float[1, 3, 2, 2] w, float[c] v) => (float[b, k, h, l] z) "
ROWS = "(float[b, 1] x, float[c] v) => (float[b, d] z) "
VECTORS = {
    "Conv": IMAGE + "{ z = Conv(x, w, v) }",
    "ConvTranspose": "(float[b, 3, 5, 5] x, float[3, 1, 2, 2] w, float[c] v) => "
    "(float[b, k, h, l] z) { z = ConvTranspose(x, w, v) }",
    "GroupNormalization": "(float[b, 1, 4] x, float[c] v) => (float[b, k, 4] z) "
    "{ z = GroupNormalization<num_groups = 1>(x, v, v) }",
    "DeformConv": "(float[b, 1, 3, 3] x, float[1, 1, 2, 2] w, float[b, 8, 2, 2] o, float[c] v) => "
    "(float[b, k, 2, 2] z) { z = DeformConv(x, w, o, v) }",
    "BiasGelu": ROWS + "{ z = com.microsoft.BiasGelu(x, v) }",
    "FusedConv": IMAGE + '{ z = com.microsoft.FusedConv<activation = "Relu">(x, w, v) }',
    "Clip": ROWS + "{ z = Clip(x, v) }",
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_for_each_channel_repeats_no_channel(name: str) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> m '
    proto = parser.parse_model(header + VECTORS[name])
    proto.graph.node[0].name = "z"
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    executable = treadle.compile(proto, dynamic=True)
    given = {"b": 2, "c": 1}
    shapes = {
        i.name: [d.dim_value or given[d.dim_param] for d in i.type.tensor_type.shape.dim]
        for i in proto.graph.input
    }
    inputs = {n: floats(*shape) for n, shape in shapes.items()}
    (expected,) = session.run(None, inputs)
    np.testing.assert_allclose(executable.run(inputs)[0], expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="z combines tensors of different sizes: 17 and 1"):
        executable.run({**inputs, "v": floats(17)})


def test_a_saved_model_broadcasts_too(tmp_path: Path) -> None:
    proto = model(CASES["add"][0])
    treadle.compile(proto, dynamic=True).save(tmp_path / "model.tar")
    loaded = treadle.load(tmp_path / "model.tar")
    x, y = floats(3, 1), floats(1, 4)
    np.testing.assert_allclose(loaded.run([x, y])[0], x + y)
    with pytest.raises(InputError, match="z combines tensors of different sizes: 3 and 2"):
        loaded.run([floats(2, 1), floats(3, 1)])


def test_equal_extents_have_a_body_without_choices() -> None:
    """The kernel asks once whether anything is repeated; the usual body reads like any other."""
    main = treadle.compile(model(CASES["add"][0]), dynamic=True).module.main
    (call,) = (n for n in topological([main.body]) if isinstance(n, Call))
    assert isinstance(call.op, Function)
    _, func = lower_group(call.op, parse_target("llvm"), "add")
    assert isinstance(func.body, lp.If)
    assert func.body.orelse is not None
    assert not _choices_of_places(func.body.then)
    assert _choices_of_places(func.body.orelse)


def _choices_of_places(body: lp.Stmt) -> bool:
    """True where an index of a read is a choice that a condition on sizes makes."""
    loads = (
        n
        for s in lp.walk_stmts(body)
        for e in lp.stmt_exprs(s)
        for n in walk(e)
        if isinstance(n, Select)
        and any(isinstance(v, Var) and v.name == "i1.inner" for v in walk(n))
    )
    return any(str(n.cond) != "True" for n in loads)


def test_known_names_need_no_choice() -> None:
    same = "(float[n, m] x, float[n, m] y) => (float[a, b] z) { z = Add(x, y) }"
    main = treadle.compile(model(same), dynamic=True).module.main
    (call,) = (n for n in topological([main.body]) if isinstance(n, Call))
    assert isinstance(call.op, Function)
    assert [n.op.name for n in topological([call.op.body]) if isinstance(n, Call)] == ["add"]


def test_common_extents_survive_the_kernel_cache() -> None:
    a, b = Var("a", "int64"), Var("b", "int64")
    whole = common_dim(a, b)
    assert whole is not None
    data = size_to_json(whole * 4, [a, b])
    assert same_dim(size_from_json(data, [a, b]), whole * 4)
