# SPDX-License-Identifier: Apache-2.0
"""Runs a memory plan in NumPy: steps read and write views of one arena, kernels by their meaning.

Memory that nothing lives in is garbage: the arena starts poisoned, and a kernel's workspace is
overwritten while the kernel runs. A plan that lets two live values share memory gives wrong
results here, whatever machine code would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treadle import dtype as dt
from treadle.build.compile import kernels_of
from treadle.build.in_place import overwritable
from treadle.build.memory_plan import Launch, MemoryPlan, Step, Value, plan_memory
from treadle.build.reuse import Caches
from treadle.graph import interpret
from treadle.graph.nodes import Call, Function
from treadle.target.base import Target

GARBAGE = 0xA5


def plan_of(
    main: Function, target: Target, workspaces: Sequence[int] = (), caches: Caches | None = None
) -> MemoryPlan:
    """Return the plan of a fused function; call k needs `workspaces[k]` bytes (0 beyond)."""
    _, calls = kernels_of(main, target)
    sizes = [*workspaces, *[0] * len(calls)]
    launches = {c: Launch("kernel", sizes[i]) for i, c in enumerate(calls)}
    return plan_memory(main, launches, (), caches=caches)


def run(plan: MemoryPlan, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a plan."""
    machine = _Machine(plan, inputs)
    for step in plan.steps:
        machine.step(step)
    return [machine.view(value).copy() for _, value in plan.outputs]


class _Machine:
    def __init__(self, plan: MemoryPlan, inputs: Mapping[str, np.ndarray]) -> None:
        self.arena = np.full(plan.arena_bytes, GARBAGE, np.uint8)
        self.owned: dict[Value, np.ndarray] = {}
        for name, value in plan.inputs:
            self.owned[value] = _bytes_of(inputs[name])
        for value in plan.values:
            if value.kind == "constant":
                self.owned[value] = _bytes_of(plan.constants[value.name])
            elif value.kind == "output":
                self.owned[value] = np.full(value.nbytes, GARBAGE, np.uint8)
        for memory in self.owned.values():
            memory.flags.writeable = True

    def memory(self, value: Value) -> np.ndarray:
        owner, offset = value.place()
        if owner.kind in ("arena", "workspace"):
            base, offset = self.arena, offset + owner.offset
        else:
            base = self.owned[owner]
        assert 0 <= offset <= len(base) - value.nbytes, f"{value} is outside of its memory"
        return base[offset : offset + value.nbytes]

    def view(self, value: Value) -> np.ndarray:
        typed = self.memory(value).view(dt.to_numpy(value.type.dtype))
        return typed.reshape(value.type.static_shape)

    def step(self, step: Step) -> None:
        if step.is_copy:
            self.memory(step.outputs[0])[:] = self.memory(step.inputs[0])
            return
        node = step.node
        assert isinstance(node, Call)
        assert isinstance(node.op, Function)
        arrays = [self.view(v).copy() for v in step.inputs]
        if step.workspace is not None:
            self.memory(step.workspace)[:] = GARBAGE
        for value in step.outputs:  # a kernel may write its result before it has read its inputs
            self.memory(value)[:] = GARBAGE
        for value, before in zip(step.inputs, arrays, strict=True):
            same = self.memory(value) == before.reshape(-1).view(np.uint8)
            assert same.all() or self.is_read_in_place(step, value), (
                f"{step.origin}: a result overwrites the input {value}"
            )
        found = interpret.evaluate(node.op, arrays)
        results = found if isinstance(found, tuple) else (found,)
        for value, result in zip(step.outputs, results, strict=True):
            assert isinstance(result, np.ndarray)
            self.view(value)[...] = result

    def is_read_in_place(self, step: Step, value: Value) -> bool:
        """True where a result takes the memory of an operand that its kernel reads in place."""
        assert step.node is not None
        assert isinstance(step.node.op, Function)
        same = [i for i, v in enumerate(step.inputs) if v is value]
        return (
            set(same) <= set(overwritable(step.node.op))
            and value.address[1] == step.outputs[0].address[1]
            and value.nbytes == step.outputs[0].nbytes
        )


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
