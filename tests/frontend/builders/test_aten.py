# SPDX-License-Identifier: Apache-2.0
"""A second importer needs nothing of the first: aten operators by builders, against NumPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product as pairs
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from tests.frontend.builders.aten import TABLE, AtenNode, Ref, import_aten
from treadle.errors import ModelError, UnsupportedOperators
from treadle.expr.nodes import Var as SizeVar
from treadle.graph.interpret import run

ROOT = Path(__file__).resolve().parents[3]
RANDOM = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


def computed(target: str, *args: Any, results: int = 1) -> list[np.ndarray]:
    """Return the results of one operator; its arrays are the inputs of the graph."""
    inputs: dict[str, np.ndarray] = {}

    def referred(arg: Any) -> Any:
        if isinstance(arg, np.ndarray):
            inputs[f"x{len(inputs)}"] = arg
            return Ref(f"x{len(inputs) - 1}")
        return [referred(a) for a in arg] if isinstance(arg, (list, tuple)) else arg

    node = AtenNode("node", f"aten.{target}", tuple(referred(a) for a in args))
    types = {n: (v.shape, v.dtype.name) for n, v in inputs.items()}
    module = import_aten([node], types, [Ref("node", k) for k in range(results)])
    return run(module.main, inputs)


def check(target: str, args: Sequence[Any], *expected: np.ndarray) -> None:
    found = computed(target, *args, results=len(expected))
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


X = values(2, 3, 5)
IMAGE = values(2, 4, 7, 6)
INDEX = np.array([[0, 2], [-1, 1]])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shares = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(shares / shares.sum(axis, keepdims=True))


PLAIN: Mapping[str, tuple[Sequence[Any], Callable[..., np.ndarray]]] = {
    "relu": ((X,), lambda x: np.maximum(x, 0)),
    "silu": ((X,), lambda x: x * sigmoid(x)),
    "add": ((X, X[:, :1]), lambda a, b: a + b),
    "mul": ((X, 3), lambda a, b: a * b),
    "pow": ((abs(X), 2.5), lambda a, b: a**b),
    "clamp": ((X, -0.5, None), lambda x, low, high: np.maximum(x, low)),
    "where": ((X > 0, X, X[0]), np.where),
    "matmul": ((X, X[0, 0]), lambda a, b: a @ b),
    "linear": ((X, values(4, 5), values(4)), lambda x, w, b: x @ w.T + b),
    "addmm": (
        (values(4), X[0], values(5, 4), 0.5, 2.0),
        lambda c, a, b, beta, alpha: beta * c + alpha * (a @ b),
    ),
    "embedding": ((X, np.array([[0, 1], [-1, 0]])), lambda w, i: w[i]),
    "permute": ((X, (2, 0, -2)), lambda x, axes: x.transpose(axes)),
    "view": ((X, (2, -1)), lambda x, shape: x.reshape(shape)),
    "expand": ((X[:, :1], (2, 4, -1)), lambda x, s: np.broadcast_to(x, (2, 4, 5))),
    "unsqueeze": ((X, -1), np.expand_dims),
    "squeeze": ((X[:, :1], 1), np.squeeze),
    "flatten": ((IMAGE, 1, -2), lambda x, a, b: x.reshape(2, 28, 6)),
    "repeat": ((X, (1, 2, 3)), np.tile),
    "cat": (((X, X[:, :1]), 1), np.concatenate),
    "stack": (((X, X), 1), np.stack),
    "slice": ((X, -1, -4, None, 2), lambda x, d, b, e, s: x[..., -4::2]),
    "select": ((X, 1, -1), lambda x, d, i: x[:, -1]),
    "constant_pad_nd": (
        (X, (1, 2, -1, 0), 3.5),
        lambda x, p, v: np.pad(x[:, 1:], ((0, 0), (0, 0), (1, 2)), constant_values=v),
    ),
    "_softmax": ((X, 1), softmax),
    "cumsum": ((X, -1), np.cumsum),
    "mean": ((X, (0, -1), True), lambda x, d, k: x.mean((0, 2), keepdims=k)),
    "sum": ((X, None, False), lambda x, d, k: x.sum()),
    "amax": ((X, (1,), False), lambda x, d, k: x.max(1)),
    "argmax": ((X, -1, True), lambda x, d, k: x.argmax(-1, keepdims=True)),
    "logsumexp": ((X, (2,), False), lambda x, d, k: np.log(np.exp(x).sum(2))),
    "arange": ((2, 11, 3), lambda a, b, c: np.arange(a, b, c)),
    "one_hot": ((INDEX[:1], 4), lambda i, n: np.eye(n, dtype="int64")[i]),
    "_to_copy": ((X, "int32"), lambda x, d: x.astype(d)),
    "pixel_shuffle": (
        (IMAGE, 2),
        lambda x, b: x.reshape(2, 1, 2, 2, 7, 6).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 14, 12),
    ),
    "upsample_nearest2d": (
        (IMAGE, (14, 9)),
        lambda x, s: x[:, :, np.arange(14) * 7 // 14][..., np.arange(9) * 6 // 9],
    ),
    "upsample_bilinear2d": (
        (IMAGE, (13, 11), True),
        lambda x, s, a: bilinear(x, np.linspace(0, 6, 13), np.linspace(0, 5, 11)),
    ),
}


def bilinear(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return an image sampled at positions, linear between elements."""
    for axis, places in ((2, rows), (3, columns)):
        low = np.clip(np.floor(places).astype(int), 0, x.shape[axis] - 1)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        share = (places - low).reshape([-1 if k == axis else 1 for k in range(4)])
        x = x.take(low, axis) * (1 - share) + x.take(high, axis) * share
    return x


