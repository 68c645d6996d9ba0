# SPDX-License-Identifier: Apache-2.0
"""A piece of a torch graph as a module of torch: tensors in, tensors out, nothing copied.

Weights are constants of the compiled model, which makes kernels fast: they are packed for them. So
every call compares them with what was compiled: by identity, by address, by torch's count of
changes in place, and, as changes through `.data` and through arrays of NumPy are not counted, by
their bytes: all of a small weight, a sample of a large one. A weight that has changed is compiled
in anew; where weights keep changing they become inputs. Layers that share one graph, as those of a
network compiled layer by layer do, have a compiled model each.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
from torch import fx

from treadle.build.compile import compile_model
from treadle.build.executable import Executable
from treadle.frontend.torch.pieces import ImportedPiece, Permutation, Piece, import_piece
from treadle.frontend.torch.reader import graph_of
from treadle.frontend.torch.tensors import array_of, in_row_major, torch_dtype
from treadle.runtime.array import NDArray
from treadle.runtime.native_executor import Shapes
from treadle.runtime.native_spans import Span, Spans

LOG = logging.getLogger("treadle.torch")

MOST_RENEWALS = 3
"""How often weights of one layer are compiled in before they become inputs."""

WHOLE_BYTES = 4096
"""Weights up to this size are compared byte by byte."""

SAMPLES = 64
"""Elements of a larger weight that are compared: a change of a tenth escapes once in 850 times."""


class TreadlePiece(torch.nn.Module):  # type: ignore[misc]  # torch counts as without types
    """A compiled piece; it is called with the values of `piece.inputs`."""

    def __init__(
        self,
        piece: Piece,
        weights: Sequence[int],
        sizes: Mapping[sympy.Symbol, fx.Node],
        options: Mapping[str, Any],
        name: str,
    ) -> None:
        """`weights` are the positions of inputs that are parameters and buffers."""
        super().__init__()
        self._piece = piece
        self._weights = tuple(weights)
        self._sizes = sizes
        self._options = options
        self._name = name
        self._lock = threading.Lock()
        self._made: dict[int, _Compiled | _InTorch] = {}
        self._renewals: dict[int, int] = {}

    def forward(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """Run the piece; it is compiled by the first call, and by those that find new weights."""
        layer = id(args[self._weights[0]]) if self._weights else 0  # as `_layer`, without a call
        made = self._made.get(layer)
        if made is None or not made.has(args):
            made = self._compiled(args)
        return made.run(args)

    def prepare(self, args: Sequence[Any]) -> None:
        """Compile the piece for the weights among `args`, if it is not yet."""
        made = self._made.get(self._layer(args))
        if made is None or not made.has(args):
            self._compiled(args)

    def _layer(self, args: Sequence[Any]) -> int:
        """Return which layer a call is of: that of its first weight, which stays one object."""
        return id(args[self._weights[0]]) if self._weights else 0

    def _compiled(self, args: Sequence[Any]) -> _Compiled | _InTorch:
        layer = self._layer(args)
        with self._lock:
            made = self._made.get(layer)
            if made is None or not made.has(args):
                if made is None and self._weights:
                    weakref.finalize(args[self._weights[0]], self._forget, layer)
                self._renewals[layer] = self._renewals.get(layer, 0) + 1
                made = self._made[layer] = self._compiled_or_torchs(args)
            return made

    def _forget(self, layer: int) -> None:
        """Drop the compiled model of a layer whose weights are gone."""
        self._made.pop(layer, None)
        self._renewals.pop(layer, None)

    def _compiled_or_torchs(self, args: Sequence[Any]) -> _Compiled | _InTorch:
        try:
            return self._compile(args)
        except Exception as error:  # whatever fails, torch can run it
            count = len(self._piece.nodes)
            LOG.warning("treadle: a piece of %d operators runs in torch: %s", count, error)
            return _InTorch(self._piece)

    def _compile(self, args: Sequence[Any]) -> _Compiled:
        weights = [_Weight(k, args[k]) for k in self._tellable(args)]
        constants = {
            self._piece.inputs[w.position]: array_of(args[w.position], f"input {w.position}")
            for w in weights
        }
        imported = import_piece(self._piece, constants, self._sizes, self._name)
        exe = compile_model(imported.module, **self._options)
        return _Compiled(self._piece, imported, exe, weights)

    def _tellable(self, args: Sequence[Any]) -> list[int]:
        """Return the positions of weights that are compiled in: those that change can be told of.

        Those made in inference mode have no count of changes.
        """
        if self._renewals[self._layer(args)] > MOST_RENEWALS:
            return []
        return [k for k in self._weights if not args[k].is_inference() and not _is_lazy(args[k])]


def _is_lazy(tensor: torch.Tensor) -> bool:
    """True for a tensor whose memory has signs that are still to be changed."""
    return bool(tensor.is_neg() or tensor.is_conj())


class _Weight:
    """A parameter as it was when it was compiled in."""

    def __init__(self, position: int, tensor: torch.Tensor) -> None:
        self.position = position
        self.tensor: Callable[[], Any] = weakref.ref(tensor)
        self.version = tensor._version
        self.pointer = tensor.data_ptr()
        self.spans = _spans(tensor)


def _spans(tensor: torch.Tensor) -> list[Span]:
    """Return places of a weight that show most changes of it.

    These are all of a small one that lies densely in memory; of others the element farthest from 0
    and some that are drawn over all of it, the same ones each time.
    """
    kept, width = tensor.detach(), tensor.element_size()
    if not kept.numel():
        return []
    reach = 1 + sum((n - 1) * stride for n, stride in zip(kept.shape, kept.stride(), strict=True))
    if reach == kept.numel() and reach * width <= WHOLE_BYTES:
        return [Span(kept.data_ptr(), reach * width)]
    chosen = np.random.default_rng(0).integers(0, kept.numel(), SAMPLES)
    chosen[0] = int(kept.abs().argmax()) if kept.dtype.is_floating_point else 0
    offsets = np.dot(kept.stride(), np.array(np.unravel_index(chosen, kept.shape)))
    return [Span(kept.data_ptr() + int(at) * width, width) for at in offsets]


class _InTorch:
    """A piece that torch runs, as it cannot be compiled."""

    def __init__(self, piece: Piece) -> None:
        graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in piece.inputs:
            values[node] = graph.placeholder(node.name)
        graphs: dict[str, fx.GraphModule] = {}
        for node in piece.nodes:
            for source in node.all_input_nodes:
                found = graph_of(source)
                if found is not None and source not in values:
                    graphs[str(source.target)] = found
                    values[source] = graph.get_attr(str(source.target))
            values[node] = graph.node_copy(node, values.__getitem__)
        graph.output(tuple(values[n] for n in piece.outputs))
        self._module = fx.GraphModule(graphs, graph)

    def has(self, args: Sequence[Any]) -> bool:
        """True: torch reads weights as they are."""
        return True

    def run(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        made: tuple[torch.Tensor, ...] = self._module.forward(*args)
        return made


Taken = Callable[[Any], Any]


class _Compiled:
    """An executable, and how it takes tensors and gives them."""

    def __init__(
        self,
        piece: Piece,
        imported: ImportedPiece,
        exe: Executable,
        weights: Sequence[_Weight],
    ) -> None:
        self._weights = [(w.position, w.tensor, w.version, w.pointer) for w in weights]
        self._bytes = Spans([span for w in weights for span in w.spans])
        self._runs = exe.executor.by_address
        self._is_dynamic = exe.executor.is_dynamic
        positions = {node: k for k, node in enumerate(piece.inputs)}
        self._inputs = [
            (positions[n], _taker(order))
            for n, order in zip(imported.inputs, imported.input_orders, strict=True)
        ]
        infos = exe.executor.outputs
        self._kinds = [(i.shape, torch_dtype(i.dtype)) for i in infos]
        self._views = [
            _view(order, n.meta["val"].is_complex())
            for n, order in zip(piece.outputs, imported.output_orders, strict=True)
        ]
        self._has_views = any(v is not None for v in self._views)

    def has(self, args: Sequence[Any]) -> bool:
        """True where the weights among `args` are those that are compiled in."""
        for position, tensor, version, pointer in self._weights:
            given = args[position]
            if given is not tensor() or given._version != version or given.data_ptr() != pointer:
                return False
        return self._bytes.are_unchanged()

    def run(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        given = [take(args[position]) for position, take in self._inputs]
        places = [t.data_ptr() for t in given]
        if self._is_dynamic:
            made = self._run_shaped(places, tuple([t.shape for t in given]))
        else:
            made = [torch.empty(shape, dtype=kind) for shape, kind in self._kinds]
            self._runs.run(places, [t.data_ptr() for t in made])
        if self._has_views:
            return tuple([t if v is None else v(t) for t, v in zip(made, self._views, strict=True)])
        return tuple(made)

    def _run_shaped(self, places: Sequence[int], shapes: Shapes) -> list[torch.Tensor]:
        """Run a model whose sizes each call decides."""
        known = self._runs.known_outputs(shapes)
        if known is None:
            return [torch.from_dlpack(NDArray(a)) for a in self._runs.run_shaped(places, shapes)]
        kinds = zip(known.shapes, self._kinds, strict=True)
        made = [torch.empty(shape, dtype=kind) for shape, (_, kind) in kinds]
        self._runs.run_known(places, shapes, [t.data_ptr() for t in made], known)
        return made


def _taker(order: Permutation) -> Taken:
    """Return what makes an argument a tensor that lies in order in memory."""
    if order == tuple(range(len(order))):
        return _in_order

    def permuted(value: torch.Tensor) -> torch.Tensor:
        return _in_order(value.permute(order))

    return permuted


def _in_order(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    if value.is_contiguous() and not value.is_neg() and not value.is_complex():
        return value
    return in_row_major(value)


def _view(order: Permutation, is_complex: bool) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return what makes a result complex, and gives it its axes in torch's order; None where they
    are."""
    if order == tuple(range(len(order))):
        return torch.view_as_complex if is_complex else None
    back = [order.index(k) for k in range(len(order))]
    if is_complex:
        return lambda tensor: torch.view_as_complex(tensor).permute(back)
    return lambda tensor: tensor.permute(back)
