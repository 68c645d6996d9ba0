# SPDX-License-Identifier: Apache-2.0
"""Keras model to graph module: walks the layers of networks of networks, in the order they run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any  # values of JSON

from treadle.errors import ModelError
from treadle.frontend.declared import UNKNOWN, DeclaredInput, parameters
from treadle.frontend.importer import Folder, Imported, UnsupportedList, stamp_origin
from treadle.frontend.keras.archive import KerasArchive, Weights, open_keras
from treadle.frontend.keras.families import converters
from treadle.frontend.keras.formats import AnyKeras
from treadle.frontend.keras.layer import (
    LAYER,
    OPERATION,
    Description,
    KerasLayer,
    described,
)
from treadle.frontend.keras.network import Network, Reference, is_network, network_of
from treadle.frontend.places import placed
from treadle.graph.nodes import Function, Module, Node
from treadle.graph.nodes import Tuple as TupleNode

_DEEPEST = 32
"""How many networks may be layers of each other, one inside of the other."""

_LAMBDA_HINT = "write it as layers or operations of keras.ops, or export a SavedModel"

_HANDS_MASK_ON = frozenset({
    "Activation", "ActivityRegularization", "Add", "AlphaDropout", "Average", "BatchNormalization",
    "Dense", "Dropout", "ELU", "EinsumDense", "GaussianDropout", "GaussianNoise",
    "GroupNormalization", "Identity", "LayerNormalization", "LeakyReLU", "Maximum", "Minimum",
    "Multiply", "MultiHeadAttention", "PReLU", "RMSNormalization", "ReLU", "Rescaling", "Softmax",
    "SpatialDropout1D", "Subtract", "UnitNormalization",
})  # fmt: skip
"""Layers whose result has the mask of their first input."""


def import_keras(
    model: AnyKeras, shapes: Mapping[str, Sequence[int]] | None = None, dynamic: bool = False
) -> Imported:
    """Return a .keras file as a graph module, with notes on the choices made.

    Inputs have the names and axes of the model's input layers, outputs the names of the layers
    that make them, or those that the model gives them. `shapes` gives the shapes of inputs by
    name. An unknown first dimension becomes 1 with a note; with `dynamic` unknown ones stay
    symbolic. Nothing of the file is run: layers of other classes than Keras's are refused, and so
    is Lambda.

    Raises:
        ModelError: the file is unreadable, damaged, or leaves sizes open.
        UnsupportedOperators: layers without a conversion, all of them with counts.
        InputError: `shapes` do not fit the model. UsageError: h5py is not installed.
    """
    archive = open_keras(model)
    try:
        return _Importer(archive).run(shapes, dynamic)
    except ModelError as e:
        if e.at:
            raise
        raise type(e)(e.problem, at=archive.name, hint=e.hint) from None


class _Importer:
    """One import: the converters, and the masks of values."""

    def __init__(self, archive: KerasArchive) -> None:
        self._archive = archive
        self._table = converters()
        self._folder = Folder()
        self._masks: dict[Node, Node] = {}
        self._notes: dict[str, None] = {}

    def run(self, shapes: Mapping[str, Sequence[int]] | None, dynamic: bool) -> Imported:
        """Return the model as a module."""
        top = described(self._archive.config)
        if not is_network(top):
            raise ModelError(
                f"the model is a class {top.class_name!r} of its own, of which the file holds no "
                "description",
                hint="save a Functional or Sequential model, or export a SavedModel",
            )
        network = network_of(top)
        self._check_layers(network)
        declared = [_declared(network.layers[name].what) for name in network.inputs]
        params, notes = parameters(declared, shapes, dynamic)
        self._notes |= dict.fromkeys(notes)
        results = self._evaluated(network, params, self._archive.weights, "", 0)
        body = results[0] if len(results) == 1 else TupleNode.of(results)
        function = Function(tuple(params), body)
        module = Module(function, tuple(network.output_names), self._archive.name)
        return Imported(module, tuple(self._notes))

    def _check_layers(self, network: Network) -> None:
        """Raise UnsupportedOperators for all that have no converter."""
        missing = UnsupportedList()
        for what in _all_layers(network, 0):
            if what.class_name == "InputLayer" or is_network(what):
                continue
            if what.class_name == "Lambda" and what.domain == LAYER:
                raise ModelError(
                    f"the layer {what.name!r} is a Lambda, which is Python code: files are data, "
                    "and no code of theirs is run",
                    hint=_LAMBDA_HINT,
                )
            if self._table.find(what.domain, what.class_name, 1, exact=False) is None:
                missing.add(what.domain, what.class_name, None, what.name)
        missing.raise_if_any(self._archive.name)

    def _evaluated(
        self,
        network: Network,
        given: Sequence[Node],
        weights: Weights,
        prefix: str,
        depth: int,
    ) -> list[Node]:
        """Return the outputs of a network for some inputs."""
        if depth > _DEEPEST:
            raise ModelError("networks are layers of each other too deeply")
        if len(given) != len(network.inputs):
            raise ModelError(f"{len(given)} values are given to {len(network.inputs)} inputs")
        places = _places(network, weights)
        values: dict[tuple[str, int], list[Node]] = {
            (name, 0): [value] for name, value in zip(network.inputs, given, strict=True)
        }
        for call in network.calls:
            layer = network.layers[call.layer]
            args = [_resolved(a, values) for a in call.args]
            kwargs = {k: _resolved(a, values) for k, a in call.kwargs.items()}
            place = places.get(call.layer, Weights(None, call.layer))
            made = self._called(layer.what, place, args, kwargs, prefix, depth)
            values[call.layer, call.number] = made
        return [_value(values, at) for at in network.outputs]

    def _called(
        self,
        what: Description,
        weights: Weights,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        prefix: str,
        depth: int,
    ) -> list[Node]:
        """Return the results of a layer for some arguments."""
        origin = prefix + what.name
        if is_network(what):
            given = [v for a in args for v in _flat(a)]
            inner = network_of(what)
            return self._evaluated(inner, given, weights, origin + "/", depth + 1)
        mask = kwargs.get("mask")
        before = [v for a in args for v in _flat(a)]
        if not isinstance(mask, Node) and before:
            mask = self._masks.get(before[0])
        use = KerasLayer(
            what, weights, tuple(args), kwargs, origin, mask if isinstance(mask, Node) else None
        )
        convert = self._table.find(what.domain, what.class_name, 1, exact=False)
        assert convert is not None  # `_check_layers` has refused the others
        with _placed(f"{self._archive.name}, layer {what.class_name} ({origin!r})"):
            found = convert(use)
            made = [found] if isinstance(found, Node) else list(found)
            made = self._folder.fold_results(made, before)
        stamp_origin(made, before, origin)
        self._keep_mask(use, made)
        return made

    def _keep_mask(self, use: KerasLayer, made: Sequence[Node]) -> None:
        mask = use.made_mask
        if mask is None and use.class_name in _HANDS_MASK_ON:
            mask = use.mask
        if mask is not None and made:
            self._masks[made[0]] = mask


def _places(network: Network, weights: Weights) -> dict[str, Weights]:
    """Return the weights of every layer: stored by class, numbered in the order of the layers."""
    layers = weights.child("layers")
    counts: dict[str, int] = {}
    made = {}
    for name, layer in network.layers.items():
        if layer.what.domain == OPERATION or not layer.is_numbered:
            continue
        key = snake_case(layer.what.class_name)
        number = counts.get(key, 0)
        counts[key] = number + 1
        made[name] = layers.child(f"{key}_{number}" if number else key)
    return made


def snake_case(name: str) -> str:
    """Return the name of a class as Keras writes it in files of weights."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _all_layers(network: Network, depth: int) -> Iterator[Description]:
    """Yield what describes the layers of a network, and of those that are its layers."""
    if depth > _DEEPEST:
        raise ModelError("networks are layers of each other too deeply")
    for layer in network.layers.values():
        yield layer.what
        if is_network(layer.what):
            yield from _all_layers(network_of(layer.what), depth + 1)


