# SPDX-License-Identifier: Apache-2.0
"""TFLite model to graph module: walks the operators of a subgraph, and of those that it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.closure import anchored, decided_sizes
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.declared import unique_names
from treadle.frontend.importer import Folder, Imported, UnsupportedList, origin_of, stamp_origin
from treadle.frontend.places import placed
from treadle.frontend.tflite.control import CONTROL, Subgraphs
from treadle.frontend.tflite.families import converters
from treadle.frontend.tflite.formats import AnyTflite
from treadle.frontend.tflite.inputs import parameters
from treadle.frontend.tflite.model import (
    OperatorUse,
    Subgraph,
    Tensor,
    TfliteModel,
    open_tflite,
)
from treadle.frontend.tflite.node import NEWEST, Options, TfliteNode
from treadle.frontend.tflite.schema import options_of
from treadle.graph.nodes import Constant, Function, Module, Node
from treadle.graph.nodes import Tuple as TupleNode
from treadle.graph.types import TensorType

_DEEPEST = 32
"""How many subgraphs may use each other, one inside of the other."""

_MOST_INLINED = 1 << 20
"""How many operators the subgraphs of control flow may come to, each as often as it is used."""

DOMAIN = "tflite"


def import_tflite(
    model: AnyTflite,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic: bool = False,
) -> Imported:
    """Return a TFLite model as a graph module, with notes on the choices made.

    Inputs and outputs have the names, types and axes of the file's tensors: images are [n, h, w,
    c], and what is quantised are integers. `shapes` gives the shapes of inputs by name. An unknown
    first dimension becomes 1 with a note; with `dynamic` unknown ones stay symbolic. Weights are
    referenced, not copied. Variables start at zero in every run.

    Raises:
        ModelError: the file is unreadable, damaged, or leaves sizes open.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        InputError: `shapes` do not fit the model. UsageError: it is no model.
    """
    source = open_tflite(model)
    try:
        return _Importer(source).run(shapes, dynamic)
    except ModelError as e:
        if e.at:
            raise
        raise type(e)(e.problem, at=source.name, hint=e.hint) from None


def operator_names(source: TfliteModel) -> list[str]:
    """Return what messages and kernels call the operators of the first subgraph."""
    return [_origin(source, 0, k) for k in range(len(source.subgraphs[0].operators))]


@dataclass(slots=True)
class _Scope:
    """The values of one subgraph while it is converted, by tensor number."""

    graph: Subgraph
    prefix: str
    values: dict[int, Node]
    sizes: dict[SizeVar, Node] = field(default_factory=dict)


class _Importer(Subgraphs):
    """One import: the scopes that are open, and the subgraphs they stand for."""

    def __init__(self, source: TfliteModel) -> None:
        self._source = source
        self._table = converters()
        self._folder = Folder()
        self._open: list[int] = []
        self._inlined = 0
        self._notes: dict[str, None] = {}

    def run(self, shapes: Mapping[str, Sequence[int]] | None, dynamic: bool) -> Imported:
        """Return the first subgraph as a module."""
        graph = self._source.subgraphs[0]
        self._check_operators()
        params, notes = parameters(graph, shapes, dynamic)
        self._notes |= dict.fromkeys(notes)
        if any(t.is_variable for t in graph.tensors):
            self.note("the model keeps variables between runs; here they start at zero in each")
        names = unique_names([graph.tensors[k].name for k in graph.outputs])
        results = self.converted(0, [params[k] for k in graph.inputs], "")
        body = results[0] if len(results) == 1 else TupleNode.of(results)
        function = Function(tuple(params.values()), body)
        return Imported(Module(function, tuple(names), self._source.name), tuple(self._notes))

    def _check_operators(self) -> None:
        """Raise UnsupportedOperators for all that have no converter, in every subgraph used."""
        missing = UnsupportedList()
        for number in self._used_subgraphs():
            for k, use in enumerate(self._source.subgraphs[number].operators):
                known = use.op in CONTROL or self._table.find(DOMAIN, use.op, NEWEST, exact=False)
                if not known:
                    missing.add(DOMAIN, use.op, use.version, _origin(self._source, number, k))
        missing.raise_if_any(self._source.name)

    def _used_subgraphs(self) -> list[int]:
        found = {0: None}
        for number in (waiting := [0]):
            for use in self._source.subgraphs[number].operators:
                if use.op not in CONTROL:
                    continue
                parts = CONTROL[use.op].subgraphs(_options(use))
                fresh = [p for p in parts if self._is_subgraph(p) and p not in found]
                found |= dict.fromkeys(fresh)
                waiting += fresh
        return list(found)

    def _is_subgraph(self, number: int) -> bool:
        return 0 <= number < len(self._source.subgraphs)

    def note(self, text: str) -> None:
        """Add a note that a user should read."""
        self._notes[text] = None

    def declared(self, number: int) -> Subgraph:
        """Return a subgraph. Raises ModelError for a number of none."""
        if not self._is_subgraph(number):
            count = len(self._source.subgraphs)
            raise ModelError(f"the subgraph {number} is used, there are {count}")
        return self._source.subgraphs[number]

    def converted(self, number: int, arguments: Sequence[Node], prefix: str) -> list[Node]:
        """Return the results of a subgraph for some arguments."""
        graph = self.declared(number)
        if number in self._open or len(self._open) >= _DEEPEST:
            raise ModelError(f"the subgraph {number} uses itself, or is nested too deeply")
        if len(arguments) != len(graph.inputs):
            raise ModelError(
                f"the subgraph {number} takes {len(graph.inputs)} inputs, "
                f"{len(arguments)} are given"
            )
        self._inlined += len(graph.operators)
        if self._inlined > _MOST_INLINED:
            raise ModelError(f"the subgraphs come to more than {_MOST_INLINED} operators")
        scope = _Scope(graph, prefix, dict(zip(graph.inputs, arguments, strict=True)))
        self._open.append(number)
        for k, use in enumerate(graph.operators):
            self._step(number, scope, k, use)
        results = [self._value(scope, k) for k in graph.outputs]
        self._open.pop()
        return anchored(results, scope.sizes)

    def _value(self, scope: _Scope, number: int) -> Node:
        """Return the value of a tensor: computed, or constant; an empty list has no bytes."""
        if number in scope.values:
            return scope.values[number]
        tensor = scope.graph.tensors[number]
        if tensor.value is None and not tensor.is_variable and tensor.shape != (0,):
            raise ModelError(
                f"the tensor {tensor.name!r} is no input, constant or result of an operator before",
                hint="the model is incomplete; check how it was converted",
            )
        made = Constant.of(_initial(tensor), origin=tensor.name)
        scope.values[number] = made
        return made

    def _step(self, number: int, scope: _Scope, index: int, use: OperatorUse) -> None:
        origin = scope.prefix + _origin(self._source, number, index)
        place = f"{self._source.name}, operator {use.op} (index {index}, {origin!r})"
        with _placed(place):
            inputs = tuple(None if k == -1 else self._value(scope, k) for k in use.inputs)
        with _placed(place + _types(inputs)):
            node = self._node(scope, use, origin, inputs)
            results = self._results(node, use)
            _check_results(node, results)
            for k, value in zip(use.outputs, results, strict=False):
                if k != -1:
                    scope.values[k] = value
            scope.sizes.update(node.measured.values)
            scope.sizes.update(decided_sizes(results))
            self._notes.update(dict.fromkeys(node.notes))

    def _node(
        self, scope: _Scope, use: OperatorUse, origin: str, inputs: tuple[Node | None, ...]
    ) -> TfliteNode:
        tensors = scope.graph.tensors
        return TfliteNode(
            op=use.op,
            version=use.version,
            origin=origin,
            inputs=inputs,
            tensors=tuple(None if k == -1 else tensors[k] for k in use.inputs),
            results=tuple(tensors[k] for k in use.outputs if k != -1),
            options=_options(use),
            custom_options=use.custom_options,
            measured=MeasuredSizes(origin),
        )

    def _results(self, node: TfliteNode, use: OperatorUse) -> list[Node]:
        if use.op in CONTROL:
            made = CONTROL[use.op].convert(self, node)
        else:
            convert = self._table.find(DOMAIN, use.op, NEWEST, exact=False)
            assert convert is not None  # `_check_operators` has refused the others
            found = convert(node)
            made = list(found) if isinstance(found, Sequence) else [found]
        given = [i for i in node.inputs if i is not None]
        made = self._folder.fold_results(made, given)
        stamp_origin([*made, *node.measured.values.values()], given, node.origin)
        return made


def _options(use: OperatorUse) -> Options:
    """Return the options of an operator. Raises ModelError for those of another one."""
    number, fields = options_of(use.op)
    if use.options_type in (0, number) or not fields:
        return Options(fields, use.options)
    raise ModelError(f"{use.op} has options of type {use.options_type}, {number} are its own")


def _origin(source: TfliteModel, number: int, index: int) -> str:
    """Return what an operator is called: as its first result, else by its place."""
    graph = source.subgraphs[number]
    use = graph.operators[index]
    results = [k for k in use.outputs if k != -1]
    return origin_of(graph.tensors[results[0]].name if results else "", use.op, index)


def _initial(tensor: Tensor) -> np.ndarray:
    if tensor.value is not None:
        return tensor.value
    return np.zeros(tensor.shape, to_numpy(tensor.dtype))


def _check_results(node: TfliteNode, results: Sequence[Node]) -> None:
    if len(results) < len(node.results):
        raise ModelError(
            f"the operator makes {len(results)} results, the file says {len(node.results)}"
        )
    for value, tensor in zip(results, node.results, strict=False):
        found = value.type
        if not isinstance(found, TensorType) or found.dtype != tensor.dtype:
            raise ModelError(f"the operator makes {found}, the file says {tensor.dtype}")


def _types(inputs: Sequence[Node | None]) -> str:
    shown = ["-" if i is None else str(i.type) for i in inputs[:12]]
    return f", inputs ({', '.join(shown)})"


def _placed(place: str) -> AbstractContextManager[None]:
    rule = "check how the model was converted; the file may break a rule of TFLite"
    return placed(lambda: place, mistake=rule, advice=lambda: rule)
