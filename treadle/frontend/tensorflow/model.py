# SPDX-License-Identifier: Apache-2.0
"""Opens a model: a SavedModel's folder with its signatures, or a frozen GraphDef."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treadle.errors import ModelError, UsageError
from treadle.frontend.declared import DeclaredInput
from treadle.frontend.importer import did_you_mean
from treadle.frontend.inputs import mapped_file
from treadle.frontend.protobuf import Message
from treadle.frontend.tensorflow.checkpoint import open_checkpoint
from treadle.frontend.tensorflow.formats import SAVED_MODEL
from treadle.frontend.tensorflow.graph import Graph, NodeDef, Reference, read_graph, reference
from treadle.frontend.tensorflow.restore import saved_names
from treadle.frontend.tensorflow.tensors import check_numbers, dtype_of, shape_of_message

_KIND = "a TensorFlow"
_SERVING = "serve"
"""The tag of the graphs of a SavedModel that are for inference."""

_NO_OUTPUTS = frozenset({"NoOp", "Assert", "Const", "Placeholder", "VarHandleOp", "Print"})
"""Operators that are no results of a graph where nothing reads them."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input of a model, and the node whose value it is."""

    declared: DeclaredInput
    node: str


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """An output of a model, and which value it is."""

    name: str
    at: Reference


@dataclass(frozen=True, slots=True)
class TensorflowModel:
    """A model: its graph, what goes in and out, and the values of its variables by name.

    `variable` raises ModelError for one that the model has no value of.
    """

    name: str
    graph: Graph
    inputs: tuple[ModelInput, ...]
    outputs: tuple[ModelOutput, ...]
    variable: Callable[[str], np.ndarray]


def open_tensorflow(
    model: str | os.PathLike[str], signature: str, outputs: Sequence[str] | None
) -> TensorflowModel:
    """Return the model of a folder or a file.

    Raises: ModelError where it cannot be read, UsageError where it has no such signature or output.
    """
    path = Path(os.fspath(model))
    folder = path if path.is_dir() else None
    name = path.name or str(path)
    try:
        data = mapped_file(path if folder is None else path / SAVED_MODEL, "a TensorFlow model")
        message = Message(data, _KIND)
        if folder is None and not message.has(2) and not message.has(1):
            raise ModelError("this is not a TensorFlow file: it holds no graph")
        if folder is not None or _is_saved_model(message, path):
            return _saved_model(name, folder or path.parent, message, signature, outputs)
        return _frozen(name, read_graph(message), outputs)
    except ModelError as e:
        raise type(e)(e.problem, at=e.at or name, hint=e.hint) from None


def _is_saved_model(message: Message, path: Path) -> bool:
    """True for a SavedModel: its first field is a version, that of a GraphDef a list of nodes."""
    if path.name == SAVED_MODEL:
        return True
    graphs = list(message.messages(2))
    return len(graphs) > 0 and not message.has(1) and graphs[0].has(5)


def _frozen(name: str, graph: Graph, outputs: Sequence[str] | None) -> TensorflowModel:
    """Return a graph without signatures: nodes that nothing reads are its results."""
    wanted = [_output(graph, o) for o in outputs] if outputs else _unread(graph)
    if not wanted:
        raise ModelError("the graph has no node whose value is a result")
    inputs = [_placeholder(n) for n in graph.nodes.values() if n.op == "Placeholder"]
    used = _reached(graph, [o.at for o in wanted])
    taken = tuple(i for i in inputs if i.node in used)
    return TensorflowModel(name, graph, taken, tuple(wanted), _no_variable)


def _unread(graph: Graph) -> list[ModelOutput]:
    read = {r.node for n in graph.nodes.values() for r in n.inputs}
    read |= {name for n in graph.nodes.values() for name in n.after}
    return [
        ModelOutput(n.name, Reference(n.name, "", 0))
        for n in graph.nodes.values()
        if n.name not in read and n.op not in _NO_OUTPUTS
    ]


def _output(graph: Graph, text: str) -> ModelOutput:
    at = reference(text)
    if at.node not in graph.nodes:
        raise UsageError(f"the graph has no node {at.node!r}", hint=did_you_mean(text, graph.nodes))
    return ModelOutput(text, at)


