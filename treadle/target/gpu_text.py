# SPDX-License-Identifier: Apache-2.0
"""Lowered kernels to CUDA C and OpenCL C: one function for each launch, as the schedule has it.

A device function takes the buffers that it uses (those of the kernel in their order), then the
memory that the caller lends the kernel if it uses that, then the sizes it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Load, Ramp
from treadle.loop.nodes import Allocate, Buffer, For, PrimFunc, Stmt, Store, walk_stmts
from treadle.lower.split_launches import DeviceFunction, split_launches
from treadle.target.base import Target
from treadle.target.c_counters import Counters
from treadle.target.c_helpers import memory_c_type, source_of
from treadle.target.c_statements import Statements
from treadle.target.c_text import C_WORDS
from treadle.target.c_values import Lines, Values, bare
from treadle.target.gpu_dialects import DIALECTS, GpuDialect, vector_type
from treadle.target.kernel_memory import local_size, shared_params, workspace_offset
from treadle.target.llvm_facts import Facts, buffer_of, flat_size, stored_buffers
from treadle.target.names import symbol

_VECTOR_BYTES = 16
"""What arrays in shared memory are aligned to: the longest access of a thread."""


def emit(func: PrimFunc, target: Target) -> str:
    """Return the source of a lowered function for a GPU; the same function gives the same text."""
    return _Source(func, target, DIALECTS[target.kind]).text()


@dataclass(slots=True)
class _Source:
    func: PrimFunc
    target: Target
    dialect: GpuDialect
    facts: Facts = field(default_factory=Facts)
    helpers: set[str] = field(default_factory=set)

    def text(self) -> str:
        name = symbol(self.func.name)
        functions = [self._function(f) for f in split_launches(self.func)]
        head = f"/* {name}, for the target {self.target} */"
        parts = [head, self.dialect.prelude, source_of(self.helpers, self.dialect), *functions]
        return "\n\n".join(p for p in parts if p) + "\n"

    def _function(self, f: DeviceFunction) -> str:
        name = device_symbol(f.name)
        counters = Counters(narrows=True)
        taken = {*C_WORDS.split(), *self.dialect.reserved.split(), name}
        lines = Lines(taken)
        values = Values(
            lines, self.facts, self.helpers, counters, has_fma=True, dialect=self.dialect
        )
        printer = _Device(self, f, values, counters)
        head = printer.head(name)
        printer.workspace()
        printer.shared()
        printer.statement(f.body)
        comment = f"/* {f.result}: {_launch_text(f)} */"
        return "\n".join([comment, head, *lines.lines, "}"])


def device_symbol(name: str) -> str:
    """Return the name of a device function in source text of any language."""
    found = symbol(name)
    words = " ".join([C_WORDS, *(d.reserved for d in DIALECTS.values())]).split()
    return f"{found}_" if found in words else found


def _launch_text(f: DeviceFunction) -> str:
    grid = " x ".join(str(e) for e in f.grid if ex.int_value(e) != 1) or "1"
    block = " x ".join(str(e) for e in f.block if e != 1) or "1"
    return f"{grid} blocks of {block} threads"


def _moved(s: Stmt) -> Iterator[Buffer]:
    """Yield the buffers between which a statement moves a vector."""
    if isinstance(s, Store) and s.value.lanes > 1 and isinstance(s.value, Load):
        yield s.buffer
        yield buffer_of(s.value.source)


class _Device(Statements):
    """Prints the statements of one device function."""

    def __init__(
        self, source: _Source, function: DeviceFunction, values: Values, counters: Counters
    ) -> None:
        super().__init__(source.func.name, values, counters)
        self.source = source
        self.function = function
        self.dialect = source.dialect
        self._vectors = {id(b) for s in walk_stmts(function.body) for b in _moved(s)}
        """The buffers of which several elements are moved at once."""

    def head(self, name: str) -> str:
        """Return the line that begins the function; names its parameters."""
        written = stored_buffers(self.function.body)
        together = shared_params(self.source.func)
        params = []
        for number, buffer in self.function.params.items():
            alone = self.dialect.restrict if number not in together else ""
            params.append(self._pointer(buffer, alone, is_written=id(buffer) in written))
        if self.function.workspace:
            params.append(f"{self.dialect.device}char* workspace")
        for var in self.function.sizes:
            name_ = self.values.vars[var] = self.lines.fresh(symbol(var.name))
            params.append(f"const int64_t {name_}")
        indent = ",\n    "
        return f"{self.dialect.kernel(self.function.block)} {name}(\n    {indent.join(params)}) {{"

    def _pointer(self, buffer: Buffer, alone: str, *, is_written: bool) -> str:
        name = self.values.buffers[id(buffer)] = self.lines.fresh(symbol(buffer.name))
        const = "" if is_written else "const "
        return f"{self.dialect.device}{const}{memory_c_type(buffer.dtype)}* {alone}{name}"

    def workspace(self) -> None:
        """Declare pointers to what lives between launches."""
        written = stored_buffers(self.function.body)
        for buffer in self.function.workspace:
            [at] = self.values.statement(ex.convert(workspace_offset(self.source.func, buffer)))
            head = self._pointer(buffer, "", is_written=id(buffer) in written)
            type_ = head.rpartition("*")[0]
            self.lines.line(f"{head} = ({type_}*)(workspace + {at});")

    def shared(self) -> None:
        """Declare all memory of the block: OpenCL has it at the start of a function only."""
        for s in walk_stmts(self.function.body):
            if not isinstance(s, Allocate) or s.buffer.scope != "shared":
                continue
            if id(s.buffer) not in self.values.buffers:
                self._array(s.buffer, self.dialect.shared)

    def allocate(self, s: Allocate) -> None:
        """Declare an array of one thread's; all others are declared at the start."""
        if s.buffer.scope == "local":
            self._array(s.buffer, "", is_vector=id(s.buffer) in self._vectors)
        self.statement(s.body)

    def _array(self, buffer: Buffer, where: str, *, is_vector: bool = True) -> None:
        source = self.source
        size = flat_size(buffer) if where else local_size(source.func, buffer, source.target)
        if size is None:
            raise InternalError(
                f"shared buffer {buffer} is of unknown size", at=f"kernel {self.kernel}"
            )
        name = self.values.buffers[id(buffer)] = self.lines.fresh(symbol(buffer.name))
        aligned = f"{self.dialect.aligned.format(_VECTOR_BYTES)} " if is_vector else ""
        type_ = memory_c_type(buffer.dtype)
        self.lines.line(f"{where}{aligned}{type_} {name}[{max(size, 1)}];")

    def any_loop(self, s: For) -> None:
        """Print a loop; one over a hardware index is what its threads are already in."""
        if s.kind == "thread":
            self._index(s)
            return
        [extent] = self.values.statement(s.extent)
        if s.kind == "unrolled":
            self.lines.line("#pragma unroll")
        self.loop(s, "0", extent)

    def _index(self, s: For) -> None:
        name = self.values.vars[s.var] = self.lines.fresh(symbol(s.var.name))
        with self.counters.loop(s.var, s.extent) as type_:
            self.lines.line(f"const {type_} {name} = {self.dialect.indices[s.thread]};")
            self.statement(s.body)

    def store(self, s: Store) -> None:
        """Print a store; one of a vector moves a loaded one, whole."""
        if s.value.lanes == 1:
            super().store(s)
            return
        to, value = s.indices[0], s.value
        assert isinstance(to, Ramp)
        assert isinstance(value, Load)
        assert isinstance(value.indices[0], Ramp)
        source = buffer_of(value.source)
        at, start = self.values.statement(to.base, value.indices[0].base)
        put, get = self._address(s.buffer, at), self._address(source, start)
        vector = vector_type(s.buffer.dtype, value.lanes)
        words = {"vector": vector, "lanes": value.lanes, "to": put, "source": get}
        self.lines.line(self.dialect.move.format(**words))

    def _address(self, buffer: Buffer, offset: str) -> str:
        name = self.values.buffer(buffer)
        return name if offset == "0" else f"({name} + {bare(offset)})"

    def barrier(self) -> None:
        """Print the barrier of the language."""
        self.lines.line(self.dialect.barrier)
