# SPDX-License-Identifier: Apache-2.0
"""Loop nests: buffers, statements, functions, and what makes them well formed.

The law of these nodes:

* Statements are immutable; expressions inside them are those of treadle.expr.
* A `Buffer` is a block of memory with a shape; two buffers never overlap. Strides, where given,
  are in elements. `Load` and `Store` address it by one index per dimension; a flat buffer has one.
* `For` runs its body for each value of its variable in [0, extent), in order when "serial" or
  "unrolled", in any order or at once when "parallel" or "vectorized" (the writer of the schedule
  promises that iterations are independent). A thread kind binds the variable to a hardware index:
  all loops of one tag ("threadIdx.x") in a launch have one extent and run over the same threads,
  and a "parallel" or thread loop may not be inside of a loop of its own tag. A launch is a
  statement outside of which no loop is bound; those of a function run one after the other.
* Memory that another thread of a block wrote may be read after a `Barrier` between the two; without
  one, and before all threads have passed it, the order is undefined.
* A store with a vector index writes its lanes; lanes that coincide are undefined.
* A `Prefetch` changes no value: targets may leave it out; its place may be outside the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr import traversal
from treadle.expr.nodes import Const, Expr, Var
from treadle.expr.text import Parts
from treadle.expr.traversal import walk

ForKind = Literal["serial", "parallel", "vectorized", "unrolled", "thread"]
Scope = Literal["global", "local", "shared", "workspace"]

ALIGNMENT = 64
"""Bytes: buffers that a kernel is called with, and those of its workspace, start at a multiple of
them. TD_ALIGNMENT of the native runtime."""


@dataclass(slots=True, eq=False)
class Buffer:
    """A block of memory: `scope` says whose it is.

    "global": a parameter; "local": private to the innermost enclosing iteration (registers or
    stack); "workspace": shared by all threads of one kernel call, allocated by the caller;
    "shared": shared by the threads of one GPU block. `shape` is in elements; `strides` (elements)
    are row-major unless given. `align` is what the address is a multiple of, in bytes.
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    scope: Scope = "global"
    strides: tuple[Expr, ...] | None = None
    align: int = ALIGNMENT

    def __str__(self) -> str:
        return _buffer_text(self, self.shape)


@dataclass(slots=True, eq=False)
class For:
    """`for var in range(extent): body`, run as `kind` says; `thread` names a hardware index."""

    var: Var
    extent: Expr
    kind: ForKind
    body: Stmt
    thread: str = ""
    pragmas: tuple[tuple[str, object], ...] = ()

    def pragma(self, key: str) -> object:
        """Return the value of a pragma, None where the loop has no such one."""
        return next((value for name, value in self.pragmas if name == key), None)

    def pragmas_but(self, key: str) -> tuple[tuple[str, object], ...]:
        """Return the other pragmas: those that are left when a pass has done what this one asks."""
        return tuple(p for p in self.pragmas if p[0] != key)


@dataclass(slots=True, eq=False)
class Store:
    """`buffer[indices] = value`."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(slots=True, eq=False)
class Prefetch:
    """The cache line of `buffer[indices]` will be read soon, if it exists.

    It is fetched into the caches from `level` on, 1 or 2.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 1

    @property
    def locality(self) -> int:
        """How near LLVM and the C compilers are told to bring it: 3 is level 1, 2 level 2."""
        return 4 - self.level


@dataclass(slots=True, eq=False)
class If:
    """`then` where `cond` holds, else `orelse` (which may be absent)."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@dataclass(slots=True, eq=False)
class Allocate:
    """`buffer` exists, with undefined contents, while `body` runs."""

    buffer: Buffer
    body: Stmt


@dataclass(slots=True, eq=False)
class Let:
    """`var` has the value of `value`, computed once, while `body` runs."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(slots=True, eq=False)
class Barrier:
    """No thread of a block goes on before all have come here; then each sees what all wrote.

    Every thread of the block must come to it: it stands under no condition and in no loop whose
    extent differs between threads.
    """


@dataclass(slots=True, eq=False)
class Evaluate:
    """`value` is computed for what its calls do; its value is dropped."""

    value: Expr


