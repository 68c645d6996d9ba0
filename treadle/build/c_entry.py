# SPDX-License-Identifier: Apache-2.0
"""The function `NAME_run` of a model in C: its plan as calls, for programs without the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HEAD = """\
/* Runs the model once, on the calling thread, without the native runtime: this file is all it
 * needs.
 *
 * `memory` are {upper}_MEMORY_BYTES bytes. It, the inputs and the outputs, in the order above,
 * begin at multiples of {alignment} bytes and share none. Nothing is allocated and nothing kept:
 * concurrent runs need a memory each. Arrays of kernels take up to {upper}_STACK_BYTES bytes of the
 * stack, and what the compiler keeps there is some hundred more: gcc -fstack-usage tells how many.
 * Returns TD_OK; TD_INPUT where an index is out of its axis; TD_KERNEL where a kernel fails. */
#define {upper}_MEMORY_BYTES {memory}
#define {upper}_STACK_BYTES {stack}
int32_t {name}_run(void* memory, const void* const* inputs, void* const* outputs);
"""
_ALIGNMENT = 64

Json = Mapping[str, Any]  # Any: the plan is data, see docs/design/plan.md


@dataclass(frozen=True)
class EntryFunction:
    """The text that declares `NAME_run` and says what it needs, and the one that defines it."""

    declaration: str
    definition: str


def entry_function(
    name: str, plan: Json, constants: Sequence[str], stack_bytes: int
) -> EntryFunction | None:
    """Return `NAME_run`; None for a plan whose sizes or random numbers the runtime provides.

    `constants` are the names of the weights, whose arrays are `weight0`, `weight1`, ...;
    `stack_bytes` is the most that arrays of a kernel take of the stack.
    """
    writers: Mapping[str, Callable[[Json, _Places], list[str]]] = {
        "call": _call,
        "copy": _copy,
        "check": _check,
    }
    steps = plan["instructions"]
    if "sizes" in plan or any(step["op"] not in writers for step in steps):
        return None
    places = _Places(plan, constants)
    lines = [line for step in steps for line in writers[step["op"]](step, places)]
    memory = max(plan["arena_bytes"], _ALIGNMENT)
    head = _HEAD.format(
        name=name,
        upper=name.upper(),
        alignment=_ALIGNMENT,
        memory=memory,
        stack=stack_bytes,
    )
    body = "\n".join(
        [
            "",
            f"int32_t {name}_run(void* memory, const void* const* inputs, void* const* outputs) {{",
            "  unsigned char* const arena = memory;",
            "  (void)arena, (void)inputs, (void)outputs;",
            *lines,
            "  return TD_OK;",
            "}",
            "",
        ]
    )
    return EntryFunction(head, body)


class _Places:
    """Where the values of a plan lie, as C expressions of the type `void*`."""

    def __init__(self, plan: Json, constants: Sequence[str]) -> None:
        self.values: Sequence[Json] = plan["values"]
        self._inputs = {row["value"]: i for i, row in enumerate(plan["inputs"])}
        self._outputs = {row["value"]: i for i, row in enumerate(plan["outputs"])}
        self._weights = {name: i for i, name in enumerate(constants)}

    def at(self, number: int) -> str:
        """Return where a value is."""
        value = self.values[number]
        if value["kind"] == "input":
            return f"(void*)inputs[{self._inputs[number]}]"
        if value["kind"] == "output":
            return f"outputs[{self._outputs[number]}]"
        if value["kind"] == "constant":
            return f"(void*)weight{self._weights[value['param']]}"
        return f"arena + {value['offset']}"


def _call(step: Json, places: _Places) -> list[str]:
    buffers = ", ".join(places.at(number) for number in step["args"]) or "0"
    return [
        "  {",
        f"    void* const buffers[] = {{{buffers}}};",
        f"    if ({step['kernel']}(0, buffers, 0) != 0) return TD_KERNEL;",
        "  }",
    ]


def _copy(step: Json, places: _Places) -> list[str]:
    size = places.values[step["from"]]["bytes"]
    return [f"  memmove({places.at(step['to'])}, {places.at(step['from'])}, {size});"]


def _check(step: Json, places: _Places) -> list[str]:
    """Refuse indices outside of their axes: index i belongs to extent i modulo their number."""
    [number] = step["args"]
    value, extents = places.values[number], step["dims"]
    count = value["bytes"] // (4 if value["dtype"] == "int32" else 8)
    return [
        "  {",
        f"    static const int64_t extents[] = {{{', '.join(map(str, extents))}}};",
        f"    const {value['dtype']}_t* index = {places.at(number)};",
        f"    for (size_t i = 0; i < {count}; ++i) {{",
        f"      const int64_t extent = extents[i % {len(extents)}];",
        "      if (index[i] < -extent || index[i] >= extent) return TD_INPUT;",
        "    }",
        "  }",
    ]
