# SPDX-License-Identifier: Apache-2.0
"""Lowered kernels to C11 source: an entry, and a function for each parallel loop.

One kernel becomes `int32_t name(const td_env* env, void* const* buffers, const int64_t* dims)`, as
`treadle.h` declares it; the file includes nothing but headers of a freestanding compiler (and
`math.h` for two macros). A parallel loop inside a parallel loop runs serially.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.errors import TargetError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Var
from treadle.loop.nodes import (
    Allocate,
    Buffer,
    For,
    Prefetch,
    PrimFunc,
    walk_stmts,
)
from treadle.target.base import Target
from treadle.target.c_counters import Counters
from treadle.target.c_helpers import memory_c_type, source_of
from treadle.target.c_statements import Statements
from treadle.target.c_values import Lines, Values
from treadle.target.cpus import has_32_bits
from treadle.target.kernel_memory import local_size, shared_params, workspace_offset
from treadle.target.kernel_sources import PRELUDE
from treadle.target.llvm_builder import Machine
from treadle.target.llvm_facts import Facts, captures, stored_buffers
from treadle.target.names import symbol

C_WORDS = """
auto bool break case char const continue default do double else enum extern false float for goto if
inline int long register restrict return short signed sizeof static struct switch true typedef union
unsigned void volatile while asm typeof env buffers dims closure begin end worker t NAN INFINITY
"""
"""Words of C, and names that every generated function has."""


def emit(func: PrimFunc, target: Target) -> str:
    """Return the C source of a lowered function; the same function gives the same text.

    Raises: TargetError for a loop bound to a GPU index.
    """
    return _Source(func, target).text()


@dataclass(slots=True)
class _Source:
    func: PrimFunc
    target: Target
    facts: Facts = field(default_factory=Facts)
    counters: Counters = field(init=False)
    helpers: set[str] = field(default_factory=set)
    bodies: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counters = Counters(narrows=has_32_bits(self.target.triple))

    @property
    def name(self) -> str:
        return symbol(self.func.name)

    def text(self) -> str:
        entry = self._entry()
        head = f"/* {self.name}, for the target {self.target} */"
        parts = [head, PRELUDE, source_of(self.helpers), *self.bodies, entry]
        return "\n\n".join(p for p in parts if p) + "\n"

    def function(self, *, is_parallel_body: bool) -> _Function:
        has_fma = Machine.of(self.target).fma
        taken = {*C_WORDS.split(), self.name}
        lines = Lines(taken)
        values = Values(lines, self.facts, self.helpers, self.counters, has_fma=has_fma)
        return _Function(self, values, is_parallel_body=is_parallel_body)

    def _entry(self) -> str:
        f = self.function(is_parallel_body=False)
        written = stored_buffers(self.func.body)
        together = shared_params(self.func)
        for i, buffer in enumerate(self.func.params):
            words = ("restrict",) if i not in together else ()
            f.pointer(buffer, id(buffer) in written, f"buffers[{i}]", *words)
        for i, var in enumerate(self.func.sizes):
            f.values.vars[var] = f.lines.fresh(symbol(var.name))
            f.lines.line(f"const int64_t {f.values.vars[var]} = dims[{i}];")
        self._workspace(f)
        f.lines.line("(void)env, (void)dims;")
        f.statement(self.func.body)
        f.lines.line("return 0;")
        head = (
            f"int32_t {self.name}(const td_env* env, void* const* buffers, const int64_t* dims) {{"
        )
        return "\n".join([head, *f.lines.lines, "}"])

    def _workspace(self, f: _Function) -> None:
        """Point every workspace buffer into the lent memory; they may share it.

        One that several parts of the body allocate has one place.
        """
        for s in walk_stmts(self.func.body):
            if not isinstance(s, Allocate) or s.buffer.scope != "workspace":
                continue
            if id(s.buffer) in f.values.buffers:
                continue
            offset = workspace_offset(self.func, s.buffer)
            [at] = f.values.statement(ex.convert(offset))
            place = f"((char*)buffers[{len(self.func.params)}] + {at})"
            f.pointer(s.buffer, True, f"(void*){place}")

    def parallel_body(self, s: For, buffers: list[Buffer], variables: list[Var]) -> tuple[str, str]:
        """Print the function the pool calls for a part of a loop; return it and its struct."""
        number = len(self.bodies) + 1
        name, closure = f"{self.name}_part{number}", f"struct {self.name}_closure{number}"
        self.bodies.append("")
        f = self.function(is_parallel_body=True)
        written = stored_buffers(s.body)
        members = []
        if buffers or variables:
            f.lines.line(f"const {closure}* c = closure;")
        for i, buffer in enumerate(buffers):
            type_ = f"{'' if id(buffer) in written else 'const '}{memory_c_type(buffer.dtype)}*"
            members.append(f"  {type_} b{i};")
            f.pointer(buffer, id(buffer) in written, f"c->b{i}")
        for i, var in enumerate(variables):
            type_ = self.counters.c_type(var)
            members.append(f"  {type_} n{i};")
            f.values.vars[var] = f.lines.fresh(symbol(var.name))
            f.lines.line(f"const {type_} {f.values.vars[var]} = c->n{i};")
        f.lines.line("(void)env, (void)closure, (void)worker;")
        f.loop(s, "begin", "end")
        f.lines.line("return 0;")
        head = (
            f"static int32_t {name}(const td_env* env, void* closure, int64_t begin, int64_t end,\n"
            f"{' ' * (len(name) + 16)}int32_t worker) {{"
        )
        parts = [f"{closure} {{", *(members or ["  char unused;"]), "};", "", head]
        self.bodies[number - 1] = "\n".join([*parts, *f.lines.lines, "}"])
        return name, closure


class _Function(Statements):
    """Prints the statements of one C function."""

    def __init__(self, source: _Source, values: Values, *, is_parallel_body: bool) -> None:
        super().__init__(source.func.name, values, source.counters)
        self.source = source
        self.is_parallel_body = is_parallel_body

    def pointer(self, buffer: Buffer, is_written: bool, value: str, *words: str) -> None:
        """Declare the pointer to a buffer that lies elsewhere."""
        name = self.values.buffers[id(buffer)] = self.lines.fresh(symbol(buffer.name))
        const = "" if is_written else "const "
        head = " ".join([f"{const}{memory_c_type(buffer.dtype)}*", *words, name])
        self.lines.line(f"{head} = {value};")

    def prefetch(self, s: Prefetch) -> None:
        """Print a hint to the cache."""
        [index] = self.values.statement(s.indices[0])
        how = "" if s.level == 1 else f", 0, {s.locality}"  # to read
        self.lines.line(f"__builtin_prefetch({self.values.buffer(s.buffer)} + {index}{how});")

    def barrier(self) -> None:
        """Refuse a barrier: threads of a CPU do not wait for each other."""
        self.fail("a barrier between the threads of a block is in a CPU kernel")

    def allocate(self, s: Allocate) -> None:
        """Declare an array on the stack; workspaces are declared at the start."""
        buffer = s.buffer
        if buffer.scope not in ("local", "workspace"):
            self.fail(f"buffer {buffer.name} of scope {buffer.scope!r} is in a CPU kernel")
        if buffer.scope == "local":
            size = local_size(self.source.func, buffer, self.source.target)
            name = self.values.buffers[id(buffer)] = self.lines.fresh(symbol(buffer.name))
            type_ = memory_c_type(buffer.dtype)
            self.lines.line(f"_Alignas({buffer.align}) {type_} {name}[{size}];")
        self.statement(s.body)

    def any_loop(self, s: For) -> None:
        """Print a loop; a parallel one becomes a call of the pool."""
        if s.kind == "thread":
            raise TargetError(
                f"loop {s.var} is bound to the GPU index {s.thread}, and the target is a CPU",
                at=f"kernel {self.source.func.name}",
                hint="use parallel and vectorize in place of bind, or compile for a GPU target",
            )
        if s.kind == "parallel" and not self.is_parallel_body:
            self._parallel(s)
        else:
            self.serial_loop(s)

    def _parallel(self, s: For) -> None:
        """Hand a loop to the pool, in pieces; without a pool all of it is one piece."""
        buffers, variables = captures(s.body)
        variables = [v for v in variables if v is not s.var]
        body, closure = self.source.parallel_body(s, buffers, variables)
        filled = [self.values.buffer(b) for b in buffers]
        filled += [self.values.vars[v] for v in variables]
        [count] = self.values.statement(s.extent)
        name, result = self.lines.fresh("closure"), self.lines.fresh("status")
        self.lines.line(f"{closure} {name} = {{{', '.join(filled) or '0'}}};")
        with self.lines.block("", "}"):
            self.lines.line(f"const int32_t {result} =")
            self.lines.line(f"    env ? env->parallel(env, {body}, &{name}, {count})")
            self.lines.line(f"        : {body}(env, &{name}, 0, {count}, 0);")
            self.lines.line(f"if ({result} != 0) return {result};")