def _placeholder(node: NodeDef) -> ModelInput:
    dtype = node.attributes.dtype("dtype")
    shape = node.attributes.shape("shape")
    return ModelInput(DeclaredInput(node.name, shape, dtype), node.name)


def _reached(graph: Graph, wanted: Sequence[Reference]) -> set[str]:
    """Return the names of all nodes that values need."""
    found: set[str] = set()
    stack = [r.node for r in wanted]
    while stack:
        name = stack.pop()
        if name in graph.nodes and name not in found:
            found.add(name)
            stack += [r.node for r in graph.nodes[name].inputs]
    return found


def _no_variable(name: str) -> np.ndarray:
    raise ModelError(
        f"the graph reads the variable {name!r}, and has no values of variables",
        hint="freeze it (convert_variables_to_constants_v2), or name the SavedModel's folder",
    )


def _saved_model(
    name: str, folder: Path, message: Message, wanted: str, outputs: Sequence[str] | None
) -> TensorflowModel:
    meta = _serving_graph(message)
    graph_message = meta.message(2)
    if graph_message is None:
        raise ModelError("the SavedModel has no graph")
    graph = read_graph(graph_message)
    signature = _signature(meta, wanted)
    inputs = [_signature_input(key, info) for key, info in sorted(signature.entries(1))]
    results = [_signature_output(key, info) for key, info in _in_order(signature.entries(2))]
    if outputs is not None:
        known = {r.name: r for r in results}
        unknown = [o for o in outputs if o not in known]
        if unknown:
            raise UsageError(
                f"the signature {wanted!r} has no output {unknown[0]!r}",
                hint=did_you_mean(unknown[0], known),
            )
        results = [known[o] for o in outputs]
    if not results:
        raise ModelError(f"the signature {wanted!r} has no outputs")
    checkpoint = open_checkpoint(folder / "variables", "variables")
    names = saved_names(graph, meta.message(3))

    def variable(key: str) -> np.ndarray:
        return checkpoint.tensor(names.get(key, key))

    return TensorflowModel(name, graph, tuple(inputs), tuple(results), variable)


def _serving_graph(message: Message) -> Message:
    """Return the graphs that are for inference."""
    metas = list(message.messages(2))
    for meta in metas:
        info = meta.message(1)
        if info is not None and _SERVING in info.texts(4):
            return meta
    raise ModelError(
        f"the SavedModel has no graph with the tag {_SERVING!r}",
        hint="export the model for serving (tf.saved_model.save does)",
    )


def _signature(meta: Message, wanted: str) -> Message:
    known = {key: part for key, part in meta.entries(5) if not key.startswith("__saved_model")}
    if wanted in known:
        return known[wanted]
    raise UsageError(
        f"the SavedModel has no signature {wanted!r}",
        hint=did_you_mean(wanted, known)
        if known
        else "save the model with one: tf.saved_model.save(model, folder, signatures=...)",
    )


def _signature_input(key: str, info: Message) -> ModelInput:
    dtype = check_numbers(dtype_of(info.integer(2)), f"the input {key!r}")
    shape = shape_of_message(info.message(3))
    return ModelInput(DeclaredInput(key, shape, dtype), reference(_tensor_name(key, info)).node)


def _signature_output(key: str, info: Message) -> ModelOutput:
    check_numbers(dtype_of(info.integer(2)), f"the output {key!r}")
    return ModelOutput(key, reference(_tensor_name(key, info)))


def _tensor_name(key: str, info: Message) -> str:
    if not info.text(1):
        raise ModelError(f"{key!r} is no dense tensor, which is not supported")
    return info.text(1)


def _in_order(entries: object) -> list[tuple[str, Message]]:
    """Return entries by name, numbers in names in order: output_2 before output_10."""

    def key(entry: tuple[str, Message]) -> list[tuple[bool, int, str]]:
        parts = re.split(r"([0-9]{1,9})", entry[0])
        return [(p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts]

    return sorted(entries, key=key)  # type: ignore[call-overload, no-any-return]
