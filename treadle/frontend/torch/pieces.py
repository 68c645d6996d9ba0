# SPDX-License-Identifier: Apache-2.0
"""Parts of an fx graph as graph modules: what Treadle computes, cut from what torch must.

Every node gets a level: the highest of those it reads, or one more where torch runs it and Treadle
what it reads. Within a level torch's nodes run first, then those of Treadle, which are a piece:
nothing of a piece can depend on another node of it through torch, so the levels in order are the
program.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
import torch
from torch import fx

from treadle.errors import ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.basic import dims_of, transposed
from treadle.frontend.builders.closure import anchored
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.torch.core.checks import is_check
from treadle.frontend.torch.diagnostics import target_name
from treadle.frontend.torch.reader import Reader, graph_of
from treadle.frontend.torch.sizes import expression_of, measured, symbols_of
from treadle.frontend.torch.tensors import dtype_name
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.nodes import Tuple as TupleNode
from treadle.graph.types import Dim, TensorType
from treadle.ops.reshaping import reshape

Permutation = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Nodes that one compiled model computes.

    `inputs` are the values it reads, tensors and sizes, `outputs` those that others read of it.
    Graphs that its operators take are attributes of the module, no inputs.
    """

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


@dataclass(frozen=True, slots=True)
class ImportedPiece:
    """A piece as a graph module.

    Its inputs are those of the piece that `constants` did not replace. Inputs and outputs lie in
    memory in the order of axes that `input_orders` and `output_orders` say: that of torch's
    strides. Complex numbers are an axis of 2 behind those.
    """

    module: Module
    inputs: tuple[fx.Node, ...]
    input_orders: tuple[Permutation, ...]
    output_orders: tuple[Permutation, ...]


# ---- what Treadle can run ------------------------------------------------------------------------


def unsupported_nodes(graph: fx.Graph) -> dict[fx.Node, str]:
    """Return the nodes of a functional graph that torch must run, each with the reason."""
    reader = Reader("the graph")
    found: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") or is_size(node):
            _try_input(reader, node)
        elif node.op == "call_function":
            try:
                reader.read(node)
            except ModelError as error:
                found[node] = error.problem
                _try_input(reader, node)
    return found


def _try_input(reader: Reader, node: fx.Node) -> None:
    """Let what torch computes be an input; what Treadle has no type for stays unknown."""
    known = node.meta.get("val")
    try:
        if isinstance(known, torch.SymInt):
            reader.symbols.add_input_size(known)
            reader.set_value(node, reader.symbols.dim(known))
        elif isinstance(known, torch.SymFloat):
            reader.set_value(node, _fraction(node))
        elif isinstance(known, (int, float)):
            reader.set_value(node, known)
        elif isinstance(known, torch.Tensor):
            reader.add_input(node, node.name)
    except ModelError:
        pass


def _fraction(node: fx.Node) -> Var:
    """Return the input that a number is which is no whole one."""
    return Var(node.name, TensorType((), "float64"), node.name)


def is_size(node: fx.Node) -> bool:
    """True for a node about sizes, which torch runs by itself: a number, or a check of one."""
    if node.op == "call_function" and is_check(node):
        return True
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
    return isinstance(node.meta.get("val"), kinds)


# ---- pieces --------------------------------------------------------------------------------------


def pieces_of(graph: fx.Graph, unsupported: Collection[fx.Node]) -> list[Piece]:
    """Return the pieces of a graph in an order in which they can run."""
    levels = levels_of(graph, unsupported)
    by_level: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        if is_ours(node, unsupported):
            by_level.setdefault(levels[node], []).append(node)
    made = (_piece(by_level[level]) for level in sorted(by_level))
    return [piece for piece in made if piece.outputs]


def is_ours(node: fx.Node, unsupported: Collection[fx.Node]) -> bool:
    """True for a node that Treadle runs."""
    if node.op != "call_function" or node in unsupported or is_size(node):
        return False
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and is_ours(source, unsupported)
    return True