@dataclass(slots=True, eq=False)
class Seq:
    """Statements one after the other; an empty one does nothing."""

    stmts: tuple[Stmt, ...]


Stmt: TypeAlias = For | Store | Prefetch | If | Allocate | Let | Barrier | Evaluate | Seq


@dataclass(slots=True, eq=False)
class PrimFunc:
    """A kernel: `params` are global buffers in calling order, `sizes` the symbolic sizes.

    `outputs` are the numbers of the params that are written, negative ones from the end. After
    storage planning `workspace_bytes` says how much memory the caller lends it. `attrs` holds facts
    for printing and profiling: "flops", "bytes", "origin"; and "overwritable", the numbers of the
    params that may lie in the memory of the one output. "by_hand" names the buffers that only
    nests write which no schedule made. Where "flushes_subnormals" is true, subnormal operands and
    results of float operations may be taken as zeros of their sign.
    """

    name: str
    params: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    body: Stmt
    outputs: tuple[int, ...] = (-1,)
    workspace_bytes: int | Expr = 0
    attrs: dict[str, object] = field(default_factory=dict)

    def with_body(self, body: Stmt) -> PrimFunc:
        """Return this function with another body."""
        return PrimFunc(
            self.name,
            self.params,
            self.sizes,
            body,
            self.outputs,
            self.workspace_bytes,
            self.attrs,
        )

    def __str__(self) -> str:
        return func_text(self)


def seq(*stmts: Stmt) -> Stmt:
    """Return statements in order, flattened; a single one as it is."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def is_empty(stmt: Stmt) -> bool:
    """True for a statement that does nothing."""
    return isinstance(stmt, Seq) and not stmt.stmts


def sub_stmts(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly inside a statement."""
    if isinstance(stmt, Store):
        return ()
    if isinstance(stmt, Seq):
        return stmt.stmts
    if isinstance(stmt, (For, Allocate, Let)):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.orelse is None else (stmt.then, stmt.orelse)
    return ()


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """Yield a statement and all statements inside it, outermost first."""
    stack = [stmt]
    while stack:
        s = stack.pop()
        yield s
        inside = sub_stmts(s)
        if inside:
            stack.extend(reversed(inside))


def stmt_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """Return the expressions that stand directly in a statement."""
    if isinstance(stmt, Store):
        return (*stmt.indices, stmt.value)
    if isinstance(stmt, For):
        return (stmt.extent,)
    if isinstance(stmt, Prefetch):
        return stmt.indices
    if isinstance(stmt, If):
        return (stmt.cond,)
    if isinstance(stmt, (Let, Evaluate)):
        return (stmt.value,)
    return ()


def map_children(stmt: Stmt, visit: Callable[[Stmt], Stmt]) -> Stmt:
    """Return `stmt` with `visit` of the statements directly inside it: a step of a top-down pass.

    Where none of them changes it is `stmt` itself.
    """
    children = sub_stmts(stmt)
    fresh = [visit(child) for child in children]
    if all(a is b for a, b in zip(fresh, children, strict=True)):
        return stmt
    if isinstance(stmt, Seq):
        return seq(*fresh)
    if isinstance(stmt, If):
        return If(stmt.cond, fresh[0], fresh[1] if len(fresh) == 2 else None)
    assert isinstance(stmt, (For, Allocate, Let))
    return replace(stmt, body=fresh[0])


