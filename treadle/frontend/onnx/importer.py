# SPDX-License-Identifier: Apache-2.0
"""ONNX model to graph module: walks the nodes, inlines functions, places every error."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import onnx

from treadle.errors import ModelError, TreadleError
from treadle.frontend.importer import (
    Folder,
    Imported,
    UnsupportedList,
    origin_of,
    stamp_origin,
)
from treadle.frontend.onnx.files import Source, open_model
from treadle.frontend.onnx.inputs import InputTypes
from treadle.frontend.onnx.node import OnnxNode, RuntimeValueError
from treadle.frontend.onnx.resolve import (
    Branching,
    Conversion,
    Expansion,
    Inlining,
    Missing,
    Resolver,
    domain_of,
)
from treadle.frontend.onnx.tensors import DTYPES, sparse_to_array, to_array
from treadle.graph.nodes import Call, Constant, Function, Module, Node, Var, topological
from treadle.graph.nodes import Tuple as TupleNode
from treadle.graph.types import TensorType

_T = TypeVar("_T")


def import_onnx(
    model: onnx.ModelProto | str | Path | bytes,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic: bool = False,
) -> Imported:
    """Return an ONNX model as a graph module, with notes on the choices made.

    `shapes` gives the shapes of inputs by name. An unknown first dimension becomes 1 with a note;
    with `dynamic` unknown dimensions stay symbolic. Weights are referenced, not copied.

    Raises:
        ModelError: the file is unreadable, breaks a rule of ONNX, or leaves sizes open.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        InputError: `shapes` does not fit the model.
    """
    source = open_model(model)
    try:
        return _Importer(source).run(shapes, dynamic)
    except ModelError as e:
        if e.at:
            raise
        raise type(e)(e.problem, at=source.name, hint=e.hint) from None


@dataclass(slots=True)
class _Frame:
    """A node list being converted: the main graph, a function body or a branch.

    `targets` are the names its `results` get in the frame below it on the stack.
    """

    nodes: Sequence[onnx.NodeProto]
    values: MutableMapping[str, Node]
    opsets: Mapping[str, int]
    results: Sequence[str] = ()
    targets: Sequence[str] = ()
    prefix: str = ""
    attributes: Mapping[str, onnx.AttributeProto] | None = None
    position: int = 0
    defined: set[str] = field(default_factory=set)


class _Importer:
    """One import: the stack of frames, the values named so far, and the notes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._resolver = Resolver(source.model)
        self._folder = Folder()
        self._stack: list[_Frame] = []

    def run(self, shapes: Mapping[str, Sequence[int]] | None, dynamic: bool) -> Imported:
        graph = self._source.model.graph
        self._resolver.check(self._source.model, self._source.name)
        values: dict[str, Node] = self._initializers(graph, self._source.weights)
        inputs = InputTypes(_free_inputs(graph, values), shapes, dynamic)
        params = inputs.params()
        values.update(params)
        defined = set(values)
        self._convert(_Frame(graph.node, values, self._resolver.opsets, defined=defined))
        outputs = [self._output(o, values) for o in graph.output]
        body = outputs[0] if len(outputs) == 1 else TupleNode.of(outputs)
        main = Function(tuple(params.values()), body)
        names = tuple(o.name for o in graph.output)
        return Imported(Module(main, names, graph.name or "model"), tuple(inputs.notes))

    def _initializers(
        self, graph: onnx.GraphProto, weights: Mapping[int, memoryview]
    ) -> dict[str, Node]:
        external = self._source.external
        found: dict[str, Node] = {}
        for index, tensor in enumerate(graph.initializer):
            array = _located(
                f"{self._source.name}, initializer {tensor.name}",
                lambda t=tensor, w=weights.get(index): to_array(t, external, w),
            )
            _define(found, tensor.name, Constant.of(array, origin=tensor.name))
        for sparse in graph.sparse_initializer:
            array = _located(
                f"{self._source.name}, sparse initializer {sparse.values.name}",
                lambda s=sparse: sparse_to_array(s, external),
            )
            name = sparse.values.name
            _define(found, name, Constant.of(array, origin=name))
        return found

    def _output(self, declared: onnx.ValueInfoProto, values: Mapping[str, Node]) -> Node:
        if declared.name not in values:
            raise ModelError(
                f"the graph output {declared.name!r} is computed by no node",
                hint="the model is incomplete; check how it was exported",
            )
        node = values[declared.name]
        wanted = DTYPES.get(declared.type.tensor_type.elem_type)
        if wanted and isinstance(node.type, TensorType) and node.type.dtype != wanted:
            raise ModelError(
                f"the graph output {declared.name!r} is declared as {wanted}, "
                f"the graph computes {node.type}"
            )
        return node

    def _convert(self, main: _Frame) -> None:
        self._stack = [main]
        while self._stack:
            frame = self._stack[-1]
            if frame.position == len(frame.nodes):
                self._finish(self._stack.pop())
                continue
            node = frame.nodes[frame.position]
            frame.position += 1
            self._step(frame, node)

    def _finish(self, frame: _Frame) -> None:
        if not self._stack:
            return
        below = self._stack[-1]
        for result, target in zip(frame.results, frame.targets, strict=False):
            if target and result not in frame.values:
                raise ModelError(
                    f"the result {result!r} is computed by no node",
                    at=f"{self._source.name}, node {frame.prefix.rstrip('/')}",
                )
            if target:
                self._bind(below, target, frame.values[result])

    def _step(self, frame: _Frame, proto: onnx.NodeProto) -> None:
        index = frame.position - 1
        origin = frame.prefix + origin_of(proto.name, proto.op_type, index)
        place = f"{self._source.name}, node {origin} (index {index}), operator {proto.op_type}"
        inputs = _located(place, lambda: self._inputs(frame, proto))
        meaning = self._resolver.meaning(proto, frame.opsets)
        if isinstance(meaning, Missing):
            missing = UnsupportedList()
            missing.add(domain_of(proto.domain), proto.op_type, meaning.version, origin)
            missing.raise_if_any(place)
            return
        if isinstance(meaning, Conversion):
            place += _signature(meaning.version, frame, proto, inputs)
            results = _located(place, lambda: self._call(meaning, frame, proto, inputs, origin))
            for name, value in zip(proto.output, results, strict=False):
                if name:
                    _located(place, lambda n=name, v=value: self._bind(frame, n, v))
            return
        if isinstance(meaning, Branching):
            frame_above = _located(place, lambda: self._branch(frame, proto, inputs, origin))
        elif isinstance(meaning, Inlining):
            function = meaning.function
            frame_above = _located(
                place, lambda: self._inline(function, frame, proto, inputs, origin)
            )
        else:
            full = _located(place, lambda: _with_all_attributes(meaning, frame, proto))
            function = _located(place, lambda: _expand(meaning, full, inputs))
            frame_above = _located(
                place, lambda: self._inline(function, frame, full, inputs, origin)
            )
        self._stack.append(frame_above)

    def _inputs(self, frame: _Frame, proto: onnx.NodeProto) -> tuple[Node | None, ...]:
        names = list(proto.input)
        while names and not names[-1]:
            names.pop()
        for name in names:
            if name and name not in frame.values:
                raise _undefined(name, frame)
        return tuple(frame.values[n] if n else None for n in names)

    def _bind(self, frame: _Frame, name: str, value: Node) -> None:
        if name in frame.defined:
            raise ModelError(
                f"the value {name!r} is defined twice",
                hint="names in an ONNX graph are assigned once; check how it was exported",
            )
        frame.defined.add(name)
        frame.values[name] = value

    def _call(
        self,
        meaning: Conversion,
        frame: _Frame,
        proto: onnx.NodeProto,
        inputs: tuple[Node | None, ...],
        origin: str,
    ) -> Sequence[Node]:
        attributes = _attributes(proto, frame.attributes)
        if meaning.schema is not None:
            _check_form(meaning.schema, attributes, inputs, proto)
        node = OnnxNode(
            op=proto.op_type,
            version=meaning.version,
            opset=frame.opsets[domain_of(proto.domain)],
            origin=origin,
            inputs=inputs,
            outputs=tuple(proto.output),
            attributes=attributes,
            external=self._source.external,
        )
        converted = meaning.function(node)
        results = list(converted) if isinstance(converted, Sequence) else [converted]
        _check_complete(node, results)
        given = [i for i in inputs if i is not None]
        known = all(isinstance(i, Constant) for i in given)
        results = [self._folder.fold(r) if known or _is_constant_call(r) else r for r in results]
        stamp_origin(results, given, origin)
        return results

    def _inline(
        self,
        function: onnx.FunctionProto,
        frame: _Frame,
        proto: onnx.NodeProto,
        inputs: tuple[Node | None, ...],
        origin: str,
    ) -> _Frame:
        if len(inputs) > len(function.input):
            raise ModelError(
                f"the function {function.name} takes {len(function.input)} inputs, "
                f"{len(inputs)} are given"
            )
        given = _attributes(proto, frame.attributes)
        attributes = {a.name: a for a in function.attribute_proto} | given
        values = {n: v for n, v in zip(function.input, inputs, strict=False) if v is not None}
        return _Frame(
            nodes=_without_absent(function, len(inputs), inputs),
            values=values,
            opsets=self._resolver.imports(function),
            results=tuple(function.output),
            targets=tuple(proto.output),
            prefix=origin + "/",
            attributes=attributes,
            defined=set(values),
        )

    def _branch(
        self,
        frame: _Frame,
        proto: onnx.NodeProto,
        inputs: tuple[Node | None, ...],
        origin: str,
    ) -> _Frame:
        condition = inputs[0] if inputs else None
        if not isinstance(condition, Constant) or condition.value.size != 1:
            error = RuntimeValueError(
                "an If whose condition is computed at run time is not supported",
                hint="export the model for inference with fixed input shapes",
            )
            error.source = condition
            raise error
        wanted = "then_branch" if bool(condition.value.reshape(())) else "else_branch"
        graphs = [a.g for a in proto.attribute if a.name == wanted]
        if not graphs:
            raise ModelError(f"an If lacks its attribute {wanted!r}")
        own = self._initializers(graphs[0], {})
        return _Frame(
            nodes=graphs[0].node,
            values=ChainMap(own, frame.values),
            opsets=frame.opsets,
            results=tuple(o.name for o in graphs[0].output),
            targets=tuple(proto.output),
            prefix=origin + "/",
            attributes=frame.attributes,
            defined=set(own),
        )


