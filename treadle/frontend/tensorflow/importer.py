# SPDX-License-Identifier: Apache-2.0
"""TensorFlow model to graph module: converts what its outputs need, functions where called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from treadle.errors import ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.closure import anchored, decided_sizes
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.declared import parameters
from treadle.frontend.importer import Folder, Imported, UnsupportedList, stamp_origin
from treadle.frontend.places import placed
from treadle.frontend.tensorflow.context import Context, SpecialNode
from treadle.frontend.tensorflow.families import converters
from treadle.frontend.tensorflow.formats import AnyTensorflow
from treadle.frontend.tensorflow.graph import FunctionDef, Graph, NodeDef, Reference
from treadle.frontend.tensorflow.model import TensorflowModel, open_tensorflow
from treadle.frontend.tensorflow.node import DOMAIN, TfNode
from treadle.frontend.tensorflow.outputs import place_of_output
from treadle.frontend.tensorflow.special import SPECIAL
from treadle.frontend.tensorflow.values import Value, Variable, tensor_of
from treadle.graph.nodes import Constant, Function, Module, Node
from treadle.graph.nodes import Tuple as TupleNode

_DEEPEST = 64
"""How many functions may call each other, one inside of the other."""

_MOST_INLINED = 1 << 20
"""How many nodes the functions may come to, each as often as it is called."""

_NEWEST = 1


def import_tensorflow(
    model: AnyTensorflow,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic: bool = False,
    signature: str = "serving_default",
    outputs: Sequence[str] | None = None,
) -> Imported:
    """Return a SavedModel or a frozen GraphDef as a graph module, with notes on choices made.

    Inputs and outputs of a SavedModel have the names that `signature` gives them, those of a
    GraphDef the names of its placeholders and of the nodes that nothing reads, or of `outputs`.
    Axes are those of the model: images are [n, h, w, c]. `shapes` gives the shapes of inputs by
    name. An unknown first dimension becomes 1 with a note; with `dynamic` unknown ones stay
    symbolic. Weights are referenced, not copied. Variables have their saved values in every run.

    Raises:
        ModelError: the model is unreadable, damaged, or leaves sizes open.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        InputError: `shapes` do not fit the model. UsageError: it is no model, or has no such
        signature or output.
    """
    source = open_tensorflow(model, signature, outputs)
    try:
        return _Importer(source).run(shapes, dynamic)
    except ModelError as e:
        if e.at:
            raise
        raise type(e)(e.problem, at=source.name, hint=e.hint) from None


@dataclass(slots=True)
class _Scope:
    """The values of a graph or a function while it is converted, by node."""

    nodes: Mapping[str, NodeDef]
    prefix: str
    values: dict[str, Sequence[Value]]
    sizes: dict[SizeVar, Node] = field(default_factory=dict)

    def value(self, at: Reference) -> Value:
        """Return a value that was converted."""
        if at.node not in self.values:
            raise ModelError(f"{at.node!r} is read, but is no node or argument here")
        made = self.values[at.node]
        node = self.nodes.get(at.node)
        place = at.place if node is None else place_of_output(node, at)
        if place >= len(made):
            raise ModelError(f"result {place} of {at.node!r} is read, it has {len(made)}")
        return made[place]


class _Importer(Context):
    """One import: the functions that are open, and the values of the model's variables."""

    def __init__(self, source: TensorflowModel) -> None:
        self._source = source
        self._table = converters()
        self._folder = Folder()
        self._open: list[str] = []
        self._inlined = 0
        self._constants: dict[str, Constant] = {}
        self._notes: dict[str, None] = {}

    def run(self, shapes: Mapping[str, Sequence[int]] | None, dynamic: bool) -> Imported:
        """Return the outputs of the model as a module."""
        source = self._source
        self._check_operators()
        params, notes = parameters([i.declared for i in source.inputs], shapes, dynamic)
        self._notes |= dict.fromkeys(notes)
        given: dict[str, Sequence[Value]] = {
            i.node: [p] for i, p in zip(source.inputs, params, strict=True)
        }
        scope = _Scope(source.graph.nodes, "", given)
        results = [tensor_of(v) for v in self._evaluated(scope, [o.at for o in source.outputs])]
        body = results[0] if len(results) == 1 else TupleNode.of(results)
        names = tuple(o.name for o in source.outputs)
        return Imported(Module(Function(tuple(params), body), names, source.name), (*self._notes,))

    def _check_operators(self) -> None:
        """Raise UnsupportedOperators for all that have no converter, in all that is needed."""
        missing = UnsupportedList()
        for prefix, node in _needed(self._source.graph, [o.at for o in self._source.outputs]):
            known = node.op in SPECIAL or self._table.find(DOMAIN, node.op, _NEWEST, exact=False)
            if not known and node.name not in {i.node for i in self._source.inputs}:
                reason = _OLD_CONTROL if node.op in _FRAMES else ""
                missing.add(DOMAIN, node.op, None, prefix + node.name, reason)
        missing.raise_if_any(self._source.name)

    def note(self, text: str) -> None:
        """Add a note that a user should read."""
        self._notes[text] = None

    def function(self, name: str) -> FunctionDef:
        """Return a function. Raises ModelError for a name of none."""
        return self._source.graph.function(name)

    def variable(self, name: str) -> Node:
        """Return the saved value of a variable."""
        if name not in self._constants:
            self._constants[name] = Constant.of(self._source.variable(name), origin=name)
        return self._constants[name]

    def called(self, name: str, arguments: Sequence[Value], prefix: str) -> list[Value]:
        """Return the results of a function for some arguments."""
        function = self.function(name)
        if name in self._open or len(self._open) >= _DEEPEST:
            raise ModelError(f"the function {name!r} calls itself, or is nested too deeply")
        if len(arguments) != len(function.arguments):
            raise ModelError(
                f"the function {name!r} takes {len(function.arguments)} arguments, "
                f"{len(arguments)} are given"
            )
        given = {a: [v] for a, v in zip(function.arguments, arguments, strict=True)}
        self._open.append(name)
        made = self._evaluated(_Scope(function.nodes, prefix, {**given}), function.results)
        self._open.pop()
        return made

    def _evaluated(self, scope: _Scope, wanted: Sequence[Reference]) -> list[Value]:
        """Return values of a graph, after converting all that they need of it."""
        for node in _in_order(scope.nodes, wanted, scope.values):
            self._inlined += 1
            if self._inlined > _MOST_INLINED:
                raise ModelError(f"the functions come to more than {_MOST_INLINED} nodes")
            self._step(scope, node)
        results = [scope.value(w) for w in wanted]
        tensors = [r for r in results if isinstance(r, Node)]
        fixed = iter(anchored(tensors, scope.sizes))
        return [next(fixed) if isinstance(r, Node) else r for r in results]

    def _step(self, scope: _Scope, node: NodeDef) -> None:
        origin = scope.prefix + node.name
        place = f"{self._source.name}, operator {node.op} ({origin!r})"
        with _placed(place):
            inputs = [scope.value(r) for r in node.inputs]
        with _placed(place + _types(inputs)):
            if node.op in SPECIAL:
                made = self._special(scope, node, inputs, origin)
            else:
                made = self._converted(scope, node, [tensor_of(v) for v in inputs], origin)
            scope.values[node.name] = made
            scope.sizes.update(decided_sizes([v for v in made if isinstance(v, Node)]))

    def _special(
        self, scope: _Scope, node: NodeDef, inputs: Sequence[Value], origin: str
    ) -> Sequence[Value]:
        use = SpecialNode(node, tuple(inputs), origin, scope.nodes, MeasuredSizes(origin))
        made = SPECIAL[node.op](self, use)
        given = [v for v in inputs if isinstance(v, Node)]
        tensors = [v for v in made if isinstance(v, Node)]
        stamp_origin([*tensors, *use.measured.values.values()], given, origin)
        scope.sizes.update(use.measured.values)
        return made

    def _converted(
        self, scope: _Scope, node: NodeDef, inputs: Sequence[Node], origin: str
    ) -> Sequence[Value]:
        convert = self._table.find(DOMAIN, node.op, _NEWEST, exact=False)
        assert convert is not None  # `_check_operators` has refused the others
        measured = MeasuredSizes(origin)
        use = TfNode(node.op, 1, origin, tuple(inputs), node.attributes, measured=measured)
        found = convert(use)
        made = [found] if isinstance(found, Node) else list(found)
        made = self._folder.fold_results(made, inputs)
        stamp_origin([*made, *measured.values.values()], inputs, origin)
        scope.sizes.update(measured.values)
        self._notes.update(dict.fromkeys(use.notes))
        return made


