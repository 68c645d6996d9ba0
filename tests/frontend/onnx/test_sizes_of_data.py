# SPDX-License-Identifier: Apache-2.0
"""Every operator whose result has a size that only a run knows, at extents 0, 1 and 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import treadle
from treadle.errors import InputError

Arrays = list[np.ndarray]
EXTENTS = (0, 1, 2)


@dataclass(frozen=True)
class Case:
    """A model as text, and its inputs for some extents.

    Where onnxruntime refuses them, Treadle has to; `refused` says what else it refuses.
    """

    text: str
    inputs: Callable[..., Arrays]
    extents: int = 2
    refused: Callable[[Sequence[np.ndarray]], bool] = lambda inputs: False


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng([7, *shape]).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def mask(*shape: int) -> np.ndarray:
    return floats(*shape) > 0


CASES = {
    "nonzero": Case(
        "(float[n, m] x) => (int64[r, k] y) { p = Relu(x) y = NonZero(p) }",
        lambda n, m: [floats(n, m)],
    ),
    "nonzero_counted": Case(
        "(float[n, m] x) => (int64[a] s, float[b] y) { p = Relu(x) i = NonZero(p) s = Shape(i)"
        " t = Transpose(i) y = GatherND(x, t) }",
        lambda n, m: [floats(n, m)],
    ),
    "where_and_nonzero": Case(
        "(float[n, m] x, float[m] w) => (float[k, m] y) { c = Greater(x, w) d = Where(c, x, w)"
        " r = ReduceMax<keepdims = 0>(d, one) i = NonZero(r) j = Squeeze(i, zero)"
        " e = Gather(d, j) y = Softmax(e) }",
        lambda n, m: [floats(n, m + 1), floats(m + 1)],
    ),
    "compress": Case(
        "(float[n, m] x, bool[k] c) => (float[a, b] y) { y = Compress<axis = 0>(x, c) }",
        lambda n, m, k: [floats(n, m), mask(min(k, n))],
        extents=3,
    ),
    "compress_all": Case(
        "(float[n, m] x, bool[k] c) => (float[a] y) { y = Compress(x, c) }",
        lambda n, m, k: [floats(n, m), mask(min(k, n * m))],
        extents=3,
    ),
    "compress_and_multiply": Case(
        "(float[n, 3] x, bool[n] c, float[3, m] w) => (float[a, m] y) {"
        " z = Compress<axis = 0>(x, c) y = MatMul(z, w) }",
        lambda n, m: [floats(n, 3), mask(n), floats(3, m)],
    ),
    "unique": Case(
        "(int64[n] x) => (int64[a] y, int64[b] i, int64[c] j, int64[d] k)"
        " { y, i, j, k = Unique(x) }",
        lambda n: [np.arange(n) // 2 + 3],
        extents=1,
    ),
    "top_k": Case(
        "(float[n, m] x, int64[1] k) => (float[a, b] y, int64[c, d] i) { y, i = TopK(x, k) }",
        lambda n, m, k: [floats(n, m), ints(k)],
        extents=3,
    ),
    "top_k_of_a_size": Case(
        "(float[n, m] x, float[k] w) => (float[a, b] y, int64[c, d] i) { s = Shape(w)"
        " y, i = TopK<axis = 0, largest = 0>(x, s) }",
        lambda n, m, k: [floats(n, m), floats(k)],
        extents=3,
    ),
    "suppression": Case(
        "(float[1, n, 4] b, float[1, m, n] s, int64 k) => (int64[a, 3] y)"
        " { y = NonMaxSuppression(b, s, k) }",
        lambda n, m, k: [np.abs(floats(1, n, 4)).cumsum(-1), floats(1, m, n), np.array(k)],
        extents=3,
    ),
    "slice": Case(
        "(float[n, m] x, int64[2] b, int64[2] e) => (float[a, c] y) { y = Slice(x, b, e) }",
        lambda n, m, k: [floats(n, m), ints(0, -k), ints(k, 9)],
        extents=3,
    ),
    "range": Case(
        "(int64 b, int64 e) => (int64[a] y) { y = Range(b, e, one0) }",
        lambda b, e: [np.array(b), np.array(e)],
    ),
    "range_of_a_size": Case(
        "(float[n] x, float[m] w) => (int64[a] y) { s = Size(x) t = Size(w)"
        " y = Range(s, t, one0) }",
        lambda n, m: [floats(n), floats(m)],
    ),
    "expand": Case(
        "(float[n, m] x, int64[2] s) => (float[a, b] y) { y = Expand(x, s) }",
        lambda n, m, k: [floats(n, m), ints(k, 2)],
        extents=3,
    ),
    "expand_to_more_axes": Case(
        "(float[n] x, int64[2] s) => (float[a, b] y) { y = Expand(x, s) }",
        lambda n, k: [floats(n), ints(k, n)],
    ),
    "expand_known": Case(
        "(float[n, 2] x, int64[1] s) => (float[a, b] y) { y = Expand(x, s) }",
        lambda n, k: [floats(n, 2), ints(k)],
    ),
    "expand_to_a_shape": Case(
        "(float[n, m] x, float[k, l] w) => (float[a, b] y) { s = Shape(w) y = Expand(x, s) }",
        lambda n, m, k, j: [floats(n, m), floats(k, j)],
        extents=4,
    ),
    "tile": Case(
        "(float[n, m] x, int64[2] r) => (float[a, b] y) { y = Tile(x, r) }",
        lambda n, m, k: [floats(n, m), ints(k, 1)],
        extents=3,
    ),
    "pad": Case(
        "(float[n, m] x, int64[4] p) => (float[a, b] y) { y = Pad(x, p) }",
        lambda n, m, k: [floats(n, m), ints(k, 0, 0, 1)],
        extents=3,
    ),
    "reshape": Case(
        "(float[n, m] x, int64[2] s) => (float[a, b] y) { y = Reshape<allowzero = 1>(x, s) }",
        lambda n, m: [floats(n, m), ints(m, n)],
    ),
    "reshape_to_what_is_left": Case(
        "(float[n, m] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }",
        lambda n, m, k: [floats(n, m), ints(k, -1)],
        extents=3,
    ),
    "constant_of_shape": Case(
        "(int64[2] s) => (float[a, b] y) { y = ConstantOfShape<value = float[1] {3}>(s) }",
        lambda n, m: [ints(n, m)],
    ),
    "one_hot": Case(
        "(int64[n] x, int64 d, float[2] v) => (float[a, b] y) { y = OneHot(x, d, v) }",
        lambda n, d: [np.arange(n) - 1, np.array(d + 1), floats(2)],
    ),
    "split": Case(
        "(float[n, m] x, int64[2] s) => (float[a, b] y, float[c, d] z) { y, z = Split(x, s) }",
        lambda n, m, k: [floats(n, m), ints(k, n - k)],
        extents=3,
    ),
    "split_that_may_not_add_up": Case(
        "(float[n, m] x, int64[2] s) => (float[a, b] y, float[c, d] z) { y, z = Split(x, s) }",
        lambda n, m, k: [floats(n, m), ints(k, 1)],
        extents=3,
    ),
    "squeeze": Case(
        "(float[n, 1, m] x) => (float[a, b] y) { y = Squeeze(x) }",
        lambda n, m: [floats(n, 1, m)],
        refused=lambda inputs: 1 in (inputs[0].shape[0], inputs[0].shape[2]),
    ),
    "squeeze_of_a_selection": Case(
        "(float[n] x) => (int64[k] y) { p = Relu(x) i = NonZero(p) y = Squeeze(i) }",
        lambda n: [floats(n)],
        extents=1,
        refused=lambda inputs: int((inputs[0] > 0).sum()) == 1,
    ),
    "arg_max": Case(
        "(float[n, m] x) => (int64[m] y) { y = ArgMax<axis = 0, keepdims = 0>(x) }",
        lambda n, m: [floats(n, m)],
    ),
    "if": Case(
        "(bool c, float[n, m] x, float[k, m] w) => (float[a, b] y) { y = If<"
        "then_branch = t () => (float[d, e] u) { u = Add(x, w) },"
        "else_branch = o () => (float[f, g] v) { v = Neg(x) }>(c) }",
        lambda n, m, k: [np.array(k < 2), floats(n, m), floats(k, m)],
        extents=3,
    ),
    "loop": Case(
        "(int64 t, float[n, m] x, float[k, m] w) => (float[a, b] y) { true = Constant<value ="
        " bool {1}>() y = Loop<body = g (int64 i, bool c, float[p, q] s) =>"
        " (bool d, float[r, u] v) { d = Identity(c) v = Add(s, w) }>(t, true, x) }",
        lambda t, n, k: [np.array(t), floats(n, 2), floats(k, 2)],
        extents=3,
    ),
    "loop_that_grows": Case(
        "(int64 t, float[n, m] x, float[k, m] w) => (float[a, b] y) { true = Constant<value ="
        " bool {1}>() y = Loop<body = g (int64 i, bool c, float[p, q] s) =>"
        " (bool d, float[r, u] v) { d = Identity(c) v = Concat<axis = 0>(s, w) }>(t, true, x) }",
        lambda t, n, k: [np.array(t), floats(n, 2), floats(k, 2)],
        extents=3,
    ),
    "scan": Case(
        "(float[m] s, float[n, m] x) => (float[a] y, float[b, c] z) { y, z = Scan<"
        "num_scan_inputs = 1, body = g (float[p] t, float[q] r) => (float[u] v, float[w] o)"
        " { v = Add(t, r) o = Mul(t, r) }>(s, x) }",
        lambda n, m: [floats(m), floats(n + 1, m)],
    ),
}

CONSTANTS = " one = Constant<value_ints = [1]>() zero = Constant<value_ints = [0]>()"
CONSTANTS += " one0 = Constant<value_int = 1>()"


def model(text: str) -> onnx.ModelProto:
    head, body = text.split("{", 1)
    whole = f'<ir_version: 8, opset_import: ["" : 18]> m {head}{{{CONSTANTS}{body}'
    return parser.parse_model(whole)


def session_of(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


def expected(session: onnxruntime.InferenceSession, inputs: Arrays) -> Arrays | None:
    """Return what onnxruntime gives, None where it refuses."""
    names = [i.name for i in session.get_inputs()]
    try:
        return list(session.run(None, dict(zip(names, inputs, strict=True))))
    except Exception:  # its errors have no common base
        return None


def runs_of(case: Case) -> Iterator[Arrays]:
    for extents in product(EXTENTS, repeat=case.extents):
        yield case.inputs(*extents)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", CASES)
def test_the_sizes_of_a_run(name: str, level: int) -> None:
    case = CASES[name]
    proto = model(case.text)
    executable = treadle.compile(proto, dynamic=True, opt_level=level)
    session = session_of(proto)
    right = 0
    for inputs in runs_of(case):
        wanted = expected(session, inputs)
        if wanted is None or case.refused(inputs):
            with pytest.raises(InputError):
                executable.run(inputs)
            continue
        right += 1
        for made, want in zip(executable.run(inputs), wanted, strict=True):
            assert (made.shape, np.asarray(made).dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)
    assert right


def test_a_squeeze_says_what_to_do() -> None:
    executable = treadle.compile(model(CASES["squeeze"].text), dynamic=True)
    with pytest.raises(InputError, match="drops axis 2 too, and the rank") as error:
        executable.run([floats(2, 1, 1)])
    assert "give the node its axes" in error.value.hint


def test_a_size_below_0_is_told_with_its_node() -> None:
    proto = model(CASES["top_k"].text)
    proto.graph.node[-1].name = "best"
    executable = treadle.compile(proto, dynamic=True)
    with pytest.raises(InputError, match="the size best, which best computes, is -1"):
        executable.run([floats(2, 3), ints(-1)])