def levels_of(graph: fx.Graph, unsupported: Collection[fx.Node]) -> dict[fx.Node, int]:
    """Return the level of every node; what draws random numbers keeps its order."""
    levels: dict[fx.Node, int] = {}
    drawn = 0
    for node in graph.nodes:
        ours = is_ours(node, unsupported)
        level = 0
        for source in node.all_input_nodes:
            crosses = not ours and is_ours(source, unsupported)
            level = max(level, levels[source] + crosses)
        if node.op == "call_function" and not ours and node.is_impure():
            level = drawn = max(level, drawn)
        levels[node] = level
    return levels


def _piece(nodes: Sequence[fx.Node]) -> Piece:
    inside = set(nodes)
    sources = (s for n in nodes for s in n.all_input_nodes if s not in inside)
    inputs = dict.fromkeys(s for s in sources if graph_of(s) is None)
    outputs = [
        n
        for n in nodes
        if isinstance(n.meta.get("val"), torch.Tensor) and any(u not in inside for u in n.users)
    ]
    return Piece(tuple(nodes), tuple(inputs), tuple(outputs))


# ---- a piece as a module -------------------------------------------------------------------------


def import_piece(
    piece: Piece,
    constants: Mapping[fx.Node, np.ndarray],
    sizes: Mapping[sympy.Symbol, fx.Node],
    name: str,
) -> ImportedPiece:
    """Return a piece as a graph module, in which `constants` are inputs that are known.

    `sizes` are nodes whose results are symbols: what no tensor among the inputs decides is an
    input of rank 0.

    Raises: ModelError where it cannot be converted.
    """
    return _PieceImport(piece, constants, sizes, name).run()


class _PieceImport:
    def __init__(
        self,
        piece: Piece,
        constants: Mapping[fx.Node, np.ndarray],
        sizes: Mapping[sympy.Symbol, fx.Node],
        name: str,
    ) -> None:
        self._piece = piece
        self._constants = constants
        self._sizes = sizes
        self._reader = Reader(name)
        self._name = name
        self._params: list[Var] = []
        self._inputs: list[fx.Node] = []
        self._orders: list[Permutation] = []
        self._measured: dict[Any, Node] = {}  # Any: symbols of sizes
        self._given: set[sympy.Symbol] = set()  # those that are inputs of their own

    def run(self) -> ImportedPiece:
        for node in self._piece.inputs:
            if node in self._constants:
                known = Constant.of(self._constants[node], origin=node.name)
                self._reader.set_tensor(node, known)
        for node in self._tensors():
            for size in node.meta["val"].shape:
                self._reader.symbols.add_input_size(size)
        missing = self._missing()
        self._given.update(missing)
        for symbol in missing:
            self._add_size(symbol)
        for node in self._tensors():
            self._add_tensor(node)
        for node in self._piece.inputs:
            if is_size(node):
                self._reader.set_value(node, self._number(node))
        for node in self._piece.nodes:
            self._reader.read(node)
        return self._finished()

    def _tensors(self) -> Iterable[fx.Node]:
        return (n for n in self._piece.inputs if not is_size(n) and n not in self._constants)

    def _missing(self) -> list[sympy.Symbol]:
        """Return the symbols that the piece speaks of and no tensor decides."""
        spoken = (s for s in symbols_in(self._piece) if s in self._sizes)
        given = (s for s in spoken if self._sizes[s] in self._piece.inputs)
        return [s for s in given if not self._reader.symbols.is_known_symbol(s)]

    def _add_size(self, symbol: sympy.Symbol) -> None:
        param = Var(f"size_{symbol}", TensorType((), "int64"))
        size = MeasuredSizes(str(symbol))
        number = self._sizes[symbol].meta["val"]
        self._reader.symbols.bind(symbol, measured(param, number, size.measure))
        self._measured.update(size.values)
        self._params.append(param)
        self._inputs.append(self._sizes[symbol])
        self._orders.append(())

    def _number(self, node: fx.Node) -> Any:
        """Return a number that torch gives: a size; if it is no whole one, an input of its own."""
        known = node.meta["val"]
        if not isinstance(known, torch.SymFloat):
            return self._reader.symbols.number(known)
        self._params.append(_fraction(node))
        self._inputs.append(node)
        self._orders.append(())
        return self._params[-1]

    def _add_tensor(self, node: fx.Node) -> None:
        """Add an input; a run checks sizes of it that come from sizes which are inputs too."""
        fake = node.meta["val"]
        order = order_of(fake)
        dims = dims_of(self._reader.add_input(node, node.name))
        free = tuple(
            SizeVar(f"{node.name}_{axis}", "int64") if symbols_of(size) & self._given else dim
            for axis, (size, dim) in enumerate(zip(fake.shape, dims, strict=False))
        )
        pair = dims[len(order) :]
        kind = TensorType((*(free[k] for k in order), *pair), dtype_name(fake.dtype))
        param = Var(node.name, kind, node.name)
        value = transposed(param, _with_pair([order.index(k) for k in range(len(order))], pair))
        is_free = (*free, *pair) == dims
        self._reader.set_tensor(node, value if is_free else reshape(value, shape=dims))
        self._params.append(param)
        self._inputs.append(node)
        self._orders.append(order)

    def _finished(self) -> ImportedPiece:
        orders = tuple(order_of(n.meta["val"]) for n in self._piece.outputs)
        values = [self._reader.tensor(n) for n in self._piece.outputs]
        results = [
            transposed(v, _with_pair(order, dims_of(v)[len(order) :]))
            for v, order in zip(values, orders, strict=True)
        ]
        made = anchored(results, self._reader.measured | self._measured)
        body = made[0] if len(made) == 1 else TupleNode.of(made)
        names = tuple(n.name for n in self._piece.outputs)
        module = Module(Function(tuple(self._params), body), names, self._name)
        return ImportedPiece(module, tuple(self._inputs), tuple(self._orders), orders)


