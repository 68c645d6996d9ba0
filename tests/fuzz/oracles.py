# SPDX-License-Identifier: Apache-2.0
"""What one ONNX node gives: by onnxruntime and by onnx.reference, where each knows it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from treadle import dtype as dt

IR_VERSION = 10
_ARITHMETIC = 96.0
"""By how many units in the last place of the largest result the oracles may differ."""


class Refused(Exception):
    """The node has no result that two correct programs agree on."""


def run_node(
    node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int
) -> list[list[np.ndarray]]:
    """Return the outputs of a node by each oracle that knows it. Raises: Refused."""
    model = _model(node, inputs, opset)
    if node.op_type in _VAGUE and any(a.dtype == np.float64 for a in inputs.values()):
        raise Refused(f"{node.op_type} of float64")
    _check(node, opset)
    if node.op_type in _POOLS and not _fits(node, inputs[node.input[0]].shape[2:]):
        raise Refused("a window that is larger than the data")
    _check_mean(node, inputs)
    first = _by_onnxruntime(model, inputs)
    is_narrow = any(_is_narrow(a) for a in inputs.values())
    answers = (first, None if is_narrow and first else _by_reference(model, inputs))
    known = [a for a in answers if a is not None]
    if not known:
        raise Refused(f"no oracle runs {node.op_type}")
    if not agree(known[0], known[-1]):
        raise Refused(f"the oracles disagree on {node.op_type}")
    return known


def _check_mean(node: onnx.NodeProto, inputs: Mapping[str, np.ndarray]) -> None:
    """Refuse the integer mean of nothing: the standard gives it no value."""
    if node.op_type != "ReduceMean":
        return
    data = inputs[node.input[0]]
    if data.dtype.kind in "iu" and not data.size:
        raise Refused("the integer mean of nothing")


def _check(node: onnx.NodeProto, opset: int) -> None:
    """Check a node alone: what a model says of its outputs, inference may leave open."""
    if node.domain or any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
        return  # a checker of nodes knows neither; shape inference and the oracles remain
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = IR_VERSION, {"": opset}
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise Refused(str(error)) from None


_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""onnxruntime rounds their number of windows towards 0, the standard down: to one, to none."""


def _fits(node: onnx.NodeProto, extents: Sequence[int]) -> bool:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if given.get("ceil_mode") or given.get("auto_pad", b"NOTSET").startswith(b"SAME"):
        return True
    n = len(extents)
    dilations, pads = given.get("dilations") or [1] * n, given.get("pads") or [0] * 2 * n
    windows = zip(extents, given["kernel_shape"], dilations, pads, pads[n:], strict=False)
    return all(d + before + after > (k - 1) * step for d, k, step, before, after in windows)


def run_again(
    node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int
) -> list[np.ndarray]:
    """Return the outputs of a node that `run_node` has a result for. Raises: Refused."""
    _check_mean(node, inputs)
    model = _model(node, inputs, opset)
    found = _by_onnxruntime(model, inputs) or _by_reference(model, inputs)
    if found is None:
        raise Refused(f"no oracle runs {node.op_type}")
    return found