@pytest.mark.parametrize("target", PLAIN)
def test_plain_operators(target: str) -> None:
    args, reference = PLAIN[target]
    check(target, args, np.asarray(reference(*args)))


def test_bilinear_between_the_middles_of_elements() -> None:
    rows, columns = (
        np.maximum((np.arange(m) + 0.5) * n / m - 0.5, 0) for n, m in ((7, 13), (6, 4))
    )
    check("upsample_bilinear2d", (IMAGE, (13, 4), False), bilinear(IMAGE, rows, columns))


def test_parts() -> None:
    check("split", (X, 2, -1), X[..., :2], X[..., 2:4], X[..., 4:])


def convolution(
    x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int, groups: int
) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    extents = zip(x.shape[2:], w.shape[2:], strict=True)
    sizes = [(n - (k - 1) * dilation - 1) // stride + 1 for n, k in extents]
    made = np.zeros((x.shape[0], w.shape[0], *sizes))
    width = w.shape[0] // groups
    for g, i, j in pairs(range(groups), range(w.shape[2]), range(w.shape[3])):
        part = x[:, g * w.shape[1] : (g + 1) * w.shape[1], i * dilation :, j * dilation :]
        part = part[:, :, : sizes[0] * stride : stride, : sizes[1] * stride : stride]
        chosen = slice(g * width, (g + 1) * width)
        made[:, chosen] += np.einsum("nchw,oc->nohw", part, w[chosen, :, i, j])
    return made


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 4)]
)
def test_convolution(stride: int, pad: int, dilation: int, groups: int) -> None:
    w, bias = values(8, 4 // groups, 3, 3), values(8)
    args = (IMAGE, w, bias, (stride,) * 2, (pad,) * 2, (dilation,) * 2, False, (0, 0), groups)
    wanted = convolution(IMAGE, w, stride, pad, dilation, groups)
    check("convolution", args, wanted + bias[:, None, None])


def test_transposed_convolution() -> None:
    w = values(4, 3, 3, 3)
    whole = np.zeros((2, 3, 7 * 2 + 2, 6 * 2 + 2), "float32")
    for i, j in pairs(range(3), range(3)):
        part = np.einsum("nchw,co->nohw", IMAGE, w[:, :, i, j])
        whole[:, :, i : i + 14 : 2, j : j + 12 : 2] += part
    args = (IMAGE, w, None, (2, 2), (1, 1), (1, 1), True, (1, 1), 1)
    check("convolution", args, whole[:, :, 1:-1, 1:-1])


def windows_of(
    x: np.ndarray, kernel: int, stride: int, pad: int, ceil_mode: bool
) -> tuple[list[list[slice]], list[list[int]]]:
    """Return where the windows lie inside the data per axis, and how wide they are if padded."""
    inside, widths = [], []
    for n in x.shape[2:]:
        span = n + 2 * pad - kernel
        count = (-(-span // stride) if ceil_mode else span // stride) + 1
        count -= int((count - 1) * stride >= n + pad)
        starts = [k * stride - pad for k in range(count)]
        inside.append([slice(max(s, 0), s + kernel) for s in starts])
        widths.append([min(s + kernel, n + pad) - s for s in starts])
    return inside, widths


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pools(ceil_mode: bool) -> None:
    (rows, columns), (heights, widths) = windows_of(IMAGE, 3, 2, 1, ceil_mode)
    parts = [[IMAGE[:, :, r, c] for c in columns] for r in rows]
    largest = np.stack([np.stack([p.max((2, 3)) for p in row], -1) for row in parts], -2)
    check("max_pool2d", (IMAGE, (3, 3), (2, 2), (1, 1), (1, 1), ceil_mode), largest)
    means = np.stack([np.stack([p.mean((2, 3)) for p in row], -1) for row in parts], -2)
    check("avg_pool2d", (IMAGE, (3, 3), (2, 2), (1, 1), ceil_mode, False), means)
    sums = np.stack([np.stack([p.sum((2, 3)) for p in row], -1) for row in parts], -2)
    padded = sums / np.outer(heights, widths)
    check("avg_pool2d", (IMAGE, (3, 3), (2, 2), (1, 1), ceil_mode, True), padded)


@pytest.mark.parametrize("sizes", [(1, 1), (7, 3), (3, 4), (9, 2)])
def test_adaptive_pools(sizes: tuple[int, int]) -> None:
    spans = [
        [slice(k * d // n, -(-(k + 1) * d // n)) for k in range(n)]
        for d, n in zip(IMAGE.shape[2:], sizes, strict=True)
    ]
    means, maxima = np.zeros((2, 4, *sizes), "float32"), np.zeros((2, 4, *sizes), "float32")
    for (i, rows), (j, columns) in pairs(enumerate(spans[0]), enumerate(spans[1])):
        means[:, :, i, j] = IMAGE[:, :, rows, columns].mean((2, 3))
        maxima[:, :, i, j] = IMAGE[:, :, rows, columns].max((2, 3))
    check("adaptive_avg_pool2d", (IMAGE, sizes), means)
    check("adaptive_max_pool2d", (IMAGE, sizes), maxima)


def test_adaptive_mean_of_an_infinite_element_stays_in_its_windows() -> None:
    x = np.zeros((1, 1, 1, 5), "float32")
    x[..., 0] = np.inf
    (found,) = computed("adaptive_avg_pool2d", x, (1, 3))
    assert found.reshape(-1).tolist() == [np.inf, 0.0, 0.0]


def test_adaptive_pool_of_other_rank_is_refused() -> None:
    with pytest.raises(ModelError, match=r"\[2, 3\] windows do not fit"):
        computed("adaptive_avg_pool2d", values(1, 2, 3), (2, 3))


def normalized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5))


def test_normalisations() -> None:
    scale, shift, mean, variance = values(4), values(4), values(4), abs(values(4))
    wide = [v[:, None, None] for v in (scale, shift, mean, variance)]
    wanted = (IMAGE - wide[2]) / np.sqrt(wide[3] + 1e-5) * wide[0] + wide[1]
    check("batch_norm", (IMAGE, scale, shift, mean, variance, 1e-5), wanted)
    grouped = normalized(IMAGE.reshape(2, 2, 2, 7, 6), (2, 3, 4)).reshape(IMAGE.shape)
    check("group_norm", (IMAGE, 2, scale, shift, 1e-5), grouped * wide[0] + wide[1])
    check("group_norm", (IMAGE, 2, None, None, 1e-5), grouped)
    weights, bias = values(3, 5), values(3, 5)
    layer = normalized(X, (1, 2))
    check("layer_norm", (X, (3, 5), weights, bias, 1e-5), layer * weights + bias)
    check("layer_norm", (X, (3, 5), None, None, 1e-5), layer)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal: bool) -> None:
    q, k, v = (values(2, 3, 6, 4) for _ in range(3))
    mask = None if is_causal else values(6, 6)
    scores = q @ k.swapaxes(2, 3) / 2 + (0 if mask is None else mask)
    if is_causal:
        scores = np.where(np.tri(6, dtype=bool), scores, -np.inf)
    wanted = softmax(scores, 3) @ v
    check("scaled_dot_product_attention", (q, k, v, mask, is_causal, None), wanted)


def recurrent(
    x: np.ndarray,
    weights: Sequence[np.ndarray],
    states: Sequence[np.ndarray],
    step: Callable[..., tuple[np.ndarray, ...]],
) -> list[np.ndarray]:
    """Return what a torch layer gives: [steps, batch, directions * hidden] and the last states."""
    columns, finals = [], []
    for d in range(2):
        state = tuple(s[d] for s in states)
        rows = {}
        for t in range(len(x))[:: -1 if d else 1]:
            state = step(x[t], state, *weights[4 * d : 4 * d + 4])
            rows[t] = state[0]
        columns.append(np.stack([rows[t] for t in range(len(x))]))
        finals.append(state)
    return [np.concatenate(columns, 2), *(np.stack(s) for s in zip(*finals, strict=True))]


def lstm_step(
    x: np.ndarray, state: tuple[np.ndarray, ...], *w: np.ndarray
) -> tuple[np.ndarray, ...]:
    hidden, cell = state
    i, f, c, o = np.split(x @ w[0].T + w[2] + hidden @ w[1].T + w[3], 4, axis=1)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
    return sigmoid(o) * np.tanh(cell), cell


def gru_step(
    x: np.ndarray, state: tuple[np.ndarray, ...], *w: np.ndarray
) -> tuple[np.ndarray, ...]:
    (hidden,) = state
    (xr, xz, xn), (hr, hz, hn) = (
        np.split(v, 3, axis=1) for v in (x @ w[0].T + w[2], hidden @ w[1].T + w[3])
    )
    update = sigmoid(xz + hz)
    fresh = np.tanh(xn + sigmoid(xr + hr) * hn)
    return ((1 - update) * fresh + update * hidden,)


@pytest.mark.parametrize(("target", "gates"), [("lstm", 4), ("gru", 3)])
def test_recurrent_layers(target: str, gates: int) -> None:
    x, width = values(5, 2, 3), gates * 4
    shapes = ((width, 3), (width, 4), (width,), (width,)) * 2
    weights = [values(*shape) for shape in shapes]
    states = [values(2, 2, 4) for _ in range(2 if target == "lstm" else 1)]
    step = lstm_step if target == "lstm" else gru_step
    given = states if target == "lstm" else states[0]
    check(target, (x, given, weights), *recurrent(x, weights, states, step))


def test_a_size_that_a_run_computes() -> None:
    nodes = [AtenNode("head", "aten.head", (Ref("x"), Ref("n")))]
    module = import_aten(nodes, {"x": ((5, 2), "float32"), "n": ((), "int64")}, [Ref("head")])
    x = values(5, 2)
    for count, rows in ((3, 3), (9, 5), (-1, 4)):
        (found,) = run(module.main, {"x": x, "n": np.array(count)})
        np.testing.assert_array_equal(found, x[:rows])


def test_a_symbolic_batch() -> None:
    batch = SizeVar("n", "int64")
    nodes = [
        AtenNode("parts", "aten.view", (Ref("x"), (-1, 4))),
        AtenNode("shares", "aten._softmax", (Ref("parts"), -1)),
    ]
    module = import_aten(nodes, {"x": ((batch, 2, 4), "float32")}, [Ref("shares")])
    x = values(3, 2, 4)
    (found,) = run(module.main, {"x": x})
    np.testing.assert_allclose(found, softmax(x.reshape(6, 4), 1), rtol=1e-5)


def test_all_missing_operators_are_listed() -> None:
    nodes = [AtenNode(n, f"aten.{n}", (Ref("x"),)) for n in ("erfinv", "relu", "svd")]
    with pytest.raises(UnsupportedOperators, match=r"(?s)2 operators.*erfinv.*svd"):
        import_aten(nodes, {"x": ((2,), "float32")}, [Ref("relu")])


def test_the_usual_operators_are_there() -> None:
    assert len(TABLE.names()) >= 50


def test_a_network_runs_compiled() -> None:
    """The module of a second importer is compiled like any other, its names kept."""
    w, classes, bias = values(8, 4, 3, 3), values(5, 8), values(5)
    ones = (1, 1)
    nodes = [
        AtenNode("conv", "aten.convolution",
                 (Ref("x"), Ref("w"), None, ones, ones, ones, False, (0, 0), 1)),
        AtenNode("relu", "aten.relu", (Ref("conv"),)),
        AtenNode("pool", "aten.adaptive_avg_pool2d", (Ref("relu"), (1, 1))),
        AtenNode("flat", "aten.flatten", (Ref("pool"), 1, -1)),
        AtenNode("head", "aten.linear", (Ref("flat"), Ref("classes"), Ref("bias"))),
    ]  # fmt: skip
    given = {"x": IMAGE, "w": w, "classes": classes, "bias": bias}
    types = {n: (v.shape, "float32") for n, v in given.items()}
    exe = treadle.compile(import_aten(nodes, types, [Ref("head")]))
    means = np.maximum(convolution(IMAGE, w, 1, 1, 1, 1), 0).mean((2, 3))
    (found,) = exe.run(given)
    np.testing.assert_allclose(found, means @ classes.T + bias, rtol=1e-4, atol=1e-5)
    assert any("conv" in name for kernel in exe.kernels for name in kernel.origins)


def test_a_second_importer_loads_nothing_of_the_first() -> None:
    program = (
        "import sys, tests.frontend.builders.aten\n"
        "print(*(m for m in sys.modules if m.startswith(('onnx', 'treadle.frontend.onnx'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
