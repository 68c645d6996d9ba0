# SPDX-License-Identifier: Apache-2.0
"""Lowered kernels to LLVM IR text: functions, loops, and parallel loops handed to the thread pool.

One kernel becomes an entry `i32 name(ptr env, ptr buffers, ptr dims)` that unpacks its arguments,
an inner function whose `noalias` parameters are the buffers, and per parallel loop a body for the
pool with an inner function of its own. A parallel loop inside a parallel loop runs serially.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.dtype import itemsize
from treadle.errors import InternalError, TargetError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import uses
from treadle.loop.nodes import (
    Allocate,
    Barrier,
    Buffer,
    Evaluate,
    For,
    If,
    Let,
    Prefetch,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    sub_stmts,
    walk_stmts,
)
from treadle.target.base import Target
from treadle.target.kernel_memory import local_size, shared_params, workspace_offset
from treadle.target.llvm_builder import (
    Builder,
    Lines,
    Machine,
    flattened,
    memory_type,
    vector,
)
from treadle.target.llvm_emitted import Scope
from treadle.target.llvm_facts import (
    Facts,
    captures,
    flat_size,
    sums_in_memory,
)
from treadle.target.llvm_values import Values
from treadle.target.names import symbol

_ATTRIBUTES = "#0"

_FLUSHED = {"x86_64": ("x86.sse.ldmxcsr", "x86.sse.stmxcsr", 0x8040)}
"""By architecture, what loads and stores the control register, and its bits for operands and
results. Other architectures compute with subnormal numbers as fast as with all others."""

_LOADS_TOGETHER = 4
"""So many neighbouring loads LLVM's selection puts next to each other (shouldScheduleLoadsNear)."""


def emit(func: PrimFunc, target: Target) -> str:
    """Return the LLVM IR of a lowered function; the same function gives the same text."""
    return _Module(func, target).text()


@dataclass(slots=True)
class _Argument:
    """A buffer handed to an inner function: its parameter and what is known of it."""

    buffer: Buffer
    name: str
    noalias: bool = True


