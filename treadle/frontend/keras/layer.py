# SPDX-License-Identifier: Apache-2.0
"""One layer or operation as a converter sees it, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias  # Any: values of JSON

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    axis_from_front,
    converted,
    dims_of,
    element_type,
)
from treadle.frontend.importer import ConverterTable
from treadle.frontend.keras.archive import Weights
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import TensorType

LAYER, OPERATION = "keras.layers", "keras.ops"
"""What messages call the layers and the operations of."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says of a layer: its class, its settings, and what of Keras it is."""

    class_name: str
    domain: str
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the layer."""
        return str(self.config.get("name", self.class_name))

    def part(self, key: str) -> Description:
        """Return the layer that a setting describes. Raises ModelError where it is none."""
        return described(self.config.get(key))


def described(value: object) -> Description:
    """Return what a value of JSON says of a layer. Raises ModelError where it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("class_name"), str):
        raise ModelError("the description of a layer is damaged: it names no class")
    config = value.get("config")
    module = str(value.get("module") or "")
    domain = LAYER
    if module.startswith(("keras.src.ops", "keras.ops")):
        domain = OPERATION
    elif module.split(".")[0] != "keras":
        domain = module or "custom"
    return Description(value["class_name"], domain, config if isinstance(config, dict) else {})


@dataclass(slots=True)
class KerasLayer:
    """A call of a layer: what describes it, its weights, and the arguments it is called with.

    Arguments are graph values, lists of them, and plain values of JSON.
    """

    what: Description
    weights: Weights
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    origin: str
    mask: Node | None = None
    """What the layers before say of which steps count: bool[batch, steps]."""
    made_mask: Node | None = field(default=None)
    """What the layer says of it; the mask it is given where it sets none and hands it on."""

    @property
    def class_name(self) -> str:
        """The class of the layer."""
        return self.what.class_name

    @property
    def compute_dtype(self) -> str:
        """The type that floats are computed in."""
        return compute_dtype(self.what.config)

    def setting(self, name: str, default: Any = None) -> Any:  # Any: a value of JSON
        """Return a setting."""
        return self.what.config.get(name, default)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number. Raises ModelError for another value."""
        value = self.setting(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"the setting {name} of {self.class_name} is {value!r}")
        return value

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a number. Raises ModelError for another value."""
        value = self.setting(name, default)
        if isinstance(value, dict):  # some settings are stored as arrays
            value = value.get("config", {}).get("value")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ModelError(f"the setting {name} of {self.class_name} is {value!r}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a truth value."""
        return bool(self.setting(name, default))

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """Return `count` whole numbers; one stands for all. Raises ModelError for others."""
        value = self.setting(name)
        made = [value] * count if isinstance(value, int) else value
        if not isinstance(made, list) or len(made) != count or not all(map(_is_whole, made)):
            raise ModelError(f"the setting {name} of {self.class_name} is {value!r}")
        return tuple(made)

    def axes(self, name: str, ndim: int) -> tuple[int, ...]:
        """Return a list of axes counted from the front; one stands for a list of it."""
        value = self.setting(name)
        given = value if isinstance(value, list) else [value]
        if not all(map(_is_whole, given)):
            raise ModelError(f"the setting {name} of {self.class_name} is {value!r}")
        return tuple(axis_from_front(a, ndim, self.class_name) for a in given)

    @property
    def is_channels_first(self) -> bool:
        """True where images are [n, c, ...]."""
        return bool(self.setting("data_format") == "channels_first")

    def input(self, index: int = 0) -> Node:
        """Return an argument that is a value, floats in the type that is computed in.

        Raises: ModelError for another one.
        """
        value = self.args[index] if index < len(self.args) else None
        if not isinstance(value, Node):
            raise ModelError(f"{self.class_name} lacks its input {index}")
        return self.cast(value)

    def inputs(self) -> list[Node]:
        """Return the values of the first argument, which is a list of them."""
        value = self.args[0] if self.args else None
        values = value if isinstance(value, (list, tuple)) else list(self.args)
        if not values or not all(isinstance(v, Node) for v in values):
            raise ModelError(f"{self.class_name} takes a list of values")
        return [self.cast(v) for v in values]

    def optional(self, name: str) -> Node | None:
        """Return a keyword argument that is a value, None where it is not given."""
        value = self.kwargs.get(name)
        return value if isinstance(value, Node) else None

    def cast(self, value: Node) -> Node:
        """Return floats in the type that the layer computes in; other values as they are."""
        is_float = self.what.domain == LAYER and dt.is_float(element_type(value))
        return converted(value, self.compute_dtype) if is_float else value

    def weight(self, index: int, part: Weights | None = None) -> Constant:
        """Return a variable of the layer, or of a part of it, in the type that is computed in."""
        source = self.weights if part is None else part
        value = source.array(index)
        made = Constant.of(value, origin=f"{self.origin}/{index}")
        changed = self.cast(made)
        if changed is made:
            return made
        return Constant.of(value.astype(dt.to_numpy(self.compute_dtype)), origin=made.origin)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def compute_dtype(config: Mapping[str, Any]) -> str:
    """Return the type that a layer's policy computes floats in.

    Raises: ModelError for a policy that is not supported, as quantised ones.
    """
    policy = config.get("dtype") or "float32"
    name = policy
    if isinstance(policy, dict):
        inner = policy.get("config")
        name = inner.get("name") if isinstance(inner, dict) else policy.get("class_name")
    plain = str(name).removeprefix("mixed_")
    if plain not in ("float16", "bfloat16", "float32", "float64"):
        if plain in dt.NAMES:
            return "float32"
        raise ModelError(f"the type policy {name!r} is not supported")
    return plain


def rank(x: Node) -> int:
    """Return how many axes a value has."""
    assert isinstance(x.type, TensorType)
    return len(dims_of(x))


Result: TypeAlias = Node | Sequence[Node]
ConvertFn: TypeAlias = Callable[[KerasLayer], Result]
CONVERTERS: ConverterTable[ConvertFn] = ConverterTable()


def layer(*names: str) -> Callable[[ConvertFn], ConvertFn]:
    """Return a decorator that registers the converter of layers."""
    return CONVERTERS.converter(*names, since=(1,), domain=LAYER)


def operation(*names: str) -> Callable[[ConvertFn], ConvertFn]:
    """Return a decorator that registers the converter of operations."""
    return CONVERTERS.converter(*names, since=(1,), domain=OPERATION)
