# SPDX-License-Identifier: Apache-2.0
"""Expressions to LLVM IR inside one function, and the lazy evaluation of what may trap.

A value is emitted where it is first needed and used again for as long as it holds. Inside a lazy
vector `Select`, or a statement under a vector condition, everything that could trap is emitted
under the current mask and touches only memory of lanes that are on.
"""

from __future__ import annotations

from collections.abc import Callable

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
    register_type,
    scalar_constant,
    suffix,
    vector,
)
from treadle.target.llvm_emitted import Emitted
from treadle.target.llvm_facts import Facts, apart, buffer_of, linear_parts
from treadle.target.llvm_intrinsics import Vector
from treadle.target.llvm_memory import Memory
from treadle.target.llvm_operands import Neighbours, intrinsic_of
from treadle.target.llvm_ops import Ops
from treadle.target.llvm_words import WordLoads
from treadle.target.value_facts import scalar_const


class Values:
    """Emits expressions and accesses into a builder; `vars` holds the values of variables."""

    def __init__(self, builder: Builder, machine: Machine, facts: Facts) -> None:
        self.b = builder
        self.machine = machine
        self.ops = Ops(builder, machine)
        self.memory = Memory(builder, machine)
        self.words = WordLoads(builder, self.memory.pointer)
        self.facts = facts
        self.emitted = Emitted(builder, facts)
        self.vars: dict[Var, str] = {}
        self._neighbours: dict[tuple[tuple[Expr, ...], bool], Neighbours] = {}

    # -- expressions

    def value(self, root: Expr) -> str:
        """Return the register or constant that holds `root`, emitting what is missing."""
        stack, waiting = [root], dict[Expr, tuple[Expr, ...]]()
        while stack:
            e = stack[-1]
            operands = waiting.get(e)
            if operands is None:
                if self._is_ready(e):
                    stack.pop()
                    continue
                operands = self._operands(e)
                missing = [c for c in operands if not self._is_ready(c)]
                if missing:
                    waiting[e] = operands
                    stack += missing[::-1]
                    continue
            stack.pop()
            self.emitted.add(e, self._home(e, operands), self._emit)
        return self._ready(root)

    def _is_ready(self, e: Expr) -> bool:
        return isinstance(e, (Const, Var)) or self.emitted.find(e) is not None

    def _ready(self, e: Expr) -> str:
        if isinstance(e, Const):
            return constant(e.value, e.dtype)
        if isinstance(e, Var):
            if e not in self.vars:
                raise InternalError(f"variable {e.name} has no value in generated code")
            return self.vars[e]
        found = self.emitted.find(e)
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
        if isinstance(e, Neighbours) and self.emitted.mask is None:
            return e.children if e.place is None else (e.place.base,)
        if isinstance(e, Select) and self._branches(e):
            return () if apart(e.cond)[0] is not None else (e.cond,)
        return e.children

    def _home(self, e: Expr, operands: tuple[Expr, ...]) -> int:
        """Return the outermost scope in which `e` has the value that it has here.

        What may trap stays where it runs whenever its scope does, a load inside of what changes
        its buffer, and what branches here.
        """
        emitted = self.emitted
        home = emitted.home_of(operands)
        if home == emitted.depth:
            return home
        if isinstance(e, (Apply, Neighbours)) or (isinstance(e, Select) and self._branches(e)):
            return emitted.depth
        if emitted.mask is not None and (isinstance(e, Load) or self.facts.has_hazard(e)):
            return emitted.depth
        if isinstance(e, Load):
            return max(home, emitted.home_of_hazards(id(e.source)))
        if isinstance(e, Binary) and _is_integer_division(e) and self.facts.has_hazard(e):
            return max(home, emitted.home_of_hazards())
        return home

    def _needs_guard(self, e: Expr) -> bool:
        return self.emitted.mask is not None and e.lanes == 1 and self.facts.has_hazard(e)

    def _branches(self, e: Select) -> bool:
        return e.lazy and (self.facts.has_hazard(e.then) or self.facts.has_hazard(e.other))

    def _emit(self, e: Expr) -> str:
        if self._needs_guard(e):
            return self._guarded(e)
        if isinstance(e, Load) and not self.facts.has_hazard(e):
            # All lanes exist, and who reads them later may want them all.
            with self.emitted.unmasked():
                return _EMITTERS[type(e)](self, e)
        return _EMITTERS[type(e)](self, e)

    def _binary(self, e: Binary) -> str:
        a, b = self._ready(e.a), self._ready(e.b)
        if self.emitted.mask is not None and self.facts.has_hazard(e) and _is_integer_division(e):
            mask, lanes = self.emitted.mask
            one = constant(1, e.dtype, lanes)
            b = self.b.let(
                f"select {vector('i1', lanes)} {mask}, {register_type(e.dtype, lanes)} {b}, "
                f"{register_type(e.dtype, lanes)} {one}"
            )
        return self.ops.binary(e, a, b)

    def _cast(self, e: Cast) -> str:
        return self.ops.casts.cast(e, self._ready(e.value))

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
        if e.place is not None and self.emitted.mask is None:
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
            with self.emitted.scope():
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
        with self.emitted.masked(mask(), lanes):
            return self.value(e)

    def _guarded(self, e: Expr) -> str:
        """Evaluate a scalar that may trap only if some lane of the mask is on."""
        if self.emitted.mask is None:
            raise InternalError(f"{e} is guarded without a mask")
        mask, lanes = self.emitted.mask
        type_ = vector("i1", lanes)
        some = self.b.intrinsic("i1", f"vector.reduce.or.{suffix(type_)}", (type_, mask))

        def inside() -> str:
            with self.emitted.unmasked():
                return self.value(e)

        return self._either(some, register_type(e.dtype), inside, lambda: constant(0, e.dtype))

    # -- memory

    def _load(self, e: Load) -> str:
        buffer = buffer_of(e.source)
        index = e.indices[0]
        parts = linear_parts(index) if e.lanes > 1 else None
        if e.lanes == 1:
            raw = self.memory.load(buffer, self._ready(index), 1)
        elif parts is None or not _is_strided(parts):
            raw = self._scattered_load(e, buffer)
        else:
            raw = self._linear_load(e, buffer, parts)
        return self.memory.from_memory(raw, e.dtype, e.lanes)

    def _scattered_load(self, e: Load, buffer: Buffer) -> str:
        """Shuffle a whole vector that has all lanes in it, else gather them."""
        mask, found = self.emitted.mask, self.facts.within_vector(e.indices[0], buffer)
        if found is None or mask is not None:
            return self.memory.gather(buffer, self._ready(e.indices[0]), e.lanes, mask)
        base, places = found
        return self.memory.picked_load(buffer, self._ready(base), places, self._multiple_of(base))

    def _linear_load(self, e: Load, buffer: Buffer, parts: tuple[Expr, Expr]) -> str:
        base, stride, mask = self._ready(parts[0]), ex.int_value(parts[1]), self.emitted.mask
        if stride is not None:
            multiple = self._multiple_of(parts[0])
            found = self.memory.strided_load(buffer, base, stride, e.lanes, mask, multiple)
            if found is not None:
                return found
        return self.memory.gather(buffer, self._ramp(ex.Ramp(*parts, e.lanes)), e.lanes, mask)

    def _multiple_of(self, index: Expr) -> int:
        """Return what an index is a multiple of, where instructions depend on it."""
        return 1 if self.machine.loads_anywhere else self.facts.multiple_of(index)

    def store(self, s: Store) -> None:
        """Emit a store; values read from its buffer are forgotten."""
        lanes, mask = max(s.indices[0].lanes, s.value.lanes), self.emitted.mask
        parts = linear_parts(s.indices[0]) if lanes > 1 else None
        value = self.value(ex.broadcast(s.value, lanes))
        value = self.memory.to_memory(value, s.buffer.dtype, lanes)
        if mask is not None and lanes == 1:
            raise InternalError(f"a scalar store to {s.buffer.name} stands under a vector mask")
        if lanes > 1 and s.indices[0].lanes == 1:
            raise InternalError(f"{lanes} lanes are stored at one place of {s.buffer.name}")
        if parts is not None and ex.int_value(parts[1]) == 1:
            multiple = self._multiple_of(parts[0])
            self.memory.store(s.buffer, self.value(parts[0]), value, lanes, mask, multiple)
        elif lanes == 1:
            self.memory.store(s.buffer, self.value(s.indices[0]), value, 1)
        else:
            self.memory.scatter(s.buffer, self.value(s.indices[0]), value, lanes, mask)
        self.emitted.forget({id(s.buffer)})

    def prefetch(self, s: Prefetch) -> None:
        """Emit a hint to fetch a line; its address may be that of no element."""
        self.memory.prefetch(s.buffer, self.value(s.indices[0]), s.locality)


def _is_strided(parts: tuple[Expr, Expr]) -> bool:
    """True when a load needs only the base and the stride of its index."""
    return isinstance(parts[1], Const) and isinstance(parts[1].value, int)


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
