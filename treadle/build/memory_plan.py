# SPDX-License-Identifier: Apache-2.0
"""Where every value of a fused graph lives: aliases, concatenations written in place, one arena.

A result overwrites an operand that it reads element by element and nothing needs any more.
Values whose lives do not overlap share memory. A life runs from the step that makes a value to the
last step that reads it (or a view of it). Placement is greedy by size: the largest value takes the
lowest offset that is free during its whole life (Pisarchyk and Lee, "Efficient memory management
for deep neural net inference", 2020). `reuse` then spreads values out where that is faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

import numpy as np

from treadle.build.in_place import overwritable
from treadle.build.reuse import Caches, spread
from treadle.build.size_checks import SizeCheck, size_checks
from treadle.errors import InternalError
from treadle.expr.nodes import Var, int_value
from treadle.graph import nodes as g
from treadle.graph.nodes import Function, Node
from treadle.graph.operator import Operator, bodies_of
from treadle.graph.symbols import decided_by, free_symbols, in_order, symbols_in
from treadle.graph.types import Dim, TensorType, TupleType, tensor_type
from treadle.loop.nodes import ALIGNMENT
from treadle.lower.plan_workspace import gaps
from treadle.ops.control import LoopAttrs
from treadle.ops.index_checks import CheckAttrs
from treadle.ops.random import random_key
from treadle.ops.select import bind_size, depend_on

Kind = Literal["input", "output", "constant", "arena", "workspace"]


@dataclass(slots=True, eq=False)
class Value:
    """One buffer of the plan; `root` and `offset` place a view inside another value."""

    type: TensorType
    kind: Kind
    name: str = ""
    offset: int = 0
    root: Value | None = None
    first: int = 0
    last: int = 0
    index: int = -1

    scratch: Dim = 0
    """Bytes of a workspace."""

    @property
    def nbytes(self) -> int:
        """The size in bytes; 0 where each run decides."""
        if self.kind == "workspace":
            return self.scratch if isinstance(self.scratch, int) else 0
        return self.type.nbytes if self.type.is_static else 0

    @property
    def is_static(self) -> bool:
        """True when the size is known."""
        return self.type.is_static and isinstance(self.scratch, int)

    @property
    def address(self) -> tuple[Value, int]:
        """Return the owner and the byte offset from the start of the arena (or of the owner)."""
        owner, offset = self.place()
        return owner, offset + (owner.offset if owner.kind in ("arena", "workspace") else 0)

    def place(self) -> tuple[Value, int]:
        """Return the value that owns the memory and the byte offset inside it."""
        owner, offset = self, 0
        while owner.root is not None:
            offset += owner.offset
            owner = owner.root
        return owner, offset


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of a kernel by one call: its name, its scratch memory, the sizes it is given."""

    name: str
    workspace_bytes: Dim = 0
    sizes: tuple[Var, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """What a branch or loop runs: plans of its bodies, and the sizes it is given and decides.

    `decides` lists sizes with the result and the axis they are the extent of.
    """

    bodies: tuple[MemoryPlan, ...]
    states: int = 0
    given: tuple[Var, ...] = ()
    decides: tuple[tuple[Var, int, int], ...] = ()


StepKind = Literal["call", "copy", "size", "if", "loop", "result", "check", "random"]


@dataclass(slots=True)
class Step:
    """One instruction: a kernel call, or what `kind` says.

    "copy" copies one value; "size" gives `sizes` the number in its input; "if" and "loop" run a
    `block`, and "result" stores its result number `index`; "check" refuses indices in its input
    outside of `extents`, those of the axes from `index` on. "random" stores a new key.
    """

    kernel: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: str = ""
    workspace: Value | None = None
    node: g.Call | None = None
    sizes: tuple[Var, ...] = ()
    kind: StepKind = "call"
    block: Block | None = None
    index: int = 0
    extents: tuple[Dim, ...] = ()

    @property
    def is_copy(self) -> bool:
        """True when the step copies `inputs[0]` to `outputs[0]`."""
        return self.kind == "copy"

    @property
    def args(self) -> tuple[Value, ...]:
        """All values in the order of the kernel's buffers."""
        scratch = () if self.workspace is None else (self.workspace,)
        return (*self.inputs, *self.outputs, *scratch)


@dataclass(slots=True)
class MemoryPlan:
    """All values, the steps over them, and the sizes that the summary prints."""

    values: list[Value]
    inputs: list[tuple[str, Value]]
    outputs: list[tuple[str, Value]]
    steps: list[Step]
    constants: dict[str, np.ndarray]
    arena_bytes: int = 0
    naive_bytes: int = 0
    """The sum of all intermediate values, none sharing memory."""
    is_dynamic: bool = False
    """Sizes are decided by each run, and so are the places of values."""
    checks: list[SizeCheck] = field(default_factory=list)
    """Sizes that every run must find equal."""
    given: tuple[Var, ...] = ()
    """Sizes that a body is given by the plan around it."""


def plan_memory(
    main: Function,
    kernels: Mapping[g.Call, Launch],
    output_names: Sequence[str],
    overwrite_from: int | None = 0,
    caches: Caches | None = None,
) -> MemoryPlan:
    """Return the plan of a fused function.

    `kernels` says what each call runs; calls that are pure aliases (reshape alone) or in-place
    concatenations need none. Only results of `overwrite_from` bytes or more take the memory of an
    operand: what fits a core's cache the others have just read from there, and are slow to give up.
    With None no result does. Where the cores have several `caches`, the arena may be larger, so
    that memory is written again when it has left them (`reuse`).
    """
    planner = _Planner(main, kernels, output_names, _Weights())
    planner.overwrite_from, planner.caches = overwrite_from, caches
    return planner.run()


def is_alias(call: g.Call) -> bool:
    """True for a group that only renames its input: one reshape."""
    inner = sole_call(call)
    return inner is not None and _op_name(inner) == "reshape" and isinstance(inner.args[0], g.Var)


def sole_call(call: g.Call) -> g.Call | None:
    """Return the only operator call of a group, None where there are several."""
    if not isinstance(call.op, Function) or not isinstance(call.op.body, g.Call):
        return None
    inner = call.op.body
    return None if any(isinstance(a, g.Call) for a in inner.args) else inner


def _op_name(call: g.Call) -> str:
    return "" if isinstance(call.op, Function) else call.op.name


def concat_parts(call: g.Call) -> list[Node] | None:
    """Return the operands of a group that is one concatenation of whole blocks of memory.

    That is so when every dimension before the axis has extent 1, and each part starts at a
    multiple of ALIGNMENT bytes.
    """
    inner = sole_call(call)
    if inner is None or _op_name(inner) != "concat":
        return None
    axis: int = inner.attrs.axis  # type: ignore[union-attr]  # concat's attributes have an axis
    result = tensor_type(inner.type)
    if not result.is_static or prod(result.static_shape[:axis]) != 1:
        return None
    assert isinstance(call.op, Function)
    position = {p: i for i, p in enumerate(call.op.params)}
    parts: list[Node] = []
    offset = 0
    for a in inner.args:
        if not isinstance(a, g.Var) or offset % ALIGNMENT:
            return None
        parts.append(call.args[position[a]])
        offset += tensor_type(a.type).nbytes
    return parts


class _Weights:
    """The constants of a plan and its bodies by name; an array has one name."""

    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}

    def name_of(self, value: np.ndarray) -> str:
        """Return the name of an array, which `by_name` keeps alive."""
        if id(value) not in self._names:
            name = self._names[id(value)] = f"p{len(self.by_name)}"
            self.by_name[name] = value
        return self._names[id(value)]