def _is_constant_call(node: Node) -> bool:
    return isinstance(node, Call) and all(isinstance(a, Constant) for a in node.args)


def _free_inputs(graph: onnx.GraphProto, values: Mapping[str, Node]) -> list[onnx.ValueInfoProto]:
    seen: set[str] = set()
    for declared in graph.input:
        if declared.name in seen:
            raise ModelError(f"the graph has two inputs named {declared.name!r}")
        seen.add(declared.name)
    return [i for i in graph.input if i.name not in values]


def _define(values: dict[str, Node], name: str, value: Node) -> None:
    if name in values:
        raise ModelError(f"the graph has two initializers named {name!r}")
    values[name] = value


def _undefined(name: str, frame: _Frame) -> ModelError:
    """Say why a name is unknown: computed later, part of a cycle, or nowhere."""
    makers = {o: k for k, n in enumerate(frame.nodes) for o in n.output if o}
    if name not in makers:
        return ModelError(
            f"the input {name!r} is no graph input, initializer or result of a node",
            hint="the model is incomplete; check how it was exported",
        )
    reader = frame.position - 1
    if _depends_on(frame.nodes, makers, makers[name], reader):
        return ModelError(f"the graph has a cycle: {name!r} depends on a result of this node")
    maker = frame.nodes[makers[name]]
    return ModelError(
        f"{name!r} is used before node "
        f"{origin_of(maker.name, maker.op_type, makers[name])} computes it",
        hint="the nodes of an ONNX graph must be sorted; re-export or sort the model",
    )


