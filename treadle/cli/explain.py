# SPDX-License-Identifier: Apache-2.0
"""`treadle explain`: what a model became: which nodes share a kernel, in which layout, and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import onnx

from treadle.build.executable import Executable
from treadle.build.group import build_group
from treadle.build.load import is_artifact
from treadle.build.memory_plan import MemoryPlan, Step, StepKind
from treadle.cli.arguments import add_compile_options, add_model
from treadle.cli.explain_knobs import kernel_called, knobs_json, print_knobs
from treadle.cli.models import compile_file
from treadle.cli.named import check_readable
from treadle.cli.text import console, count_text, print_row, size_text
from treadle.errors import UsageError
from treadle.frontend.importer import origin_of
from treadle.frontend.onnx.files import open_model
from treadle.frontend.tflite.formats import is_tflite
from treadle.frontend.tflite.importer import operator_names
from treadle.frontend.tflite.model import open_tflite
from treadle.graph.nodes import Call, Function, topological
from treadle.graph.operator import Fusion, Operator
from treadle.passes import Candidate, Decision, recorded_decisions
from treadle.target.base import Target


@dataclass(frozen=True)
class Choice:
    """One thing that was chosen for a kernel, and why."""

    topic: str
    choice: str
    reason: str
    call: str = ""
    candidates: tuple[Candidate, ...] = ()


_NOT_A_KERNEL: dict[StepKind, Choice] = {
    "copy": Choice("copy", "moves a value", "memory could not be shared with what is read"),
    "check": Choice("check", "looks at indices", "those outside of their axis are an error"),
    "random": Choice("random", "draws a key", "what the random numbers of this run begin with"),
    "size": Choice("size", "reads sizes", "what follows is placed when data has decided them"),
    "if": Choice("if", "runs one of two bodies", "only a run knows the condition"),
    "loop": Choice("loop", "runs its body again and again", "only a run knows when it ends"),
    "result": Choice("result", "stores what a branch or loop gives", "later kernels read it"),
}


@dataclass(frozen=True)
class Explained:
    """One instruction of the plan. `nodes` are the model's nodes behind it."""

    kernel: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    result: str
    schedule: str
    choices: tuple[Choice, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "an ONNX or TFLite file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--kernel",
        metavar="NAME",
        help="say what the schedule of this kernel chose, from how much, and what its cost model "
        "says; the beginning of a name is enough, or its number in the list",
    )
    parser.add_argument(
        "--space", action="store_true", help="with --kernel: list all that could be chosen"
    )
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile the model, collect what the passes decide, print it."""
    check_readable(arguments.model)
    if is_artifact(arguments.model):
        raise UsageError(
            f"{arguments.model} holds machine code, not what led to it",
            hint="give the network it was compiled from, with the options it was compiled with",
        )
    if arguments.space and arguments.kernel is None:
        raise UsageError("--space is of one kernel", hint="say which with --kernel NAME")
    with recorded_decisions() as decisions:
        compiled = compile_file(arguments)
    if arguments.kernel is not None:
        _explain_kernel(compiled, arguments)
        return 0
    rows = explained(compiled, decisions)
    gone = without_kernel(_names(arguments.model), rows)
    if arguments.json:
        print(json.dumps(_json(compiled, rows, gone), indent=2))
    else:
        print_explanation(compiled, rows, gone)
    return 0


def _explain_kernel(compiled: Executable, arguments: argparse.Namespace) -> None:
    name = str(arguments.kernel)
    if name.isdecimal():
        steps = list(_all_steps(compiled.memory))
        name = (steps[int(name)].kernel or name) if int(name) < len(steps) else name
    kernel = kernel_called(name, compiled.kernels)
    if arguments.json:
        found = knobs_json(kernel, compiled.notes, is_space=arguments.space)
        print(json.dumps(found, indent=2))
    else:
        print_knobs(kernel, compiled.notes, is_space=arguments.space)


def explained(compiled: Executable, decisions: Sequence[Decision]) -> list[Explained]:
    """Return a row for every instruction of the plan, in the order they run.

    Those of the bodies of a branch or loop follow it.
    """
    by_origin: dict[str, list[Decision]] = {}
    for decision in decisions:
        by_origin.setdefault(decision.origin, []).append(decision)
    return [_row(step, compiled, by_origin) for step in _all_steps(compiled.memory)]


def _all_steps(plan: MemoryPlan) -> Iterator[Step]:
    for step in plan.steps:
        yield step
        for body in () if step.block is None else step.block.bodies:
            yield from _all_steps(body)


def _row(
    step: Step, compiled: Executable, decisions: Mapping[str, Sequence[Decision]]
) -> Explained:
    nodes = tuple(word for word in step.origin.split("+") if word)
    function = step.node.op if step.node is not None else None
    if not isinstance(function, Function):
        return Explained(step.kind, nodes, (), "", "", (_NOT_A_KERNEL[step.kind],))
    calls = [n for n in topological([function.body]) if isinstance(n, Call)]
    target = _target_of(step.kernel, compiled)
    _, schedule = build_group(function, target)
    return Explained(
        kernel=step.kernel,
        nodes=nodes,
        operators=tuple(c.op.name for c in calls),
        result=str(function.body.type),
        schedule=schedule.__name__.removeprefix("schedule_").replace("_", " "),
        choices=(*_where(step, compiled), *_choices(calls, decisions), *_stack(step, compiled)),
    )


def _choices(calls: Sequence[Call], decisions: Mapping[str, Sequence[Decision]]) -> list[Choice]:
    """Return what was decided for the anchors of a kernel, and why the kernel ends."""
    found = [
        Choice(d.topic, d.choice, d.reason, d.call, d.candidates)
        for call in calls
        if isinstance(call.op, Operator) and call.op.fusion is Fusion.ANCHOR
        for d in decisions.get(call.origin, ())
        if d.topic != "fusion"
    ]
    sink = calls[-1]
    ends = [
        Choice("ends", d.choice, d.reason)
        for d in decisions.get(sink.origin, ())
        if d.topic == "fusion" and d.choice == sink.op.name
    ]
    return list(dict.fromkeys(found + ends[-1:]))


def _names(model: str) -> list[str]:
    """Return the names of the nodes of a model file, as messages and kernels have them."""
    if is_tflite(model):
        return operator_names(open_tflite(model))
    nodes: Sequence[onnx.NodeProto] = open_model(model).model.graph.node
    return [origin_of(n.name, n.op_type, index) for index, n in enumerate(nodes)]


def _target_of(kernel: str, compiled: Executable) -> Target:
    """Return the target of a kernel, which for some of a GPU's model is the CPU."""
    return next((k.target for k in compiled.kernels if k.name == kernel), compiled.target)


