# SPDX-License-Identifier: Apache-2.0
"""A program of torch.export to a graph module: its inputs, weights, state and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
)

from treadle.errors import ModelError
from treadle.frontend.builders.closure import anchored
from treadle.frontend.importer import Imported
from treadle.frontend.torch.decompose import for_export
from treadle.frontend.torch.guards import conditions_of, texts_of, with_conditions
from treadle.frontend.torch.reader import Reader, raise_if_unsupported
from treadle.frontend.torch.tensors import array_of
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.nodes import Tuple as TupleNode

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_CHANGED = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
    getattr(OutputKind, "PARAMETER_MUTATION", OutputKind.BUFFER_MUTATION),
)


def import_program(program: ExportedProgram, name: str = "model") -> Imported:
    """Return a program of torch.export as a graph module, with notes on the choices made.

    Inputs are called as the arguments of `forward` are, outputs output_0, output_1, ... Weights
    share the memory of torch's. A buffer that the program changes is an input and an output of the
    buffer's name: the value before a run and after it; so is an argument that it changes.

    Raises:
        UnsupportedOperators: operators without a conversion, all of them with counts.
        ModelError: a node cannot be converted; it is named, with its line in the user's source.
    """
    weights = program.state_dict.values()
    with torch.inference_mode(any(t.is_inference() for t in weights)):  # as it was exported
        lowered = program.run_decompositions(for_export())
    return _Import(lowered, name, texts_of(program)).run()


class _Import:
    """One import of a program whose operators are those that have converters."""

    def __init__(self, program: ExportedProgram, name: str, conditions: Sequence[str]) -> None:
        """`conditions` are texts about sizes: see `guards`."""
        self._program = program
        self._conditions = conditions
        self._signature = program.graph_signature
        self._reader = Reader(name)
        self._name = name
        self._params: list[Var] = []

    def run(self) -> Imported:
        nodes = list(self._program.graph.nodes)
        raise_if_unsupported(nodes, self._name)
        changed = {s.target for s in self._signature.output_specs if s.kind in _CHANGED}
        placeholders = [n for n in nodes if n.op == "placeholder"]
        specs = zip(placeholders, self._signature.input_specs, strict=True)
        for node, spec in sorted(specs, key=lambda pair: pair[1].kind is not InputKind.USER_INPUT):
            self._add_input(node, spec, changed)
        for node in nodes:
            self._read(node)
        names, results = zip(*self._outputs(nodes[-1]), strict=True)
        made = anchored(self._checked(results, placeholders), self._reader.measured)
        body = made[0] if len(made) == 1 else TupleNode.of(made)
        module = Module(Function(tuple(self._params), body), names, self._name)
        return Imported(module, tuple(self._reader.notes))

    def _checked(self, results: Sequence[Node], placeholders: Sequence[fx.Node]) -> list[Node]:
        """Return the results, which no run gives whose sizes are others than the program's."""
        specs = zip(placeholders, self._signature.input_specs, strict=True)
        users = [node for node, spec in specs if spec.kind is InputKind.USER_INPUT]
        conditions, unread = conditions_of(self._program, users, self._conditions)
        for text in unread:
            self._reader.notes[f"runs do not check what the program asks for: {text}"] = None
        at = next((k for k, r in enumerate(results) if not isinstance(r, Constant)), 0)
        made = with_conditions(results[at], conditions, self._reader.symbols)
        return [*results[:at], made, *results[at + 1 :]]

    def _add_input(self, node: fx.Node, spec: InputSpec, changed: set[str | None]) -> None:
        if spec.kind is InputKind.TOKEN:
            self._reader.set_value(node, None)  # says in which order checks are called
        elif isinstance(spec.arg, ConstantArgument):
            self._reader.set_value(node, spec.arg.value)
        elif spec.kind in _WEIGHTS and spec.target not in changed:
            value = self._weight(spec)
            known = Constant.of(array_of(value, spec.target), origin=node.name)
            self._reader.set_tensor(node, known)
        elif spec.kind is InputKind.USER_INPUT or spec.kind in _WEIGHTS:
            name = node.name if spec.kind is InputKind.USER_INPUT else str(spec.target)
            self._params.append(self._reader.add_input(node, name))
        else:
            raise ModelError(f"the input {node.name} is a {spec.kind.name.lower()}, not a tensor")

    def _weight(self, spec: InputSpec) -> torch.Tensor:
        held: Any = self._program.state_dict
        found = held.get(spec.target)
        if found is None:
            found = self._program.constants[spec.target]
        return found

    def _read(self, node: fx.Node) -> None:
        if node.op == "call_function":
            self._reader.read(node)
        elif node.op == "get_attr":
            target = getattr(self._program.graph_module, str(node.target))
            self._reader.set_attribute(node, target)

    def _outputs(self, node: fx.Node) -> Iterator[tuple[str, Node]]:
        """Yield name and value of each output: the user's first, then what is changed."""
        pairs = list(zip(node.args[0], self._signature.output_specs, strict=True))
        users = [n for n, s in pairs if s.kind is OutputKind.USER_OUTPUT and n is not None]
        tensors = [n for n in users if isinstance(n, fx.Node)]
        for k, result in enumerate(tensors):
            yield f"output_{k}", self._reader.tensor(result)
        for result, spec in pairs:
            if spec.kind in _CHANGED:
                yield str(spec.target), self._reader.tensor(result)
        if not pairs:
            raise ModelError("the program has no results", at=self._name)