@dataclass(slots=True)
class _Module:
    func: PrimFunc
    target: Target
    machine: Machine = field(init=False)
    facts: Facts = field(default_factory=Facts)
    declarations: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    bodies: int = 0
    shared: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.machine = Machine.of(self.target)

    @property
    def name(self) -> str:
        return symbol(self.func.name)

    def text(self) -> str:
        """Return the whole module."""
        entry = self._entry()
        parts = [f'target triple = "{self.target.triple}"', entry, *self.functions]
        parts += sorted(self.declarations.values())
        parts.append(f"attributes {_ATTRIBUTES} = {{ {self._attributes()} }}")
        return "\n\n".join(parts) + "\n" + "".join(f"{m}\n" for m in self.metadata)

    def _attributes(self) -> str:
        features = self.target.feature_string()
        words = ["nounwind", '"no-builtins"']
        if self.target.cpu:
            words.append(f'"target-cpu"="{self.target.cpu}"')
        if features:
            words.append(f'"target-features"="{features}"')
        words.append(f'"prefer-vector-width"="{self.target.vector_bits}"')
        if self.metadata or self.func.sizes or sums_in_memory(self.func.body):
            words.append('"all-passes"')  # read by treadle.target.llvm
        return " ".join(words)

    def unroll_metadata(self, count: int) -> str:
        """Return a loop annotation that asks for unrolling by `count`."""
        first = len(self.metadata)
        self.metadata.append(f"!{first} = distinct !{{!{first}, !{first + 1}}}")
        self.metadata.append(f'!{first + 1} = !{{!"llvm.loop.unroll.count", i32 {count}}}')
        return f"!{first}"

    def _entry(self) -> str:
        """The C entry: unpack buffers and sizes, call the inner function."""
        b = Builder(self.declarations)
        arguments: list[_Argument] = []
        together = shared_params(self.func)
        self.shared.update(id(self.func.params[i]) for i in together)
        for i, buffer in enumerate(self.func.params):
            arguments.append(_Argument(buffer, self._unpack(b, i), i not in together))
        sizes = []
        for i, var in enumerate(self.func.sizes):
            place = b.let(f"getelementptr inbounds i64, ptr %dims, i64 {i}")
            sizes.append((var, b.let(f"load i64, ptr {place}, align 8")))
        arguments += self._workspace(b, dict(sizes))
        inner = f"{self.name}.run"
        passed = ["ptr %env", *(f"ptr {a.name}" for a in arguments)]
        passed += [f"i64 {value}" for _, value in sizes]
        self._return_call(b, f"i32 @{inner}({', '.join(passed)})")
        self._inner(inner, self.func.body, arguments, [v for v, _ in sizes], None)
        head = f"define i32 @{self.name}(ptr %env, ptr %buffers, ptr %dims) {_ATTRIBUTES} {{"
        return "\n".join([head, "entry:", *b.entry, *flattened(b.lines), "}"])

    def _unpack(self, b: Builder, index: int) -> str:
        place = b.let(f"getelementptr inbounds ptr, ptr %buffers, i64 {index}")
        return b.let(f"load ptr, ptr {place}")

    def _workspace(self, b: Builder, sizes: dict[Var, str]) -> list[_Argument]:
        """Give every workspace buffer an address of its own inside the lent memory."""
        buffers = [
            s.buffer
            for s in walk_stmts(self.func.body)
            if isinstance(s, Allocate) and s.buffer.scope == "workspace"
        ]
        if not buffers:
            return []
        base = self._unpack(b, len(self.func.params))
        found = []
        for buffer in buffers:
            offset = self._address(b, workspace_offset(self.func, buffer), sizes)
            place = b.let(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")
            alone = not any(o is not buffer and self._overlap(buffer, o) for o in buffers)
            if not alone:
                self.shared.add(id(buffer))
            found.append(_Argument(buffer, place, alone))
        return found

    def _address(self, b: Builder, offset: int | ex.Expr, sizes: dict[Var, str]) -> str:
        if isinstance(offset, int):
            return str(offset)
        values = Values(b, self.machine, self.facts)
        values.vars.update(sizes)
        return values.value(offset)

    def _overlap(self, a: Buffer, b: Buffer) -> bool:
        places = [(workspace_offset(self.func, x), x) for x in (a, b) if flat_size(x) is not None]
        known = sorted(((o, x) for o, x in places if isinstance(o, int)), key=lambda p: p[0])
        if len(known) < 2:
            return False  # one of symbolic size has memory of its own
        (start, first), (end, _) = known
        return start + (flat_size(first) or 0) * itemsize(first.dtype) > end

    def _inner(
        self,
        name: str,
        body: Stmt,
        arguments: list[_Argument],
        variables: list[Var],
        loop: Var | None,
    ) -> None:
        """Emit an inner function; with `loop`, it runs the body for a range of that variable."""
        place = len(self.functions)
        self.functions.append("")
        f = _Function(self, name, is_parallel_body=loop is not None)
        written = f.stored(body)
        params = ["ptr %env"]
        for i, a in enumerate(arguments):
            f.values.memory.pointers[id(a.buffer)] = f"%b{i}"
            params.append(self._parameter(a, id(a.buffer) in written, f"%b{i}"))
        for i, var in enumerate(variables):
            f.values.vars[var] = f"%n{i}"
            params.append(f"i64 %n{i}")
        if loop is not None:
            params += ["i64 %begin", "i64 %end"]
            f.range_loop(loop, "%begin", "%end", body)
        else:
            f.statement(body)
        f.b.line("ret i32 0")
        head = f"define internal i32 @{name}({', '.join(params)}) noinline {_ATTRIBUTES} {{"
        code = flattened(f.b.lines)
        lines = [head, "entry:", *f.b.entry, "  br label %start", "start:", *code, "}"]
        self.functions[place] = "\n".join(lines)

    def _parameter(self, a: _Argument, is_written: bool, name: str) -> str:
        words = ["ptr"]
        if a.noalias:
            words.append("noalias")
        if not is_written:
            words.append("readonly")
        size = flat_size(a.buffer)
        if size:
            words.append(f"dereferenceable({size * itemsize(a.buffer.dtype)})")
        anywhere = not is_written and self.machine.loads_anywhere
        align = itemsize(a.buffer.dtype) if anywhere else a.buffer.align
        return " ".join([*words, f"align {align}", name])

    def parallel_body(self, s: For, buffers: list[_Argument], variables: list[Var]) -> str:
        """Emit the function the pool calls for a chunk of a parallel loop; return its name."""
        self.bodies += 1
        name = f"{self.name}.part{self.bodies}"
        inner = f"{name}.run"
        b = Builder(self.declarations)
        passed = ["ptr null"]
        slots = [*("ptr" for _ in buffers), *("i64" for _ in variables)]
        for i, type_ in enumerate(slots):
            place = b.let(f"getelementptr inbounds i64, ptr %closure, i64 {i}")
            passed.append(f"{type_} {b.let(f'load {type_}, ptr {place}, align 8')}")
        self._return_call(b, f"i32 @{inner}({', '.join([*passed, 'i64 %begin', 'i64 %end'])})")
        head = (
            f"define internal i32 @{name}(ptr %env, ptr %closure, i64 %begin, i64 %end, "
            f"i32 %worker) {_ATTRIBUTES} {{"
        )
        self.functions.append("\n".join([head, "entry:", *b.entry, *flattened(b.lines), "}"]))
        self._inner(inner, s.body, buffers, variables, s.var)
        return name

    def _return_call(self, b: Builder, call: str) -> None:
        """Call an inner function and return what it returns; the processor flushes meanwhile.

        An inner function is never inlined, so that nothing of it is moved to where the control
        register is another. It belongs to the thread of whoever calls, who gets it back.
        """
        flushes = self.func.attrs.get("flushes_subnormals", False)
        if not flushes or self.target.architecture not in _FLUSHED:
            b.line(f"ret i32 {b.let(f'call {call}')}")
            return
        load, store, bits = _FLUSHED[self.target.architecture]
        kept, flushing = (b.let_entry("alloca i32, align 4") for _ in range(2))
        b.intrinsic_void(store, ("ptr", kept))
        before = b.let(f"load i32, ptr {kept}, align 4")
        b.line(f"store i32 {b.let(f'or i32 {before}, {bits}')}, ptr {flushing}, align 4")
        b.intrinsic_void(load, ("ptr", flushing))
        result = b.let(f"call {call}")
        b.intrinsic_void(load, ("ptr", kept))
        b.line(f"ret i32 {result}")


class _Steps:
    """Follows the additions to sums in registers, and finds where their next step begins.

    That is where a sum is added to that was added to before in the same block. LLVM's scheduler
    puts neighbouring loads next to each other where nothing orders them (`_LOADS_TOGETHER` of
    them), also those of several steps, for which the sums leave no registers.
    """

    def __init__(self, registers: int) -> None:
        self._registers = registers
        self._sums: set[tuple[int, Expr]] = set()
        self._block = ""

    def is_crowded_at(self, s: Store, block: str) -> bool:
        """Return whether a step begins with a store that must not load together with the last."""
        if s.buffer.scope != "local" or s.indices[0].lanes == 1 or not uses(s.value, s.buffer):
            return False
        if self._block != block:
            self._sums, self._block = set(), block
        place = id(s.buffer), s.indices[0]
        if place not in self._sums:
            self._sums.add(place)
            return False
        count, self._sums = len(self._sums), {place}
        return count + _LOADS_TOGETHER >= self._registers


class _Function:
    """Emits the statements of one inner function."""

    def __init__(self, module: _Module, name: str, *, is_parallel_body: bool) -> None:
        self.module = module
        self.name = name
        self.is_parallel_body = is_parallel_body
        self.b = Builder(module.declarations, block="start")
        self.values = Values(self.b, module.machine, module.facts)
        self._written: dict[int, frozenset[int]] = {}
        self._steps = _Steps(module.target.vector_registers)

    def statement(self, s: Stmt) -> None:
        """Emit one statement."""
        if isinstance(s, Seq):
            for part in s.stmts:
                self.statement(part)
        elif isinstance(s, Store):
            if self._steps.is_crowded_at(s, self.b.block):
                self.b.order_loads()
            self.values.store(s)
        elif isinstance(s, Prefetch):
            self.values.prefetch(s)
        elif isinstance(s, Allocate):
            self._allocate(s)
        elif isinstance(s, If):
            self._if(s)
        elif isinstance(s, Let):
            self._let(s)
        elif isinstance(s, Evaluate):
            self.values.value(s.value)
        elif isinstance(s, Barrier):
            raise InternalError(
                "a barrier between the threads of a block is in a CPU kernel",
                at=f"kernel {self.module.func.name}",
            )
        else:
            self._for(s)

    def _let(self, s: Let) -> None:
        self.values.vars[s.var] = self.values.value(s.value)
        with self.values.emitted.scope(self._always(s.body)):
            self.values.emitted.define(s.var)
            self.statement(s.body)

    def _allocate(self, s: Allocate) -> None:
        buffer = s.buffer
        if buffer.scope not in ("local", "workspace"):
            raise InternalError(
                f"buffer {buffer.name} of scope {buffer.scope!r} is allocated in a CPU kernel",
                at=f"kernel {self.module.func.name}",
            )
        if buffer.scope == "local":
            size = local_size(self.module.func, buffer, self.module.target)
            element = memory_type(buffer.dtype)
            self.values.memory.pointers[id(buffer)] = self.b.let_entry(
                f"alloca [{size} x {element}], align {buffer.align}"
            )
        self.statement(s.body)

    # -- conditions

    def _if(self, s: If) -> None:
        if s.cond.lanes > 1:
            self._masked_if(s)
            return
        cond = self.values.value(s.cond)
        then, end = self.b.label("then"), self.b.label("end")
        other = end if s.orelse is None else self.b.label("else")
        self.b.branch(cond, then, other)
        self._arm(then, s.then, end)
        if s.orelse is not None:
            self._arm(other, s.orelse, end)
        self.b.start(end)

    def _arm(self, label: str, body: Stmt, end: str) -> None:
        self.b.start(label)
        with self.values.emitted.scope():
            self.statement(body)
        self.b.jump(end)

    def _masked_if(self, s: If) -> None:
        lanes = s.cond.lanes
        cond = self.values.value(s.cond)
        with self.values.emitted.masked(cond, lanes):
            self.statement(s.then)
        if s.orelse is not None:
            type_ = vector("i1", lanes)
            with self.values.emitted.masked(
                self.b.let(f"xor {type_} {cond}, splat (i1 true)"), lanes
            ):
                self.statement(s.orelse)

    # -- loops

    def _always(self, body: Stmt, before: Lines | None = None) -> Scope:
        """Return the scope of a statement that runs whenever the one around it does."""
        stored = self.stored(body)
        if not stored.isdisjoint(self.module.shared):
            stored |= self.module.shared
        return Scope(before, stored)

    def stored(self, s: Stmt) -> frozenset[int]:
        """Return the ids of the buffers that a statement writes."""
        if id(s) not in self._written:
            self._written[id(s)] = (
                frozenset([id(s.buffer)])
                if isinstance(s, Store)
                else frozenset().union(*map(self.stored, sub_stmts(s)))
            )
        return self._written[id(s)]

    def _for(self, s: For) -> None:
        if s.kind == "thread":
            raise TargetError(
                f"loop {s.var} is bound to the GPU index {s.thread}, and the target is a CPU",
                at=f"kernel {self.module.func.name}",
                hint="use parallel and vectorize in place of bind, or compile for a GPU target",
            )
        if s.kind not in ("serial", "parallel"):
            raise InternalError(
                f"loop {s.var} is still {s.kind} in code generation",
                at=f"kernel {self.module.func.name}",
            )
        extent = ex.int_value(s.extent)
        if extent is not None and extent <= 1:
            if extent == 1:
                self.values.vars[s.var] = "0"
                with self.values.emitted.scope(self._always(s.body)):
                    self.values.emitted.define(s.var)
                    self.statement(s.body)
            return
        if s.kind == "parallel" and not self.is_parallel_body:
            self._parallel(s)
        else:
            self._loop(s.var, "0", self.values.value(s.extent), s.body, extent, s.pragmas)

    def range_loop(self, var: Var, begin: str, end: str, body: Stmt) -> None:
        """Emit `for var in [begin, end)`."""
        self._loop(var, begin, end, body, None, ())

    def _loop(
        self,
        var: Var,
        begin: str,
        end: str,
        body: Stmt,
        extent: int | None,
        pragmas: tuple[tuple[str, object], ...],
    ) -> None:
        if extent is None:
            enter, done = self.b.label("enter"), self.b.label("done")
            self.b.branch(self.b.let(f"icmp slt i64 {begin}, {end}"), enter, done)
            self.b.start(enter)
            with self.values.emitted.scope():
                self._iterations(var, begin, end, body, pragmas)
            self.b.jump(done)
            self.b.start(done)
        else:
            self._iterations(var, begin, end, body, pragmas)

    def _iterations(
        self, var: Var, begin: str, end: str, body: Stmt, pragmas: tuple[tuple[str, object], ...]
    ) -> None:
        """Emit the iterations of a loop that has some."""
        head, done = self.b.label("loop"), self.b.label("done")
        scope = self._always(body, self.b.place())
        self.b.jump(head)
        before = self.b.block
        self.b.start(head)
        index, following = self.b.name(), self.b.name()
        place = len(self.b.lines)
        self.values.emitted.forget(self.stored(body))
        with self.values.emitted.scope(scope):
            self.values.vars[var] = index
            self.values.emitted.define(var)
            self.statement(body)
        latch = self.b.block
        self.b.lines.insert(
            place, f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{latch} ]"
        )
        self.b.line(f"{following} = add nuw nsw i64 {index}, 1")
        again = self.b.let(f"icmp ne i64 {following}, {end}")
        self.b.line(f"br i1 {again}, label %{head}, label %{done}{self._pragmas(pragmas)}")
        self.b.start(done)

    def _pragmas(self, pragmas: tuple[tuple[str, object], ...]) -> str:
        for key, count in pragmas:
            if key == "unroll" and isinstance(count, int) and count > 1:
                return f", !llvm.loop {self.module.unroll_metadata(count)}"
        return ""

    def _parallel(self, s: For) -> None:
        """Hand a loop to the pool: pack what its body uses, call, return on failure."""
        buffers, variables = captures(s.body)
        variables = [v for v in variables if v is not s.var]
        arguments = [
            _Argument(o, self.values.memory.pointer(o), self._is_alone(o)) for o in buffers
        ]
        count = self.values.value(s.extent)
        slots = [("ptr", a.name) for a in arguments]
        slots += [("i64", self.values.value(v)) for v in variables]
        closure = self.b.let_entry(f"alloca [{max(len(slots), 1)} x i64], align 16")
        for i, (type_, value) in enumerate(slots):
            place = self.b.let(f"getelementptr inbounds i64, ptr {closure}, i64 {i}")
            self.b.line(f"store {type_} {value}, ptr {place}, align 8")
        body = self.module.parallel_body(s, arguments, variables)
        result = self._call_pool(body, closure, count)
        failed, fine = self.b.label("failed"), self.b.label("fine")
        self.b.branch(self.b.let(f"icmp ne i32 {result}, 0"), failed, fine)
        self.b.start(failed)
        self.b.line(f"ret i32 {result}")
        self.b.start(fine)
        self.values.emitted.forget(self.stored(s.body))

    def _is_alone(self, buffer: Buffer) -> bool:
        return id(buffer) not in self.module.shared

    def _call_pool(self, body: str, closure: str, count: str) -> str:
        alone, pool, end = self.b.label("alone"), self.b.label("pool"), self.b.label("end")
        self.b.branch(self.b.let("icmp eq ptr %env, null"), alone, pool)
        self.b.start(alone)
        serial = self.b.let(f"call i32 @{body}(ptr null, ptr {closure}, i64 0, i64 {count}, i32 0)")
        self.b.jump(end)
        self.b.start(pool)
        run = self.b.let("load ptr, ptr %env")
        pooled = self.b.let(f"call i32 {run}(ptr %env, ptr @{body}, ptr {closure}, i64 {count})")
        self.b.jump(end)
        self.b.start(end)
        return self.b.phi("i32", (serial, alone), (pooled, pool))
