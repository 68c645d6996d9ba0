# SPDX-License-Identifier: Apache-2.0
"""Random If, Loop and Scan nodes with small bodies that also read values from around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.builder import FLOATS, Builder, Nothing

_STEPS = ("Add", "Sub", "Mul", "Max")
_SMOOTH = ("Tanh", "Sigmoid", "Relu", "Neg", "Abs")
_KINDS = ("float32", "float32", "float64", "int32")


def _info(b: Builder, name: str, like: str) -> onnx.ValueInfoProto:
    value = b.value(like)
    kind = helper.np_dtype_to_tensor_dtype(value.array.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


def _body(b: Builder, prefix: str, x: str, like: str) -> tuple[list[onnx.NodeProto], str]:
    """Return one to three nodes from `x` to a value of the type of `like`, and its name."""
    nodes, at = [], x
    for k in range(b.random.randint(1, 3)):
        name = f"{prefix}{k}"
        if b.value(like).dtype in FLOATS and b.chance(0.5):
            nodes.append(helper.make_node(b.random.choice(_SMOOTH), [at], [name]))
        else:
            nodes.append(helper.make_node(b.random.choice(_STEPS), [at, b.like(like)], [name]))
        at = name
    return nodes, at


def branch(b: Builder) -> None:
    """If by a value that is known, or by one that is computed from the values of the graph."""
    x = b.operand(_KINDS)
    first = len(b.graph.nodes)
    if b.chance(0.3):
        condition = b.given(np.array(b.chance(0.5)))
    else:
        y = b.existing(("float32", "int32", "int64"), is_exact=True)
        if y is None or not b.value(y).array.size:
            raise Nothing
        more, given = b.axes_of("ReduceMax", list(range(b.value(y).array.ndim)) or None)
        top = b.add("ReduceMax", [y, *more], is_exact=True, keepdims=0, **given)
        limit = b.given(np.array(b.random.choice((0, 1)), b.value(y).array.dtype), is_constant=True)
        condition = b.add("Greater", [top, limit], is_exact=True)
    graphs = []
    for side in ("then", "else"):
        nodes, last = _body(b, f"{side}{first}_", x, x)
        graphs.append(helper.make_graph(nodes, side, [], [_info(b, last, x)]))
    b.add("If", [condition], then_branch=graphs[0], else_branch=graphs[1])


def loop(b: Builder) -> None:
    """Loop with one value carried and perhaps one that is gathered, sometimes ended early."""
    x = b.operand(_KINDS, most=200)
    first = len(b.graph.nodes)
    count = b.given(np.array(b.random.randint(0, 4)))
    is_gathered = b.chance(0.5)
    scalar = helper.make_tensor_value_info
    inputs = [
        scalar(f"step{first}", onnx.TensorProto.INT64, ()),
        scalar(f"before{first}", onnx.TensorProto.BOOL, ()),
        _info(b, f"state{first}", x),
    ]
    nodes, last = _body(b, f"body{first}_", f"state{first}", x)
    going = f"after{first}"
    if b.chance(0.4):
        limit = b.given(np.array(b.random.randint(0, 3)))
        nodes.append(helper.make_node("Less", [f"step{first}", limit], [going]))
    else:
        nodes.append(helper.make_node("Identity", [f"before{first}"], [going]))
    outputs = [scalar(going, onnx.TensorProto.BOOL, ()), _info(b, last, x)]
    if is_gathered:
        nodes.append(helper.make_node("Abs", [last], [f"kept{first}"]))
        outputs.append(_info(b, f"kept{first}", x))
    body = helper.make_graph(nodes, "body", inputs, outputs)
    condition = b.given(np.array(True), is_constant=True) if b.chance(0.6) else ""
    b.add("Loop", [count, condition, x], outputs=1 + is_gathered, body=body)


def scan(b: Builder) -> None:
    """Scan over the first axis of a value with a running sum, both directions."""
    x = b.operand(_KINDS, ranks=(1, 2, 3), most=300)
    shape = b.value(x).shape
    if not shape[0] or b.opset < 9:
        raise Nothing
    first = len(b.graph.nodes)
    row = b.fresh(b.value(x).dtype, shape[1:])
    state, element, total = (f"{name}{first}" for name in ("state", "row", "sum"))
    inputs = [_info(b, state, row), _info(b, element, row)]
    nodes = [helper.make_node("Add", [state, element], [total])]
    more, last = _body(b, f"body{first}_", total, row)
    outputs = [_info(b, total, row), _info(b, last, row)]
    body = helper.make_graph([*nodes, *more], "body", inputs, outputs)
    ways: dict[str, Sequence[int]] = {}
    if b.chance(0.3):
        ways["scan_input_directions"] = [1]
    if b.chance(0.3):
        ways["scan_output_directions"] = [1]
    b.add("Scan", [row, x], outputs=2, body=body, num_scan_inputs=1, **ways)
