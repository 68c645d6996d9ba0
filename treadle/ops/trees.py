# SPDX-License-Identifier: Apache-2.0
"""Decision trees: which leaf each tree of an ensemble leads a row of features to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.cost.trees import TASK_BLOCKS, TASK_ROWS
from treadle.dtype import itemsize
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Const, Expr, ExprLike, cast, convert, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import TensorType, Type, tensor_type
from treadle.loop.build import let, loop, put
from treadle.loop.nodes import Allocate, Buffer, Stmt, seq
from treadle.ops.example_numbers import uniform
from treadle.ops.numeric import check_elements, dims_of
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor

PLACE = "int32"
"""The type of a place: the number of a node's first word."""
FEATURE_SHIFT = 32
"""Where a node's feature stands in its first word, above the place of its children."""
_AT = "uint32"
"""What a walk keeps places as: an index as it is in its register, not extended by a sign."""
MOST_FEATURES = 1 << 31
"""How many features a node can name."""


@dataclass(frozen=True, slots=True)
class TreesAttrs(Attrs):
    """`trees`: how many there are."""

    trees: int


def _infer(a: TreesAttrs, x: Type, words: Type, starts: Type, steps: Type) -> Type:
    rows = check_elements(x, ("float32", "float64"))
    tables = [tensor_type(t) for t in (words, starts, steps)]
    fits = [t.ndim for t in tables] == [1, 2, 1] and rows.ndim == 2
    if not fits or [t.dtype for t in tables] != ["int64", PLACE, PLACE]:
        raise TypeMismatch(
            f"rows [n, features] and tables int64[words], {PLACE}[blocks, trees of one], "
            f"{PLACE}[blocks] are expected, not {x}, {words}, {starts}, {steps}"
        )
    blocks, together = tables[1].static_shape
    if tables[2].static_shape != (blocks,) or not together <= a.trees <= blocks * together:
        raise TypeMismatch(f"{blocks} blocks of {together} do not hold {a.trees} trees")
    if a.trees and 0 in (rows.shape[1], tables[0].shape[0]):
        raise TypeMismatch(f"{a.trees} trees test features by nodes, there are {x} and {words}")
    return TensorType((rows.shape[0], a.trees), PLACE)


@dataclass(frozen=True, slots=True)
class _Walk:
    """The loops that lead rows through blocks of trees."""

    attrs: TreesAttrs
    x: Buffer
    words: Buffer
    starts: Buffer
    steps: Buffer
    out: Buffer
    together: int

    def block(self, block: Expr, first: Expr, end: Expr) -> Stmt:
        """Return the walk of the rows from `first` to `end` through the trees of a block."""
        places = [Buffer(f"place{k}", _AT, (Const.of(1),), "local") for k in range(self.together)]
        body = let(
            load(self.steps, (block,)),
            lambda steps: loop(
                end - first, lambda r: self._row(block, first + r, steps, places), "row"
            ),
            "steps",
        )
        for place in places:
            body = Allocate(place, body)
        return body

    def _row(self, block: Expr, row: Expr, steps: Expr, places: Sequence[Buffer]) -> Stmt:
        begin = [
            put(p, (0,), cast(load(self.starts, (block, k)), _AT)) for k, p in enumerate(places)
        ]
        step = loop(
            cast(steps, "int64"), lambda _: seq(*(self._step(row, p) for p in places)), "step"
        )
        end: Expr = nodes.minimum(block * self.together, self.attrs.trees - self.together)
        found = [
            put(self.out, (row, end + k), cast(load(p, (0,)) >> 1, PLACE))
            for k, p in enumerate(places)
        ]
        return seq(*begin, step, *found)

    def _step(self, row: Expr, place: Buffer) -> Stmt:
        """Return one step of one tree: to the child for yes, or two words past it."""
        at = cast(load(place, (0,)), "int64")

        def move(word: Expr) -> Stmt:
            is_yes = load(self.x, (row, word >> FEATURE_SHIFT)) <= self._split(at)
            return put(place, (0,), cast(word, _AT) + cast(~is_yes, _AT) * 2)

        return let(load(self.words, (at,)), move, "word")

    def _split(self, at: Expr) -> Expr:
        bits = load(self.words, (at + 1,))
        if itemsize(self.x.dtype) == itemsize(PLACE):
            bits = cast(bits, PLACE)
        return nodes.call("bitcast", bits, dtype=self.x.dtype)