_FRAMES = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})
_OLD_CONTROL = "control flow of TensorFlow 1; freeze with lower_control_flow=False"


def _needed(graph: Graph, wanted: Sequence[Reference]) -> Iterator[tuple[str, NodeDef]]:
    """Yield the nodes that values need, those of the functions that they call too."""
    seen: set[str] = set()
    waiting: list[tuple[str, Mapping[str, NodeDef], Sequence[Reference]]] = []
    waiting.append(("", graph.nodes, wanted))
    while waiting:
        prefix, nodes, references = waiting.pop()
        for node in _in_order(nodes, references, {}):
            yield prefix, node
            for name in _functions_of(node):
                if name not in seen and name in graph.functions:
                    seen.add(name)
                    function = graph.functions[name]
                    waiting.append((f"{name}/", function.nodes, function.results))


def _functions_of(node: NodeDef) -> list[str]:
    """Return the names of the functions that a node may call."""
    made: list[str] = []
    for message in node.attributes.values.values():
        single = message.message(10)
        several = message.message(1)
        made += [] if single is None else [single.text(1)]
        made += [] if several is None else [f.text(1) for f in several.messages(9)]
    return made


def _in_order(
    nodes: Mapping[str, NodeDef], wanted: Sequence[Reference], known: Mapping[str, object]
) -> list[NodeDef]:
    """Return the nodes that values need, each after those that it reads.

    Raises: ModelError for nodes that read each other in a circle.
    """
    order: dict[str, NodeDef] = {}
    entered: set[str] = set()
    stack = [(r.node, False) for r in reversed(wanted)]
    while stack:
        name, ready = stack.pop()
        if ready:
            order[name] = nodes[name]
        elif name in known or name not in nodes or name in order:
            continue
        elif name in entered:
            if nodes[name].op != "NextIteration":  # which closes the circle of a loop
                raise ModelError(f"the node {name!r} reads what it makes")
        else:
            entered.add(name)
            stack.append((name, True))
            stack.extend((r.node, False) for r in reversed(nodes[name].inputs))
    return list(order.values())


def _types(inputs: Sequence[Value]) -> str:
    shown = [str(i.type) if isinstance(i, Node) else _kind(i) for i in inputs[:12]]
    return f", inputs ({', '.join(shown)})"


def _kind(value: Value) -> str:
    return f"variable {value.name!r}" if isinstance(value, Variable) else "list"


def _placed(place: str) -> AbstractContextManager[None]:
    rule = "check how the model was exported; the file may break a rule of TensorFlow"
    return placed(lambda: place, mistake=rule, advice=lambda: rule)
