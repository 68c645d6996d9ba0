# SPDX-License-Identifier: Apache-2.0
"""Chooses operands for random nodes: values that are there already, or fresh inputs and weights."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

import numpy as np
from onnx import helper

from tests.fuzz import oracles
from tests.fuzz.graph import Graph, Value, evaluate
from treadle import dtype as dt

OPSETS = (7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 22, 23, 24, 25, 26)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
MOST_ELEMENTS = 3000
FLOATS = ("float32", "float32", "float32", "float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = ("int32", "int64", "int8", "uint8", "int64", "int32", "int16", "uint16", "uint64")
NUMBERS = FLOATS + INTEGERS[:4]
ALL = (*FLOATS, *INTEGERS, "bool")


class Nothing(Exception):
    """This operator does not fit what there is."""


class Builder:
    """The graph so far, with its values; everything is drawn from `random`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph = Graph(self.random.choice(OPSETS))
        self.values: dict[str, Value] = {}
        self.numbers = np.random.default_rng(seed)
        self.has_empty = self.random.random() < 0.05
        """Whether sizes may be 0."""
        self.float = self.random.choice(FLOATS)
        """Most values of a graph have the same type, as in real models."""

    @property
    def opset(self) -> int:
        return self.graph.opset

    # ---- choices -----------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choose(self, options: Sequence[object]) -> object:
        return self.random.choice(options)

    def size(self) -> int:
        return 0 if self.has_empty and self.chance(0.15) else self.random.choice(SIZES)

    def shape(self, rank: int | None = None, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
        """Return a shape of at most `most` elements."""
        rank = self.random.choice((0, 1, 2, 2, 3, 3, 4, 4, 5)) if rank is None else rank
        sizes = [self.size() for _ in range(rank)]
        while prod(sizes) > most:
            sizes[self.random.randrange(rank)] = self.random.choice((1, 2, 3))
        return tuple(sizes)

    def dtype(self, among: Sequence[str]) -> str:
        if self.float in among and self.chance(0.7):
            return self.float
        return self.random.choice(among)

    @staticmethod
    def kind(dtype: str) -> np.dtype:
        """Return NumPy's name of an element type."""
        return np.dtype(dt.to_numpy(dtype))

    def axis(self, rank: int, *, signed: bool = True) -> int:
        if not rank:
            raise Nothing
        axis = self.random.randrange(rank)
        return axis - rank if signed and self.chance(0.3) else axis

    def axes(self, rank: int) -> list[int]:
        """Return distinct axes, at least one."""
        if not rank:
            raise Nothing
        count = self.random.randint(1, rank)
        chosen = self.random.sample(range(rank), count)
        return [a - rank if self.chance(0.3) else a for a in chosen]

    def axes_of(self, op: str, axes: list[int] | None) -> tuple[list[str], dict[str, object]]:
        """Return axes as the opset wants them: an input or an attribute."""
        if axes is None:
            return [], {}
        moved = ("ReduceSum", "Squeeze", "Unsqueeze")
        if self.opset >= 18 or (op in moved and self.opset >= 13):
            return [self.integers(*axes)], {}
        return [], {"axes": axes}

    # ---- operands ----------------------------------------------------------------------------

    def existing(
        self,
        dtypes: Sequence[str],
        *,
        ranks: Sequence[int] | None = None,
        shape: tuple[int, ...] | None = None,
        is_exact: bool = False,
        most: int = MOST_ELEMENTS,
    ) -> str | None:
        """Return a value that fits, late ones more often; None where there is none."""
        fitting = [
            name
            for name, v in self.values.items()
            if name not in self.graph.constants
            and v.dtype in dtypes
            and (ranks is None or v.array.ndim in ranks)
            and (shape is None or v.shape == shape)
            and (v.is_exact or not is_exact)
            and v.array.size <= most
        ]
        if not fitting:
            return None
        tail = fitting[-5:] if self.chance(0.7) else fitting
        return self.random.choice(tail)

    def operand(
        self,
        dtypes: Sequence[str] = ALL,
        *,
        ranks: Sequence[int] | None = None,
        is_exact: bool = False,
        most: int = MOST_ELEMENTS,
    ) -> str:
        """Return a value that fits, mostly one that is there."""
        found = self.existing(dtypes, ranks=ranks, is_exact=is_exact, most=most)
        if found is not None and self.chance(0.93):
            return found
        rank = None if ranks is None else self.random.choice(ranks)
        return self.fresh(self.dtype(dtypes), self.shape(rank, most))

    def like(self, name: str, *, dtype: str | None = None) -> str:
        """Return an operand of the same type and shape."""
        value = self.values[name]
        kind = dtype or value.dtype
        found = self.existing((kind,), shape=value.shape)
        return found if found is not None and self.chance(0.8) else self.fresh(kind, value.shape)

    def broadcast(self, name: str, *, dtype: str | None = None) -> str:
        """Return an operand that broadcasts with a value."""
        value = self.values[name]
        kind = dtype or value.dtype
        fitting = [
            n
            for n, v in self.values.items()
            if v.dtype == kind and n not in self.graph.constants and _fits(v.shape, value.shape)
        ]
        if fitting and self.chance(0.6):
            return self.random.choice(fitting[-6:])
        shape = [1 if self.chance(0.3) else d for d in value.shape]
        if self.chance(0.15) and value.array.size <= 300:  # wider than what it meets
            shape = [self.random.choice((2, 3, 4)) if d == 1 else d for d in shape]
            shape = [*([self.random.choice((1, 2))] * self.chance(0.3)), *shape]
            return self.fresh(kind, tuple(shape) if _fits(shape, value.shape) else value.shape)
        shape = shape[
            self.random.choice((0, 0, 0, len(shape), self.random.randint(0, len(shape)))) :
        ]
        return self.fresh(kind, tuple(shape))

    def fresh(
        self,
        dtype: str,
        shape: tuple[int, ...],
        *,
        low: float = -2.0,
        high: float = 2.0,
        is_constant: bool | None = None,
    ) -> str:
        """Return the name of a new input or weight, now and then of a weight that is there."""
        if is_constant is not False and self.chance(0.1):
            same = [
                n
                for n, a in self.graph.constants.items()
                if a.shape == shape
                and a.size
                and self.values[n].dtype == dtype
                and dt.is_float(dtype)
                and low <= a.min()
                and a.max() <= high
            ]
            if same:
                return self.random.choice(same)
        return self.given(self.array(dtype, shape, low, high), is_constant=is_constant)

    def array(self, dtype: str, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
        """Return random numbers; integers from a range of their own."""
        kind = dt.to_numpy(dtype)
        if dtype == "bool":
            return np.asarray(self.numbers.random(shape) < 0.5)
        if dt.is_float(dtype):
            return np.asarray(self.numbers.random(shape) * (high - low) + low).astype(kind)
        least = 0 if dt.is_unsigned(dtype) else -9
        return np.asarray(self.numbers.integers(least, 10, shape)).astype(kind)

    def given(self, array: np.ndarray, *, is_constant: bool | None = None) -> str:
        """Add an input or a constant."""
        constant = self.chance(0.5) if is_constant is None else is_constant
        array = np.asarray(array)
        place = self.graph.constants if constant else self.graph.inputs
        name = f"{'c' if constant else 'x'}{len(place)}"
        place[name] = array
        self.values[name] = Value(array, array)
        return name

    def integer(self, number: int) -> str:
        """Add a constant int64 scalar."""
        return self.given(np.array(number), is_constant=True)

    def integers(self, *numbers: int) -> str:
        """Add a constant int64 vector."""
        return self.given(np.array(numbers, np.int64), is_constant=True)

    def sizes(self, *numbers: int) -> str:
        """Add a list of sizes: a constant, or an input whose numbers only a run knows."""
        return self.given(np.array(numbers, np.int64), is_constant=self.chance(0.75))

    # ---- nodes -------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        *,
        outputs: int = 1,
        is_exact: bool = False,
        domain: str = "",
        **attributes: object,
    ) -> str:
        """Add a node if its results are well defined; return the name of its first output.

        Raises: Nothing.
        """
        first = len(self.graph.nodes)
        names = [f"n{first}" if not k else f"n{first}_{k}" for k in range(outputs)]
        given = {k: v for k, v in attributes.items() if v is not None}
        node = helper.make_node(op, list(inputs), names, name=f"{op}{first}", domain=domain)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in given.items())
        try:
            made = evaluate(node, self.values, self.opset, is_exact=is_exact)
        except oracles.Refused as error:
            raise Nothing(str(error)) from None
        if sum(v.array.size for v in made.values()) > 4 * MOST_ELEMENTS:
            raise Nothing
        self.graph.nodes.append(node)
        if is_exact:
            self.graph.exact_nodes.add(names[0])
        self.values.update(made)
        return names[0]

    def value(self, name: str) -> Value:
        return self.values[name]


def _fits(shape: Sequence[int], other: tuple[int, ...]) -> bool:
    try:
        return prod(np.broadcast_shapes(tuple(shape), other)) <= MOST_ELEMENTS
    except ValueError:
        return False