def _compute(a: TreesAttrs, x: Tensor, words: Tensor, starts: Tensor, steps: Tensor) -> Tensor:
    rows, (blocks, together) = dims_of(x)[0], TensorType(starts.shape, PLACE).static_shape

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        rows_, words_, starts_, steps_ = ins
        walk = _Walk(a, rows_, words_, starts_, steps_, outs[0], together)
        tasks = -(-blocks // TASK_BLOCKS)

        def task(number: Expr) -> Stmt:
            first = number // tasks * TASK_ROWS
            end = nodes.minimum(first + TASK_ROWS, convert(rows))
            start = number % tasks * TASK_BLOCKS
            count = nodes.minimum(convert(TASK_BLOCKS), blocks - start)
            return loop(count, lambda b: walk.block(start + b, first, end), "block")

        chunks: ExprLike = (rows + TASK_ROWS - 1) // TASK_ROWS
        many = is_much((rows, a.trees))
        return loop(chunks * tasks, task, "task", "parallel" if many else "serial")

    made = te.extern([(rows, a.trees)], [x, words, starts, steps], build, "walk_trees", PLACE)
    return made[0] if isinstance(made, tuple) else made


def _reference(
    a: TreesAttrs, x: np.ndarray, words: np.ndarray, starts: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    together = starts.shape[1]
    place = np.zeros((x.shape[0], a.trees), PLACE)
    for block, count in enumerate(steps.tolist()):
        at = np.tile(starts[block], (x.shape[0], 1))
        for _ in range(count):
            word = words[at]
            value = np.take_along_axis(x, word >> FEATURE_SHIFT, 1)
            bits = words[at + 1]
            split = bits.astype(PLACE).view("float32") if x.itemsize == 4 else bits.view("float64")
            at = word.astype(PLACE) + 2 * ~(value <= split)
        first = min(block * together, a.trees - together)
        place[:, first : first + together] = at >> 1
    return place


def _example(dtype: str) -> Example:
    """Return three trees of one node and its two leaves, in blocks of two; a row has a NaN."""
    nan = np.array(np.nan, dtype)
    tests = [(4 * k + 6, k, 0.5 * k - 0.5) for k in range(3)]
    leaves = [(2 * place - 2, 0, nan) for place in range(3, 9)]
    first = [child | feature << FEATURE_SHIFT for child, feature, _ in (*tests, *leaves)]
    splits = np.array([split for *_, split in (*tests, *leaves)], dtype)
    second = splits.view(f"int{8 * nan.itemsize}").astype("int64")
    x = uniform((5, 3), -1, 1).astype(dtype)
    x[1, 1] = nan
    inputs = {
        0: x,
        1: np.stack([np.array(first), second], 1).reshape(-1),
        2: np.array([[0, 2], [2, 4]], PLACE),
        3: np.array([1, 2], PLACE),
    }
    shapes = tuple(v.shape for v in inputs.values())
    return Example(shapes, {"trees": 3}, (dtype, "int64", PLACE, PLACE), inputs=inputs)


walk_trees: Operator[TreesAttrs] = register(
    Operator(
        name="walk_trees",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=TreesAttrs,
        examples=(_example("float32"), _example("float64")),
    )
)
"""The nodes [rows, trees] where walks of rows of features [rows, features] end.

A node is two words that follow each other: below, the number of the first word of its child for
yes, above, its feature; and its split, as bits. The answer is yes where feature <= split, so a NaN
is a no. The child for no stands right after that for yes. A leaf has the split NaN, and stands for
no to itself. The trees of a block, a row of `starts` with the first words of roots, take as many
steps as `steps` says, all together: no step of one waits for another's. The last block ends with
the last tree, and may begin with trees of the block before. The tables are read as they are: what
makes them sees to it that they name features and nodes.
"""