def _declared(what: Description) -> DeclaredInput:
    shape = what.config.get("batch_shape")
    if not isinstance(shape, list) or what.config.get("sparse") or what.config.get("ragged"):
        raise ModelError(f"the input {what.name!r} is sparse, ragged, or has no shape")
    sizes = [UNKNOWN if d is None else d for d in shape]
    if not all(isinstance(d, int) and d >= UNKNOWN for d in sizes):
        raise ModelError(f"the shape {shape} of the input {what.name!r} is none")
    dtype = what.config.get("dtype")
    dtype = dtype if isinstance(dtype, str) else "float32"
    if dtype == "string":
        raise ModelError(f"the input {what.name!r} is of texts, which is not supported")
    return DeclaredInput(what.name, tuple(sizes), dtype)


def _resolved(argument: Any, values: Mapping[tuple[str, int], list[Node]]) -> Any:
    """Return an argument with graph values for what names them."""
    if isinstance(argument, Reference):
        return _value(values, argument)
    if isinstance(argument, list):
        return [_resolved(a, values) for a in argument]
    return argument


def _value(values: Mapping[tuple[str, int], list[Node]], at: Reference) -> Node:
    found = values.get((at.layer, at.call))
    if found is None or at.result >= len(found):
        raise ModelError(f"result {at.result} of {at.layer!r} is read, but is not made before")
    return found[at.result]


def _flat(argument: Any) -> list[Node]:
    if isinstance(argument, Node):
        return [argument]
    return [v for a in argument for v in _flat(a)] if isinstance(argument, list) else []


def _placed(place: str) -> AbstractContextManager[None]:
    rule = "check how the model was saved; the file may break a rule of Keras"
    return placed(lambda: place, mistake=rule, advice=lambda: rule)
