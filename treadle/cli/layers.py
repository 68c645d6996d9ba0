# SPDX-License-Identifier: Apache-2.0
"""Holds a compiled model against its network, layer by layer, never keeping all values of either.

The network runs node by node, as far as the instruction just finished needs it; a value is dropped
when its last user has run and the instruction it belongs to has been compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from treadle.build.agreement import Agreement, agreement
from treadle.build.loaded import Runnable
from treadle.errors import UsageError
from treadle.frontend.importer import origin_of
from treadle.frontend.onnx.files import Source, open_model
from treadle.frontend.onnx.tensors import sparse_to_array, to_array
from treadle.frontend.tflite.formats import is_tflite
from treadle.runtime.array import NDArray

_IR_VERSION = 10
"""The newest that every onnxruntime of the last years reads; it says nothing of operators."""

_NO_VALUE = ("size", "if", "loop", "check")
"""Instructions that write nothing themselves: what they decide or give is used by others."""


@dataclass(frozen=True)
class Layer:
    """One instruction that could be compared: its number, kernel, nodes, and the result."""

    number: int
    kernel: str
    nodes: tuple[str, ...]
    agreement: Agreement


def compare_layers(
    network: Path, model: Runnable, inputs: Mapping[str, NDArray], share: float | None
) -> tuple[list[Layer], int]:
    """Return every layer that was compared, in order, up to the first that departs.

    The other number is how many instructions the plan has. `share` is the distance allowed as a
    share of the largest element.

    Raises: UsageError when a node of the network cannot be run by itself.
    """
    plan = model.instructions()
    walk = _Network(network, {n: np.asarray(v) for n, v in inputs.items()})
    owned = _owned(plan, walk)
    walk.expect([name for names in owned for name in names])
    layers: list[Layer] = []

    def observe(index: int, found: np.ndarray) -> None:
        if not owned[index] or (layers and not layers[-1].agreement.holds):
            return
        last = walk.names_in(str(plan[index]["origin"]))[-1]
        best = _best(found, walk, owned[index], last, share)
        if best is not None:
            kernel = str(plan[index].get("kernel", plan[index]["op"]))
            layers.append(Layer(index, kernel, tuple(owned[index]), best))
        walk.compared(owned[index])

    model.executor.watch(dict(inputs), observe)
    return layers, len(plan)


def _best(
    found: np.ndarray, walk: _Network, names: Sequence[str], last: str, share: float | None
) -> Agreement | None:
    """Return how far a result is from the nearest of the nodes' results that others read.

    None where that says nothing: a part of a later node (`last`) may have been applied already,
    such as an activation that the network has after a concatenation.
    """
    known: list[Agreement] = []
    is_conclusive = False
    for name in walk.sinks(names):
        for value in walk.results(name):
            result = _compare(found, value, share)
            if result is not None:
                known.append(result)
                is_conclusive |= name == last or _is_padded(found, value)
    if not known:
        return None
    best = min(known, key=lambda r: (not r.holds, bool(r.problem), r.worst))
    return best if best.holds or is_conclusive else None


def _owned(plan: Sequence[Mapping[str, object]], walk: _Network) -> list[list[str]]:
    """Return the nodes that each instruction completes: of which it is the last to speak.

    What comes before it may hold a part of the node: its padding, its input in another layout.
    """
    named = [
        [] if row["op"] in _NO_VALUE else walk.names_in(str(row.get("origin", ""))) for row in plan
    ]
    last = {name: index for index, names in enumerate(named) for name in names}
    return [[n for n in names if last[n] == index] for index, names in enumerate(named)]


# ---- the network ---------------------------------------------------------------------------------


@dataclass
class _Network:
    """An ONNX file, run node by node on demand."""

    path: Path
    inputs: Mapping[str, np.ndarray]
    source: Source = field(init=False)
    nodes: dict[str, onnx.NodeProto] = field(init=False)
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if is_tflite(self.path):
            raise UsageError(
                f"{self.path} cannot be run operator by operator",
                hint="compare its outputs: leave --layers out",
            )
        self.source = open_model(self.path)
        graph = self.source.model.graph
        self.nodes = {origin_of(n.name, n.op_type, index): n for index, n in enumerate(graph.node)}
        self.maker = {o: name for name, n in self.nodes.items() for o in n.output if o}
        self.outputs = {o.name for o in graph.output}
        self.readers: dict[str, set[str]] = {}
        for name, node in self.nodes.items():
            for value in _reads(node):
                self.readers.setdefault(value, set()).add(name)
        self.waiting: dict[str, set[str]] = {}
        self.values.update(self.inputs)
        self._weights = dict(self._stored())

    def _stored(self) -> Iterator[tuple[str, np.ndarray]]:
        graph, external = self.source.model.graph, self.source.external
        for index, tensor in enumerate(graph.initializer):
            yield tensor.name, to_array(tensor, external, self.source.weights.get(index))
        for sparse in graph.sparse_initializer:
            yield sparse.values.name, sparse_to_array(sparse, external)

    def names_in(self, origin: str) -> list[str]:
        """Return the nodes that an origin joins with plus signs, which may be in names as well."""
        names, rest = [], origin.split("+")
        while rest:
            count = next(
                (k for k in range(len(rest), 0, -1) if "+".join(rest[:k]) in self.nodes), 0
            )
            if count:
                names.append("+".join(rest[:count]))
            rest = rest[count or 1 :]
        return names

    def expect(self, names: Sequence[str]) -> None:
        """Say whose results will be asked for: those, and what they need, are kept until then."""
        needed, stack = set(), list(names)
        while stack:
            name = stack.pop()
            if name in needed:
                continue
            needed.add(name)
            stack.extend(self.maker[v] for v in _reads(self.nodes[name]) if v in self.maker)
        for name in needed:
            for value in self.nodes[name].output:
                users = self.readers.get(value, set()) & needed
                self.waiting[value] = users | ({f"compare {name}"} if name in names else set())

    def sinks(self, names: Sequence[str]) -> list[str]:
        """Return the nodes whose results others than `names` read."""
        inside = set(names)
        return [
            name
            for name in names
            if any(
                value in self.outputs or self.readers.get(value, set()) - inside
                for value in self.nodes[name].output
            )
        ]

    def results(self, name: str) -> list[np.ndarray]:
        """Return the results of a node, running what it needs first."""
        stack = [name]
        while stack:
            node = self.nodes[stack[-1]]
            if all(o in self.values for o in node.output if o):
                stack.pop()
                continue
            missing = [v for v in _reads(node) if v not in self.values and v in self.maker]
            if missing:
                stack.extend(dict.fromkeys(self.maker[v] for v in missing))
                continue
            self._run(stack.pop(), node)
        return [self.values[o] for o in self.nodes[name].output if o]

    def _run(self, name: str, node: onnx.NodeProto) -> None:
        given = {}
        for value in _reads(node):
            found = self.values.get(value, self._weights.get(value))
            if found is None:
                raise UsageError(
                    f"the value {value!r} is known to no node before", at=f"{self.path}, {name}"
                )
            given[value] = found
        outputs = [o for o in node.output if o]
        results = _run_node(node, given, self.source.model, f"{self.path}, node {name}")
        self.values.update(zip(outputs, results, strict=True))
        self._release(name, given)

    def compared(self, names: Sequence[str]) -> None:
        """Drop the results of nodes that nothing else needs."""
        for name in names:
            self._release(f"compare {name}", self.nodes[name].output)

    def _release(self, user: str, values: Mapping[str, object] | Sequence[str]) -> None:
        for value in values:
            left = self.waiting.get(value)
            if left is not None:
                left.discard(user)
                if not left:
                    self.values.pop(value, None)


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the values a node reads, those its subgraphs take from outside included."""
    found = {name: None for name in node.input if name}
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        for graph in graphs:
            own = {t.name for t in graph.initializer} | {i.name for i in graph.input}
            own |= {o for inner in graph.node for o in inner.output}
            for value in [v for inner in graph.node for v in _reads(inner)]:
                if value not in own:
                    found[value] = None
            found.update(dict.fromkeys(o.name for o in graph.output if o.name not in own))
    return list(found)


