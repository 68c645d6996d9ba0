# SPDX-License-Identifier: Apache-2.0
"""Expressions to LLVM IR inside one function: common subexpressions, memory access, lazy selects.

A value is emitted where it is first needed and remembered until control leaves the block that
dominates its users, or a store to a buffer it was loaded from. Inside a lazy vector `Select`, or a
statement under a vector condition, everything that could trap is emitted under the current mask
and touches only memory of lanes that are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from treadle.dtype import itemsize
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.nodes import (
    Apply,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Var,
)
from treadle.loop.nodes import Buffer, Prefetch, Store
from treadle.target.llvm_builder import (
    Builder,
    Machine,
    constant,
    element_type,
    memory_type,
    register_type,
    scalar_constant,
    suffix,
    vector,
)
from treadle.target.llvm_facts import Facts, apart, buffer_of, flat_size, linear_parts
from treadle.target.llvm_intrinsics import Vector
from treadle.target.llvm_operands import Neighbours, intrinsic_of
from treadle.target.llvm_ops import Ops, scalar_const
from treadle.target.llvm_words import WordLoads

_LARGEST_SHUFFLED_STRIDE = 4


class Values:
    """Emits expressions into a builder; knows the values of variables and buffer addresses."""

    def __init__(self, builder: Builder, machine: Machine, facts: Facts) -> None:
        self.b = builder
        self.ops = Ops(builder, machine)
        self.words = WordLoads(builder, self.pointer)
        self.facts = facts
        self.vars: dict[Var, str] = {}
        self.pointers: dict[int, str] = {}
        self.mask: tuple[str, int] | None = None
        self._known: dict[Expr, str] = {}
        self._neighbours: dict[tuple[tuple[Expr, ...], bool], Neighbours] = {}
        self._masked: dict[Expr, str] = {}
        self._readers: dict[int, list[tuple[dict[Expr, str], Expr]]] = {}
        self._scopes: list[list[tuple[dict[Expr, str], Expr]]] = []

    # -- what is known where

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget on leaving what was emitted inside: a branch or a loop body."""
        self._scopes.append([])
        yield
        for table, e in self._scopes.pop():
            table.pop(e, None)

    @contextmanager
    def masked(self, mask: str, lanes: int) -> Iterator[None]:
        """Emit what may trap only for the lanes of `mask` (within the mask already in force)."""
        outer, table = self.mask, self._masked
        if outer is not None:
            mask = self.b.let(f"and {vector('i1', lanes)} {outer[0]}, {mask}")
        self.mask, self._masked = (mask, lanes), {}
        yield
        self.mask, self._masked = outer, table

    @contextmanager
    def unmasked(self) -> Iterator[None]:
        """Emit for a place that is only reached when it may run."""
        outer, table = self.mask, self._masked
        self.mask, self._masked = None, {}
        yield
        self.mask, self._masked = outer, table

    def forget(self, buffers: set[int]) -> None:
        """Forget values read from buffers that are about to change."""
        for buffer in buffers:
            for table, e in self._readers.pop(buffer, ()):
                table.pop(e, None)

    def _find(self, e: Expr) -> str | None:
        found = self._known.get(e)
        if found is None and self.mask is not None:
            found = self._masked.get(e)
        return found

    def _remember(self, e: Expr, value: str) -> None:
        guarded = self.mask is not None and self.facts.has_hazard(e)
        table = self._masked if guarded else self._known
        table[e] = value
        for buffer in self.facts.reads(e):
            self._readers.setdefault(buffer, []).append((table, e))
        if self._scopes:
            self._scopes[-1].append((table, e))

    # -- expressions

    def value(self, root: Expr) -> str:
        """Return the register or constant that holds `root`, emitting what is missing."""
        stack = [root]
        while stack:
            e = stack[-1]
            if self._is_ready(e):
                stack.pop()
                continue
            waiting = [c for c in self._operands(e) if not self._is_ready(c)]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            self._remember(e, self._emit(e))
        return self._ready(root)

    def _is_ready(self, e: Expr) -> bool:
        return isinstance(e, (Const, Var)) or self._find(e) is not None

    def _ready(self, e: Expr) -> str:
        if isinstance(e, Const):
            return constant(e.value, e.dtype)
        if isinstance(e, Var):
            if e not in self.vars:
                raise InternalError(f"variable {e.name} has no value in generated code")
            return self.vars[e]
        found = self._find(e)
        if found is None:
            raise InternalError(f"code generation lost the value of {e}")
        return found

    def _operands(self, e: Expr) -> tuple[Expr, ...]:
        """Return what must be emitted before `e` itself."""
        if self._needs_guard(e):
            return ()
        if isinstance(e, Load):
            parts = linear_parts(e.indices[0]) if e.lanes > 1 else None
            return e.indices if parts is None or not _is_strided(parts) else parts
        if isinstance(e, Apply):
            return self._registers_of(e)
        if isinstance(e, Neighbours) and e.word is not None:
            return (e.word,)
        if isinstance(e, Neighbours) and self.mask is None:
            return e.children if e.place is None else (e.place.base,)
        if isinstance(e, Select) and self._branches(e):
            return () if apart(e.cond)[0] is not None else (e.cond,)
        return e.children

    def _needs_guard(self, e: Expr) -> bool:
        return self.mask is not None and e.lanes == 1 and self.facts.has_hazard(e)

    def _branches(self, e: Select) -> bool:
        return e.lazy and (self.facts.has_hazard(e.then) or self.facts.has_hazard(e.other))

    def _emit(self, e: Expr) -> str:
        if self._needs_guard(e):
            return self._guarded(e)
        if isinstance(e, Load) and not self.facts.has_hazard(e):
            with self.unmasked():  # all lanes exist, and who reads them later may want them all
                return _EMITTERS[type(e)](self, e)
        return _EMITTERS[type(e)](self, e)

    def _binary(self, e: Binary) -> str:
        a, b = self._ready(e.a), self._ready(e.b)
        if self.mask is not None and self.facts.has_hazard(e) and _is_integer_division(e):
            mask, lanes = self.mask
            one = constant(1, e.dtype, lanes)
            b = self.b.let(
                f"select {vector('i1', lanes)} {mask}, {register_type(e.dtype, lanes)} {b}, "
                f"{register_type(e.dtype, lanes)} {one}"
            )
        return self.ops.binary(e, a, b)

    def _cast(self, e: Cast) -> str:
        return self.ops.cast(e, self._ready(e.value))

    def _call(self, e: Call) -> str:
        return self.ops.call(e, [self._ready(a) for a in e.args])

    def _registers_of(self, e: Apply) -> tuple[Expr, ...]:
        """Return the operands of an intrinsic, elements of one lane together."""
        record = intrinsic_of(e)
        accumulator, groups = record.grouped(e.args)
        operands = zip(record.operands, groups, strict=True)
        found = [self._together(args, shared=o.shared) for o, args in operands]
        return tuple(found) if accumulator is None else (accumulator, *found)

    def _together(self, args: tuple[Expr, ...], *, shared: bool) -> Expr:
        if len(args) == 1 and not shared:
            return args[0]
        if (args, shared) not in self._neighbours:
            self._neighbours[args, shared] = Neighbours.of(args, shared=shared)
        return self._neighbours[args, shared]

    def _apply(self, e: Apply) -> str:
        record = intrinsic_of(e)
        per_lane = [0 if o.shared else o.count for o in record.operands]
        per_lane = [1, *per_lane] if record.accumulates else per_lane
        values = [
            Vector(self._ready(operand), element_type(operand.dtype), operand.lanes, count)
            for operand, count in zip(self._registers_of(e), per_lane, strict=True)
        ]
        return self.ops.intrinsics.call(record, e.lanes, values)

    def _side_by_side(self, e: Neighbours) -> str:
        """Return the elements of all lanes, those of a lane together."""
        constants = [scalar_const(a) for a in e.args]
        known = [scalar_constant(c, e.dtype) for c in constants if c is not None]
        if len(known) == e.count:
            element = element_type(e.dtype)
            repeated = known * (e.lanes // e.count)
            return f"<{', '.join(f'{element} {text}' for text in repeated)}>"
        if e.word is not None:
            source = register_type(e.word.dtype, e.word.lanes)
            target = register_type(e.dtype, e.lanes)
            return self.b.let(f"bitcast {source} {self._ready(e.word)} to {target}")
        if e.place is not None and self.mask is None:
            base, lanes = self._ready(e.place.base), e.lanes // e.count
            return self.words.load(e.place.buffer, base, e.place.stride, lanes, e.count)
        lanes = 1 if e.shared else e.lanes // e.count
        element = element_type(e.dtype)
        parts = [Vector(self._ready(a), element, a.lanes) for a in e.args]
        made = self.ops.intrinsics
        parts = [made.resized(p, lanes) for p in parts]
        return made.interleaved(parts, lanes).text

    def _broadcast(self, e: Broadcast) -> str:
        if isinstance(e.value, Const):
            return constant(e.value.value, e.dtype, e.lanes)
        return self.b.splat(self._ready(e.value), element_type(e.dtype), e.lanes)

    def _ramp(self, e: Ramp) -> str:
        if e.lanes == 1:
            return self._ready(e.base)
        element, type_ = element_type(e.dtype), register_type(e.dtype, e.lanes)
        base = self.b.splat(self._ready(e.base), element, e.lanes)
        stride = ex.int_value(e.stride)
        if stride is not None:
            steps = ", ".join(f"{element} {stride * i}" for i in range(e.lanes))
            return self.b.let(f"add {type_} {base}, <{steps}>")
        lanes = ", ".join(f"{element} {i}" for i in range(e.lanes))
        step = self.b.splat(self._ready(e.stride), element, e.lanes)
        return self.b.let(f"add {type_} {base}, {self.b.let(f'mul {type_} {step}, <{lanes}>')}")

    # -- lazy evaluation

    def _select(self, e: Select) -> str:
        if not self._branches(e):
            return self.ops.select(e, *[self._ready(c) for c in e.children])
        scalar, rest = apart(e.cond)
        if scalar is None:
            return self._masked_select(e)
        then = e.then if rest is None else ex.select(rest, e.then, e.other, lazy=True)
        type_ = register_type(e.dtype, e.lanes)
        return self._either(
            self.value(scalar), type_, lambda: self.value(then), lambda: self.value(e.other)
        )

    def _either(
        self, cond: str, type_: str, then: Callable[[], str], other: Callable[[], str]
    ) -> str:
        """Branch on a scalar condition and join the two values."""
        yes, no, end = self.b.label("then"), self.b.label("else"), self.b.label("join")
        self.b.branch(cond, yes, no)
        arms: list[tuple[str, str]] = []
        for label, emit in ((yes, then), (no, other)):
            self.b.start(label)
            with self.scope():
                result = emit()
            arms.append((result, self.b.block))
            self.b.jump(end)
        self.b.start(end)
        return self.b.phi(type_, *arms)

    def _masked_select(self, e: Select) -> str:
        cond = self._ready(e.cond)
        type_ = vector("i1", e.lanes)
        then = self._arm(e.then, lambda: cond, e.lanes)
        other = self._arm(
            e.other, lambda: self.b.let(f"xor {type_} {cond}, splat (i1 true)"), e.lanes
        )
        return self.ops.select(e, cond, then, other)

    def _arm(self, e: Expr, mask: Callable[[], str], lanes: int) -> str:
        if not self.facts.has_hazard(e):
            return self.value(e)
        with self.masked(mask(), lanes):
            return self.value(e)

    def _guarded(self, e: Expr) -> str:
        """Evaluate a scalar that may trap only if some lane of the mask is on."""
        if self.mask is None:
            raise InternalError(f"{e} is guarded without a mask")
        mask, lanes = self.mask
        type_ = vector("i1", lanes)
        some = self.b.intrinsic("i1", f"vector.reduce.or.{suffix(type_)}", (type_, mask))

        def inside() -> str:
            with self.unmasked():
                return self.value(e)

        return self._either(some, register_type(e.dtype), inside, lambda: constant(0, e.dtype))

    # -- memory

    def address(self, buffer: Buffer, index: str) -> str:
        """Return the address of one element of a buffer."""
        pointer = self.pointer(buffer)
        if index == "0":
            return pointer
        element = memory_type(buffer.dtype)
        return self.b.let(f"getelementptr inbounds {element}, ptr {pointer}, i64 {index}")

    def pointer(self, buffer: Buffer) -> str:
        """Return the address of a buffer."""
        found = self.pointers.get(id(buffer))
        if found is None:
            raise InternalError(f"buffer {buffer.name} has no address in generated code")
        return found

    def _addresses(self, buffer: Buffer, index: str, lanes: int) -> str:
        element = memory_type(buffer.dtype)
        return self.b.let(
            f"getelementptr inbounds {element}, ptr {self.pointer(buffer)}, <{lanes} x i64> {index}"
        )

    def _load(self, e: Load) -> str:
        buffer = buffer_of(e.source)
        index = e.indices[0]
        parts = linear_parts(index) if e.lanes > 1 else None
        if e.lanes == 1:
            raw = self._plain_load(buffer, self._ready(index), 1)
        elif parts is None or not _is_strided(parts):
            raw = self._gather(buffer, self._ready(index), e.lanes)
        else:
            raw = self._strided_load(e, buffer, parts)
        return self._from_memory(raw, e.dtype, e.lanes)

    def _strided_load(self, e: Load, buffer: Buffer, parts: tuple[Expr, Expr]) -> str:
        base, stride = self._ready(parts[0]), ex.int_value(parts[1])
        element = memory_type(buffer.dtype)
        if stride == 0 and self.mask is None:
            return self.b.splat(self._plain_load(buffer, base, 1), element, e.lanes)
        if stride == 1:
            if self.mask is not None:
                return self._masked_load(buffer, base, e.lanes, self._mask_for(e.lanes))
            return self._plain_load(buffer, base, e.lanes)
        if stride == -1 and self.mask is None:
            return self._reversed_load(buffer, base, e.lanes)
        if (
            stride is not None
            and 1 < stride <= _LARGEST_SHUFFLED_STRIDE
            and e.lanes >= 4
            and (self.mask is None or self._has_masks(buffer))
        ):
            return self._shuffled_load(buffer, base, stride, e.lanes)
        lanes = self._ramp(ex.Ramp(parts[0], parts[1], e.lanes))
        return self._gather(buffer, lanes, e.lanes)

    def _has_masks(self, buffer: Buffer) -> bool:
        return 0 < self.ops.machine.least_masked <= itemsize(buffer.dtype)

    def _plain_load(self, buffer: Buffer, index: str, lanes: int) -> str:
        type_ = vector(memory_type(buffer.dtype), lanes)
        address = self.address(buffer, index)
        if self._fills_no_register(buffer, lanes):
            return self._partial_load(buffer, address, lanes)
        return self.b.let(f"load {type_}, ptr {address}, align {itemsize(buffer.dtype)}")

    def _fills_no_register(self, buffer: Buffer, lanes: int) -> bool:
        """True for lanes that would be moved in several pieces, where a mask does it in one.

        Local buffers stay as they are: they become registers of exactly these lanes.
        """
        odd = lanes & (lanes - 1) != 0 and 4 * lanes * itemsize(buffer.dtype) > 64
        return odd and self._has_masks(buffer) and buffer.scope != "local"

    def _partial_load(self, buffer: Buffer, address: str, lanes: int) -> str:
        element = memory_type(buffer.dtype)
        full = 1 << lanes.bit_length()
        type_ = vector(element, full)
        raw = self.b.intrinsic(
            type_,
            f"masked.load.{suffix(type_)}.p0",
            (f"ptr align {itemsize(buffer.dtype)}", address),
            (vector("i1", full), _first(lanes, full)),
            (type_, "poison"),
        )
        return self._resized(element, raw, full, lanes)

    def _partial_store(self, buffer: Buffer, address: str, value: str, lanes: int) -> None:
        element = memory_type(buffer.dtype)
        full = 1 << lanes.bit_length()
        type_ = vector(element, full)
        self.b.intrinsic_void(
            f"masked.store.{suffix(type_)}.p0",
            (type_, self._resized(element, value, lanes, full)),
            (f"ptr align {itemsize(buffer.dtype)}", address),
            (vector("i1", full), _first(lanes, full)),
        )

    def _resized(self, element: str, value: str, lanes: int, to: int) -> str:
        """Return the first lanes of a vector, or a wider one that begins with it."""
        type_ = vector(element, lanes)
        order = ", ".join(f"i32 {i}" if i < lanes else "i32 poison" for i in range(to))
        return self.b.let(f"shufflevector {type_} {value}, {type_} poison, <{to} x i32> <{order}>")

    def _masked_load(self, buffer: Buffer, index: str, lanes: int, mask: str) -> str:
        type_ = vector(memory_type(buffer.dtype), lanes)
        address = self.address(buffer, index)
        return self.b.intrinsic(
            type_,
            f"masked.load.{suffix(type_)}.p0",
            (f"ptr align {itemsize(buffer.dtype)}", address),
            (vector("i1", lanes), mask),
            (type_, "zeroinitializer"),
        )

    def _gather(self, buffer: Buffer, index: str, lanes: int) -> str:
        mask = "splat (i1 true)" if self.mask is None else self._mask_for(lanes)
        type_ = vector(memory_type(buffer.dtype), lanes)
        addresses = self._addresses(buffer, index, lanes)
        return self.b.intrinsic(
            type_,
            f"masked.gather.{suffix(type_)}.v{lanes}p0",
            (f"<{lanes} x ptr> align {itemsize(buffer.dtype)}", addresses),
            (vector("i1", lanes), mask),
            (type_, "zeroinitializer"),
        )

    def _reversed_load(self, buffer: Buffer, index: str, lanes: int) -> str:
        first = self.b.let(f"sub i64 {index}, {lanes - 1}")
        raw = self._plain_load(buffer, first, lanes)
        return self._shuffle(buffer, raw, raw, lanes, list(range(lanes - 1, -1, -1)))

    def _shuffled_load(self, buffer: Buffer, index: str, stride: int, lanes: int) -> str:
        """Read every `stride`-th element through `stride` contiguous loads that stay inside.

        The loads start at multiples of lanes - 1, so that together they end exactly at the last
        element: 0 .. lanes-1, lanes-1 .. 2*lanes-2, and so on. Every other element of a local
        buffer is read as two vectors side by side, which may be registers.
        """
        pair = _pair_of(buffer, index, stride, lanes) if self.mask is None else None
        if pair is not None:
            low = self._plain_load(buffer, str(pair), lanes)
            high = self._plain_load(buffer, str(pair + lanes), lanes)
            odd = int(index) - pair
            return self._shuffle(buffer, low, high, lanes, list(range(odd, 2 * lanes, 2)))
        result, filled = "poison", 0
        for part in range(stride):
            start = part * (lanes - 1)
            at = index if start == 0 else self.b.let(f"add i64 {index}, {start}")
            picks = list(range(lanes))
            while filled < lanes and filled * stride <= start + lanes - 1:
                picks[filled] = lanes + filled * stride - start
                filled += 1
            raw = self._picked_load(buffer, at, lanes, picks)
            result = self._shuffle(buffer, result, raw, lanes, picks)
        return result

    def _picked_load(self, buffer: Buffer, index: str, lanes: int, picks: list[int]) -> str:
        """Load lanes of which lane `p - lanes` becomes lane i where `picks[i]` is p; under a mask
        only those that become a lane it holds for."""
        if self.mask is None:
            return self._plain_load(buffer, index, lanes)
        bits, mask = vector("i1", lanes), self._mask_for(lanes)
        owners = (picks.index(p) if p in picks else lanes for p in range(lanes, 2 * lanes))
        order = ", ".join(f"i32 {i}" for i in owners)
        mask = self.b.let(
            f"shufflevector {bits} {mask}, {bits} zeroinitializer, <{lanes} x i32> <{order}>"
        )
        return self._masked_load(buffer, index, lanes, mask)

    def _shuffle(self, buffer: Buffer, a: str, b: str, lanes: int, picks: list[int]) -> str:
        type_ = vector(memory_type(buffer.dtype), lanes)
        order = ", ".join(f"i32 {p}" for p in picks)
        return self.b.let(f"shufflevector {type_} {a}, {type_} {b}, <{lanes} x i32> <{order}>")

    def _mask_for(self, lanes: int) -> str:
        if self.mask is None or self.mask[1] != lanes:
            raise InternalError(f"an access of {lanes} lanes stands under another mask")
        return self.mask[0]

    def _from_memory(self, raw: str, dtype: str, lanes: int) -> str:
        if dtype != "bool":
            return raw
        zero = "0" if lanes == 1 else "zeroinitializer"
        return self.b.let(f"icmp ne {vector('i8', lanes)} {raw}, {zero}")

    def store(self, s: Store) -> None:
        """Emit a store; values read from its buffer are forgotten."""
        lanes = max(s.indices[0].lanes, s.value.lanes)
        parts = linear_parts(s.indices[0]) if lanes > 1 else None
        value = self._to_memory(self.value(ex.broadcast(s.value, lanes)), s.buffer.dtype, lanes)
        if self.mask is not None and lanes == 1:
            raise InternalError(f"a scalar store to {s.buffer.name} stands under a vector mask")
        if lanes > 1 and s.indices[0].lanes == 1:
            raise InternalError(f"{lanes} lanes are stored at one place of {s.buffer.name}")
        if parts is not None and ex.int_value(parts[1]) == 1:
            self._store_at(s.buffer, self.value(parts[0]), value, lanes)
        elif lanes == 1:
            self._store_at(s.buffer, self.value(s.indices[0]), value, 1)
        else:
            self._scatter(s.buffer, self.value(s.indices[0]), value, lanes)
        self.forget({id(s.buffer)})

    def prefetch(self, s: Prefetch) -> None:
        """Emit a hint to fetch a line into all caches; its address may be that of no element."""
        element, index = memory_type(s.buffer.dtype), self.value(s.indices[0])
        place = self.b.let(f"getelementptr {element}, ptr {self.pointer(s.buffer)}, i64 {index}")
        how = [("i32", "0"), ("i32", "3"), ("i32", "1")]  # to read, into all caches, data
        self.b.intrinsic_void("prefetch.p0", ("ptr", place), *how)

    def _to_memory(self, value: str, dtype: str, lanes: int) -> str:
        if dtype != "bool":
            return value
        return self.b.let(f"zext {vector('i1', lanes)} {value} to {vector('i8', lanes)}")

    def _store_at(self, buffer: Buffer, index: str, value: str, lanes: int) -> None:
        type_ = vector(memory_type(buffer.dtype), lanes)
        size = itemsize(buffer.dtype)
        address = self.address(buffer, index)
        if self.mask is None and self._fills_no_register(buffer, lanes):
            self._partial_store(buffer, address, value, lanes)
            return
        if self.mask is None:
            self.b.line(f"store {type_} {value}, ptr {address}, align {size}")
            return
        self.b.intrinsic_void(
            f"masked.store.{suffix(type_)}.p0",
            (type_, value),
            (f"ptr align {size}", address),
            (vector("i1", lanes), self._mask_for(lanes)),
        )

    def _scatter(self, buffer: Buffer, index: str, value: str, lanes: int) -> None:
        mask = "splat (i1 true)" if self.mask is None else self._mask_for(lanes)
        type_ = vector(memory_type(buffer.dtype), lanes)
        addresses = self._addresses(buffer, index, lanes)
        self.b.intrinsic_void(
            f"masked.scatter.{suffix(type_)}.v{lanes}p0",
            (type_, value),
            (f"<{lanes} x ptr> align {itemsize(buffer.dtype)}", addresses),
            (vector("i1", lanes), mask),
        )


def _is_strided(parts: tuple[Expr, Expr]) -> bool:
    """True when a load needs only the base and the stride of its index."""
    return isinstance(parts[1], Const) and isinstance(parts[1].value, int)


def _pair_of(buffer: Buffer, index: str, stride: int, lanes: int) -> int | None:
    """Return where two whole vectors hold every second element from a constant index on."""
    size = flat_size(buffer)
    if stride != 2 or buffer.scope != "local" or size is None or not index.isdecimal():
        return None
    start = int(index) - int(index) % 2
    return start if start % lanes == 0 and start + 2 * lanes <= size else None


def _first(lanes: int, full: int) -> str:
    """Return the mask of the first `lanes` of `full` lanes."""
    return "<" + ", ".join(f"i1 {'true' if i < lanes else 'false'}" for i in range(full)) + ">"


def _is_integer_division(e: Binary) -> bool:
    return e.op in ("floordiv", "floormod", "truncdiv", "truncmod", "div") and "int" in e.dtype


_EMITTERS: dict[type[Expr], Callable[[Values, Expr], str]] = {
    Binary: Values._binary,  # type: ignore[dict-item]  # each takes its own node class
    Cast: Values._cast,  # type: ignore[dict-item]
    Call: Values._call,  # type: ignore[dict-item]
    Apply: Values._apply,  # type: ignore[dict-item]
    Neighbours: Values._side_by_side,  # type: ignore[dict-item]
    Select: Values._select,  # type: ignore[dict-item]
    Load: Values._load,  # type: ignore[dict-item]
    Ramp: Values._ramp,  # type: ignore[dict-item]
    Broadcast: Values._broadcast,  # type: ignore[dict-item]
}
