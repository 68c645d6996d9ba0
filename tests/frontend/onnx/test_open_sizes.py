# SPDX-License-Identifier: Apache-2.0
"""Operators on tensors whose sizes each run decides, compiled once and run at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import treadle
from treadle.errors import InputError

SIZES = ({"n": 2, "l": 3, "k": 2, "signal": 20}, {"n": 1, "l": 5, "k": 1, "signal": 31})
"""What the symbolic sizes are in each run."""

ROWS = ("n", "l", 6)
IMAGE = ("n", 4, "l", 5)


def _values(*shape: int, dtype: str = "float32") -> np.ndarray:
    random = np.random.default_rng(len(shape))
    if dtype == "uint8":
        return random.integers(0, 9, shape).astype(dtype)
    return np.asarray(random.standard_normal(shape), dtype)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


@dataclass(frozen=True)
class Case:
    """A node whose inputs are `shapes`, then `constants`, or both in the order `order`
    (None for an input that is left out).

    Inputs that are not floats are 0 or 1.
    """

    op: str
    shapes: Sequence[Sequence[int | str]]
    constants: Sequence[object] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    dtypes: Sequence[str] = ()
    outputs: int = 1
    opset: int = 17
    order: Sequence[int | None] = ()
    domain: str = ""

    def dtype(self, index: int) -> str:
        """Return the element type of an input that is not constant."""
        return self.dtypes[index] if index < len(self.dtypes) else "float32"

    def model(self) -> onnx.ModelProto:
        """Return the model of this one node."""
        names = [f"x{k}" for k in range(len(self.shapes) + len(self.constants))]
        declared = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype(k))), shape
            )
            for k, (name, shape) in enumerate(zip(names, self.shapes, strict=False))
        ]
        weights = [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in zip(names[len(self.shapes) :], self.constants, strict=True)
        ]
        outputs = [f"y{k}" for k in range(self.outputs)]
        given = [names[k] if k is not None else "" for k in self.order] or names
        node = helper.make_node(self.op, given, outputs, domain=self.domain, **self.attributes)
        results = [onnx.ValueInfoProto(name=o) for o in outputs]
        graph = helper.make_graph([node], self.op, declared, results, weights)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Return random inputs for known sizes."""
        random = np.random.default_rng(7)
        made = {}
        for k, shape in enumerate(self.shapes):
            known = [sizes[d] if isinstance(d, str) else d for d in shape]
            floats = self.dtype(k) == "float32"
            values = random.standard_normal(known) if floats else random.integers(0, 2, known)
            made[f"x{k}"] = np.asarray(values, self.dtype(k))
        return made


_QUANTIZED = (np.float32(0.1), np.uint8(3))
_RESULT = (np.float32(0.5), np.uint8(1))

_MICROSOFT = "com.microsoft"
_HEADS = {"num_heads": 2}
_PACKED = (_values(6, 18), _values(18))