def agree(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    """True where both give the same types and shapes, and values but for rounding."""
    return all(_agree(a, b) for a, b in zip(first, second, strict=True))


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not dt.is_float(dt.from_numpy(a.dtype)):
        return np.array_equal(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    unit = (
        2.0 ** -{"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}[dt.from_numpy(a.dtype)]
    )
    bound = _ARITHMETIC * unit * max(np.max(np.abs(x), initial=0.0), 1e-3)
    return bool(np.all(difference <= bound))


def _model(node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
    graph = helper.make_graph([node], "one", infos, outputs)
    model = helper.make_model(graph, opset_imports=imports([node], opset))
    model.ir_version = IR_VERSION
    if node.domain:
        return model
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=False)
    except onnx.shape_inference.InferenceError as error:
        raise Refused(str(error)) from None


def imports(nodes: Sequence[onnx.NodeProto], opset: int) -> list[onnx.OperatorSetIdProto]:
    """Return the operator sets that nodes need."""
    others = sorted({n.domain for n in nodes} - {""})
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in others)]


@lru_cache(maxsize=1)
def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


_MISTAKEN = frozenset({"GlobalMaxPool", "Hardmax", "MaxPool", "RNN", "GRU", "LSTM", "Loop"})
"""Operators that onnx.reference computes wrongly: a result of another rank,
rows of old opsets not joined, the padding of one side taken for that of both, lengths of sequences,
directions and clipping ignored, gathered values joined, not stacked."""
_CHAINED = frozenset({"Det"})
"""Operators whose rounding errors in float32 exceed every bound: they are computed in float64."""
_COARSE = frozenset({"Erf"})
"""Operators that it computes with the precision of float32 for float64 too."""
_VAGUE = frozenset({"Attention", "Gelu", "GroupNormalization", "HardSwish"})
"""Operators with constants that the standard gives in prose, or in its definition of the function
in float32 and in the reference in float64, or with a first stage in float32: how many digits of a
float64 are right, nobody knows."""
_NOT_IF_EMPTY = (
    "DynamicQuantizeLinear", "Einsum", "GRU", "InstanceNormalization", "LSTM", "RNN", "Reduce",
    "Unique",
)  # fmt: skip
"""Operators not to ask onnxruntime about where an operand has no elements: the process ends, or the
result of a reduction has the shape of the operand. Nor is it asked about those of its own domain,
some of which divide by an extent."""


def _by_onnxruntime(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]
) -> list[np.ndarray] | None:
    if any(_is_narrow(a) for a in inputs.values()):
        return _widened(_by_onnxruntime, model, inputs, "float32")
    node = model.graph.node[0]
    if node.op_type in _CHAINED:
        return None
    is_risky = node.domain or node.op_type.startswith(_NOT_IF_EMPTY)
    if is_risky and not all(a.size for a in inputs.values()):
        return None
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), _options(), providers=["CPUExecutionProvider"]
        )
    except Exception:  # its own exception classes: not implemented, a type it does not take
        return None
    try:
        results = session.run(None, dict(inputs))
    except Exception as error:  # an index out of range, say: nothing to ask another oracle about
        raise Refused(str(error)) from None
    return [np.asarray(r) for r in results]


def _is_narrow(array: np.ndarray) -> bool:
    return dt.from_numpy(array.dtype) == "bfloat16"


def _widened(
    oracle: Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], list[np.ndarray] | None],
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray],
    dtype: str,
) -> list[np.ndarray] | None:
    """Return an oracle's results on bfloat16 operands: those in a wider type, rounded once.

    onnxruntime has no such kernels, and onnx.reference rounds after every step of an operator.
    """
    wide = {n: a.astype(dtype) if _is_narrow(a) else a for n, a in inputs.items()}
    kinds = [o.type.tensor_type.elem_type for o in model.graph.output]
    if onnx.TensorProto.UNDEFINED in kinds:  # inference does not say what to round to
        return None
    try:
        results = oracle(_model(model.graph.node[0], wide, _opset(model)), wide)
    except Refused:
        return None
    if results is None:
        return None
    return [
        r.astype(helper.tensor_dtype_to_np_dtype(k)) for r, k in zip(results, kinds, strict=True)
    ]


def _opset(model: onnx.ModelProto) -> int:
    return int(model.opset_import[0].version)


def _is_rounded_up_mean(node: onnx.NodeProto) -> bool:
    """True where onnx.reference divides by places that lie outside of the data and its padding."""
    return node.op_type == "AveragePool" and any(
        a.name == "ceil_mode" and a.i for a in node.attribute
    )


def _by_reference(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]
) -> list[np.ndarray] | None:
    if any(_is_narrow(a) for a in inputs.values()):
        return _widened(_by_reference, model, inputs, "float64")
    node = model.graph.node[0]
    op = node.op_type
    is_wide = any(a.dtype == np.float64 for a in inputs.values())
    if op == "LRN":
        return [_normalised(node, *inputs.values())]
    if op in _MISTAKEN or (op in _COARSE and is_wide) or _is_rounded_up_mean(node):
        return None
    if op in _CHAINED and not is_wide:
        wide = {n: a.astype(np.float64) for n, a in inputs.items()}
        found = _by_reference(_model(node, wide, _opset(model)), wide)
        return found and [f.astype(a.dtype) for f, a in zip(found, inputs.values(), strict=True)]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, dict(inputs))
    except Exception:  # whatever NumPy says of an operand it does not like
        return None
    return [np.asarray(r) for r in results]


def _normalised(node: onnx.NodeProto, x: np.ndarray) -> np.ndarray:
    """Return LRN by its definition, rounded once: float[n, c, ...].

    onnx.reference leaves channels out, and powers of onnxruntime are wrong by 300 units in the last
    place where squares are large.
    """
    given = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    given |= {a.name: helper.get_attribute_value(a) for a in node.attribute}
    size, wide = int(given["size"]), x.astype(np.float64)
    before = (size - 1) // 2
    around = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(wide**2, around), size, axis=1)
    scale = given["bias"] + given["alpha"] / size * windows.sum(axis=-1)
    made: np.ndarray = (wide / scale ** given["beta"]).astype(x.dtype)
    return made
