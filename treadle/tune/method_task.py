# SPDX-License-Identifier: Apache-2.0
"""Tasks of calls that several methods can compute: which one takes the least time.

A candidate is a method. What is built and measured is all that it needs: the call alone as a model
of its own, compiled by that method, with the transforms of its data, its kernels and its weights.
The operand arrives and the result is left in the layouts that they have in the model, so that a
method pays for what it changes of them and for nothing else.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from treadle.build.compile import compile_model
from treadle.build.cost import group_cost
from treadle.build.kernel import Kernel, ObjectCode
from treadle.build.loaded import LoadedExecutable
from treadle.errors import InternalError
from treadle.graph.nodes import Call, Constant, Function, Module, Node, Var
from treadle.graph.types import TensorType, tensor_type
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.optimize.methods.method import MethodCall
from treadle.passes import recorded_decisions
from treadle.runtime.array import ArrayLike, NDArray
from treadle.runtime.timing import BenchmarkResult, measure, out_of_cache
from treadle.target.base import Target
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.space import Floats
from treadle.tune.task import Code, Task, roofline_cycles

KIND = "method"
"""Of a method's space, and the one name in its choices."""
_HOPELESS = 4.0
"""A method is not tried whose estimate is so many times the least: no estimate is so wrong."""
_MOST_COPIES = 16
"""Of a model of one call, whose weights are to be read from memory."""


