# SPDX-License-Identifier: Apache-2.0
"""ONNX model to graph module: walks the nodes, inlines functions and branches, names values."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from treadle.errors import ModelError, UnsupportedOperators
from treadle.frontend.builders.closure import anchored, decided_sizes
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.importer import (
    Folder,
    Imported,
    UnsupportedList,
    is_constant_call,
    origin_of,
    stamp_origin,
)
from treadle.frontend.onnx.control.alternatives import Alternatives
from treadle.frontend.onnx.control.loops import Iteration, Loops
from treadle.frontend.onnx.control.runtime_control import running_of
from treadle.frontend.onnx.control.unrolled_loops import repetition_of
from treadle.frontend.onnx.core.sequence import input_of, leaves_of, structure_of
from treadle.frontend.onnx.diagnostics import check_complete, check_form, fitting, placed, undefined
from treadle.frontend.onnx.files import AnyModel, Source, open_model
from treadle.frontend.onnx.frames import Frame, Use, bind, check_results
from treadle.frontend.onnx.functions import (
    attributes_of,
    expand,
    with_all_attributes,
    without_absent,
)
from treadle.frontend.onnx.inputs import InputTypes, fixed_inputs
from treadle.frontend.onnx.node import OnnxNode, RuntimeValueError
from treadle.frontend.onnx.resolve import (
    Branching,
    Conversion,
    Inlining,
    Meaning,
    Missing,
    Repeating,
    Resolver,
    domain_of,
)
from treadle.frontend.onnx.tensors import DTYPES, sparse_to_array, to_array
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.nodes import Tuple as TupleNode
from treadle.graph.types import Structure, TensorType

MOST_TYPES = 12
"""How many types of a node's inputs a message lists."""


def import_onnx(
    model: AnyModel,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic: bool = False,
    values: Mapping[str, np.ndarray] | None = None,
    structures: Mapping[str, Structure] | None = None,
) -> Imported:
    """Return an ONNX model as a graph module, with notes on the choices made.

    `shapes` gives the shapes of inputs by name. An unknown first dimension becomes 1 with a note;
    with `dynamic` unknown dimensions stay symbolic. `values` fixes inputs to values: they are
    inputs no more. `structures` says what inputs that are sequences or optional consist of: the
    graph has an input for each tensor, NAME[0], NAME[1], ... Weights are referenced, not copied.

    Raises:
        ModelError: the file is unreadable, breaks a rule of ONNX, or leaves sizes open.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        InputError: `shapes` or `values` do not fit the model. UsageError: it is no model.
    """
    source = open_model(model)
    try:
        return _Importer(source).run(shapes, dynamic, values or {}, structures or {})
    except ModelError as e:
        if e.at:
            raise
        raise type(e)(e.problem, at=source.name, hint=e.hint) from None