CASES = {
    "einsum": Case("Einsum", (ROWS, ("n", "k", 6)), (), {"equation": "bik,bjk->bij"}),
    "einsum_heads": Case("Einsum", (ROWS,), (_values(6, 2, 3),), {"equation": "bld,dhk->bhlk"}),
    "topk": Case("TopK", (ROWS,), (_ints(2),), outputs=2),
    "topk_of_an_open_axis": Case("TopK", (ROWS,), (_ints(3),), {"axis": 1}, outputs=2),
    "cumsum": Case("CumSum", (ROWS,), (np.int64(1),), {"exclusive": 1}),
    "cumsum_back": Case("CumSum", (ROWS,), (np.int64(2),), {"reverse": 1}),
    "scatter_nd": Case("ScatterND", (ROWS, ("l", 6)), (_ints(0),), {}, order=(0, 2, 1)),
    "scatter_elements": Case(
        "ScatterElements",
        (ROWS, ("n", 1, 6), ("n", 1, 6)),
        (),
        {"axis": 1},
        ("float32", "int64"),
    ),
    "one_hot": Case("OneHot", (("n", "l"),), (np.int64(5), _values(2)), {"axis": 1}, ("int64",)),
    "hardmax": Case("Hardmax", (ROWS,), (), {"axis": 1}),
    "reverse_sequence": Case(
        "ReverseSequence", (("l", "n", 6), ("n",)), dtypes=("float32", "int64")
    ),
    "dropout": Case("Dropout", (ROWS,), outputs=2),
    "pad_with_a_computed_value": Case(
        "Pad", (ROWS, ()), (_ints(0, 1, 0, 0, 2, 0),), {}, order=(0, 2, 1)
    ),
    "split_in_parts": Case(
        "Split", (ROWS,), (), {"num_outputs": 2, "axis": 1}, outputs=2, opset=18
    ),
    "quantize_per_channel": Case(
        "QuantizeLinear", (ROWS,), (np.abs(_values(6)), np.zeros(6, "int8")), {"axis": 2}
    ),
    "quantize_by_range": Case("DynamicQuantizeLinear", (ROWS,), outputs=3),
    "quantized_product": Case(
        "QLinearMatMul",
        (ROWS,),
        (*_QUANTIZED, _values(6, 4, dtype="uint8"), *_QUANTIZED, *_RESULT),
        {},
        ("uint8",),
    ),
    "quantized_convolution": Case(
        "QLinearConv",
        (IMAGE,),
        (*_QUANTIZED, _values(3, 4, 3, 3, dtype="uint8"), *_QUANTIZED, *_RESULT),
        {"pads": [1, 1, 1, 1]},
        ("uint8",),
    ),
    "convolution_as_wide_as_its_input": Case(
        "Conv",
        (IMAGE,),
        (_values(3, 4, 3, 3),),
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    "pool_as_wide_as_its_input": Case(
        "MaxPool",
        (IMAGE,),
        (),
        {"auto_pad": "SAME_LOWER", "kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "mean_as_wide_as_its_input": Case(
        "AveragePool",
        (IMAGE,),
        (),
        {"auto_pad": "SAME_UPPER", "kernel_shape": [3, 2], "strides": [2, 2]},
    ),
    "positions_of_the_largest": Case(
        "MaxPool",
        (IMAGE,),
        (),
        {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]},
        outputs=2,
    ),
    "ones_on_a_diagonal": Case("EyeLike", (("n", "l"),), (), {"k": 1, "dtype": 6}),
    "pool_over_the_end": Case(
        "AveragePool",
        (IMAGE,),
        (),
        {"ceil_mode": 1, "kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "attention": Case(
        "Attention",
        (("n", 2, "l", 4), ("n", 2, "k", 4), ("n", 2, "k", 4)),
        opset=23,
    ),
    "rotary_positions": Case(
        "RotaryEmbedding", (("n", 2, "l", 4), ("n", "l", 2), ("n", "l", 2)), opset=23
    ),
    "fused_product": Case(
        "FusedMatMul", (ROWS, ("n", "k", 6)), (), {"transB": 1, "alpha": 0.5}, domain=_MICROSOFT
    ),
    "norm_of_a_sum": Case(
        "SkipLayerNormalization",
        (ROWS, ROWS),
        (_values(6), _values(6)),
        {"epsilon": 1e-5},
        domain=_MICROSOFT,
    ),
    "rms_norm_of_a_sum": Case(
        "SkipSimplifiedLayerNormalization", (ROWS, ROWS), (_values(6),), domain=_MICROSOFT
    ),
    "packed_attention": Case(
        "Attention",
        (ROWS, ("n", "l")),
        _PACKED,
        {**_HEADS, "unidirectional": 1},
        ("float32", "int32"),
        order=(0, 2, 3, 1),
        domain=_MICROSOFT,
    ),
    "packed_attention_of_lengths": Case(
        "Attention",
        (ROWS, ("n",)),
        _PACKED,
        _HEADS,
        ("float32", "int32"),
        order=(0, 2, 3, 1),
        domain=_MICROSOFT,
    ),
    "packed_attention_with_a_past": Case(
        "Attention",
        (ROWS, (2, "n", 2, "k", 3)),
        _PACKED,
        {**_HEADS, "unidirectional": 1},
        outputs=2,
        order=(0, 2, 3, None, 1),
        domain=_MICROSOFT,
    ),
    "multi_head_attention": Case(
        "MultiHeadAttention",
        (ROWS, ("n", "k", 6), ("n", "k", 6)),
        (_values(18),),
        _HEADS,
        domain=_MICROSOFT,
    ),
    "rotary_heads": Case(
        "RotaryEmbedding",
        (("n", "l", 8), ("n", "l")),
        (_values(9, 2), _values(9, 2)),
        _HEADS,
        ("float32", "int64"),
        domain=_MICROSOFT,
    ),
    "rotary_heads_from_a_first_position": Case(
        "RotaryEmbedding",
        (("n", 2, "l", 4), (1,)),
        (_values(9, 2), _values(9, 2)),
        {},
        ("float32", "int64"),
        domain=_MICROSOFT,
    ),
    "embeddings": Case(
        "EmbedLayerNormalization",
        (("n", "l"), ("n", "l")),
        (_values(9, 6), _values(9, 6), _values(2, 6), _values(6), _values(6)),
        {"epsilon": 1e-5},
        ("int32", "int32"),
        outputs=2,
        domain=_MICROSOFT,
    ),
    "spectrum": Case("DFT", (("n", 8, 1),), (), {"onesided": 1}),
    "spectra_of_frames": Case("STFT", (("n", "signal", 1),), (np.int64(3), _values(8)), opset=17),
    "spectra_of_rows": Case("STFT", (("n", "signal"),), (np.int64(3), _values(8)), opset=17),
    "determinants": Case("Det", (("n", "l", 3, 3),)),
    "blocks_to_image": Case("Col2Im", (("n", 12, 9),), (_ints(4, 4), _ints(2, 2)), opset=18),
    "deformed_convolution": Case(
        "DeformConv",
        (("n", 2, "l", 5), ("n", 18, "l", 5)),
        (_values(3, 2, 3, 3),),
        {"pads": [1, 1, 1, 1]},
        opset=19,
        order=(0, 2, 1),
    ),
    "loss": Case(
        "SoftmaxCrossEntropyLoss", (("n", 5, "l"), ("n", "l")), dtypes=("float32", "int64")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_at_several_sizes(name: str) -> None:
    case = CASES[name]
    model = case.model()
    executable = treadle.compile(model, dynamic=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for sizes in SIZES:
        inputs = case.inputs(sizes)
        for got, want in zip(executable.run(inputs), session.run(None, inputs), strict=True):
            result = np.asarray(got)
            assert (result.shape, result.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_fewer_elements_than_the_largest_wanted() -> None:
    executable = treadle.compile(CASES["topk_of_an_open_axis"].model(), dynamic=True)
    with pytest.raises(InputError, match="reads 3 elements along axis 1 of a tensor that has 2"):
        executable.run({"x0": np.arange(12, dtype="float32").reshape(1, 2, 6)})


def test_the_integer_mean_of_an_open_axis_that_is_empty() -> None:
    case = Case("ReduceMean", [["n", 5]], attributes={"axes": [0], "keepdims": 0}, dtypes=["int64"])
    executable = treadle.compile(case.model(), dynamic=True)
    for rows, wanted in ((np.zeros((0, 5)), [0] * 5), (np.arange(10).reshape(2, 5), range(2, 7))):
        (mean,) = executable.run({"x0": rows.astype("int64")})
        np.testing.assert_array_equal(np.asarray(mean), wanted)


def _decoder() -> onnx.ModelProto:
    """Return grouped attention with rotation over a cache, its lengths read off a mask."""
    float_, int_ = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    inputs = {
        "x": (float_, ("n", "l", 64)),
        "mask": (int_, ("n", "total")),
        "keys": (float_, ("n", 1, "past", 16)),
        "values": (float_, ("n", 1, "past", 16)),
    }
    weights = {"cos": _values(12, 8), "sin": _values(12, 8), "one": _ints(1), "axis": _ints(1)}
    names = ["x", "", "", "keys", "values", "last", "total", "cos", "sin"]
    int32 = onnx.TensorProto.INT32
    nodes = [
        helper.make_node("ReduceSum", ["mask", "axis"], ["counts"], keepdims=0),
        helper.make_node("Sub", ["counts", "one"], ["ends"]),
        helper.make_node("Cast", ["ends"], ["last"], to=int32),
        helper.make_node("Shape", ["mask"], ["sizes"], start=1),
        helper.make_node("Cast", ["sizes"], ["total"], to=int32),
        helper.make_node(
            "GroupQueryAttention",
            names,
            ["y", "all_keys", "all_values"],
            domain=_MICROSOFT,
            num_heads=2,
            kv_num_heads=1,
            do_rotary=1,
        ),
    ]
    return helper.make_model(
        helper.make_graph(
            nodes,
            "decoder",
            [helper.make_tensor_value_info(n, *what) for n, what in inputs.items()],
            [onnx.ValueInfoProto(name=n) for n in ("y", "all_keys", "all_values")],
            [numpy_helper.from_array(v, n) for n, v in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)],
        ir_version=10,
    )


def test_grouped_attention_of_a_prompt_and_of_steps_after_it() -> None:
    model = _decoder()
    executable = treadle.compile(model, dynamic=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(3)
    for batch, steps, past in ((2, 4, 0), (2, 1, 4), (1, 1, 5), (1, 3, 0)):
        cache = [random.standard_normal((batch, 1, past, 16)).astype("float32") for _ in range(2)]
        mask = np.ones((batch, past + steps), "int64")
        inputs = {"x": random.standard_normal((batch, steps, 64)).astype("float32"), "mask": mask}
        inputs |= dict(zip(("keys", "values"), cache, strict=True))
        for got, want in zip(executable.run(inputs), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-5)