def _depends_on(
    nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int], start: int, goal: int
) -> bool:
    seen: set[int] = set()
    stack = [start]
    while stack:
        index = stack.pop()
        if index == goal:
            return True
        if index not in seen:
            seen.add(index)
            stack.extend(makers[i] for i in nodes[index].input if i in makers)
    return False


def _attributes(
    proto: onnx.NodeProto, outer: Mapping[str, onnx.AttributeProto] | None
) -> dict[str, onnx.AttributeProto]:
    """Return the attributes of a node; in a function body those of the call are filled in."""
    found: dict[str, onnx.AttributeProto] = {}
    for a in proto.attribute:
        if a.name in found:
            raise ModelError(f"the attribute {a.name!r} is given twice")
        if not a.ref_attr_name:
            found[a.name] = a
        elif outer is None:
            raise ModelError(f"the attribute {a.name!r} refers to a function outside of one")
        elif a.ref_attr_name in outer:
            copy = onnx.AttributeProto()
            copy.CopyFrom(outer[a.ref_attr_name])
            copy.name = a.name
            found[a.name] = copy
    return found


def _without_absent(
    function: onnx.FunctionProto, given: int, inputs: Sequence[Node | None]
) -> Sequence[onnx.NodeProto]:
    """Return the body with inputs that are not given replaced by the empty name."""
    absent = {n for k, n in enumerate(function.input) if k >= given or inputs[k] is None}
    if not absent:
        return function.node
    nodes = []
    for node in function.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for k, name in enumerate(copy.input):
            if name in absent:
                copy.input[k] = ""
        nodes.append(copy)
    return nodes