class _Importer:
    """One import: the stack of frames and the values named so far."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._resolver = Resolver(source.model)
        self._folder = Folder()
        self._stack: list[Frame] = []
        self._loops = Loops(self)
        self._notes: dict[str, None] = {}
        self.continued = 0

    def run(
        self,
        shapes: Mapping[str, Sequence[int]] | None,
        dynamic: bool,
        fixed: Mapping[str, np.ndarray],
        given: Mapping[str, Structure],
    ) -> Imported:
        graph = self._source.model.graph
        self._resolver.check(self._source.model, self._source.name)
        values = self._initializers(graph, self._source.weights)
        values |= fixed_inputs(graph.input, fixed)
        declared = _free_inputs(graph, values)
        whole: dict[str, Node] = {
            d.name: input_of(d.type, given[d.name], d.name) for d in declared if d.name in given
        }
        inputs = InputTypes([d for d in declared if d.name not in whole], shapes, dynamic)
        whole |= inputs.params()
        values.update(whole)
        main = Frame(graph.node, values, self._resolver.opsets, defined=set(values))
        main.results = tuple(o.name for o in graph.output)
        try:
            self._convert(main)
        except RuntimeValueError as e:
            e.inputs = self._loops.parameters.inputs_of(e.source)
            raise
        outputs = {o.name: _output(o, values) for o in graph.output}
        leaves = [leaf for name, node in outputs.items() for leaf in leaves_of(node, name)]
        results = anchored([node for _, node in leaves], main.sizes)
        body = results[0] if len(results) == 1 else TupleNode.of(results)
        params = [p for d in declared for _, p in leaves_of(whole[d.name], d.name)]
        function = Function(tuple(p for p in params if isinstance(p, Var)), body)
        names = tuple(name for name, _ in leaves)
        structures = tuple(structure_of(node) for node in outputs.values())
        module = Module(function, names, graph.name or "model", structures)
        return Imported(module, (*inputs.notes, *self._notes), self._source.external.names)

    def _initializers(
        self, graph: onnx.GraphProto, weights: Mapping[int, memoryview]
    ) -> dict[str, Node]:
        external = self._source.external
        found: dict[str, Node] = {}
        for index, tensor in enumerate(graph.initializer):
            with placed(f"{self._source.name}, initializer {tensor.name}"):
                array = to_array(tensor, external, weights.get(index))
            _define(found, tensor.name, Constant.of(array, origin=tensor.name))
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            with placed(f"{self._source.name}, sparse initializer {name}"):
                array = sparse_to_array(sparse, external)
            _define(found, name, Constant.of(array, origin=name))
        return found

    def _convert(self, main: Frame) -> None:
        self._stack = [main]
        while self._stack:
            try:
                self._advance(self._stack[-1])
            except ModelError as error:
                self._recover(error)

    def _advance(self, frame: Frame) -> None:
        """Convert the next node of the innermost frame, or finish it."""
        if frame.position == len(frame.nodes):
            self._finish(self._stack.pop())
            return
        frame.position += 1
        self._step(frame, frame.nodes[frame.position - 1])

    def _recover(self, error: ModelError) -> None:
        """Go on without the innermost branch that can be done without; else raise `error`."""
        while self._stack and not isinstance(error, UnsupportedOperators):
            frame = self._stack.pop()
            needs_values = isinstance(error, RuntimeValueError)
            if frame.failed is None or (needs_values and not frame.is_unrolled_else):
                continue
            try:
                frame.failed(error)
            except ModelError as another:
                error = another
            else:
                return
        raise error

    def _finish(self, frame: Frame) -> None:
        """Hand the results of a function or branch to the node it stands for."""
        if not self._stack:
            return
        assert frame.use is not None
        with placed(frame.use.place, frame.use.advice):
            if frame.after is not None:
                check_results(frame)
                frame.after(frame)
                return
            self._stack[-1].sizes.update(frame.sizes)
            for result, target in zip(frame.results, frame.targets, strict=False):
                if target and result not in frame.values:
                    raise ModelError(f"the result {result!r} is computed by no node")
                if target:
                    bind(self._stack[-1], target, frame.values[result])

    def _step(self, frame: Frame, proto: onnx.NodeProto) -> None:
        index = frame.position - 1
        origin = frame.prefix + origin_of(proto.name, proto.op_type, index)
        place = f"{self._source.name}, node {origin} (index {index}), operator {proto.op_type}"
        opset = frame.opsets.get(domain_of(proto.domain), 0)
        with placed(f"{place}, opset {opset}"):
            inputs = _inputs(frame, proto)
        meaning = self._resolver.meaning(proto, frame.opsets)
        use = Use(proto, frame, origin, place + _signature(meaning, frame, proto, inputs), inputs)
        with placed(use.place, use.advice):
            self._apply(meaning, use)

    def _apply(self, meaning: Meaning, use: Use) -> None:
        if isinstance(meaning, Missing):
            missing = UnsupportedList()
            domain, op = domain_of(use.proto.domain), use.proto.op_type
            missing.add(domain, op, meaning.version, use.origin, meaning.reason)
            missing.raise_if_any(use.place)
        elif isinstance(meaning, Conversion):
            results = self._call(meaning, use)
            for name, value in zip(use.proto.output, results, strict=False):
                if name:
                    bind(use.frame, name, value)
        elif isinstance(meaning, Branching):
            self._branch(use)
        elif isinstance(meaning, Repeating):
            self._repeat(meaning, use)
        elif isinstance(meaning, Inlining):
            self._stack.append(self._inline(meaning.function, use.proto, use))
        else:
            full = with_all_attributes(meaning, use.proto, use.frame.attributes)
            check_form(meaning.schema, attributes_of(full, None), use.inputs, use.proto)
            self._stack.append(self._inline(expand(meaning, full, use.inputs), full, use))

    def _call(self, meaning: Conversion, use: Use) -> Sequence[Node]:
        attributes = attributes_of(use.proto, use.frame.attributes)
        if meaning.schema is not None:
            check_form(meaning.schema, attributes, use.inputs, use.proto)
        node = self._node(use, meaning.version, attributes)
        with fitting(meaning.schema, use.inputs):
            converted = meaning.function(node)
        results = list(converted) if isinstance(converted, Sequence) else [converted]
        check_complete(node, results)
        use.frame.sizes.update(node.measured.values)
        self._notes.update(dict.fromkeys(node.notes))
        given = [i for i in use.inputs if i is not None]
        results = self._folder.fold_results(results, given)
        stamp_origin([*results, *node.measured.values.values()], given, use.origin)
        return results

    def _node(
        self, use: Use, version: int, attributes: Mapping[str, onnx.AttributeProto]
    ) -> OnnxNode:
        return OnnxNode(
            op=use.proto.op_type,
            version=version,
            origin=use.origin,
            inputs=use.inputs,
            outputs=tuple(use.proto.output),
            attributes=attributes,
            external=self._source.external,
            measured=MeasuredSizes(use.origin),
        )

    def _inline(self, function: onnx.FunctionProto, call: onnx.NodeProto, use: Use) -> Frame:
        inputs = use.inputs
        if len(inputs) > len(function.input):
            raise ModelError(
                f"the function {function.name} takes {len(function.input)} inputs, "
                f"{len(inputs)} are given"
            )
        given = attributes_of(call, use.frame.attributes)
        values = {n: v for n, v in zip(function.input, inputs, strict=False) if v is not None}
        return Frame(
            nodes=without_absent(function, len(inputs), inputs),
            values=values,
            opsets=self._resolver.imports(function),
            results=tuple(function.output),
            targets=tuple(call.output),
            prefix=use.origin + "/",
            attributes={a.name: a for a in function.attribute_proto} | given,
            defined=set(values),
            use=use,
        )

    def _branch(self, use: Use) -> None:
        """Inline the branch that is taken; where that is not known, convert both."""
        condition = use.inputs[0] if use.inputs else None
        if condition is None:
            raise ModelError("an If lacks its condition")
        if isinstance(condition, Constant) and condition.value.size == 1:
            is_true = bool(condition.value.reshape(()))
            frame = self.branch_frame(use, "then_branch" if is_true else "else_branch")
            self._stack.append(frame)
            return
        Alternatives(self, use, condition).start()

    def push(self, frame: Frame) -> None:
        """Convert a frame before going on with the one it is pushed on."""
        self._stack.append(frame)

    def note(self, text: str) -> None:
        """Add a note that a user should read."""
        self._notes[text] = None

    def bind_results(self, use: Use, results: Sequence[Node]) -> None:
        """Give the outputs of a node their values."""
        stamp_origin(results, [i for i in use.inputs if i is not None], use.origin)
        use.frame.sizes.update(decided_sizes(results))
        for name, value in zip(use.proto.output, results, strict=False):
            if name:
                bind(use.frame, name, value)

    def branch_frame(self, use: Use, wanted: str) -> Frame:
        """Return the nodes of one branch of an If."""
        graphs = [a.g for a in use.proto.attribute if a.name == wanted]
        if not graphs:
            raise ModelError(f"an If lacks its attribute {wanted!r}")
        own = self.initializers(graphs[0])
        return Frame(
            nodes=graphs[0].node,
            values=ChainMap(own, use.frame.values),
            opsets=use.frame.opsets,
            results=tuple(o.name for o in graphs[0].output),
            targets=tuple(use.proto.output),
            prefix=use.origin + "/",
            attributes=use.frame.attributes,
            defined=set(own),
            use=use,
        )

    def _repeat(self, meaning: Repeating, use: Use) -> None:
        attributes = attributes_of(use.proto, use.frame.attributes)
        node = self._node(use, meaning.version, attributes)
        try:
            repetition = repetition_of(node, attributes)
        except RuntimeValueError:
            self._loops.run_time(use, running_of(node, attributes))
            return
        own = self.initializers(repetition.body)
        self._loops.iterate(Iteration(repetition, use, own, lambda: running_of(node, attributes)))

    def initializers(self, graph: onnx.GraphProto) -> dict[str, Node]:
        """Return the initializers of the body of a branch or loop by name."""
        return self._initializers(graph, {})

    def folded(self, results: Sequence[Node]) -> list[Node]:
        """Return results, those computed of constants alone as constants."""
        return [self._folder.fold(r) if is_constant_call(r) else r for r in results]


def _free_inputs(graph: onnx.GraphProto, values: Mapping[str, Node]) -> list[onnx.ValueInfoProto]:
    """Return the inputs a user gives: those that are no initialisers."""
    seen: set[str] = set()
    for declared in graph.input:
        if declared.name in seen:
            raise ModelError(f"the graph has two inputs named {declared.name!r}")
        seen.add(declared.name)
    return [i for i in graph.input if i.name not in values]


def _inputs(frame: Frame, proto: onnx.NodeProto) -> tuple[Node | None, ...]:
    names = list(proto.input)
    while names and not names[-1]:
        names.pop()
    for name in names:
        if name and name not in frame.values:
            raise undefined(name, frame.nodes, frame.position - 1)
    return tuple(frame.values[n] if n else None for n in names)


def _define(values: dict[str, Node], name: str, value: Node) -> None:
    if name in values:
        raise ModelError(f"the graph has two initializers named {name!r}")
    values[name] = value


def _output(declared: onnx.ValueInfoProto, values: Mapping[str, Node]) -> Node:
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
            f"the graph computes {node.type}",
            hint="correct the type of the output, or convert the result with a Cast node",
        )
    return node


def _signature(
    meaning: Meaning, frame: Frame, proto: onnx.NodeProto, inputs: Sequence[Node | None]
) -> str:
    """Return the operator version, opset and input types, as they follow the name in messages."""
    version = f"-{meaning.version}" if isinstance(meaning, Conversion) else ""
    opset = frame.opsets.get(domain_of(proto.domain), 0)
    shown = ["-" if i is None else str(i.type) for i in inputs[:MOST_TYPES]]
    if len(inputs) > MOST_TYPES:
        shown.append(f"... {len(inputs) - MOST_TYPES} more")
    types = ", ".join(shown)
    return f"{version}, opset {opset}, inputs ({types})"