def map_stmt(
    stmt: Stmt,
    on_expr: Callable[[Expr], Expr] | None = None,
    on_stmt: Callable[[Stmt], Stmt | None] | None = None,
) -> Stmt:
    """Return `stmt` rebuilt bottom-up.

    `on_expr` maps every expression that stands in a statement; `on_stmt` gets each rebuilt
    statement and returns its replacement, or None to keep it. Empty statements disappear.
    """

    def kept(e: Expr) -> Expr:
        return e

    exprs = on_expr or kept

    def visit(s: Stmt) -> Stmt:
        fresh: Stmt
        if isinstance(s, Store):
            fresh = Store(s.buffer, tuple([exprs(i) for i in s.indices]), exprs(s.value))
        elif isinstance(s, Seq):
            fresh = seq(*(b for b in map(visit, s.stmts) if not is_empty(b)))
        elif isinstance(s, For):
            body = visit(s.body)
            if is_empty(body):
                return body
            fresh = For(s.var, exprs(s.extent), s.kind, body, s.thread, s.pragmas)
        elif isinstance(s, Allocate):
            fresh = Allocate(s.buffer, visit(s.body))
        elif isinstance(s, If):
            orelse = None if s.orelse is None else visit(s.orelse)
            if orelse is not None and is_empty(orelse):
                orelse = None
            fresh = If(exprs(s.cond), visit(s.then), orelse)
        elif isinstance(s, Let):
            body = visit(s.body)
            if is_empty(body):
                return body
            fresh = Let(s.var, exprs(s.value), body)
        elif isinstance(s, Prefetch):
            fresh = Prefetch(s.buffer, tuple(exprs(i) for i in s.indices), s.level)
        elif isinstance(s, Evaluate):
            fresh = Evaluate(exprs(s.value))
        else:
            fresh = s
        replaced = None if on_stmt is None else on_stmt(fresh)
        return fresh if replaced is None else replaced

    return visit(stmt)


def substitute(stmt: Stmt, mapping: dict[Expr, Expr]) -> Stmt:
    """Return `stmt` with expressions replaced by `mapping` everywhere."""
    memo: dict[Expr, Expr] = {}
    return map_stmt(stmt, lambda e: traversal.substitute(e, mapping, memo))


def in_order(stmt: Stmt) -> Stmt:
    """Return a statement whose parallel loops run one iteration after the other."""

    def on_stmt(s: Stmt) -> Stmt | None:
        return replace(s, kind="serial") if isinstance(s, For) and s.kind == "parallel" else None

    return map_stmt(stmt, on_stmt=on_stmt)


_KIND_WORD = {
    "serial": "range",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "unrolled": "unrolled",
    "thread": "thread",
}


def stmt_text(stmt: Stmt, indent: int = 0) -> str:
    """Return a statement as Python-like text.

    Before a statement whose expressions share a long part stands `%0 := part`, a name for the
    text: nothing is computed there.
    """
    pad = "    " * indent
    if isinstance(stmt, Seq):
        return "\n".join(stmt_text(s, indent) for s in stmt.stmts) or f"{pad}pass"
    parts = Parts("%{}")
    exprs = stmt.buffer.shape if isinstance(stmt, Allocate) else stmt_exprs(stmt)
    head = _head_text(stmt, parts.shorten(exprs))
    pragmas = stmt.pragmas if isinstance(stmt, For) else ()
    lines = [f"{name} := {value}" for name, value in parts.values]
    lines += [f"# pragma {key} = {value!r}" for key, value in pragmas]
    text = "\n".join(pad + line for line in [*lines, head])
    if isinstance(stmt, (Allocate, Let)):
        return f"{text}\n{stmt_text(stmt.body, indent)}"
    for word, inner in zip(("", f"\n{pad}else:"), sub_stmts(stmt), strict=False):
        text += f"{word}\n{stmt_text(inner, indent + 1)}"
    return text


def _head_text(stmt: Stmt, exprs: Sequence[Expr]) -> str:
    """Return the line of a statement without those inside of it; `exprs` stand for its own."""
    if isinstance(stmt, For):
        thread = f', "{stmt.thread}"' if stmt.thread else ""
        return f"for {stmt.var} in {_KIND_WORD[stmt.kind]}({exprs[0]}{thread}):"
    if isinstance(stmt, Store):
        return f"{stmt.buffer.name}[{', '.join(map(str, exprs[:-1]))}] = {exprs[-1]}"
    if isinstance(stmt, Prefetch):
        level = "" if stmt.level == 1 else f", level={stmt.level}"
        return f"prefetch({stmt.buffer.name}[{', '.join(map(str, exprs))}]{level})"
    if isinstance(stmt, Allocate):
        apart = stmt.buffer.strides
        strides = "" if apart is None else f", strides=[{', '.join(map(str, apart))}]"
        return f"{_buffer_text(stmt.buffer, exprs)} = alloc({stmt.buffer.scope}{strides})"
    if isinstance(stmt, Let):
        return f"{stmt.var} = {exprs[0]}"
    if isinstance(stmt, Evaluate):
        return str(exprs[0])
    return f"if {exprs[0]}:" if isinstance(stmt, If) else "barrier()"


