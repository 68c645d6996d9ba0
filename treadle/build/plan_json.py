# SPDX-License-Identifier: Apache-2.0
"""The plan as data: what the native executor walks, and v0.8's graph JSON around it."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.build.cost import Cost, group_cost
from treadle.build.memory_plan import MemoryPlan, Step, Value
from treadle.build.size_checks import SizeCheck
from treadle.build.sizes import SizeTable, can_tell, size_to_json
from treadle.errors import InternalError, TypeMismatch
from treadle.expr.nodes import Var
from treadle.graph.nodes import Function
from treadle.graph.types import Dim, TensorType
from treadle.target.base import Target

STATIC, DYNAMIC = 1, 2
"""Versions of the plan: all sizes are numbers, or each run decides some."""

Json = dict[str, object]


def plan_to_json(plan: MemoryPlan, target: Target, stack_bytes: int = 0) -> Json:
    """Return the plan in the form of docs/design/plan.md.

    `stack_bytes` is the most that a kernel takes of the stack of a thread that runs it.
    """
    table = _SizedTable(plan) if plan.is_dynamic else _ValueTable()
    inputs = [{"name": n, "value": table.add(v)} for n, v in plan.inputs]
    blocks = _Blocks(table)
    steps = [_step(s, table) if s.kind == "call" else blocks.row(s) for s in plan.steps]
    outputs = [{"name": n, "value": table.add(v)} for n, v in plan.outputs]
    checks = table.checks(plan.checks)
    return {
        "version": DYNAMIC if plan.is_dynamic else STATIC,
        "target": str(target),
        "triple": target.triple,
        "cpu_features": list(target.required_features),
        "input_alignment": target.input_alignment,
        **({"stack_bytes": stack_bytes} if stack_bytes else {}),
        "values": table.rows,
        "inputs": inputs,
        "outputs": outputs,
        **({"sizes": table.sizes} if plan.is_dynamic else {"arena_bytes": plan.arena_bytes}),
        **({"plans": [plan_to_json(b, target) for b in _bodies(plan)]} if _bodies(plan) else {}),
        **({"checks": checks} if checks else {}),
        "instructions": steps,
    }


def _bodies(plan: MemoryPlan) -> list[MemoryPlan]:
    return [b for s in plan.steps if s.block is not None for b in s.block.bodies]


class _ValueTable:
    """The distinct places of a plan; views at offset 0 of an input or constant are that value."""

    def __init__(self) -> None:
        self.rows: list[Json] = []
        self.sizes: list[Json] = []
        self._index: dict[tuple[object, ...], int] = {}

    def add(self, value: Value) -> int:
        owner, offset = value.address
        in_arena = owner.kind in ("arena", "workspace")
        shown = value if in_arena else owner
        size = value.scratch if value.kind == "workspace" else value.type
        key = (owner.kind, offset, size) if in_arena else (owner.kind, owner.name)
        if key not in self._index:
            self._index[key] = len(self.rows)
            self.rows.append(_row(shown.type, owner, offset))
        return self._index[key]

    def dims(self, sizes: Sequence[Var]) -> list[Json]:
        """Return the sizes of a call as the plan gives them to its kernel."""
        if sizes:
            raise InternalError(f"a plan of fixed sizes has the size {sizes[0]}")
        return []

    def extents(self, dims: Sequence[Dim]) -> list[object]:
        """Return extents as the plan states them."""
        return list(dims)

    def checks(self, checks: Sequence[SizeCheck]) -> list[Json]:
        """Return what every run compares; all sizes of a static plan were compared already."""
        return []


class _SizedTable(_ValueTable):
    """The values of a dynamic plan: places are found at run time, so a view says of what it is."""

    def __init__(self, plan: MemoryPlan) -> None:
        super().__init__()
        decides: dict[Var, tuple[int, int]] = {}
        for position, (_, value) in enumerate(plan.inputs):
            for axis, dim in enumerate(value.type.shape):
                if isinstance(dim, Var):
                    decides.setdefault(dim, (position, axis))
        read = {s: None for step in plan.steps if step.kind == "size" for s in step.sizes}
        made = {s: None for step in plan.steps if step.block for s, _, _ in step.block.decides}
        self._sizes = SizeTable(decides, plan.given, [*read, *made])
        self.sizes = self._sizes.rows

    def add(self, value: Value) -> int:
        owner, offset = value.place()
        own = owner is value or (offset == 0 and owner.type == value.type)
        key: tuple[object, ...] = (owner,) if own else (owner, offset, value.type)
        if key in self._index:
            return self._index[key]
        row = self._owner_row(owner) if own else self._view_row(value, self.add(owner), offset)
        self._index[key] = len(self.rows)
        self.rows.append(row)
        return self._index[key]

    def dims(self, sizes: Sequence[Var]) -> list[Json]:
        return [{"size": self._sizes.row_of(s)} for s in sizes]

    def extents(self, dims: Sequence[Dim]) -> list[object]:
        return [self._sizes.refer(d) for d in dims]

    def checks(self, checks: Sequence[SizeCheck]) -> list[Json]:
        # What is not known any more belongs to a value that nothing needs.
        knows = self._sizes.knows
        return [self._check_row(c) for c in checks if knows(c.rule.a) and knows(c.rule.b)]

    def _check_row(self, check: SizeCheck) -> Json:
        a, b = self._sizes.refer(check.rule.a), self._sizes.refer(check.rule.b)
        row: Json = {"a": a, "b": b, "origin": check.origin}
        if check.rule.rule != "equal":
            row |= {"rule": check.rule.rule, "axis": check.rule.axis}
        return row

    def _type_row(self, kind: str, type_: TensorType) -> Json:
        shape = [self._sizes.refer(d) for d in type_.shape]
        return {"kind": kind, "dtype": type_.dtype, "shape": shape}

    def _owner_row(self, owner: Value) -> Json:
        row = self._type_row(owner.kind, owner.type)
        if owner.kind == "workspace":
            row["bytes"] = self._sizes.refer(owner.scratch)
        elif owner.kind == "constant":
            row["param"] = owner.name
        return row

    def _view_row(self, value: Value, of: int, offset: int) -> Json:
        return self._type_row("view", value.type) | {"of": of, "offset": offset}


class _Blocks:
    """The rows of instructions that are no kernel: sizes, branches, loops and their results."""

    def __init__(self, table: _ValueTable) -> None:
        self.table = table
        self.bodies = 0

    def row(self, step: Step) -> Json:
        """Return the row of one step; bodies are numbered in their order."""
        args = [self.table.add(v) for v in step.inputs]
        row: Json = {"op": step.kind, "origin": step.origin}
        if step.kind == "copy":
            return row | {"from": args[0], "to": self.table.add(step.outputs[0])}
        if step.kind == "random":
            return row | {"to": self.table.add(step.outputs[0])}
        if step.kind == "check":
            dims = self.table.extents(step.extents)
            return row | {"args": args, "dims": dims, "axis": step.index}
        if step.kind == "size":
            rows = [d["size"] for d in self.table.dims(step.sizes)]
            return row | {"from": args[0], "sizes": rows}
        if step.kind == "result":
            return row | {"index": step.index, "to": self.table.add(step.outputs[0])}
        assert step.block is not None
        decides = [
            {**self.table.dims([symbol])[0], "result": result, "axis": axis}
            for symbol, result, axis in step.block.decides
        ]
        row |= {"args": args, "given": self.table.dims(step.block.given), "sizes": decides}
        first = self.bodies
        self.bodies += len(step.block.bodies)
        if step.kind == "if":
            return row | {"then": first, "else": first + 1}
        return row | {"body": first, "states": step.block.states}


def _row(type_: TensorType, owner: Value, offset: int) -> Json:
    if owner.kind == "workspace":
        type_ = TensorType((owner.nbytes,), "uint8")
    row: Json = {
        "kind": owner.kind,
        "dtype": type_.dtype,
        "shape": list(type_.static_shape),
        "bytes": type_.nbytes,
    }
    if owner.kind in ("arena", "workspace"):
        row["offset"] = offset
    elif owner.kind == "constant":
        row["param"] = owner.name
    return row


def _step(step: Step, table: _ValueTable) -> Json:
    args = [table.add(v) for v in step.args]
    row: Json = {"op": "call", "kernel": step.kernel, "args": args}
    row["dims"] = table.dims(step.sizes)
    row["origin"] = step.origin
    if (cost := _cost(step)) is not None:
        work = {"flops": cost.flops, "bytes": cost.bytes}
        sizes = step.sizes
        row |= {k: size_to_json(v, sizes) for k, v in work.items() if can_tell(v, sizes)}
        row |= {"saves": True} if cost.saves else {}
    return row


def _cost(step: Step) -> Cost | None:
    """Return the work of a call; None where an operator cannot count it over dynamic sizes."""
    if step.node is None or not isinstance(step.node.op, Function):
        return None
    try:
        return group_cost(step.node.op)
    except TypeMismatch:
        if not step.sizes:
            raise
        return None


def graph_json(plan: MemoryPlan, treadle_plan: Json, hashes: dict[str, str]) -> Json:
    """Return the plan as v0.8's graph-executor JSON, with Treadle's own plan under "treadle"."""
    graph = _Graph(plan)
    arg_nodes = list(range(len(graph.nodes)))
    for step in plan.steps:
        if step.kind != "check":  # v0.8 has none
            graph.add_step(step)
    heads = [[*graph.entry(v), 0] for _, v in plan.outputs]
    rows = graph.rows
    storage: dict[tuple[str, int], int] = {}
    ids = [storage.setdefault(_storage_key(v, plan.is_dynamic), len(storage)) for v in rows]
    return {
        "nodes": graph.nodes,
        "arg_nodes": arg_nodes,
        "heads": heads,
        "attrs": {
            "dltype": ["list_str", [v.type.dtype for v in rows]],
            "device_index": ["list_int", [1] * len(rows)],
            "storage_id": ["list_int", ids],
            "shape": ["list_shape", [_shown_shape(v) for v in rows]],
        },
        "node_row_ptr": graph.pointer,
        "treadle": treadle_plan,
        "hashes": hashes,
    }


class _Graph:
    """Nodes as v0.8 lists them; `rows` are the values all nodes give, in order."""

    def __init__(self, plan: MemoryPlan) -> None:
        self.nodes: list[Json] = []
        self.rows: list[Value] = []
        self.pointer = [0]
        self._at: dict[Value, tuple[int, int]] = {}
        self._parts: dict[Value, list[Value]] = {}
        self._missing: dict[Value, int] = {}
        for step in plan.steps:
            for value in step.outputs:
                self._count_parts(value)
        for name, value in plan.inputs:
            self._add({"op": "null", "name": name, "inputs": []}, [value])
        for value in plan.values:
            if value.kind == "constant" and value not in self._at:
                self._add({"op": "null", "name": value.name, "inputs": []}, [value])

    def _count_parts(self, value: Value) -> None:
        """Register a value that a step writes with what it is a part of, up to the whole."""
        while value.root is not None:
            parts = self._parts.setdefault(value.root, [])
            parts.append(value)
            self._missing[value.root] = len(parts)
            if len(parts) > 1:
                return
            value = value.root

    def add_step(self, step: Step) -> None:
        """Add the node of one instruction.

        A concatenation whose parts are all written in their places gets a node of its own.
        """
        self._add_call(step.kernel or f"__{step.kind}", step.inputs, step.outputs)
        for value in step.outputs:
            place = value
            while place.root is not None:
                place = place.root
                self._missing[place] -= 1
                if self._missing[place]:
                    break
                parts = sorted(self._parts[place], key=lambda v: v.address[1])
                self._add_call("__concat", parts, [place])

    def entry(self, value: Value) -> tuple[int, int]:
        """Return the node that made a value, and which of its outputs it is.

        A view is known by what it is a view of.
        """
        while value not in self._at and value.root is not None:
            value = value.root
        return self._at[value]

    def _add_call(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        entries = [[*self.entry(v), 0] for v in inputs]
        attrs = {
            "func_name": name,
            "num_inputs": str(len(inputs)),
            "num_outputs": str(len(outputs)),
            "flatten_data": "0",
        }
        shown = f"{name.lstrip('_')}_{len(self.nodes)}"
        self._add({"op": "tvm_op", "name": shown, "attrs": attrs, "inputs": entries}, outputs)

    def _add(self, node: Json, outputs: Sequence[Value]) -> None:
        self._at.update((v, (len(self.nodes), i)) for i, v in enumerate(outputs))
        self.nodes.append(node)
        self.rows += outputs
        self.pointer.append(len(self.rows))


def _shown_shape(value: Value) -> list[int]:
    return [d if isinstance(d, int) else -1 for d in value.type.shape]


def _storage_key(value: Value, is_dynamic: bool) -> tuple[str, int]:
    owner, offset = value.address
    if is_dynamic:  # offsets are not known: every owner is a storage of its own
        return owner.kind, owner.index
    return (owner.kind, offset) if owner.kind == "arena" else (owner.kind + owner.name, 0)