def _with_all_attributes(
    meaning: Expansion, frame: _Frame, proto: onnx.NodeProto
) -> onnx.NodeProto:
    """Return a node with its attributes resolved and the defaults of its schema written out."""
    given = _attributes(proto, frame.attributes)
    defaults = {
        name: a.default_value
        for name, a in meaning.schema.attributes.items()
        if a.default_value.name and name not in given
    }
    full = onnx.NodeProto()
    full.CopyFrom(proto)
    del full.attribute[:]
    full.attribute.extend([*given.values(), *defaults.values()])
    return full


def _expand(
    meaning: Expansion, proto: onnx.NodeProto, inputs: Sequence[Node | None]
) -> onnx.FunctionProto:
    """Return the body ONNX gives for an operator, for the types at hand."""
    schema, opset = meaning.schema, meaning.opset
    function = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        types = [_type_proto(i).SerializeToString() for i in inputs]
        body = schema.get_context_dependent_function_with_opset_version(
            opset, proto.SerializeToString(), types
        )
    else:
        body = schema.get_function_with_opset_version(opset)
    function.ParseFromString(body)
    if not any(domain_of(o.domain) == "" for o in function.opset_import):
        core = opset if not schema.domain else onnx.defs.onnx_opset_version()
        function.opset_import.add(domain="", version=core)
    return function


def _type_proto(node: Node | None) -> onnx.TypeProto:
    if node is None or not isinstance(node.type, TensorType):
        return onnx.TypeProto()
    numbers = {name: number for number, name in DTYPES.items()}
    shape = node.type.static_shape
    return onnx.helper.make_tensor_type_proto(numbers[node.type.dtype], shape)


def _check_form(
    schema: onnx.defs.OpSchema,
    attributes: Mapping[str, onnx.AttributeProto],
    inputs: Sequence[Node | None],
    proto: onnx.NodeProto,
) -> None:
    """Check a node against ONNX's definition: attribute names, number of inputs and outputs."""
    for name in attributes:
        if name not in schema.attributes:
            known = ", ".join(sorted(schema.attributes)) or "none"
            raise ModelError(
                f"{schema.name}-{schema.since_version} has no attribute {name!r}",
                hint=f"its attributes are {known}",
            )
    for name, definition in schema.attributes.items():
        if definition.required and name not in attributes:
            raise ModelError(f"{schema.name} lacks its attribute {name!r}")
    if not schema.min_input <= len(inputs) <= schema.max_input:
        few, many = schema.min_input, schema.max_input
        wanted = f"{few}" if few == many else f"{few} to {many}"
        raise ModelError(f"{schema.name} has {len(inputs)} inputs; it takes {wanted}")
    if len(proto.output) > schema.max_output:
        raise ModelError(f"{schema.name} has {len(proto.output)} outputs")


def _check_complete(node: OnnxNode, results: Sequence[Node]) -> None:
    """Check that a converter read every attribute and made every output that is wanted."""
    unread = sorted(set(node.attributes) - node.read)
    if unread:
        raise ModelError(f"the attribute {unread[0]!r} of {node.op} is not supported")
    for k, name in enumerate(node.outputs):
        if name and k >= len(results):
            raise ModelError(f"the output {k} ({name!r}) of {node.op} is not supported")


def _signature(
    version: int, frame: _Frame, proto: onnx.NodeProto, inputs: Sequence[Node | None]
) -> str:
    types = ", ".join("-" if i is None else str(i.type) for i in inputs)
    opset = frame.opsets.get(domain_of(proto.domain), 0)
    return f"-{version}, opset {opset}, inputs ({types})"


def _located(place: str, action: Callable[[], _T]) -> _T:
    """Run `action`; whatever goes wrong in it becomes a ModelError at `place`."""
    try:
        return action()
    except RuntimeValueError as e:
        error = RuntimeValueError(e.problem, at=place, hint=e.hint)
        if e.source is not None:
            error.inputs = tuple(n.name for n in topological([e.source]) if isinstance(n, Var))
        raise error from None
    except ModelError as e:
        raise type(e)(e.problem, at=place, hint=e.hint) from None
    except TreadleError as e:
        raise ModelError(e.problem, at=place, hint=e.hint) from None
    except (ArithmeticError, LookupError, ValueError, TypeError) as e:
        raise ModelError(
            f"this node cannot be converted: {type(e).__name__}: {e}",
            at=place,
            hint="the model may break a rule of ONNX; try onnx.checker.check_model on it",
        ) from e
