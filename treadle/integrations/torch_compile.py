# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="treadle"): graphs of TorchDynamo, run by Treadle as far as it can.

A graph is made functional by AOTAutograd and cut into pieces that Treadle computes; the rest runs
in torch, and one line of the log says what. Graphs that need gradients are torch's own.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext

from treadle.errors import UsageError
from treadle.frontend.torch.decompose import for_compile
from treadle.frontend.torch.pieces import (
    Piece,
    levels_of,
    operator_names,
    pieces_of,
    size_nodes,
    symbols_in,
    unsupported_nodes,
)
from treadle.frontend.torch.strides import read_from_bases
from treadle.integrations.torch_piece import TreadlePiece
from treadle.integrations.torch_views import views_apart

LOG = logging.getLogger("treadle.torch")

OPTIONS = ("target", "opt_level", "winograd", "weight_growth", "unchecked", "records", "methods")
"""What torch.compile(..., options={...}) may say: arguments of treadle.compile."""

Graph = Callable[..., Any]


def treadle_backend(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Graph:
    """Return a graph of TorchDynamo as a function that Treadle computes.

    It is a backend of torch.compile, registered as "treadle". `options` are arguments of
    `treadle.compile`: target, opt_level, winograd, weight_growth, unchecked, records, methods;
    `mode` makes no difference.

    Raises: UsageError for other options.
    """
    given = dict(options or {})
    for name in given:
        if name not in OPTIONS:
            raise UsageError(
                f"the backend treadle has no option {name!r}",
                hint=f"its options are {', '.join(OPTIONS)}",
            )
    reason = _why_torch(example_inputs)
    if reason:
        LOG.warning("treadle: %s runs in torch: %s", _named(module), reason)
        return _function_of(module)

    def compiled(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return make_boxed_func(_compiled(graph, given))

    backend = aot_autograd(
        fw_compiler=compiled, inference_compiler=compiled, decompositions=for_compile()
    )
    made: Graph = backend(module, example_inputs)
    return made


def _why_torch(inputs: Sequence[Any]) -> str:
    """Return why a whole graph is torch's, or ""."""
    tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return "it is for training; call it under torch.no_grad() or inference_mode() to compile it"
    devices = {str(t.device) for t in tensors if t.device.type != "cpu"}
    return f"its tensors are on {', '.join(sorted(devices))}, not the CPU" if devices else ""


def _named(module: fx.GraphModule) -> str:
    operators = sum(
        node.op not in ("placeholder", "output", "get_attr") for node in module.graph.nodes
    )
    return f"a graph of {operators} operator{'' if operators == 1 else 's'}"


def _function_of(module: fx.GraphModule) -> Graph:
    function: Graph = module.forward
    return function


# ---- one functional graph ------------------------------------------------------------------------


def _compiled(module: fx.GraphModule, options: Mapping[str, Any]) -> Graph:
    """Return a functional graph with its pieces replaced by compiled ones."""
    metadata = _metadata()
    views = set() if metadata is None else views_apart(module.graph, metadata)
    read_from_bases(module.graph)
    reasons = {n: why for n, why in unsupported_nodes(module.graph).items() if n not in views}
    outside = {*reasons, *views}
    weights = set() if metadata is None else _weights(module.graph, metadata)
    pieces = pieces_of(module.graph, outside)
    if not pieces:
        if reasons:
            _say(reasons, 0, "")
        module.recompile()
        return _function_of(module)
    outer = _cut(module, pieces, outside, weights, options)
    ours = sum(operator_names(n for p in pieces for n in p.nodes).values())
    return _Timed(outer, reasons, ours) if reasons else _direct(outer)


def _direct(module: fx.GraphModule) -> Graph:
    """Return a graph as a function that calls its pieces without a module's way around them.

    f(x): piece_0 = self.piece_0(x); ...  ->  f(x): piece_0 = forward(x); ...
    """
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in module.graph.nodes:
        if node.op == "call_module":
            piece = module.get_submodule(node.target)
            args = tuple(values[n] for n in node.args)
            values[node] = graph.call_function(piece.forward, args)
        else:
            values[node] = graph.node_copy(node, values.__getitem__)
    return _function_of(fx.GraphModule(module, graph))


def _metadata() -> ViewAndMutationMeta | None:
    """Return what AOTAutograd says of the inputs and results of the graph it compiles."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


def _weights(graph: fx.Graph, metadata: ViewAndMutationMeta) -> set[fx.Node]:
    """Return the inputs that are parameters and buffers which the graph does not change."""
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    changed = {k for k, info in enumerate(metadata.input_info) if info.mutates_data}
    static = metadata.static_input_indices
    return {inputs[k] for k in static if k < len(inputs) and k not in changed}


def _cut(
    module: fx.GraphModule,
    pieces: Sequence[Piece],
    torchs: Collection[fx.Node],
    weights: set[fx.Node],
    options: Mapping[str, Any],
) -> fx.GraphModule:
    """Return the graph with a call of a module in the place of each piece; the rest is torch's."""
    sizes = size_nodes(module.graph)
    levels = levels_of(module.graph, torchs)
    modules: dict[str, torch.nn.Module] = {}
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    waiting = {levels[p.nodes[0]]: p for p in pieces}
    inside = {n for p in pieces for n in p.nodes}

    def place(piece: Piece, number: int) -> None:
        name = f"piece_{number}"
        spoken = (sizes[s] for s in symbols_in(piece) if s in sizes)
        needed = [*piece.inputs, *(n for n in spoken if n in values and n not in piece.inputs)]
        whole = Piece(piece.nodes, tuple(needed), piece.outputs)
        held = [k for k, n in enumerate(needed) if n in weights]
        modules[name] = TreadlePiece(whole, held, sizes, options, name)
        call = graph.call_module(name, tuple(values[n] for n in needed))
        for k, node in enumerate(piece.outputs):
            values[node] = graph.call_function(operator.getitem, (call, k))

    outside = [n for n in module.graph.nodes if n not in inside]
    ordered = sorted(outside, key=lambda n: (n.op == "output", levels[n], n.op != "placeholder"))
    for node in ordered:
        while waiting and (node.op == "output" or min(waiting) < levels[node]):
            level = min(waiting)
            place(waiting.pop(level), level)
        values[node] = graph.node_copy(node, values.__getitem__)
    for name, value in module.named_children():
        modules.setdefault(name, value)
    root = {
        **modules,
        **{n.target: getattr(module, n.target) for n in outside if n.op == "get_attr"},
    }
    return fx.GraphModule(root, graph)


# ---- what is told --------------------------------------------------------------------------------


class _Timed:
    """A graph that torch runs in part; its first call measures which part of the time that is."""

    def __init__(self, module: fx.GraphModule, reasons: Mapping[fx.Node, str], ours: int) -> None:
        self._module = module
        self._run = _direct(module)
        self._reasons = reasons
        self._ours = ours
        self._is_told = False

    def __call__(self, *args: Any) -> Any:
        if self._is_told:
            return self._run(*args)
        self._is_told = True
        clock = _Clock(self._module)
        result = clock.run(*args)
        _say(self._reasons, self._ours, clock.share())
        return result


class _Clock(fx.Interpreter):  # type: ignore[misc]  # torch counts as without types
    """Runs a graph and adds up the seconds of pieces and of torch's operators."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._seconds = {"call_module": 0.0, "call_function": 0.0}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; a piece is compiled before the clock starts."""
        if n.op == "call_module":
            args, _ = self.fetch_args_kwargs_from_env(n)
            self.fetch_attr(str(n.target)).prepare(args)
        start = time.perf_counter()
        result = super().run_node(n)
        if n.op in self._seconds:
            self._seconds[n.op] += time.perf_counter() - start
        return result

    def share(self) -> str:
        """Return which part of the time is torch's, in words."""
        whole = sum(self._seconds.values())
        return f", {self._seconds['call_function'] / whole:.0%} of the time" if whole else ""


def _say(reasons: Mapping[fx.Node, str], ours: int, share: str) -> None:
    names = operator_names(reasons)
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(names.items()))
    theirs = sum(names.values())
    LOG.warning(
        "treadle: %d of %d operators run in torch%s: %s", theirs, theirs + ours, share, listed
    )
