# SPDX-License-Identifier: Apache-2.0
"""A random ONNX graph under construction: nodes, arrays, and what every value is by two oracles.

Every value is known while the graph grows. So a node joins it only when onnxruntime and
onnx.reference agree on its results (or only one of them knows the operator), and the rounding
errors that any correct compiler may make are followed from node to node: beside its value, every
name has a shadow, computed from slightly disturbed operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz import apart, oracles
from treadle import dtype as dt

LARGEST = 1e4
"""No value of a graph is larger: sums and products stay finite in float16 too."""
_DISTURBANCE = 4.0
"""By how many units in the last place the shadow of a float result differs from the result."""
_LARGEST_DRIFT = 1e-2
"""The relative difference of a value and its shadow from which the graph is too unstable."""
_CAST_LIKE_SINCE = 15
"""The first opset with CastLike."""
BY_ELEMENT = frozenset(
    {"Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "BiasGelu", "Celu", "Cos",
     "Cosh", "CumProd", "DequantizeLinear", "Div", "Elu", "Erf", "Exp", "FastGelu", "Gelu",
     "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Mul", "PRelu", "Pow", "QuickGelu",
     "Reciprocal", "ReduceProd", "Selu", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus",
     "Softsign", "Sqrt", "Sub", "Tan", "Tanh", "ThresholdedRelu"}
)  # fmt: skip
"""Operators that add at most two terms, or terms of one sign: each element of their result is as
exact as it is small. In all others terms that cancel out leave their rounding: as much as if the
first operand were rounded otherwise, and more where terms do not show in the result."""


@dataclass(frozen=True)
class Value:
    """What a name stands for; `is_exact` when every correct compiler gives the same bits."""

    array: np.ndarray
    shadow: np.ndarray
    is_exact: bool = True

    @property
    def dtype(self) -> str:
        return dt.from_numpy(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass
class Graph:
    """Nodes in order, the arrays of inputs and constants, the names of the outputs."""

    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    exact_nodes: set[str] = field(default_factory=set)
    """The first outputs of nodes that round nothing."""
    others: list[dict[str, np.ndarray]] = field(default_factory=list)
    """Inputs of other sizes that the same model takes: what differs between them stays open."""

    @property
    def runs(self) -> list[dict[str, np.ndarray]]:
        """Return every set of inputs."""
        return [self.inputs, *self.others]

    def model(self, outputs: Sequence[str] | None = None) -> onnx.ModelProto:
        """Return the model; its outputs declare the type, and the shape where none is open."""
        wanted = self.outputs if outputs is None else list(outputs)
        values = self.values()
        proto = helper.make_graph(
            self.nodes,
            "fuzz",
            [_info(n, a.dtype, self._dims(n)) for n, a in self.inputs.items()],
            [self._output(n, values[n].array) for n in wanted],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )
        model = helper.make_model(proto, opset_imports=oracles.imports(self.nodes, self.opset))
        model.ir_version = oracles.IR_VERSION
        return model

    def _dims(self, name: str) -> list[int | str]:
        """Return the sizes of an input; those that vary alike have the same name."""
        found: list[int | str] = []
        for sizes in zip(*(run[name].shape for run in self.runs), strict=True):
            is_same = len(set(sizes)) == 1
            found.append(sizes[0] if is_same else "n" + "_".join(str(s) for s in sizes))
        return found

    def _output(self, name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        return _info(name, array.dtype, None if self.others else array.shape)

    def values(self, inputs: Mapping[str, np.ndarray] | None = None) -> dict[str, Value]:
        """Return every value, computed node by node, from the first inputs or those given.

        Raises: oracles.Refused when a node of a reduced graph has no agreed meaning any more.
        """
        given = self.inputs if inputs is None else inputs
        found = {n: Value(a, a) for n, a in {**given, **self.constants}.items()}
        for node in self.nodes:
            is_exact = node.output[0] in self.exact_nodes
            found.update(evaluate(node, found, self.opset, is_exact=is_exact))
        return found

    def copy(self, **changes: object) -> Graph:
        """Return a copy with some fields replaced."""
        fresh = replace(
            self,
            nodes=list(self.nodes),
            inputs=dict(self.inputs),
            constants=dict(self.constants),
            outputs=list(self.outputs),
            others=[dict(run) for run in self.others],
        )
        return replace(fresh, **changes)  # type: ignore[arg-type]  # names of fields

    def used(self, names: Iterable[str]) -> Graph:
        """Return the graph without what `names` do not need."""
        needed, nodes = set(names), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.append(node)
                needed |= set(operands(node))
        return self.copy(
            nodes=nodes[::-1],
            inputs={n: a for n, a in self.inputs.items() if n in needed},
            constants={n: a for n, a in self.constants.items() if n in needed},
            outputs=list(names),
            others=[{n: a for n, a in run.items() if n in needed} for run in self.others],
        )


def operands(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads: its inputs, and what its bodies read from around."""
    found = dict.fromkeys(n for n in node.input if n)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found.update(dict.fromkeys(_free(attribute.g)))
    return list(found)


