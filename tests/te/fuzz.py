# SPDX-License-Identifier: Apache-2.0
"""Random tensor expressions with random schedules: everything derives from one seed.

The same seed always makes the same graph and the same steps, so a failure is told by its number.
With `symbolic`, one size is a variable; its value is chosen as it would be without.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from treadle import te
from treadle.expr.nodes import Expr, ExprLike, Var, int_value
from treadle.te.operations import ComputeOp, Tensor
from treadle.te.schedule import Schedule, create_schedule
from treadle.te.stage import Stage

MOST_ELEMENTS = 700
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17)
FACTORS = (1, 2, 3, 4, 5, 7, 8, 16)


@dataclass(frozen=True)
class Dim:
    """A size as the graph sees it, and its value."""

    expr: ExprLike
    value: int
    is_fixed: bool = True
    """False for what may be symbolic, also where it is not: the same choices are made then."""

    def __add__(self, other: int) -> Dim:
        return Dim(self.expr + other, self.value + other, self.is_fixed)


@dataclass
class Value:
    tensor: Tensor
    dims: list[Dim]


@dataclass
class Case:
    """A graph: its placeholders and outputs, the arrays for them, and sizes with values."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)
    sizes: dict[Var, int] = field(default_factory=dict)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """The shapes of the outputs."""


def make_case(seed: int, *, symbolic: bool = False) -> Case:
    """Return the graph number `seed`."""
    return _Graph(random.Random(seed), symbolic).make()


