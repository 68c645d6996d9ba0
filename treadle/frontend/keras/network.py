# SPDX-License-Identifier: Apache-2.0
"""What a description says of a network: its layers, the calls of them, what goes in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple  # Any: values of JSON

from treadle.errors import ModelError
from treadle.frontend.keras.layer import LAYER, Description, described

_MOST_LAYERS = 1 << 16
_NETWORKS = ("Functional", "Sequential", "Model")
_TENSOR, _SLICE = "__keras_tensor__", "__slice__"


class Reference(NamedTuple):
    """A value: a result of a layer's call."""

    layer: str
    call: int
    result: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a layer; arguments hold references where they are values."""

    layer: str
    number: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def reads(self) -> list[Reference]:
        """Return the values that the call reads."""
        stack, found = [*self.args, *self.kwargs.values()], []
        while stack:
            item = stack.pop()
            if isinstance(item, Reference):
                found.append(item)
            elif isinstance(item, list):
                stack += item
        return found


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a network; an input of a Sequential is not numbered among its layers."""

    what: Description
    is_numbered: bool = True


@dataclass(frozen=True, slots=True)
class Network:
    """A network: its layers by name in the order they are stored, and its calls as they run."""

    layers: Mapping[str, Layer]
    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Reference, ...]
    output_names: tuple[str, ...]


def is_network(what: Description) -> bool:
    """True for a layer that is a network described by its layers."""
    is_list = isinstance(what.config.get("layers"), list)
    return what.domain == LAYER and what.class_name in _NETWORKS and is_list


def network_of(what: Description) -> Network:
    """Return the network that a layer is. Raises ModelError where its description is damaged."""
    if len(what.config["layers"]) > _MOST_LAYERS:
        raise ModelError(f"the network {what.name!r} has more than {_MOST_LAYERS} layers")
    try:
        return _sequential(what) if what.class_name == "Sequential" else _functional(what)
    except (LookupError, ValueError, TypeError, AttributeError) as e:
        raise ModelError(
            f"the description of the network {what.name!r} is damaged: {type(e).__name__}: {e}"
        ) from None


def _sequential(what: Description) -> Network:
    """Return layers of which each reads the one before it."""
    parts = [described(p) for p in what.config["layers"]]
    if not parts or parts[0].class_name != "InputLayer":
        raise ModelError(
            f"the network {what.name!r} does not say what shape its input has",
            hint="begin it with keras.Input(shape), or call it once, and save it again",
        )
    layers = {p.name: Layer(p, p.class_name != "InputLayer") for p in parts}
    if len(layers) != len(parts):
        raise ModelError(f"layers of the network {what.name!r} have one name")
    names = list(layers)
    calls = tuple(Call(name, 0, (Reference(before, 0, 0),)) for before, name in pairwise(names))
    last = Reference(names[-1], 0, 0)
    return Network(layers, calls, (names[0],), (last,), (names[-1],))


def _functional(what: Description) -> Network:
    """Return layers whose calls name what they read."""
    layers: dict[str, Layer] = {}
    calls: dict[tuple[str, int], Call] = {}
    for value in what.config["layers"]:
        name = str(value["name"])
        if name in layers:
            raise ModelError(f"two layers of the network {what.name!r} are called {name!r}")
        layers[name] = Layer(described(value))
        for number, node in enumerate(value["inbound_nodes"]):
            args = tuple(_argument(a) for a in node["args"])
            kwargs = {str(k): _argument(v) for k, v in node["kwargs"].items()}
            calls[name, number] = Call(name, number, args, kwargs)
    inputs = [Reference(*at) for _, at in _flat(what.config["input_layers"], "")]
    outputs = _flat(what.config["output_layers"], "")
    names = [key or at[0] for key, at in outputs]
    for at in inputs:
        if at.layer not in layers:
            raise ModelError(f"the input {at.layer!r} of {what.name!r} is no layer")
    references = tuple(Reference(*at) for _, at in outputs)
    order = _in_order(calls, references, {r.layer for r in inputs})
    return Network(layers, order, tuple(r.layer for r in inputs), references, _numbered(names))


def _numbered(names: list[str]) -> tuple[str, ...]:
    """Return names of which those that were there before get a number behind them."""
    taken: dict[str, int] = {}
    made = []
    for name in names:
        taken[name] = count = taken.get(name, -1) + 1
        made.append(f"{name}_{count}" if count else name)
    return tuple(made)


def _flat(value: Any, name: str) -> list[tuple[str, list[Any]]]:
    """Return the (layer, call, result) that lists and dictionaries of them hold, with names."""
    if isinstance(value, dict):
        return [pair for key, v in value.items() for pair in _flat(v, str(key))]
    if isinstance(value[0], str):
        if len(value) != 3 or not all(isinstance(k, int) and k >= 0 for k in value[1:]):
            raise ModelError(f"{value} names no result of a layer")
        return [(name, value)]
    return [pair for v in value for pair in _flat(v, name)]


def _argument(value: Any) -> Any:
    """Return an argument with references for what names values, and slices for what is one."""
    if isinstance(value, list):
        return [_argument(v) for v in value]
    if not isinstance(value, dict):
        return value
    config = value.get("config") or {}
    if value.get("class_name") == _TENSOR:
        (_, at), = _flat(config["keras_history"], "")  # fmt: skip
        return Reference(*at)
    if value.get("class_name") == _SLICE:
        return slice(*(config[k] for k in ("start", "stop", "step")))
    return {k: _argument(v) for k, v in value.items()}


def _in_order(
    calls: Mapping[tuple[str, int], Call], wanted: tuple[Reference, ...], inputs: set[str]
) -> tuple[Call, ...]:
    """Return the calls that values need, each after those that it reads.

    Raises: ModelError for calls that read each other in a circle.
    """
    order: dict[tuple[str, int], Call] = {}
    entered: set[tuple[str, int]] = set()
    stack = [((r.layer, r.call), False) for r in reversed(wanted)]
    while stack:
        key, ready = stack.pop()
        if ready:
            order[key] = calls[key]
        elif key[0] in inputs or key not in calls or key in order:
            continue
        elif key in entered:
            raise ModelError(f"the layer {key[0]!r} reads what it makes")
        else:
            entered.add(key)
            stack.append((key, True))
            stack.extend(((r.layer, r.call), False) for r in calls[key].reads())
    return tuple(order.values())
