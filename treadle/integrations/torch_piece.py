# SPDX-License-Identifier: Apache-2.0
"""A piece of a torch graph as a module of torch: tensors in, tensors out, nothing copied.

Weights are constants of the compiled model, which makes kernels fast: they are packed for them. So
every call compares them with what was compiled, by identity, address and torch's count of in-place
changes. A weight that has changed is compiled in anew; where weights keep changing they become
inputs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from treadle.build.compile import compile_model
from treadle.build.executable import Executable
from treadle.frontend.torch.pieces import ImportedPiece, Permutation, Piece, import_piece
from treadle.frontend.torch.tensors import array_of, torch_dtype

LOG = logging.getLogger("treadle.torch")

MOST_RENEWALS = 2
"""How often weights are compiled in anew before they become inputs."""


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
        self._made: _Compiled | _InTorch | None = None
        self._renewals = 0

    def forward(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """Run the piece; it is compiled by the first call, and by those that find new weights."""
        made = self._made
        if made is None or not made.has(args):
            made = self._compiled(args)
        return made.run(args)

    def prepare(self, args: Sequence[Any]) -> None:
        """Compile the piece for the weights among `args`, if it is not yet."""
        if self._made is None or not self._made.has(args):
            self._compiled(args)

    def _compiled(self, args: Sequence[Any]) -> _Compiled | _InTorch:
        with self._lock:
            if self._made is None or not self._made.has(args):
                self._renewals += 1
                try:
                    self._made = self._compile(args)
                except Exception as error:  # whatever fails, torch can run it
                    LOG.warning("treadle: a piece of %d operators runs in torch: %s",
                                len(self._piece.nodes), error)  # fmt: skip
                    self._made = _InTorch(self._piece)
            return self._made

    def _compile(self, args: Sequence[Any]) -> _Compiled:
        held = (
            [] if self._renewals > MOST_RENEWALS else [_Weight(k, args[k]) for k in self._weights]
        )
        known = [w for w in held if w.can_tell_changes]
        constants = {
            self._piece.inputs[w.position]: array_of(w.tensor, f"input {w.position}") for w in known
        }
        imported = import_piece(self._piece, constants, self._sizes, self._name)
        exe = compile_model(imported.module, **self._options)
        return _Compiled(self._piece, imported, exe, known)


class _Weight:
    """A parameter as it was when it was compiled in."""

    def __init__(self, position: int, tensor: torch.Tensor) -> None:
        self.position = position
        self.tensor = tensor
        self.can_tell_changes = not tensor.is_inference()  # those have no count of changes
        self.version = tensor._version if self.can_tell_changes else 0
        self.pointer = tensor.data_ptr()

    def is_same(self, tensor: torch.Tensor) -> bool:
        return (
            tensor is self.tensor
            and tensor._version == self.version
            and tensor.data_ptr() == self.pointer
        )


class _InTorch:
    """A piece that torch runs, as it cannot be compiled."""

    def __init__(self, piece: Piece) -> None:
        graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in piece.inputs:
            values[node] = graph.placeholder(node.name)
        for node in piece.nodes:
            values[node] = graph.node_copy(node, values.__getitem__)
        graph.output(tuple(values[n] for n in piece.outputs))
        self._module = fx.GraphModule({}, graph)

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
        self._weights = tuple(weights)
        self._executor = exe.executor
        positions = {node: k for k, node in enumerate(piece.inputs)}
        self._extra = [n for n in imported.inputs if n not in positions]
        self._inputs = [
            (positions[n], _taker(order))
            for n, order in zip(imported.inputs, imported.input_orders, strict=True)
        ]
        infos = self._executor.outputs
        self._kinds = [(i.shape, torch_dtype(i.dtype)) for i in infos]
        self._views = [_view(order) for order in imported.output_orders]

    def has(self, args: Sequence[Any]) -> bool:
        """True where the weights among `args` are those that are compiled in."""
        return all([w.is_same(args[w.position]) for w in self._weights])

    def run(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        given = [take(args[position]) for position, take in self._inputs]
        if self._executor.is_dynamic:
            places = [(t.data_ptr(), tuple(t.shape)) for t in given]
            made = [torch.from_dlpack(a) for a in self._executor.run_shaped_at(places)]
        else:
            made = [torch.empty(shape, dtype=kind) for shape, kind in self._kinds]
            self._executor.run_at([t.data_ptr() for t in given], [t.data_ptr() for t in made])
        return tuple([t if v is None else v(t) for t, v in zip(made, self._views, strict=True)])


def _taker(order: Permutation) -> Taken:
    """Return what makes an argument a tensor that lies in order in memory."""
    if order == tuple(range(len(order))):
        return _in_order

    def permuted(value: torch.Tensor) -> torch.Tensor:
        return _in_order(value.permute(order))

    return permuted


def _in_order(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value)
    if value.is_contiguous() and not value.is_neg():
        return value
    return value.resolve_neg().contiguous()


def _view(order: Permutation) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return what gives a result its axes in torch's order; None where they are."""
    if order == tuple(range(len(order))):
        return None
    back = [order.index(k) for k in range(len(order))]
    return lambda tensor: tensor.permute(back)