class _Planner:
    def __init__(
        self,
        main: Function,
        kernels: Mapping[g.Call, Launch],
        output_names: Sequence[str],
        weights: _Weights,
        given: Sequence[Var] | None = None,
    ) -> None:
        """`given` are the sizes of a body; None for a whole model."""
        self.main = main
        self.kernels = kernels
        self.weights = weights
        self.is_body = given is not None
        self.overwrite_from: int | None = 0
        self.caches: Caches | None = None
        self.plan = MemoryPlan([], [], [], [], weights.by_name, given=tuple(given or ()))
        self.values: dict[tuple[Node, int], Value] = {}
        self.names = list(output_names)
        self.order, deciders = in_order(main)
        self.reads: dict[Node, list[Var]] = {}
        for size, node in deciders.items():
            self.reads.setdefault(node, []).append(size)
        self.results = {r: None for r in g.outputs_of(main.body)}

    def run(self) -> MemoryPlan:
        for param in self.main.params:
            value = self._add(Value(tensor_type(param.type), "input", param.name), (param, 0))
            self.plan.inputs.append((param.name, value))
            self._read_sizes(param)
        for node in self.order:
            self._node(node)
            if node not in self.main.params:
                self._read_sizes(node)
        self._outputs()
        self._place()
        if self.is_body:
            self.plan.checks = size_checks(self.main)
        return self.plan

    def _add(self, value: Value, key: tuple[Node, int] | None = None) -> Value:
        value.index = len(self.plan.values)
        self.plan.values.append(value)
        if key is not None:
            self.values[key] = value
        return value

    def _node(self, node: Node) -> None:
        if isinstance(node, g.Constant):
            name = self.weights.name_of(node.value)
            self._add(Value(node.type, "constant", name), (node, 0))
        elif isinstance(node, g.TupleItem):
            self.values[node, 0] = self.values[node.value, node.index]
        elif isinstance(node, g.Call):
            self._call(node)

    def _call(self, node: g.Call) -> None:
        args = [self.values[a, 0] for a in node.args]
        if isinstance(node.op, Operator):
            self._control(node, args)
            return
        if is_alias(node):
            view = Value(tensor_type(node.type), "arena", root=args[0])
            self._add(view, (node, 0))
            return
        parts = concat_parts(node)
        if parts is not None:
            self._concat(node, [self.values[p, 0] for p in parts])
            return
        types = node.type.fields if isinstance(node.type, TupleType) else (node.type,)
        results = [Value(tensor_type(t), "arena") for t in types]
        for i, result in enumerate(results):
            self._add(result, (node, i))
        use = self.kernels[node]
        step = Step(use.name, tuple(args), tuple(results), node.origin, node=node, sizes=use.sizes)
        if int_value(use.workspace_bytes) != 0:
            made = Value(TensorType((), "uint8"), "workspace", scratch=use.workspace_bytes)
            step.workspace = self._add(made)
        self.plan.steps.append(step)

    def _control(self, node: g.Call, args: list[Value]) -> None:
        """Add the steps of a call that no kernel computes: a size, a branch, or a loop."""
        if node.op in (bind_size, depend_on):
            self.values[node, 0] = args[0]
            return
        if isinstance(node.attrs, CheckAttrs):
            self.values[node, 0] = args[0]
            step = Step("", (args[0],), (), node.origin, kind="check", index=node.attrs.axis)
            step.extents = node.attrs.extents
            self.plan.steps.append(step)
            return
        if node.op is random_key:
            key = self._add(Value(tensor_type(node.type), "arena"), (node, 0))
            self.plan.steps.append(Step("", (), (key,), node.origin, kind="random"))
            return
        bodies = bodies_of(node)
        if not bodies:
            raise InternalError(f"operator {node.op} is left outside of every group")
        given = tuple({s: None for f in bodies for s in free_symbols(f)})
        plans = (_Planner(f, self.kernels, (), self.weights, given).run() for f in bodies)
        states = node.attrs.states if isinstance(node.attrs, LoopAttrs) else 0
        block = Block(tuple(plans), states, given, _decided(node))
        kind: StepKind = "loop" if isinstance(node.attrs, LoopAttrs) else "if"
        self.plan.steps.append(Step("", tuple(args), (), node.origin, kind=kind, block=block))
        for i, type_ in enumerate(node.type.fields if isinstance(node.type, TupleType) else ()):
            made = self._add(Value(tensor_type(type_), "arena"), (node, i))
            step = Step("", (), (made,), node.origin, kind="result", index=i)
            self.plan.steps.append(step)

    def _read_sizes(self, node: Node) -> None:
        """Add the steps that read sizes from a value which has just been computed."""
        if isinstance(node, g.Call) and bodies_of(node):
            return  # a branch or loop tells them itself
        for size in self.reads.get(node, ()):
            value = self.values[node, 0]
            step = Step("", (value,), (), node.origin, sizes=(size,), kind="size")
            self.plan.steps.append(step)

    def _concat(self, node: g.Call, parts: list[Value]) -> None:
        whole = self._add(Value(tensor_type(node.type), "arena"), (node, 0))
        offset = 0
        for part in parts:
            owner, at = part.place()
            if owner is not whole and self._may_be_part(part, owner, at):
                owner.root, owner.offset = whole, offset
            else:
                view = Value(part.type, "arena", root=whole, offset=offset)
                self._add(view)
                self.plan.steps.append(Step("", (part,), (view,), node.origin, kind="copy"))
            offset += part.nbytes

    def _may_be_part(self, part: Value, owner: Value, at: int) -> bool:
        """True where a part, or the value that it is another shape of, can lie inside another."""
        if owner.kind != "arena" or self._is_result(owner):
            return False
        is_view = owner.is_static and part.is_static and not at and owner.nbytes == part.nbytes
        return owner is part or is_view

    def _is_result(self, owner: Value) -> bool:
        found = (self.values.get((r, 0)) for r in self.results)
        return any(v is not None and v.place()[0] is owner for v in found)

    def _outputs(self) -> None:
        results = g.outputs_of(self.main.body)
        names = self.names or [f"output_{i}" for i in range(len(results))]
        for name, node in zip(names, results, strict=True):
            value = self.values[node, 0]
            made = self._add(Value(tensor_type(node.type), "output", name))
            owner, _ = value.place()
            if self._may_be_output(value, owner):
                owner.root = made  # the kernel writes the output itself, under another shape or not
            else:
                self.plan.steps.append(Step("", (value,), (made,), f"output {name}", kind="copy"))
            self.plan.outputs.append((name, made))

    def _may_be_output(self, value: Value, owner: Value) -> bool:
        places = (v.place() for v in self.plan.values)
        has_parts = any(o is owner and offset for o, offset in places)
        if owner.kind != "arena" or has_parts:
            return False
        if set(symbols_in(value.type.shape)) - set(symbols_in(owner.type.shape)):
            return False  # sizes that may be known only after it is made
        return owner.nbytes == value.nbytes or not owner.is_static  # a view of it all

    # -- placement -----------------------------------------------------------------------------

    def _place(self) -> None:
        is_plain = all(s.kind in ("call", "copy", "check", "random") for s in self.plan.steps)
        is_static = is_plain and all(v.is_static for v in self.plan.values)
        self.plan.is_dynamic = self.is_body or not is_static
        if self.plan.is_dynamic:
            return  # every run finds the places for its own sizes
        owners = self._lives()
        self.plan.naive_bytes = sum(_round(v.nbytes) for v in owners if v.kind == "arena")
        homes = self._overwritten()
        nbytes = assign_offsets([v for v in owners if v not in homes])
        if self.caches is not None:
            nbytes = spread(self.plan.steps, homes, nbytes, self.caches)
        self.plan.arena_bytes = nbytes
        for value, home in homes.items():
            value.offset = home.offset

    def _overwritten(self) -> dict[Value, Value]:
        """Return by result the value whose memory it takes; that value lives on as the result."""
        homes: dict[Value, Value] = {}
        least = self.overwrite_from
        if least is None:
            return homes
        for position, step in enumerate(self.plan.steps):
            if step.kind != "call" or step.node is None or len(step.outputs) != 1:
                continue
            made, _ = step.outputs[0].place()
            if made is not step.outputs[0] or made.kind != "arena":
                continue
            if made.nbytes < least:
                continue
            assert isinstance(step.node.op, Function)
            owners = [owner for owner, _ in (v.place() for v in step.inputs)]
            read = [homes.get(owner, owner) for owner in owners]
            for home in (read[i] for i in overwritable(step.node.op)):
                is_free = home.kind == "arena" and home.last == position
                if is_free and read.count(home) == 1 and home.nbytes == made.nbytes:
                    homes[made], home.last = home, made.last
                    break
        return homes

    def _lives(self) -> list[Value]:
        """Set first and last use of every owner of arena memory; return the owners."""
        seen: dict[Value, None] = {}
        for position, step in enumerate(self.plan.steps):
            for value in step.args:
                owner, _ = value.place()
                if owner.kind not in ("arena", "workspace"):
                    continue
                if owner not in seen:
                    seen[owner] = None
                    owner.first = position
                owner.last = position
        return list(seen)