@dataclass(frozen=True, slots=True, eq=False)
class MethodTask(Task):
    """A call whose methods compete. Its kernel is the call alone as a function, not lowered.

    Its choices are `DEFAULTS`, for the method `default` that the estimates choose in the model, and
    `choice_of` any other. `growth` says by how many bytes each method enlarges the weights of a
    call, `estimates` what it takes by the analytic models; `call` is the text that records know it
    by, `layouts` says how its operand comes and its result is left. `compiling` are options of
    `compile`. With `is_cold` weights are read from memory.
    """

    call: str = ""
    default: str = ""
    estimates: Mapping[str, float] = field(default_factory=dict)
    growth: Mapping[str, int] = field(default_factory=dict)
    layouts: str = ""
    compiling: Mapping[str, Any] = field(default_factory=dict)
    is_cold: bool = False

    @property
    def name(self) -> str:
        """The text of the call."""
        return self.call

    @property
    def methods(self) -> list[str]:
        """The methods to try: the default, then the others, the least estimate first."""
        limit = _HOPELESS * min(self.estimates.values())
        tried = [m for m in self.estimates if self.estimates[m] <= limit or m == self.default]
        return sorted(tried, key=lambda m: (m != self.default, self.estimates[m]))

    def choice_of(self, method: str) -> Choice:
        """Return the choice of a method."""
        return DEFAULTS if method == self.default else Config.of({KIND: method})

    def method_of(self, choice: Choice) -> str:
        """Return the method of a choice."""
        found = choice.get(KIND) if isinstance(choice, Config) else None
        return str(found) if found is not None else self.default

    def built(self, choice: Choice) -> ObjectCode:
        """Return a model of the call alone, by a method, as an artifact.

        Raises: ChoiceError where the method does not apply to these weights; else as `compile`.
        """
        method = self.method_of(choice)
        with recorded_decisions() as decisions:
            made = compile_model(
                Module(self.function),
                target=self.target,
                methods={self.call: method},
                **self.compiling,
            )
        if not any(d.call == self.call and d.choice == method for d in decisions):
            raise InternalError(f"a model of {self.call} alone has another call in its place")
        with tempfile.TemporaryDirectory(prefix="treadle-method-") as folder:
            path = Path(folder) / "call.tar"
            made.save(path)
            return ObjectCode(path.read_bytes(), 0)

    def loaded(self, code: Code, workspace: object) -> LoadedMethod:  # type: ignore[override]  # called and timed alike
        """Return what `built` made, ready to be called."""
        return LoadedMethod(code, len(self.function.params), self._copies(code))

    def _copies(self, code: Code) -> int:
        """Return how many copies of an artifact have together more than the caches hold."""
        caches = self.target.machine.caches[-1].bytes
        return min(_MOST_COPIES, 2 + 2 * caches // len(code)) if self.is_cold else 1


class LoadedMethod:
    """A model of one call in memory: called and timed with arrays, inputs first, as a kernel is.

    Of several copies, each with its weights, each run takes the next.
    """

    def __init__(self, code: Code, inputs: int, copies: int) -> None:
        self._models = [LoadedExecutable(code).executor for _ in range(copies)]
        self._inputs = inputs
        self._following = cycle(self._models)

    def __call__(self, *arguments: NDArray) -> None:
        """Run it; results are in the arguments after the inputs."""
        self._models[0].run(arguments[: self._inputs], arguments[self._inputs :])

    def time_evaluator(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, *, flush: bool = False
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes arguments and times runs, as that of a kernel.

        With `flush` no cache holds the arguments when a run begins; weights are the model's own.
        """

        def evaluate(*arguments: NDArray) -> BenchmarkResult:
            def seconds(count: int) -> float:
                return self._seconds(arguments, count)

            memory = [np.asarray(a).reshape(-1).view(np.uint8) for a in arguments]
            timer = out_of_cache(seconds, memory) if flush else seconds
            return measure(timer, number, repeat, min_repeat_ms)

        return evaluate

    def rotation_timer(self, *arguments: Sequence[NDArray]) -> Callable[[int], float]:
        """Return a function that runs it some times, with each of `arguments` in turn."""
        following = cycle(arguments)
        return lambda number: sum(self._seconds(next(following), 1) for _ in range(number)) / number

    def _seconds(self, arguments: Sequence[NDArray], count: int) -> float:
        inputs, outputs = arguments[: self._inputs], arguments[self._inputs :]
        given: list[ArrayLike] = [np.asarray(a) for a in inputs]
        start = time.perf_counter()
        for _ in range(count):
            next(self._following).run(given, outputs)
        return time.perf_counter() - start


def method_tasks(
    calls: Sequence[MethodCall], target: Target, compiling: Mapping[str, Any], *, is_cold: bool
) -> list[MethodTask]:
    """Return the tasks of the calls of a model that several methods apply to.

    Those with the most predicted time come first. Calls of one text are one task, in the layouts
    that most of them stand in; calls with sizes that only a run knows are left out, and those whose
    method the user asks for.
    """
    by_text: dict[str, list[MethodCall]] = {}
    for call in calls:
        if len(call.offers) > 1 and call.source != "asked" and _is_static(call.node):
            by_text.setdefault(call.text, []).append(call)
    found = [_task(alike, target, compiling, is_cold=is_cold) for alike in by_text.values()]
    tasks = [task for task in found if len(task.methods) > 1]
    return sorted(tasks, key=lambda t: -t.uses * min(t.estimates.values()))


def _task(
    alike: Sequence[MethodCall], target: Target, compiling: Mapping[str, Any], *, is_cold: bool
) -> MethodTask:
    (reads, gives), _ = Counter((c.reads, c.gives) for c in alike).most_common(1)[0]
    call = next(c for c in alike if (c.reads, c.gives) == (reads, gives))
    cost = group_cost(Function(*_alone(call.node)))
    flops, moved = (n if isinstance(n, int) else 0 for n in (cost.flops, cost.bytes))
    kernel = Kernel(_function(call, reads, gives), target)
    kernel.origins = [c.node.origin for c in alike]
    weights = sum(a.type.nbytes for a in call.node.args if isinstance(a, Constant))
    return MethodTask(
        kernel,
        len(alike),
        flops,
        moved + weights,
        roofline_cycles(flops, moved + weights, target),
        saves=True,  # some methods multiply less
        call=call.text,
        default=call.method if call.source == "estimates" else _least(call),
        estimates={name: offer.cycles for name, offer in call.offers.items()},
        growth={name: offer.growth for name, offer in call.offers.items()},
        layouts=f"{_layout(reads)} to {_layout(gives)}",
        compiling=compiling,
        is_cold=is_cold,
    )


def _least(call: MethodCall) -> str:
    return min(call.offers, key=lambda name: call.offers[name].cycles)


def _layout(block: int) -> str:
    return f"blocks of {block}" if block else "plain"


def _is_static(node: Call) -> bool:
    types = [a.type for a in (*node.args, node)]
    return all(isinstance(t, TensorType) and t.is_static for t in types)


def _alone(node: Call) -> tuple[tuple[Var, ...], Call]:
    """Return parameters for the operands that are not known, and the call on them."""
    params: dict[Node, Var] = {
        a: Var(f"x{k}", a.type) for k, a in enumerate(node.args) if not isinstance(a, Constant)
    }
    args = tuple(params.get(a, a) for a in node.args)
    return tuple(params.values()), Call(node.op, args, node.attrs, node.type, node.origin)


def _function(call: MethodCall, reads: int, gives: int) -> Function:
    """Return the call as a function of values in the layouts that they have in the model."""
    params, alone = _alone(call.node)
    body: Node = alone
    if reads and alone.args[0] in params:
        plain, first = tensor_type(alone.args[0].type), alone.args[0]
        n, channels, *sizes = plain.static_shape
        shape = (n, channels // reads, *sizes, reads)
        blocked = Var("x0", TensorType(shape, plain.dtype))
        unpacked = unpack_nchwc(blocked, channels=channels)
        args = tuple(unpacked if a is first else a for a in alone.args)
        params = tuple(blocked if p is first else p for p in params)
        body = Call(alone.op, args, alone.attrs, alone.type, alone.origin)
    if gives:
        body = pack_nchwc(body, block=gives)
    return Function(params, body, "call")


class MethodSpace:
    """The methods of a task as candidates, in the order in which they are tried."""

    kind = KIND

    def __init__(self, task: MethodTask) -> None:
        self._task = task

    @property
    def size(self) -> int:
        """The number of methods."""
        return len(self._task.methods)

    def start(self) -> list[str]:
        """Return all methods: there are few."""
        return self._task.methods

    def __iter__(self) -> Iterator[str]:
        return iter(self._task.methods)

    def sample(self, count: int, random: np.random.Generator) -> list[str]:
        """Return methods drawn at random."""
        return [str(m) for m in random.choice(self._task.methods, count)]

    def mutate(self, parents: Sequence[str], random: np.random.Generator) -> list[str]:
        """Return others drawn at random: methods are not like each other."""
        return self.sample(len(parents), random)

    def cross(
        self, first: Sequence[str], second: Sequence[str], random: np.random.Generator
    ) -> list[str]:
        """Return one of each pair."""
        firsts = random.random(len(first)) < 0.5
        return [a if f else b for a, b, f in zip(first, second, firsts, strict=True)]

    def features(self, candidates: Sequence[str]) -> Floats:
        """Return the estimates as the one column."""
        return self.estimate(candidates)[:, None]

    def estimate(self, candidates: Sequence[str]) -> Floats:
        """Return the cycles that the methods say they take."""
        return np.asarray([self._task.estimates[m] for m in candidates], np.float32)

    def choice(self, candidate: str) -> Choice:
        """Return the choice that a method is measured as."""
        return self._task.choice_of(candidate)

    def to_json(self, candidate: str) -> object:
        """Return the name."""
        return candidate

    def from_json(self, data: object) -> str | None:
        """Return the method of that name, None where it is not tried."""
        return data if isinstance(data, str) and data in self._task.methods else None