def func_text(func: PrimFunc) -> str:
    """Return a function as Python-like text; `%size0 := part` is said of the shapes above it."""
    parts = Parts("%size{}")
    params = [_buffer_text(b, parts.shorten(b.shape, repeated=True)) for b in func.params]
    params += [f"{v}: {v.dtype}" for v in func.sizes]
    sizes = "".join(f"    {name} := {value}\n" for name, value in parts.values)
    return f"def {func.name}({', '.join(params)}):\n{sizes}{stmt_text(func.body, 1)}\n"


def _buffer_text(buffer: Buffer, shape: Sequence[Expr]) -> str:
    return f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, shape))}]"


def verify(func: PrimFunc) -> None:
    """Check that a function is well formed.

    Raises:
        InternalError: an undefined variable or buffer is used, an index count is wrong, a stored
            value has the wrong dtype, a variable is bound twice, or a thread loop is inside of
            one of its tag or has another extent than one of its tag elsewhere.
    """
    _Verifier(func).run()


class _Verifier:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.known: set[object] = {*func.sizes, *func.params}
        """The variables and buffers that exist where a statement stands."""
        self.threads: dict[str, Expr] = {}
        self.open_threads: set[str] = set()

    def run(self) -> None:
        self._stmt(self.func.body)

    def _fail(self, problem: str) -> None:
        raise InternalError(f"{problem}", at=f"kernel {self.func.name}")

    def _expr(self, e: Expr) -> None:
        for n in walk(e):
            if isinstance(n, Var) and n not in self.known:
                self._fail(f"variable {n.name} is used outside the loop that defines it")
            if isinstance(n, ex.Load) and n.source not in self.known:
                self._fail(f"buffer {n.source.name} is read where it does not exist")

    def _stmt(self, s: Stmt) -> None:
        for e in stmt_exprs(s):
            if not e.leaves <= self.known:
                self._expr(e)
        if isinstance(s, For):
            with self._thread(s):
                self._bind(s.var, s.body)
        elif isinstance(s, Let):
            self._bind(s.var, s.body)
        elif isinstance(s, Allocate):
            self.known.add(s.buffer)
            self._stmt(s.body)
            self.known.discard(s.buffer)
        elif isinstance(s, Store):
            self._store(s)
        elif isinstance(s, Prefetch):
            self._prefetch(s)
        else:
            for b in sub_stmts(s):
                self._stmt(b)

    def _bind(self, var: Var, body: Stmt) -> None:
        if var in self.known:
            self._fail(f"variable {var.name} is bound twice, one inside of the other")
        self.known.add(var)
        self._stmt(body)
        self.known.discard(var)

    @contextmanager
    def _thread(self, s: For) -> Iterator[None]:
        if s.kind != "thread":
            yield
            return
        if not self.open_threads:
            self.threads = {}
        if s.thread in self.open_threads:
            self._fail(f"a loop over {s.thread} is inside of another one")
        if self.threads.setdefault(s.thread, s.extent) is not s.extent:
            self._fail(f"{s.thread} runs to {s.extent} here and {self.threads[s.thread]} elsewhere")
        self.open_threads.add(s.thread)
        yield
        self.open_threads.discard(s.thread)

    def _store(self, s: Store) -> None:
        if s.buffer not in self.known:
            self._fail(f"buffer {s.buffer.name} is written where it does not exist")
        if len(s.indices) != len(s.buffer.shape):
            self._fail(f"{s.buffer.name} is written with {len(s.indices)} indices")
        if s.value.dtype != s.buffer.dtype:
            self._fail(f"a {s.value.dtype} value is stored in {s.buffer}")

    def _prefetch(self, s: Prefetch) -> None:
        if s.buffer not in self.known:
            self._fail(f"buffer {s.buffer.name} is prefetched where it does not exist")
        if len(s.indices) != len(s.buffer.shape):
            self._fail(f"{s.buffer.name} is prefetched with {len(s.indices)} indices")


def shape_of(*dims: int) -> tuple[Expr, ...]:
    """Return integer extents as a shape."""
    return tuple(Const.of(d) for d in dims)