def _free(body: onnx.GraphProto) -> list[str]:
    known = {i.name for i in body.input} | {o for n in body.node for o in n.output}
    return [n for node in body.node for n in operands(node) if n not in known]


def evaluate(
    node: onnx.NodeProto, values: Mapping[str, Value], opset: int, *, is_exact: bool
) -> dict[str, Value]:
    """Return the values of a node's outputs.

    Raises: oracles.Refused when the oracles know no result, disagree, or the result is unstable.
    """
    given = {n: values[n] for n in operands(node)}
    answers = apart.run_node(node, {n: v.array for n, v in given.items()}, opset)
    results = answers[0]
    exact = is_exact and all(v.is_exact for v in given.values())
    shadows = results
    if not exact and any(_is_float(r) for r in results):
        sums = not is_exact and node.op_type not in BY_ELEMENT
        beside = {n: v.shadow for n, v in given.items()}
        if sums and node.input and node.input[0]:
            beside[node.input[0]] = _disturbed(beside[node.input[0]], by_element=True)
        rough = _roughened(node, opset)
        if rough is not node or any(beside[n] is not v.array for n, v in given.items()):
            shadows = apart.run_again(rough, beside, opset)
        if not is_exact:
            shadows = [_disturbed(s, by_element=not sums) for s in shadows]
        # Where the oracles themselves differ, a compiler may.
        shadows = [_moved(s, a, b) for s, a, b in zip(shadows, results, answers[-1], strict=True)]
    names = [n for n in node.output if n]
    made = {}
    for name, result, shadow in zip(names, results, shadows, strict=True):
        made[name] = _value(result, shadow, exact)
    return made


def _roughened(node: onnx.NodeProto, opset: int) -> onnx.NodeProto:
    """Return a node whose bodies round otherwise: terms of a body may cancel out as well."""
    if opset < _CAST_LIKE_SINCE or not any(a.HasField("g") for a in node.attribute):
        return node
    rough = onnx.NodeProto()
    rough.CopyFrom(node)
    for attribute in rough.attribute:
        if attribute.HasField("g"):
            body = [n for inner in attribute.g.node for n in _rough(_roughened(inner, opset))]
            del attribute.g.node[:]
            attribute.g.node.extend(body)
    return rough


def _rough(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield a node of a body and what multiplies its result by nearly 1; by 1 where it is whole."""
    if node.op_type not in BY_ELEMENT or len(node.output) != 1:
        yield node
        return
    name = node.output[0]
    fresh = onnx.NodeProto()
    fresh.CopyFrom(node)
    fresh.output[0] = f"{name}_exact"
    yield fresh
    factor = 1 + _DISTURBANCE * epsilon(np.dtype(np.float32))
    yield helper.make_node("Constant", [], [f"{name}_wide"], value_float=factor)
    yield helper.make_node("CastLike", [f"{name}_wide", f"{name}_exact"], [f"{name}_factor"])
    yield helper.make_node("Mul", [f"{name}_exact", f"{name}_factor"], [name])


def _value(result: np.ndarray, shadow: np.ndarray, exact: bool) -> Value:
    if exact or not _is_float(result):
        if not exact and not np.array_equal(result, shadow):
            raise oracles.Refused("a step function of a rounded value")
        _check_size(result)
        return Value(result, result, exact)
    _check_size(result)
    wide, beside = result.astype(np.float64), shadow.astype(np.float64)
    most = np.max(np.abs(wide), initial=0.0)
    if not np.all(np.isfinite(beside)) or np.max(np.abs(wide - beside), initial=0.0) > (
        max(_LARGEST_DRIFT, 64 * epsilon(result.dtype)) * max(most, 1e-3)
    ):
        raise oracles.Refused("an unstable value")
    return Value(result, shadow, False)


def _check_size(result: np.ndarray) -> None:
    if _is_float(result):
        wide = np.abs(result.astype(np.float64))
        if not np.all(np.isfinite(wide)) or np.max(wide, initial=0.0) > LARGEST:
            raise oracles.Refused("a value that is too large")


def _disturbed(array: np.ndarray, *, by_element: bool) -> np.ndarray:
    """Move every element by what its own rounding may be, or that of terms that cancel out."""
    if not _is_float(array):
        return array
    wide = array.astype(np.float64)
    signs = np.where(np.arange(array.size).reshape(array.shape) * 7 % 5 < 2, 1.0, -1.0)
    size = wide if by_element else np.max(np.abs(wide), initial=0.0)
    with np.errstate(invalid="ignore"):
        moved = wide + size * _DISTURBANCE * epsilon(array.dtype) * signs
    return np.asarray(moved.astype(array.dtype))


def _moved(shadow: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a is b or not _is_float(a):
        return shadow
    with np.errstate(invalid="ignore"):
        away = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return (shadow.astype(np.float64) + away).astype(shadow.dtype)


def _is_float(array: np.ndarray) -> bool:
    return dt.is_float(dt.from_numpy(array.dtype))


def epsilon(dtype: np.dtype) -> float:
    """Return half the distance of 1 and the next number of a float type."""
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
    return 2.0 ** -digits[dt.from_numpy(dtype)]


def _info(name: str, dtype: np.dtype, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
