# SPDX-License-Identifier: Apache-2.0
"""The plan as data: what the native executor walks, and v0.8's graph JSON around it."""

from __future__ import annotations

from treadle.build.cost import group_cost
from treadle.build.memory_plan import MemoryPlan, Step, Value
from treadle.graph.nodes import Function
from treadle.graph.types import TensorType
from treadle.target.base import Target

VERSION = 1

Json = dict[str, object]


def plan_to_json(plan: MemoryPlan, target: Target) -> Json:
    """Return the plan in the form of docs/design/plan.md."""
    table = _ValueTable()
    inputs = [{"name": n, "value": table.add(v)} for n, v in plan.inputs]
    steps = [_step(s, table) for s in plan.steps]
    outputs = [{"name": n, "value": table.add(v)} for n, v in plan.outputs]
    return {
        "version": VERSION,
        "target": str(target),
        "triple": target.triple,
        "cpu_features": list(target.required_features),
        "values": table.rows,
        "inputs": inputs,
        "outputs": outputs,
        "arena_bytes": plan.arena_bytes,
        "instructions": steps,
    }


class _ValueTable:
    """The distinct places of a plan; views at offset 0 of an input or constant are that value."""

    def __init__(self) -> None:
        self.rows: list[Json] = []
        self._index: dict[tuple[object, ...], int] = {}

    def add(self, value: Value) -> int:
        owner, offset = value.address
        in_arena = owner.kind in ("arena", "workspace")
        shown = value if in_arena else owner
        key = (owner.kind, offset, shown.type) if in_arena else (owner.kind, owner.name)
        if key not in self._index:
            self._index[key] = len(self.rows)
            self.rows.append(_row(shown.type, owner, offset))
        return self._index[key]


def _row(type_: TensorType, owner: Value, offset: int) -> Json:
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
    if step.is_copy:
        return {"op": "copy", "from": args[0], "to": args[1], "origin": step.origin}
    row: Json = {"op": "call", "kernel": step.kernel, "args": args, "dims": []}
    row["origin"] = step.origin
    if step.node is not None and isinstance(step.node.op, Function):
        cost = group_cost(step.node.op)
        row |= {"flops": cost.flops, "bytes": cost.bytes}
    return row


def graph_json(plan: MemoryPlan, treadle_plan: Json, hashes: dict[str, str]) -> Json:
    """Return the plan as v0.8's graph-executor JSON, with Treadle's own plan under "treadle"."""
    nodes: list[Json] = []
    at: dict[Value, tuple[int, int]] = {}
    for name, value in plan.inputs:
        at[value] = (_null_node(nodes, name), 0)
    for value in plan.values:
        if value.kind == "constant" and value not in at:
            at[value] = (_null_node(nodes, value.name), 0)
    rows: list[Value] = [*at]
    arg_nodes = list(range(len(nodes)))
    for step in plan.steps:
        rows += _op_node(nodes, step, at)
    heads = [[*_entry(v, at), 0] for _, v in plan.outputs]
    pointer = [0]
    for node in nodes:
        attrs = node.get("attrs")
        count = int(str(attrs["num_outputs"])) if isinstance(attrs, dict) else 1
        pointer.append(pointer[-1] + count)
    storage: dict[tuple[str, int], int] = {}
    ids = [storage.setdefault(_storage_key(v), len(storage)) for v in rows]
    return {
        "nodes": nodes,
        "arg_nodes": arg_nodes,
        "heads": heads,
        "attrs": {
            "dltype": ["list_str", [v.type.dtype for v in rows]],
            "device_index": ["list_int", [1] * len(rows)],
            "storage_id": ["list_int", ids],
            "shape": ["list_shape", [list(v.type.static_shape) for v in rows]],
        },
        "node_row_ptr": pointer,
        "treadle": treadle_plan,
        "hashes": hashes,
    }


def _storage_key(value: Value) -> tuple[str, int]:
    owner, offset = value.address
    return (owner.kind, offset) if owner.kind == "arena" else (owner.kind + owner.name, 0)


def _null_node(nodes: list[Json], name: str) -> int:
    nodes.append({"op": "null", "name": name, "inputs": []})
    return len(nodes) - 1


def _op_node(nodes: list[Json], step: Step, at: dict[Value, tuple[int, int]]) -> list[Value]:
    index = len(nodes)
    nodes.append(
        {
            "op": "tvm_op",
            "name": f"{step.kernel or 'copy'}_{index}",
            "attrs": {
                "func_name": step.kernel or "__copy",
                "num_inputs": str(len(step.inputs)),
                "num_outputs": str(len(step.outputs)),
                "flatten_data": "0",
            },
            "inputs": [[*_entry(v, at), 0] for v in step.inputs],
        }
    )
    at.update((v, (index, i)) for i, v in enumerate(step.outputs))
    return list(step.outputs)


def _entry(value: Value, at: dict[Value, tuple[int, int]]) -> tuple[int, int]:
    """The node and output that made a value; a view is known by what it is a view of."""
    while value not in at and value.root is not None:
        value = value.root
    return at.get(value, (0, 0))
