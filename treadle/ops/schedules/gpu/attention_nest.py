# SPDX-License-Identifier: Apache-2.0
"""The loop nest of attention on a GPU: blocks of rows meet tiles of keys, scores stay on the chip.

A block of threads keeps a tile of queries in its shared memory, and for each row the largest score
and the sum of weights so far. With every tile of keys: scores, which move the largest one up; what
was summed is scaled by e**(old largest - new largest); the weights of the tile meet its values.
The running sums are those of Milakov and Gimelshein, "Online normalizer calculation for softmax"
(2018), their use in one pass over keys and values that of Dao et al., "FlashAttention" (2022).

before: for rows: for keys: S = q * k;  for rows: M = max S;  P = e**(S - M);  L = sum P
        for rows: for columns: O = sum over keys of P * v / L
after:  for block of rows: for tile of keys:
            S = q * k;  N = max(M, S);  P = e**(S - N);  a = e**(M - N)
            L = L * a + sum P;  O = O * a + P * v;  M = N
        O / L

The threads of a block are `lanes` to a row. Thread (r, c) has the rows r, r + R, ... of a tile (R
threads along rows), the keys c, c + lanes, ... of it, and columns in vectors as far apart. So those
of a warp read rows of shared memory that lie in other banks, and 4 words at once. The next keys and
values are fetched into registers while the present ones are used; values take the place of the keys
of a tile when its scores are done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle.cost.gpu import ROW_GAP, AttentionTile, padded_steps
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, ExprLike, Var, int_value
from treadle.expr.traversal import substitute
from treadle.limits import DEVICE_LANES as _LANES
from treadle.loop import nodes as lp
from treadle.loop.build import ZERO, declared, loop, put
from treadle.loop.nodes import Buffer, For, If, Stmt
from treadle.ops.schedules.gpu.attention_elements import Elements, in_buffers

_F32 = "float32"
_ONE = Const.of(1.0, _F32)
_NONE = Const.of(0.0, _F32)
_LOWEST = Const.of(-math.inf, _F32)


def attention_nest(
    elements: Elements,
    tile: AttentionTile,
    ins: Sequence[Buffer],
    out: Buffer,
    *,
    nan_is_zero: bool,
    ahead: int,
) -> Stmt:
    """Return the nest that writes an attention into `out`, one launch.

    `ins` are the buffers of `elements.tensors`. Weights that are no number are 0 if `nan_is_zero`;
    keys later than `ahead` after their row have no weight (-1: any may have one).
    """
    return _Nest(elements, tile, ins, out, nan_is_zero, ahead).whole()


def _local(name: str, size: int) -> Buffer:
    return Buffer(name, _F32, (Const.of(size),), "local")


def _shared(name: str, size: int) -> Buffer:
    return Buffer(name, _F32, (Const.of(size),), "shared")


def _at(buffer: Buffer, index: ExprLike) -> Expr:
    return ex.load(buffer, (ex.convert(index, "int64"),))


def _unrolled(count: int, body: Callable[[Expr], Stmt], name: str) -> Stmt:
    return body(ZERO) if count == 1 else loop(count, body, name, "unrolled")


def _vector(count: int, body: Callable[[Expr], Stmt]) -> Stmt:
    return body(ZERO) if count == 1 else loop(count, body, "lane", "vectorized")


@dataclass(slots=True, eq=False)
class _Fetch:
    """Rows of an operand on their way through registers into shared memory, `wide` words each.

    `element(row, column)` is one of them, wherever the row is; `gap` are words after each row.
    """

    held: Buffer
    to: Buffer
    rows: int
    wide: int
    gap: int
    threads: int
    element: Callable[[Expr, Expr], Expr]

    @property
    def _vectors(self) -> int:
        return self.rows * self.wide // _LANES

    @property
    def repeats(self) -> int:
        """How many vectors each thread brings."""
        return -(-self._vectors // self.threads)

    def _each(self, thread: Expr, body: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
        """Return `body(number, row, column)` for each vector of a thread."""

        def one(n: Expr) -> Stmt:
            e = n * self.threads + thread
            return body(n, e // (self.wide // _LANES), e % (self.wide // _LANES) * _LANES)

        return _unrolled(self.repeats, one, "part")

    def take(self, thread: Expr) -> Stmt:
        """Return what reads into registers."""
        return self._each(thread, lambda n, row, column: _vector(_LANES, lambda lane: put(
            self.held, (n * _LANES + lane,), self.element(row, column + lane)
        )))  # fmt: skip

    def straight(self, thread: Expr) -> Stmt:
        """Return what brings the rows into shared memory at once."""

        def one(n: Expr, row: Expr, column: Expr) -> Stmt:
            at = row * (self.wide + self.gap) + column
            made = _vector(_LANES, lambda lane: put(
                self.to, (at + lane,), self.element(row, column + lane)
            ))  # fmt: skip
            return self._guarded(n, thread, made)

        return self._each(thread, one)

    def _guarded(self, n: Expr, thread: Expr, made: Stmt) -> Stmt:
        """Leave out the vectors past the end."""
        if self._vectors % self.threads == 0:
            return made
        return If(n * self.threads + thread < self._vectors, made)

    def give(self, thread: Expr, kept: Callable[[Expr, Expr], Expr]) -> Stmt:
        """Return what stores registers; `kept(row, word)` is what a word of a row becomes."""

        def one(n: Expr, row: Expr, column: Expr) -> Stmt:
            at = row * (self.wide + self.gap) + column
            made = _vector(_LANES, lambda lane: put(
                self.to, (at + lane,), kept(row, _at(self.held, n * _LANES + lane))
            ))  # fmt: skip
            return self._guarded(n, thread, made)

        return self._each(thread, one)


class _Operands:
    """What a kernel reads: where its threads find it, and how it comes into shared memory."""

    _start = Var("start")
    """Stands for the first key of a tile in what is fetched."""

    def __init__(
        self,
        elements: Elements,
        tile: AttentionTile,
        ins: Sequence[Buffer],
        out: Buffer,
        nan_is_zero: bool,
        ahead: int,
    ) -> None:
        e = elements
        self.e, self.tile, self.out = elements, tile, out
        self.nan_is_zero, self.ahead = nan_is_zero, ahead
        self.buffers = dict(zip(e.tensors, ins, strict=True))
        self.steps = padded_steps(e.depth)
        self.apart = tile.rows // tile.thread_rows
        """How far apart the rows of a thread are."""
        share = tile.columns(e.columns)
        self.lanes = next(n for n in (4, 2, 1) if share % n == 0)
        self.vectors = share // self.lanes
        self.wide = -(-share * tile.lanes // _LANES) * _LANES
        """Words of a row of values in shared memory."""
        self.thread, self.block = Var("thread"), Var("block")
        self.r, self.c = Var("r"), Var("c")
        self.first = Var("first")
        """The first row of the block."""
        self.heads: dict[Expr, Var] = {a: Var(a.name) for a in e.heads}
        self.scores = _local("scores", tile.thread_rows * tile.thread_keys)
        self.sums = _local("sums", tile.thread_rows * share)
        self.most = _local("most", tile.thread_rows)
        self.weight = _local("weight", tile.thread_rows)
        self.level = _local("level", tile.thread_rows)
        self.queries = _shared("queries", tile.rows * (self.steps + ROW_GAP))
        both = max(self.steps + ROW_GAP if e.depth else 0, self.wide)
        self.others = _shared("others", tile.keys * both)
        self.weights = _shared("weights", tile.rows * (tile.keys + ROW_GAP))
        self.parts = _shared("parts", tile.rows * (tile.lanes + ROW_GAP))
        self.limit = e.keys - 1

    def _row_of(self, i: Expr) -> Expr:
        """Return the number of a row of the thread in its tile."""
        return self.r + i * self.apart

    def _inside_rows(self, row: Expr) -> Expr:
        return _clamped(self.first + row, self.e.rows, self.tile.rows)

    def _key_of(self, start: Expr, key: Expr) -> Expr:
        return ex.minimum(start + key, self.limit)

    def _part_of(self, i: Expr, lane: Expr) -> Expr:
        return self._row_of(i) * (self.tile.lanes + ROW_GAP) + lane

    def _column(self, v: Expr, lane: Expr) -> Expr:
        return v * (self.tile.lanes * self.lanes) + self.c * self.lanes + lane

    def _element(self, e: Expr | None, **at: Expr) -> Expr:
        """Return an element with its variables (`row`, `key`, ...) in place."""
        assert e is not None
        mapping: dict[Expr, Expr] = {getattr(self.e, name): value for name, value in at.items()}
        return in_buffers(substitute(e, {**mapping, **self.heads}), self.buffers)

    def _of_thread(self) -> tuple[Expr, Expr]:
        """Return the row and the lane of a thread; those of a warp are 4 rows by 8 lanes."""
        t, lanes = self.thread, self.tile.lanes
        warp, inside = t // 32, t % 32
        across = lanes // 8
        return warp // across * 4 + inside // 8, warp % across * 8 + inside % 8

    def _key_fetch(self) -> _Fetch | None:
        e, tile = self.e, self.tile
        if e.key_element is None:
            return None

        def element(key: Expr, step: Expr) -> Expr:
            at = self._key_of(self._start, key)
            return self._padded(
                step, e.depth, self.steps, self._element(e.key_element, key=at, step=step)
            )

        size = -(-tile.keys * self.steps // _LANES // tile.threads) * _LANES
        return _Fetch(_local("next_keys", size), self.others, tile.keys, self.steps, ROW_GAP,
                      tile.threads, element)  # fmt: skip

    def _value_fetch(self) -> _Fetch:
        e, tile = self.e, self.tile

        def element(key: Expr, column: Expr) -> Expr:
            at = self._key_of(self._start, key)
            return self._padded(
                column, e.columns, self.wide, self._element(e.value, key=at, column=column)
            )

        size = -(-tile.keys * self.wide // _LANES // tile.threads) * _LANES
        return _Fetch(_local("next_values", size), self.others, tile.keys, self.wide, 0,
                      tile.threads, element)  # fmt: skip

    def _padded(self, at: Expr, size: int, wide: int, value: Expr) -> Expr:
        """Return an element of a row of `size` that is stored `wide`, with 0 after its end."""
        return value if size == wide else ex.select(at < size, value, _NONE, lazy=True)

    def _fetch_queries(self) -> Stmt:
        e, tile = self.e, self.tile

        def element(row: Expr, step: Expr) -> Expr:
            at = self._inside_rows(row)
            return self._padded(
                step, e.depth, self.steps, self._element(e.query_element, row=at, step=step)
            )

        fetch = _Fetch(self.queries, self.queries, tile.rows, self.steps, ROW_GAP, tile.threads,
                       element)  # fmt: skip
        return fetch.straight(self.thread)


class _Nest(_Operands):
    """One kernel on its way."""

    # -- the kernel ----------------------------------------------------------------------------

    def whole(self) -> Stmt:
        """Return the launch."""
        e, tile = self.e, self.tile
        count: Expr = Const.of(1)
        for axis in e.heads:
            count = count * axis.extent
        tiles = (e.rows + (tile.rows - 1)) // tile.rows
        number = self.block // count
        if self.ahead >= 0:  # those with the most to do first
            number = tiles - 1 - number
        body = self._body()
        rest: Expr = self.block % count
        for axis in reversed(e.heads):
            at = rest % axis.extent if axis is not e.heads[0] else rest
            body = lp.Let(self.heads[axis], at, body)
            rest = rest // axis.extent
        body = lp.Let(self.first, number * tile.rows, body)
        r, c = self._of_thread()
        body = lp.Let(self.r, r, lp.Let(self.c, c, body))
        threads = For(self.thread, Const.of(tile.threads), "thread", body, "threadIdx.x")
        return For(self.block, count * tiles, "thread", threads, "blockIdx.x")

    def _body(self) -> Stmt:
        e, tile = self.e, self.tile
        key_fetch = self._key_fetch()
        value_fetch = self._value_fetch()
        tiles = (e.keys + (tile.keys - 1)) // tile.keys
        if self.ahead >= 0:
            seen = (self.first + (tile.rows - 1 + self.ahead)) // tile.keys + 1
            tiles = ex.minimum(tiles, seen)
        steps: list[Stmt] = [self._fill(self.most, _LOWEST), self._fill(self.weight, _NONE),
                             self._fill(self.sums, _NONE)]  # fmt: skip
        if key_fetch is not None:
            start = substitute_start(key_fetch.take(self.thread), self._start, ZERO)
            is_some = int_value(e.keys)
            steps += [self._fetch_queries()]
            steps += [start if is_some else If(e.keys > 0, start)]
        steps += [loop(tiles, lambda t: self._tile_of(t, key_fetch, value_fetch), "tile")]
        steps += [self._store()]
        local = [self.scores, self.sums, self.most, self.weight, self.level, value_fetch.held]
        shared = [self.others, self.weights, self.parts]
        if key_fetch is not None:
            local.append(key_fetch.held)
            shared.append(self.queries)
        return declared([*shared, *local], lp.seq(*steps))

    def _fill(self, buffer: Buffer, value: Expr) -> Stmt:
        size = int_value(buffer.shape[0]) or 0
        return _unrolled(size, lambda i: put(buffer, (i,), value), "i")

    def _tile_of(self, tile: Expr, keys: _Fetch | None, values: _Fetch) -> Stmt:
        """Return what is done with one tile of keys."""
        start = tile * self.tile.keys
        take = substitute_start(values.take(self.thread), self._start, start)
        steps = [take] if keys is None else [keys.give(self.thread, lambda _, x: x), take]
        steps += [self._products()] if keys is not None else []
        steps += [self._finish_scores(start), self._largest_of_thread()]
        steps += [self._values_to_shared(values, start)]
        if keys is not None:  # in the registers that values have left
            following = (tile + 1) * self.tile.keys
            steps += [substitute_start(keys.take(self.thread), self._start, following)]
        steps += [self._largest(), self._powers()]
        steps += [self._weighted()]
        return lp.seq(*steps)

    def _values_to_shared(self, values: _Fetch, start: Expr) -> Stmt:
        """Store values; 0 for keys past the end, whose weights are 0."""

        def kept(key: Expr, x: Expr) -> Expr:
            count = int_value(self.e.keys)
            if count is not None and count % self.tile.keys == 0:
                return x
            return ex.select(start + key < self.e.keys, x, _NONE)

        return values.give(self.thread, kept)

    def _products(self) -> Stmt:
        """Return the products of the rows and keys of a thread, 4 steps of them at a time."""
        tile, wide = self.tile, self.steps + ROW_GAP
        left, right = _local("left", tile.thread_rows * 4), _local("right", tile.thread_keys * 4)

        def step(s: Expr) -> Stmt:
            def read(count: int, to: Buffer, source: Buffer, at: Callable[[Expr], Expr]) -> Stmt:
                return _unrolled(count, lambda i: _vector(_LANES, lambda lane: put(
                    to, (i * _LANES + lane,), _at(source, at(i) * wide + s * _LANES + lane)
                )), "i")  # fmt: skip

            rows = read(tile.thread_rows, left, self.queries, self._row_of)
            keys = read(tile.thread_keys, right, self.others, lambda j: self.c + j * tile.lanes)

            def add(i: Expr, j: Expr, lane: Expr) -> Stmt:
                at = i * tile.thread_keys + j
                a, b = _at(left, i * _LANES + lane), _at(right, j * _LANES + lane)
                return put(self.scores, (at,), ex.call("fma", a, b, _at(self.scores, at)))

            products = _unrolled(_LANES, lambda lane: self._each_score(
                lambda i, j: add(i, j, lane)), "lane")  # fmt: skip
            return declared([left, right], lp.seq(rows, keys, products))

        return lp.seq(self._fill(self.scores, _NONE), loop(self.steps // _LANES, step, "step"))

    def _each_score(self, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        tile = self.tile
        return _unrolled(tile.thread_rows, lambda i: _unrolled(
            tile.thread_keys, lambda j: body(i, j), "j"), "i")  # fmt: skip

    def _finish_scores(self, start: Expr) -> Stmt:
        """Return what makes scores of products; those of keys past the end are the lowest."""
        e, tile = self.e, self.tile
        count = int_value(e.keys)

        def one(i: Expr, j: Expr) -> Stmt:
            at = i * tile.thread_keys + j
            key = start + self.c + j * tile.lanes
            row = self._inside_rows(self._row_of(i))
            inside = ex.minimum(key, self.limit)
            value = self._element(e.score, row=row, key=inside, dot=_at(self.scores, at))
            if count is None or count % tile.keys:
                value = ex.select(key < e.keys, value, _LOWEST)
            return put(self.scores, (at,), value)

        return self._each_score(one)

    def _largest_of_thread(self) -> Stmt:
        """Share the largest score of each row among the keys of a thread."""
        tile = self.tile

        def row(i: Expr) -> Stmt:
            found = [_at(self.scores, i * tile.thread_keys + j) for j in range(tile.thread_keys)]
            while len(found) > 1:
                pairs = [_larger(a, b) for a, b in zip(found[::2], found[1::2], strict=False)]
                found = pairs + found[2 * len(pairs) :]
            return put(self.parts, (self._part_of(i, self.c),), found[0])

        return _unrolled(tile.thread_rows, row, "i")

    def _over_parts(self, i: Expr, combine: Callable[[Expr, Expr], Expr], to: Buffer) -> Stmt:
        """Combine what the threads of a row share into `to[i]`."""
        four = _local("four", _LANES)

        def vector(v: Expr) -> Stmt:
            read = _vector(_LANES, lambda lane: put(
                four, (lane,), _at(self.parts, self._part_of(i, v * _LANES + lane))
            ))  # fmt: skip
            a, b, c, d = (_at(four, k) for k in range(_LANES))
            joined = combine(combine(a, b), combine(c, d))
            return declared([four], lp.seq(read, put(to, (i,), combine(_at(to, i), joined))))

        return _unrolled(self.tile.lanes // _LANES, vector, "v")

    def _largest(self) -> Stmt:
        """Move the largest scores of rows up, and scale what was summed by that.

        Where all scores so far are -inf, they are measured from 0: their weights are 0 then.
        """
        share = self.vectors * self.lanes

        def row(i: Expr) -> Stmt:
            before, most = Var("before", _F32), _at(self.most, i)
            level = ex.select(most == _LOWEST, _NONE, most)
            scale = Var("scale", _F32)
            scaled = lp.seq(
                put(self.weight, (i,), _at(self.weight, i) * scale),
                _unrolled(share, lambda n: put(
                    self.sums, (i * share + n,), _at(self.sums, i * share + n) * scale), "n"),
            )  # fmt: skip
            moved = ex.call("exp_weight", before - _at(self.level, i))
            return lp.Let(before, most, lp.seq(
                self._over_parts(i, _larger, self.most),
                put(self.level, (i,), level),
                lp.Let(scale, moved, scaled),
            ))  # fmt: skip

        return _unrolled(self.tile.thread_rows, row, "i")

    def _powers(self) -> Stmt:
        """Make weights of scores, add them to the sums of rows and share them."""
        tile = self.tile

        def one(i: Expr, j: Expr) -> Stmt:
            at = i * tile.thread_keys + j
            power = ex.call("exp_weight", _at(self.scores, at) - _at(self.level, i))
            return lp.seq(
                put(self.scores, (at,), power),
                put(self.weight, (i,), _at(self.weight, i) + _at(self.scores, at)),
            )

        def give(i: Expr) -> Stmt:
            at = self._row_of(i) * (tile.keys + ROW_GAP) + self.c * tile.thread_keys
            return _unrolled(tile.thread_keys // _LANES, lambda v: _vector(
                _LANES, lambda lane: put(self.weights, (at + v * _LANES + lane,),
                    _at(self.scores, i * tile.thread_keys + v * _LANES + lane))), "v")  # fmt: skip

        return lp.seq(self._each_score(one), _unrolled(tile.thread_rows, give, "i"))

    def _weighted(self) -> Stmt:
        """Add the values of a tile by their weights, those of 4 keys at a time.

        Weights lie by the thread that made them: place t * 4 + j is of key t + j * lanes.
        """
        tile, share = self.tile, self.vectors * self.lanes
        groups = tile.thread_keys // _LANES
        left, right = _local("four_weights", tile.thread_rows * _LANES), _local("row", share)

        def four(t: Expr, g: Expr) -> Stmt:
            def weights(i: Expr) -> Stmt:
                at = self._row_of(i) * (tile.keys + ROW_GAP) + t * tile.thread_keys + g * _LANES
                return _vector(_LANES, lambda lane: put(
                    left, (i * _LANES + lane,), _at(self.weights, at + lane)))  # fmt: skip

            def key(j: Expr) -> Stmt:
                base = (t + (g * _LANES + j) * tile.lanes) * self.wide
                read = _unrolled(self.vectors, lambda v: _vector(self.lanes, lambda lane: put(
                    right, (v * self.lanes + lane,), _at(self.others, base + self._column(v, lane))
                )), "v")  # fmt: skip

                def add(i: Expr, n: Expr) -> Stmt:
                    at = i * share + n
                    made = ex.call(
                        "fma", _at(left, i * _LANES + j), _at(right, n), _at(self.sums, at)
                    )
                    return put(self.sums, (at,), made)

                return lp.seq(read, _unrolled(tile.thread_rows, lambda i: _unrolled(
                    share, lambda n: add(i, n), "n"), "i"))  # fmt: skip

            return declared([left, right], lp.seq(
                _unrolled(tile.thread_rows, weights, "i"), _unrolled(_LANES, key, "j")
            ))  # fmt: skip

        return loop(tile.lanes, lambda t: _unrolled(groups, lambda g: four(t, g), "g"), "t")

    def _store(self) -> Stmt:
        """Add the sums of weights of all threads of a row; divide by them, and store."""
        e, tile = self.e, self.tile
        shared = _unrolled(tile.thread_rows, lambda i: put(
            self.parts, (self._part_of(i, self.c),), _at(self.weight, i)), "i")  # fmt: skip
        share = self.vectors * self.lanes

        def row(i: Expr) -> Stmt:
            at = self.first + self._row_of(i)
            whole = _at(self.weight, i)
            quotient = _ONE / whole
            if self.nan_is_zero:
                quotient = ex.select(whole == _NONE, _NONE, quotient)
            elif not int_value(e.keys):  # none, or perhaps none
                quotient = ex.select(e.keys == 0, _NONE, quotient)

            def vector(v: Expr) -> Stmt:
                def one(lane: Expr) -> Stmt:
                    column = self._column(v, lane)
                    total = _at(self.sums, i * share + v * self.lanes + lane)
                    made = self._element(
                        e.made, row=at, column=column, total=total, share=_at(self.level, i)
                    )
                    place = (self._element(x, row=at, column=column) for x in e.place)
                    return lp.Store(self.out, tuple(place), made)

                stored = _vector(self.lanes, one)
                if e.columns != self.vectors * self.lanes * tile.lanes:
                    stored = _vector(self.lanes, lambda lane: If(
                        self._column(v, lane) < e.columns, one(lane)))  # fmt: skip
                return stored

            stores = _unrolled(self.vectors, vector, "v")
            count = int_value(e.rows)
            if count is None or count % tile.rows:
                stores = If(at < e.rows, stores)
            return lp.seq(
                put(self.weight, (i,), _NONE),
                self._over_parts(i, lambda a, b: a + b, self.weight),
                put(self.level, (i,), quotient),
                stores,
            )

        return lp.seq(shared, _unrolled(tile.thread_rows, row, "i"))


def _larger(a: Expr, b: Expr) -> Expr:
    """Return the larger of two scores; either where one is no number.

    The weight of such a score is no number whatever it is measured from, and so is the sum.
    """
    return ex.select(a > b, a, b)


def _clamped(at: Expr, extent: Expr, size: int) -> Expr:
    """Return a position in [0, extent) for one that tiles of `size` may take past the end."""
    count = int_value(extent)
    return at if count is not None and count % size == 0 else ex.minimum(at, extent - 1)


def substitute_start(s: Stmt, start: Var, at: Expr) -> Stmt:
    """Return a statement for a tile whose first key is `at`."""
    return lp.substitute(s, {start: at})
