# SPDX-License-Identifier: Apache-2.0
"""What errors of the importer say: which node, of which types, where in the user's source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx

from treadle.frontend import places

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TORCH = str(Path(torch.__file__).parent)


def place_of(node: fx.Node, program: str) -> str:
    """Return where a node is: its name, what it calls on which types, and the user's line."""
    place = f"{program}, node {node.name}"
    if node.op == "call_function":
        place += f", operator {target_name(node)}({', '.join(map(_type_text, node.args))})"
    line = source_line(node)
    return f"{place}, {line}" if line else place


def target_name(node: fx.Node) -> str:
    """Return the name of what a node calls: "aten.add.Tensor"."""
    target = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return str(target)
    return str(getattr(target, "__name__", target))


def source_line(node: fx.Node) -> str:
    """Return the innermost line of the user's own code that a node comes from, or ""."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith(_TORCH) and not f[0].startswith("torch/")]
    if not own:
        return ""
    path, line, function = own[-1]
    return f"{path}:{line} in {function}"


def _type_text(value: Any) -> str:  # Any: whatever fx holds as an argument
    if isinstance(value, fx.Node):
        return _value_text(value.meta.get("val"), value.name)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_type_text, value))}]"
    return str(value)


def _value_text(value: object, name: str) -> str:
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}[{', '.join(map(str, value.shape))}]"
    return name if value is None or isinstance(value, (list, tuple)) else str(value)


@contextmanager
def placed(node: fx.Node, program: str) -> Iterator[None]:
    """Give whatever goes wrong inside the place of the node, as a ModelError."""
    road = "under torch.compile(backend='treadle') torch itself runs what Treadle lacks"
    with places.placed(lambda: place_of(node, program), mistake=road):
        yield