def _with_pair(order: Sequence[int], pair: Sequence[Dim]) -> Permutation:
    """Return an order of axes with the axis behind them that holds the parts of complex numbers."""
    return (*order, *(len(order) for _ in pair))


def symbols_in(piece: Piece) -> list[sympy.Symbol]:
    """Return the symbols that the sizes of a piece's values are made of."""
    found: dict[sympy.Symbol, None] = {}
    for node in (*piece.inputs, *piece.nodes):
        for size in _sizes_in(node.meta.get("val")):
            found |= dict.fromkeys(sorted(symbols_of(size), key=str))
    return list(found)


def _sizes_in(value: object) -> Iterable[Any]:
    if isinstance(value, torch.Tensor):
        yield from value.shape
    elif isinstance(value, (torch.SymInt, torch.SymFloat)):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _sizes_in(part)


def order_of(fake: torch.Tensor) -> Permutation:
    """Return the axes of a tensor as they lie in memory, the outermost first.

    Tensors with gaps, or whose elements share memory, count as if they lay in order.
    """
    plain = tuple(range(fake.dim()))
    extents, strides = [_hint(s) for s in fake.shape], [_hint(s) for s in fake.stride()]
    order = tuple(sorted(plain, key=lambda k: (-strides[k], k)))
    if _is_dense(plain, extents, strides) or not _is_dense(order, extents, strides):
        return plain
    return order


def _is_dense(order: Permutation, extents: Sequence[int], strides: Sequence[int]) -> bool:
    """True where axes in an order leave no gaps between elements; those of 1 do not count."""
    expected = 1
    for axis in reversed(order):
        if extents[axis] != 1 and strides[axis] != expected:
            return False
        expected *= max(extents[axis], 1)
    return True


def _hint(size: Any) -> int:
    """Return a size, or what it was when the graph was traced; 1 where only a run knows it."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else 1
    return int(size)


def size_nodes(graph: fx.Graph) -> dict[sympy.Symbol, fx.Node]:
    """Return the nodes whose results are symbols by themselves, by symbol."""
    found: dict[sympy.Symbol, fx.Node] = {}
    for node in graph.nodes:
        known = node.meta.get("val")
        if isinstance(known, torch.SymInt) and expression_of(known).is_Symbol:
            found.setdefault(expression_of(known), node)
    return found


def operator_names(nodes: Iterable[fx.Node]) -> dict[str, int]:
    """Return how many of the nodes call each operator."""
    counts: dict[str, int] = {}
    for node in nodes:
        if node.target is not operator.getitem:
            counts[target_name(node)] = counts.get(target_name(node), 0) + 1
    return counts