def _run_node(
    node: onnx.NodeProto, given: Mapping[str, np.ndarray], model: onnx.ModelProto, at: str
) -> list[np.ndarray]:
    """Return the results of one node by onnxruntime, or else by onnx.reference."""
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    graph = helper.make_graph(
        [node], "node", inputs, [onnx.ValueInfoProto(name=n) for n in node.output if n]
    )
    alone = helper.make_model(
        graph, opset_imports=model.opset_import, functions=list(model.functions)
    )
    alone.ir_version = min(model.ir_version, _IR_VERSION)
    found = _by_onnxruntime(alone, given)
    return _by_reference(alone, given, at) if found is None else found


def _by_onnxruntime(
    model: onnx.ModelProto, given: Mapping[str, np.ndarray]
) -> list[np.ndarray] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [np.asarray(r) for r in session.run(None, dict(given))]
    except Exception:  # its exceptions share no class of their own; the reference may know better
        return None


def _by_reference(
    model: onnx.ModelProto, given: Mapping[str, np.ndarray], at: str
) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in ReferenceEvaluator(model).run(None, dict(given))]
    except Exception as error:  # whatever NumPy or a missing operator raises
        text = " ".join(str(error).split())[:200]
        raise UsageError(f"the node cannot be run by itself: {text}", at=at) from error