def _decided(node: g.Call) -> tuple[tuple[Var, int, int], ...]:
    """Return the sizes that a branch or loop decides, with the first extent each is."""
    fields = node.type.fields if isinstance(node.type, TupleType) else ()
    sizes, found = decided_by(node), dict[Var, tuple[Var, int, int]]()
    for i, part in enumerate(fields):
        for axis, dim in enumerate(tensor_type(part).shape):
            if isinstance(dim, Var) and dim in sizes:
                found.setdefault(dim, (dim, i, axis))
    return tuple(found.values())


def _round(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


def assign_offsets(values: Sequence[Value]) -> int:
    """Give values with lives [first, last] offsets; return the bytes they take together."""
    order = sorted(values, key=lambda v: (-v.nbytes, v.first))
    count = len(order)
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for i, value in enumerate(order):
        clash = np.nonzero((first[:i] <= value.last) & (last[:i] >= value.first))[0]
        clash = clash[np.argsort(low[clash], kind="stable")]
        size = _round(value.nbytes)
        taken = zip(low[clash].tolist(), high[clash].tolist(), strict=True)
        value.offset = offset = next(gaps(taken, size))[0]
        first[i], last[i], low[i], high[i] = value.first, value.last, offset, offset + size
    return int(high.max()) if count else 0
