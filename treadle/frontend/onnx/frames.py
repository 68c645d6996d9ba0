# SPDX-License-Identifier: Apache-2.0
"""Lists of nodes on their way into the graph: of the main graph, functions, branches and bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

import onnx

from treadle.errors import ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.onnx.diagnostics import usage
from treadle.frontend.onnx.resolve import domain_of
from treadle.graph.nodes import Node


@dataclass(slots=True)
class Frame:
    """A node list being converted: the main graph, a function body or a branch.

    `targets` are the names its `results` get in the frame below it on the stack. `defined` are
    the names assigned in this frame; `values` may hold those of an outer graph too.
    """

    nodes: Sequence[onnx.NodeProto]
    values: MutableMapping[str, Node]
    opsets: Mapping[str, int]
    results: Sequence[str] = ()
    targets: Sequence[str] = ()
    prefix: str = ""
    attributes: Mapping[str, onnx.AttributeProto] | None = None
    position: int = 0
    defined: set[str] = field(default_factory=set)
    after: Callable[[Frame], None] | None = None
    """Takes the results of a frame that is finished."""
    failed: Callable[[ModelError], None] | None = None
    """Takes what is wrong with a frame that can be done without: a branch, or a loop's body."""
    is_unrolled_else: bool = False
    """Whether `failed` goes on iteration by iteration, where values may be known."""
    sizes: dict[SizeVar, Node] = field(default_factory=dict)
    """Sizes that are the numbers of values computed in this frame."""
    use: Use | None = None
    """The node whose function, branch or body this is."""


@dataclass(frozen=True, slots=True)
class Use:
    """One node about to be converted: where it stands and what it is given."""

    proto: onnx.NodeProto
    frame: Frame
    origin: str
    place: str
    inputs: tuple[Node | None, ...]

    def advice(self) -> str:
        """Return what the operator takes."""
        domain = domain_of(self.proto.domain)
        try:
            opset = self.frame.opsets.get(domain, 1)
            return usage(onnx.defs.get_schema(self.proto.op_type, opset, domain))
        except onnx.defs.SchemaError:
            return usage(None)


def bind(frame: Frame, name: str, value: Node) -> None:
    """Give a name in a frame its value. Raises ModelError where it has one already."""
    if name in frame.defined:
        raise ModelError(
            f"the value {name!r} is defined twice",
            hint="names in an ONNX graph are assigned once; check how it was exported",
        )
    frame.defined.add(name)
    frame.values[name] = value


def check_results(frame: Frame) -> None:
    """Raise ModelError where a result of a finished frame has no value."""
    lost = [r for r in frame.results if r not in frame.values]
    if lost:
        raise ModelError(f"the result {lost[0]!r} is computed by no node")