# ---- values in other layouts ---------------------------------------------------------------------


def _compare(found: np.ndarray, value: np.ndarray, share: float | None) -> Agreement | None:
    """Return how far a kernel's result is from a node's; None where that cannot be told."""
    if found.dtype != value.dtype:
        return None
    if found.shape == value.shape:
        return agreement(found, value, share)
    if found.ndim == 5 and value.ndim == 4:
        return _compare_blocked(found, value, share)
    if found.size == value.size:
        result = agreement(found.reshape(value.shape), value, share)
        return result if result.holds else None
    return None


def _is_padded(found: np.ndarray, value: np.ndarray) -> bool:
    return found.ndim == 5 and found.shape[2:4] != value.shape[2:4]


def _compare_blocked(found: np.ndarray, value: np.ndarray, share: float | None) -> Agreement | None:
    """Compare a result [n, c/block, h, w, block], perhaps padded, with one [n, c, h, w]."""
    n, chunks, high, wide, block = found.shape
    channels, h, w = value.shape[1:]
    if n != value.shape[0] or chunks * block < channels or high < h or wide < w:
        return None
    plain = found.transpose(0, 1, 4, 2, 3).reshape(n, chunks * block, high, wide)
    results = [
        agreement(plain[:, :channels, y : y + h, x : x + w], value, share)
        for y in range(high - h + 1)
        for x in range(wide - w + 1)
    ]
    best = min(results, key=lambda r: (bool(r.problem), r.worst))
    if best.holds:
        return best
    ordered = _with_channels_of(plain[:, :, (high - h) // 2 :, (wide - w) // 2 :], value)
    return best if ordered is None else agreement(ordered, value, share)


def _with_channels_of(plain: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    """Return the channels of `plain` in the order of `value`, found by their contents."""
    h, w = value.shape[2:]
    mine = plain[0, :, :h, :w].reshape(plain.shape[1], -1).astype(np.float64)
    theirs = value[0].reshape(value.shape[1], -1).astype(np.float64)
    if mine.shape[1] != theirs.shape[1]:
        return None
    distance = (mine**2).sum(1)[None] - 2 * theirs @ mine.T + (theirs**2).sum(1)[:, None]
    return np.asarray(plain[:, np.argmin(distance, 1), :h, :w])
