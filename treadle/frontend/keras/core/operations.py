# SPDX-License-Identifier: Apache-2.0
"""Operations of keras.ops that Functional models are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any  # arguments from JSON

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    axis_from_front,
    converted,
    dims_of,
    element_type,
    operands,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.einsum import einsum
from treadle.frontend.builders.elementwise import (
    floor_divide,
    floor_mod,
    power,
    squared_difference,
)
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.builders.matmul import product
from treadle.frontend.builders.movement import taken
from treadle.frontend.builders.reduce import (
    Reduction,
    extreme_index,
    largest,
    mean,
    smallest,
    total,
)
from treadle.frontend.builders.shapes import expanded, flattened, reshaped_to, squeezed, unsqueezed
from treadle.frontend.builders.strided import Masks, StridedSpec, strided
from treadle.frontend.keras.core.activation import ELEMENTWISE
from treadle.frontend.keras.core.basic import joined
from treadle.frontend.keras.layer import KerasLayer, operation, rank
from treadle.graph.nodes import Constant, Node
from treadle.ops import activation, norm
from treadle.ops import elementwise as ew
from treadle.ops import real_functions as rf

Pair = Callable[[Node, Node], Node]


def _values(use: KerasLayer) -> list[Node]:
    """Return the first two arguments in one type; a number takes that of the other one."""
    given = [*use.args, *(use.kwargs[k] for k in ("x1", "x2") if k in use.kwargs)][:2]
    known = next((v for v in given if isinstance(v, Node)), None)
    if known is None or len(given) != 2:
        raise ModelError(f"{use.class_name} takes two values")
    kinds = [element_type(v) for v in given if isinstance(v, Node)]
    kind = max(kinds, key=lambda k: (dt.is_float(k), dt.bits(k)))
    if any(isinstance(v, float) for v in given) and not dt.is_float(kind):
        kind = "float32"
    made = []
    for v in given:
        if isinstance(v, Node):
            made.append(converted(v, kind))
        elif isinstance(v, (int, float)):
            made.append(Constant.of(v, kind))
        else:
            raise ModelError(f"{use.class_name} of {v!r} is not supported")
    return made


def _true_division(a: Node, b: Node) -> Node:
    if dt.is_float(element_type(a)):
        return ew.divide(a, b)
    return ew.divide(converted(a, "float32"), converted(b, "float32"))


_PAIRS: dict[str, Pair] = {
    "Add": ew.add, "Subtract": ew.subtract, "Multiply": ew.multiply, "Divide": _true_division,
    "TrueDivide": _true_division, "FloorDivide": floor_divide, "Mod": floor_mod, "Power": power,
    "Maximum": ew.maximum, "Minimum": ew.minimum, "Equal": ew.equal, "NotEqual": ew.not_equal,
    "Less": ew.less, "LessEqual": ew.less_equal, "Greater": ew.greater,
    "GreaterEqual": ew.greater_equal, "LogicalAnd": ew.logical_and, "LogicalOr": ew.logical_or,
    "SquaredDifference": squared_difference, "Arctan2": rf.atan2,
}  # fmt: skip


def _register_pair(name: str, compute: Pair) -> None:
    @operation(name)
    def convert(use: KerasLayer) -> Node:
        return in_one_layout(lambda a, b: compute(*operands(a, b)), *_values(use))


for _name, _pair in _PAIRS.items():
    _register_pair(_name, _pair)


_FUNCTIONS: dict[str, Callable[[Node], Node]] = {
    "Absolute": ew.abs, "Abs": ew.abs, "Negative": ew.negative, "Exp": ew.exp, "Expm1": rf.expm1,
    "Log": ew.log, "Log1p": rf.log1p, "Sqrt": ew.sqrt, "Rsqrt": ew.rsqrt, "Sin": ew.sin,
    "Cos": ew.cos, "Tan": ew.tan, "Arctan": ew.atan, "Floor": ew.floor, "Ceil": ew.ceil,
    "Round": ew.round, "Sign": ew.sign, "Erf": ew.erf, "LogicalNot": ew.not_,
    "Square": lambda x: ew.multiply(x, x), "Reciprocal": ew.reciprocal, "Isnan": ew.isnan,
    "Tanh": ew.tanh, "Sinh": ew.sinh, "Cosh": ew.cosh,
}  # fmt: skip
_ACTIVATIONS = {
    "Relu": "relu", "Relu6": "relu6", "Sigmoid": "sigmoid", "Softplus": "softplus",
    "Softsign": "softsign", "Silu": "silu", "HardSigmoid": "hard_sigmoid", "HardSilu": "hard_silu",
    "Selu": "selu", "LogSigmoid": "log_sigmoid", "HardTanh": "hard_tanh",
}  # fmt: skip


def _register_function(name: str, compute: Callable[[Node], Node]) -> None:
    @operation(name)
    def convert(use: KerasLayer) -> Node:
        return in_one_layout(compute, use.input())


for _name, _function in _FUNCTIONS.items():
    _register_function(_name, _function)
for _name, _key in _ACTIVATIONS.items():
    _register_function(_name, ELEMENTWISE[_key])


@operation("Identity", "StopGradient")
def same(use: KerasLayer) -> Node:
    """Convert what gives its input as it is."""
    return use.input()


@operation("Softmax", "LogSoftmax")
def softmax(use: KerasLayer) -> Node:
    """Convert a softmax over an axis."""
    x = use.input()
    axis = axis_from_front(_setting(use, "axis", -1), rank(x), use.class_name)
    return (norm.softmax if use.class_name == "Softmax" else norm.log_softmax)(x, axis=axis)


@operation("Gelu")
def gelu(use: KerasLayer) -> Node:
    """Convert a Gaussian error linear unit."""
    way = "tanh" if _setting(use, "approximate", True) else "none"
    return in_one_layout(partial(activation.gelu, approximate=way), use.input())


@operation("Cast")
def cast(use: KerasLayer) -> Node:
    """Convert a change of the element type."""
    return converted(use.input(), dt.check_dtype(str(_setting(use, "dtype", "float32"))))


def _setting(use: KerasLayer, name: str, default: Any) -> Any:
    """Return a setting of an operation, or the argument of that name."""
    return use.kwargs[name] if name in use.kwargs else use.setting(name, default)


def _positional(use: KerasLayer, name: str, place: int, default: Any = None) -> Any:
    """Return an argument by name or place, or a setting."""
    if name not in use.kwargs and place < len(use.args):
        return use.args[place]
    return _setting(use, name, default)


def _axes(use: KerasLayer, x: Node) -> tuple[int, ...]:
    axis = _setting(use, "axis", None)
    given = range(rank(x)) if axis is None else [axis] if isinstance(axis, int) else axis
    return tuple(sorted({axis_from_front(a, rank(x), use.class_name) for a in given}))


_REDUCTIONS: dict[str, Reduction] = {
    "Mean": mean, "Sum": total, "Max": largest, "Min": smallest, "Amax": largest, "Amin": smallest,
    "Any": largest, "All": smallest,
}  # fmt: skip


def _register_reduction(name: str, reduce: Reduction) -> None:
    @operation(name)
    def convert(use: KerasLayer) -> Node:
        x = use.input()
        return reduce(x, _axes(use, x), bool(_setting(use, "keepdims", False)))


for _name, _reduction in _REDUCTIONS.items():
    _register_reduction(_name, _reduction)


@operation("Argmax", "Argmin")
def extreme(use: KerasLayer) -> Node:
    """Convert the place of an extreme along an axis."""
    x, axis = use.input(), _setting(use, "axis", None)
    if not isinstance(axis, int):
        x, axis = flattened(x, 0, rank(x)), 0
    place = axis_from_front(axis, rank(x), use.class_name)
    kept = bool(_setting(use, "keepdims", False))
    made = extreme_index(x, place, is_largest=use.class_name == "Argmax", keepdims=kept)
    return converted(made, "int32")


@operation("Concatenate")
def concatenate(use: KerasLayer) -> Node:
    """Convert values one behind the other along an axis."""
    return joined(use.inputs(), int(_setting(use, "axis", 0)))


@operation("Stack")
def stack(use: KerasLayer) -> Node:
    """Convert values side by side along a new axis."""
    values = use.inputs()
    axis = int(_setting(use, "axis", 0))
    return joined([unsqueezed(v, (axis,)) for v in values], axis)


@operation("Reshape")
def reshape(use: KerasLayer) -> Node:
    """Convert another shape, of which one extent may be -1 or None."""
    wanted = _positional(use, "newshape", 1, use.setting("new_shape"))
    sizes = [wanted] if isinstance(wanted, int) else wanted
    return reshaped_to(use.input(), [-1 if d is None else d for d in sizes])


@operation("Transpose")
def transpose(use: KerasLayer) -> Node:
    """Convert a permutation of the axes: all of them turned around where none is given."""
    x = use.input()
    axes = _positional(use, "axes", 1)
    order = range(rank(x))[::-1] if axes is None else axes
    return transposed(x, tuple(axis_from_front(a, rank(x), use.class_name) for a in order))


@operation("ExpandDims")
def expand_dims(use: KerasLayer) -> Node:
    """Convert new axes of one element."""
    axis = _positional(use, "axis", 1)
    return unsqueezed(use.input(), [axis] if isinstance(axis, int) else axis)


@operation("Squeeze")
def squeeze(use: KerasLayer) -> Node:
    """Convert the removal of axes of one element."""
    x, axis = use.input(), _positional(use, "axis", 1)
    if axis is None:
        found: Sequence[int] = [k for k, d in enumerate(dims_of(x)) if d == 1]
    else:
        found = [axis] if isinstance(axis, int) else axis
    return squeezed(x, [axis_from_front(a, rank(x), use.class_name) for a in found])


@operation("BroadcastTo")
def broadcast_to(use: KerasLayer) -> Node:
    """Convert a broadcast to a shape."""
    return expanded(use.input(), _positional(use, "shape", 1))


@operation("Matmul")
def matmul(use: KerasLayer) -> Node:
    """Convert a matrix product."""
    return product(*_values(use))


@operation("Einsum")
def einstein_sum(use: KerasLayer) -> Node:
    """Convert a sum of products as an equation says."""
    values = [v for v in use.args if isinstance(v, Node)]
    return einsum(str(use.setting("subscripts")), values)


@operation("Clip")
def clip(use: KerasLayer) -> Node:
    """Convert a limit to a range."""
    low, high = (_setting(use, n, None) for n in ("x_min", "x_max"))
    x = use.input()
    return ew.maximum(ew.minimum(x, scalar_like(high, x)), scalar_like(low, x))


@operation("Take")
def take(use: KerasLayer) -> Node:
    """Convert a choice of slices by index."""
    x, places = use.input(), _positional(use, "indices", 1)
    axis = _setting(use, "axis", None)
    if not isinstance(places, Node):
        places = Constant.of(np.asarray(places, "int64"))
    if axis is None:
        return taken(flattened(x, 0, rank(x)), places, 0, use.class_name)
    return taken(x, places, axis_from_front(axis, rank(x), use.class_name), use.class_name)


@operation("Where")
def where(use: KerasLayer) -> Node:
    """Convert a choice per element."""
    condition, a, b = use.args[:3]
    known = next(v for v in (a, b) if isinstance(v, Node))
    a, b = (v if isinstance(v, Node) else scalar_like(v, known) for v in (a, b))
    return ew.where(*operands(converted(condition, "bool"), a, b))


@operation("GetItem")
def get_item(use: KerasLayer) -> Node:
    """Convert x[...] by numbers, slices, None and an ellipsis."""
    x, key = use.input(), _positional(use, "key", 1)
    entries = key if isinstance(key, list) else [key]
    begins, ends, steps = [], [], []
    bits = {"begin": 0, "end": 0, "new_axis": 0, "shrink_axis": 0, "ellipsis": 0}
    for k, entry in enumerate(entries):
        begin, end, step = 0, 0, 1
        if entry is None:
            bits["new_axis"] |= 1 << k
        elif _is_ellipsis(entry):
            bits["ellipsis"] |= 1 << k
        elif isinstance(entry, slice):
            begin, end, step = entry.start or 0, entry.stop or 0, entry.step or 1
            bits["begin"] |= (entry.start is None) << k
            bits["end"] |= (entry.stop is None) << k
        elif isinstance(entry, int) and not isinstance(entry, bool):
            begin = entry
            bits["shrink_axis"] |= 1 << k
        else:
            raise ModelError(f"a choice by {entry!r} is not supported")
        begins.append(begin)
        ends.append(end)
        steps.append(step)

    def measure(value: Node) -> int:
        raise ModelError("a choice by computed positions is not supported")

    return strided(x, StridedSpec(begins, ends, steps, Masks(**bits)), measure)


def _is_ellipsis(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get("class_name") == "__ellipsis__"