class _Graph:
    def __init__(self, chance: random.Random, symbolic: bool) -> None:
        self.chance = chance
        self.case = Case()
        self.dtype = chance.choice(("float32", "float32", "float32", "float64", "int32"))
        self.size: Dim | None = None
        self.wants_size = chance.random() < 0.25
        self.symbolic = symbolic
        self.values: list[Value] = []

    def make(self) -> Case:
        chance = self.chance
        value = self.input([self.dim() for _ in range(chance.randint(1, 3))])
        for _ in range(chance.randint(1, 4)):
            made = self.stage(chance.choice(self.values) if chance.random() < 0.15 else value)
            if made is not None:
                self.values.append(made)
                value = made
        results = [v for v in self.values if isinstance(v.tensor.op, ComputeOp)]
        if not results:
            results = [self.pointwise(value)]
        outputs = [results[-1]]
        if len(results) > 1 and chance.random() < 0.2:
            outputs.append(results[-2])
        self.case.outputs = [v.tensor for v in outputs]
        self.case.shapes = [tuple(d.value for d in v.dims) for v in outputs]
        return self.case

    # -- sizes and inputs ------------------------------------------------------------------------

    def dim(self) -> Dim:
        value = self.chance.choice(EXTENTS)
        if self.wants_size and (self.size is None or self.chance.random() < 0.3):
            if self.size is None:
                self.size = Dim(value, value, is_fixed=False)
                if self.symbolic:
                    var = te.var("n")
                    self.case.sizes[var] = value
                    self.size = Dim(var, value, is_fixed=False)
            return self.size
        return Dim(value, value)

    def input(self, dims: list[Dim]) -> Value:
        while _count(dims) > MOST_ELEMENTS:
            dims = dims[1:]
        name = "ABCDEFGHIJ"[len(self.case.inputs)]
        tensor = te.placeholder([d.expr for d in dims], self.dtype, name)
        self.case.inputs.append(tensor)
        numbers = np.random.default_rng(self.chance.getrandbits(32))
        shape = tuple(d.value for d in dims)
        self.case.arrays.append(numbers.integers(-3, 4, shape).astype(self.dtype))
        self.values.append(Value(tensor, dims))
        return self.values[-1]

    # -- stages ----------------------------------------------------------------------------------

    def stage(self, x: Value) -> Value | None:
        kinds: list[Callable[[Value], Value | None]] = [
            self.pointwise, self.pointwise, self.broadcast, self.pad, self.reduce, self.reduce,
            self.matmul, self.window, self.transposed, self.flattened, self.arg_max, self.joined,
            self.sliced, self.convolved, self.repeated, self.by_index,
        ]  # fmt: skip
        return self.chance.choice(kinds if x.dims else [self.pointwise])(x)

    def new(self, dims: list[Dim], body: Callable[..., object]) -> Value | None:
        if _count(dims) > MOST_ELEMENTS:
            return None
        made = te.compute([d.expr for d in dims], body, name=f"T{len(self.values)}")
        return Value(made[0] if isinstance(made, tuple) else made, dims)

    def pointwise(self, x: Value) -> Value:
        t, kind = x.tensor, self.chance.randrange(3)

        def body(*i: Expr) -> Expr:
            if kind == 0:
                return t[i] * 2 + 1
            return te.max(t[i], 0) if kind == 1 else te.if_then_else(t[i] > 1, t[i] - 3, t[i])

        made = self.new(x.dims, body)
        assert made is not None
        return made

    def broadcast(self, x: Value) -> Value | None:
        last = x.dims[-1:]
        other = self.input(last) if self.chance.random() < 0.6 else self.input(x.dims)
        whole = len(other.dims) == len(x.dims)
        a, b = x.tensor, other.tensor
        return self.new(x.dims, lambda *i: a[i] + (b[i] if whole else b[i[-1]]))

    def pad(self, x: Value) -> Value | None:
        before, after = self.chance.randint(0, 3), self.chance.randint(0, 3)
        axis = self.chance.randrange(len(x.dims))
        dims = list(x.dims)
        dims[axis] = dims[axis] + (before + after)
        extent, t = x.dims[axis].expr, x.tensor

        def body(*i: Expr) -> Expr:
            k = i[axis] - before
            inside = te.all(k >= 0, k < extent)
            read = t[(*i[:axis], k, *i[axis + 1 :])]
            return te.if_then_else(inside, read, te.const(0, self.dtype))

        return self.new(dims, body)

    def reduce(self, x: Value) -> Value | None:
        if len(x.dims) == 1 and self.chance.random() < 0.5:
            return None
        count = self.chance.randint(1, min(2, len(x.dims)))
        axes = sorted(self.chance.sample(range(len(x.dims)), count))
        r = [te.reduce_axis((0, x.dims[a].expr), f"r{a}") for a in axes]
        kept = [a for a in range(len(x.dims)) if a not in axes]
        function = self.chance.choice((te.sum, te.max, te.min))

        def body(*i: Expr) -> Expr:
            at = dict(zip((*kept, *axes), (*i, *r), strict=True))
            return function(x.tensor[tuple(at[k] for k in range(len(at)))], axis=r)

        return self.new([x.dims[a] for a in kept], body)

    def arg_max(self, x: Value) -> Value | None:
        def combine(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
            first = te.any(a[0] > b[0], te.all(a[0] == b[0], a[1] < b[1]))
            return tuple(te.if_then_else(first, p, q) for p, q in zip(a, b, strict=True))  # type: ignore[return-value]

        def identity(t: str, i: str) -> tuple[Expr, Expr]:
            return te.min_value(t), te.const(1 << 20, i)

        arg = te.comm_reducer(combine, identity, name="argmax")
        k = te.reduce_axis((0, x.dims[-1].expr), "k")
        dims = x.dims[:-1] or [Dim(1, 1)]
        lead = len(x.dims) - 1
        made = te.compute(
            [d.expr for d in dims],
            lambda *i: arg((x.tensor[(*i[:lead], k)], k), axis=k),
            name=f"T{len(self.values)}",
        )
        pick = self.chance.random()
        if pick < 0.3:
            return Value(made[0], dims)
        top, at = made
        return self.new(dims, lambda *i: top[i] + at[i].astype(self.dtype))

    def matmul(self, x: Value) -> Value | None:
        width = self.dim()
        if len(x.dims) != 2 or x.dims[1].value * width.value > MOST_ELEMENTS:
            return None
        w = self.input([x.dims[1], width])
        if len(w.dims) != 2:
            return None
        k = te.reduce_axis((0, x.dims[1].expr), "k")
        a, b = x.tensor, w.tensor
        return self.new([x.dims[0], width], lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))

    def window(self, x: Value) -> Value | None:
        """A blur: neighbours along one axis, with a stride."""
        axis = self.chance.randrange(len(x.dims))
        width, stride = self.chance.randint(2, 3), self.chance.randint(1, 2)
        dim, t = x.dims[axis], x.tensor
        if dim.value < width or not dim.is_fixed:
            return None
        dims = list(x.dims)
        size = (dim.value - width) // stride + 1
        dims[axis] = Dim(size, size)

        def body(*i: Expr) -> Expr:
            reads = [t[(*i[:axis], i[axis] * stride + k, *i[axis + 1 :])] for k in range(width)]
            return reads[0] + reads[1] if width == 2 else reads[0] + reads[1] + reads[2]

        return self.new(dims, body)

    def convolved(self, x: Value) -> Value | None:
        if len(x.dims) < 2 or not all(d.is_fixed for d in x.dims[-2:]):
            return None
        kernel = [min(self.chance.randint(1, 3), d.value) for d in x.dims[-2:]]
        w = self.input([Dim(k, k) for k in kernel])
        ry, rx = (te.reduce_axis((0, k), n) for k, n in zip(kernel, ("ry", "rx"), strict=True))
        sizes = [d.value - k + 1 for d, k in zip(x.dims[-2:], kernel, strict=True)]
        dims = [*x.dims[:-2], *(Dim(s, s) for s in sizes)]
        t, weights = x.tensor, w.tensor

        def body(*i: Expr) -> Expr:
            return te.sum(t[(*i[:-2], i[-2] + ry, i[-1] + rx)] * weights[ry, rx], axis=[ry, rx])

        return self.new(dims, body)

    def transposed(self, x: Value) -> Value | None:
        order = list(range(len(x.dims)))
        self.chance.shuffle(order)
        t = x.tensor

        def body(*i: Expr) -> Expr:
            return t[tuple(i[order.index(axis)] for axis in range(len(order)))]

        return self.new([x.dims[a] for a in order], body)

    def flattened(self, x: Value) -> Value | None:
        """Reshape [..., a, b] to [..., a * b], or [a] to [a / f, f]."""
        t = x.tensor
        if len(x.dims) == 1:
            value = x.dims[0].value
            factor = self.chance.choice([f for f in (1, 2, 3, 4, 8) if value % f == 0])
            if not x.dims[0].is_fixed:
                return None
            dims = [Dim(value // factor, value // factor), Dim(factor, factor)]
            return self.new(dims, lambda i, j: t[i * factor + j])
        a, b = x.dims[-2:]
        if not b.is_fixed:
            return None
        whole = Dim(a.expr * b.expr, a.value * b.value, a.is_fixed)
        width = b.value
        return self.new(
            [*x.dims[:-2], whole], lambda *i: t[(*i[:-1], i[-1] // width, i[-1] % width)]
        )

    def joined(self, x: Value) -> Value | None:
        """A concatenation with itself, in another order."""
        axis = self.chance.randrange(len(x.dims))
        dims, t, extent = list(x.dims), x.tensor, x.dims[axis].expr
        dims[axis] = Dim(extent + extent, x.dims[axis].value * 2, x.dims[axis].is_fixed)

        def body(*i: Expr) -> Expr:
            k = i[axis]
            first = t[(*i[:axis], k, *i[axis + 1 :])]
            second = t[(*i[:axis], k - extent, *i[axis + 1 :])]
            return te.if_then_else(k < extent, first, second * 2)

        return self.new(dims, body)

    def sliced(self, x: Value) -> Value | None:
        axis = self.chance.randrange(len(x.dims))
        value = x.dims[axis].value
        if value < 3 or not x.dims[axis].is_fixed:
            return None
        begin, step = self.chance.randint(0, value - 2), self.chance.choice((1, 2, -1))
        size = begin + 1 if step < 0 else -(-(value - begin) // step)
        dims, t = list(x.dims), x.tensor
        dims[axis] = Dim(size, size)
        return self.new(dims, lambda *i: t[(*i[:axis], i[axis] * step + begin, *i[axis + 1 :])])

    def repeated(self, x: Value) -> Value | None:
        """Broadcast along a new first axis, through a floor division."""
        times, t = self.chance.randint(1, 3), x.tensor
        if not x.dims[0].is_fixed:
            return None
        dims = [Dim(x.dims[0].value * times, x.dims[0].value * times), *x.dims[1:]]
        return self.new(dims, lambda *i: t[(i[0] // times, *i[1:])])

    def by_index(self, x: Value) -> Value | None:
        """Rows in an order that a tensor says."""
        if not x.dims[0].is_fixed:
            return None
        rows, t = self.chance.randint(1, 6), x.tensor
        index = te.placeholder([rows], "int64", f"I{len(self.case.inputs)}")
        self.case.inputs.append(index)
        numbers = np.random.default_rng(self.chance.getrandbits(32))
        self.case.arrays.append(numbers.integers(0, x.dims[0].value, rows))
        return self.new([Dim(rows, rows), *x.dims[1:]], lambda *i: t[(index[i[0]], *i[1:])])


def _count(dims: list[Dim]) -> int:
    return int(np.prod([d.value for d in dims]))


# -- schedules -----------------------------------------------------------------------------------


def random_schedule(case: Case, seed: int) -> Schedule:
    """Return a schedule of random valid steps; users are scheduled before what they read."""
    schedule = create_schedule([t.op for t in case.outputs])
    _Steps(schedule, random.Random(seed), random.Random(~seed)).run()
    return schedule


class _Steps:
    def __init__(self, schedule: Schedule, chance: random.Random, keeping: random.Random) -> None:
        self.schedule = schedule
        self.chance = chance
        self.keeping = keeping
        """Decides what is stored further out than it is computed, and nothing else."""

    def run(self) -> None:
        self._caches()
        for stage in reversed(list(self.schedule.stages)):
            if not isinstance(stage.op, ComputeOp):
                continue
            self._place(stage)
            if stage.attach.kind != "inline":
                self._loops(stage)

    def _caches(self) -> None:
        schedule, chance = self.schedule, self.chance
        for stage in list(schedule.stages):
            tensors = stage.op.outputs
            readers = schedule.readers(stage)
            if readers and chance.random() < 0.08:
                chosen = chance.sample(readers, chance.randint(1, len(readers)))
                read = {t.value_index for r in chosen for t in r.op.input_tensors
                        if schedule[t] is stage}  # fmt: skip
                index = chance.choice(sorted(read))
                users = [
                    r.op
                    for r in chosen
                    if any(
                        schedule[t] is stage and t.value_index == index for t in r.op.input_tensors
                    )
                ]
                schedule.cache_read(tensors[index], "local", users)
            if isinstance(stage.op, ComputeOp) and chance.random() < 0.12:
                schedule.cache_write(tensors[0], "local")
        for stage in list(schedule.stages):
            if isinstance(stage.op, ComputeOp) and stage.op.reduce_axis and chance.random() < 0.2:
                self._rfactor(stage)

    def _rfactor(self, stage: Stage) -> None:
        chance = self.chance
        axis = chance.choice(stage.op.reduce_axis)
        if int_value(axis.extent) is not None and chance.random() < 0.8:
            axis = chance.choice(stage.split(axis, factor=chance.choice(FACTORS)))
        position = chance.randint(0, len(stage.op.axis))
        self.schedule.rfactor(stage.op.outputs[0], axis, position)

    def _place(self, stage: Stage) -> None:
        chance = self.chance
        if stage.is_output:
            return
        roll = chance.random()
        if roll < 0.3 and not stage.op.reduce_axis:
            stage.compute_inline()
        elif roll < 0.75:
            self._compute_at(stage)

    def _compute_at(self, stage: Stage) -> None:
        """At a loop of the only stage that reads this one, inlined stages looked through."""
        users = self._users(stage)
        if len(users) == 1 and users[0].leaf_iter_vars:
            stage.compute_at(users[0], self.chance.choice(users[0].leaf_iter_vars))
            if self.keeping.random() < 0.5:
                self._store_at(stage)

    def _store_at(self, stage: Stage) -> None:
        """At a loop from which only loops that run one iteration after another lead further in."""
        places: list[tuple[Stage, te.IterVar]] = []
        at = stage.attach
        while at.stage is not None and at.axis is not None:
            leaves = at.stage.leaf_iter_vars
            place = [axis is at.axis for axis in leaves].index(True)
            for axis in reversed(leaves[: place + 1]):
                places.append((at.stage, axis))
                note = at.stage.notes.get(axis)
                if note is not None and note.kind not in ("serial", "unrolled"):
                    stage.store_at(*self.keeping.choice(places))
                    return
            at = at.stage.attach
        stage.store_at(*self.keeping.choice(places))

    def _users(self, stage: Stage) -> list[Stage]:
        found: dict[Stage, None] = {}
        for reader in self.schedule.readers(stage):
            through = self._users(reader) if reader.attach.kind == "inline" else [reader]
            found.update(dict.fromkeys(through))
        return list(found)

    def _loops(self, stage: Stage) -> None:
        chance = self.chance
        for _ in range(chance.randint(0, 4)):
            if not stage.leaf_iter_vars:
                return
            roll = chance.random()
            if roll < 0.55:
                self._split(stage)
            elif roll < 0.75:
                self._fuse(stage)
            else:
                some = list(stage.leaf_iter_vars)
                chance.shuffle(some)
                stage.reorder(*some[: chance.randint(1, len(some))])
        self._kinds(stage)

    def _split(self, stage: Stage) -> None:
        axis = self.chance.choice(stage.leaf_iter_vars)
        if self.chance.random() < 0.25:
            stage.split(axis, nparts=self.chance.choice(FACTORS))
        else:
            stage.split(axis, factor=self.chance.choice(FACTORS))

    def _fuse(self, stage: Stage) -> None:
        leaves = stage.leaf_iter_vars
        pairs = [(a, b) for a, b in pairwise(leaves) if a.kind == b.kind]
        if pairs:
            stage.fuse(*self.chance.choice(pairs))

    def _kinds(self, stage: Stage) -> None:
        for axis in list(stage.leaf_iter_vars):
            roll = self.chance.random()
            if roll < 0.12 and axis.kind == "data":
                stage.vectorize(axis)
            elif roll < 0.22:
                stage.unroll(axis)
            elif roll < 0.32 and axis.kind == "data":
                stage.parallel(axis)
            elif roll < 0.36 and stage.op.input_tensors:
                tensor = self.chance.choice(stage.op.input_tensors)
                stage.prefetch(tensor, axis, self.chance.randint(0, 9))
            elif roll < 0.38 and stage.op.input_tensors and stage.op.axis:
                tensor = self.chance.choice(stage.op.input_tensors)
                own = self.chance.choice(stage.op.axis)  # type: ignore[union-attr]
                self._panel(stage, tensor, axis, own)

    def _panel(self, stage: Stage, tensor: Tensor, axis: te.IterVar, own: te.IterVar) -> None:
        """Fetch ahead along an axis, some tiles of all that share it together."""
        chance = self.chance
        others = chance.sample(stage.op.axis, chance.randint(1, len(stage.op.axis)))
        wrap = [chance.randint(1, 9)] if chance.random() < 0.5 else []
        stage.prefetch_panel(
            tensor,
            axis,
            [own, *(a for a in others if a is not own)],
            step=chance.randint(1, 9),
            tiles=[(others, chance.randint(1, 4), *wrap)] if chance.random() < 0.8 else [],
            once=chance.random() < 0.3,
            level=chance.randint(1, 2),
        )