def _where(step: Step, compiled: Executable) -> list[Choice]:
    """Return where a kernel of a model for a GPU runs; nothing for other models."""
    if compiled.target.family != "gpu":
        return []
    target = _target_of(step.kernel, compiled)
    if target.family == "gpu":
        return [Choice("runs on", target.kind, "it has a schedule for GPUs")]
    notes = (n.partition(": ")[2] for n in compiled.notes if n.startswith(f"kernel {step.kernel} "))
    return [Choice("runs on", "cpu", next(notes, "it has no schedule for GPUs"))]


def _stack(step: Step, compiled: Executable) -> list[Choice]:
    """Return what a kernel that becomes C source takes of the stack; nothing for other models."""
    if not compiled.target.is_source_only:
        return []
    kernel = kernel_called(step.kernel, compiled.kernels)
    room = size_text(compiled.target.machine.stack_bytes)
    reason = f"of {room} that arrays may take; larger ones are in the memory of a run"
    if compiled.target.has_threads:
        reason = f"of {room} that an array may take"
    return [Choice("stack", size_text(kernel.stack_bytes), reason)]


def without_kernel(names: Sequence[str], rows: Sequence[Explained]) -> list[str]:
    """Return the nodes that no instruction computes."""
    used = {node for row in rows for node in row.nodes}
    inside = {node.partition("/")[0] for node in used}
    return [name for name in names if name not in used and name not in inside]


def _json(compiled: Executable, rows: Sequence[Explained], gone: Sequence[str]) -> object:
    return {
        "target": str(compiled.target),
        "notes": list(compiled.notes),
        "instructions": [asdict(row) for row in rows],
        "without_kernel": list(gone),
    }


def candidate_text(candidate: Candidate) -> str:
    """Return a line of the table of methods: name, thousands of cycles, why it was not chosen."""
    cycles = "" if candidate.cycles is None else f"{candidate.cycles / 1e3:.1f} kcycles"
    return f"{candidate.name:<18} {cycles:>14}  {candidate.reason or 'chosen'}"


def print_explanation(compiled: Executable, rows: Sequence[Explained], gone: Sequence[str]) -> None:
    """Print a paragraph per instruction, and which nodes have none."""
    out = console()
    print_row(out, "target", str(compiled.target))
    for note in compiled.notes:
        print_row(out, "note", note)
    for number, row in enumerate(rows):
        out.print(f"\n{number}  {row.kernel}")
        print_row(out, "nodes", ", ".join(row.nodes) or "(unnamed)")
        if row.operators:
            print_row(out, "computes", f"{' → '.join(row.operators)}: {row.result}")
            print_row(out, "schedule", row.schedule)
        for choice in row.choices:
            said = "" if choice.topic == "ends" else f"{choice.choice}: "
            print_row(out, choice.topic, said + choice.reason)
            for candidate in choice.candidates:
                print_row(out, "", candidate_text(candidate))
    if gone:
        out.print(f"\n{count_text(len(gone), 'node')} without a kernel")
        reason = "computed when compiled, without effect, or a view of memory: "
        print_row(out, "", reason + ", ".join(gone))
