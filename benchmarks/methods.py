# SPDX-License-Identifier: Apache-2.0
"""Holds what the estimates say of methods against what the methods take, call by call.

    python -m benchmarks.methods [--only conv|product] [--rounds 40] [--json FILE]

Each case is a convolution or a product with a bias and a ReLU, its operand and its result in the
layouts that they have in a network. It is compiled once by every method that applies and whose
estimate is no more than four times the least; then the methods take turns on one thread, and the
least processor time of each counts: what else the machine does is not in it. A choice is right
where the method of the least estimate is at most a tenth slower than the fastest. Weights stay in
the caches from run to run, as they do not in a large network. TREADLE_HOST_CPU=haswell measures
AVX2.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from treadle.build.compile import compile_model
from treadle.files import replacing
from treadle.graph.nodes import Constant, Function, Module, Node, Var
from treadle.graph.types import TensorType, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.matmul import matmul
from treadle.optimize.blocked import block_of
from treadle.passes import Decision, recorded_decisions
from treadle.target.parse import parse_target

_HOPELESS = 4.0
"""A method is not measured whose estimate is so many times the least."""
_CLOSE = 1.1
"""A choice that takes no more than this of the least time is right."""
_BURST_SECONDS = 2e-3


@dataclass(frozen=True, slots=True)
class ConvCase:
    """A convolution of `inputs` x size images; `reads` and `gives` blocks of channels or not."""

    inputs: int
    filters: int
    size: tuple[int, ...]
    window: tuple[int, ...]
    stride: int = 1
    groups: int = 1
    reads: bool = True
    gives: bool = True

    @property
    def name(self) -> str:
        """What is printed of it."""
        place = "x".join(map(str, self.size))
        kind = f"{'x'.join(map(str, self.window))}" + f"/{self.stride}" * (self.stride > 1)
        groups = f" in {self.groups}" if self.groups > 1 else ""
        layout = f"{'b' if self.reads else 'p'}{'b' if self.gives else 'p'}"
        return f"conv {self.inputs}->{self.filters}{groups} {kind} @ {place} {layout}"

    def function(self) -> Function:
        """Return it as a function of one value."""
        block = block_of(parse_target("llvm"), "float32")
        shape = (1, self.inputs, *self.size)
        if self.reads:
            chunks = -(-self.inputs // block)
            x = Var("x", TensorType((1, chunks, *self.size, block), "float32"))
            data: Node = unpack_nchwc(x, channels=self.inputs)
        else:
            data = x = Var("x", TensorType(shape, "float32"))
        pads = tuple(k // 2 for k in self.window)
        weights = _random(self.filters, self.inputs // self.groups, *self.window)
        made = conv(
            data,
            weights,
            strides=(self.stride,) * len(self.size),
            pads_before=pads,
            pads_after=pads,
            groups=self.groups,
        )
        bias = _random(self.filters, *(1 for _ in self.size))
        made = ew.relu(ew.add(made, bias))
        return Function((x,), pack_nchwc(made, block=block) if self.gives else made, "call")


@dataclass(frozen=True, slots=True)
class ProductCase:
    """A product of rows x steps values and constant weights steps x columns."""

    rows: int
    steps: int
    columns: int

    @property
    def name(self) -> str:
        """What is printed of it."""
        return f"product {self.rows} x {self.steps} x {self.columns}"

    def function(self) -> Function:
        """Return it as a function of one value."""
        x = Var("x", TensorType((self.rows, self.steps), "float32"))
        made = matmul(x, _random(self.steps, self.columns))
        return Function((x,), ew.relu(ew.add(made, _random(self.columns))), "call")


Case = ConvCase | ProductCase


def _random(*shape: int) -> Constant:
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return Constant.of(values * np.float32(0.1))


def conv_cases() -> Iterator[ConvCase]:
    """Yield convolutions for which the layout of the model is worth a thought."""
    for window, stride in ((3, 2), (3, 1), (7, 2)):  # of an image: nothing to unpack
        for size, filters in ((224, 32), (64, 24)):
            yield ConvCase(3, filters, (size, size), (window,) * 2, stride, reads=False)
    for inputs in (1, 4, 8):
        for size in (128, 32):
            yield ConvCase(inputs, 16, (size, size), (3, 3), reads=False)
            yield ConvCase(inputs, 8, (size, size), (3, 3), reads=False, gives=False)
    for filters in (1, 2, 3, 4, 8):  # to an image
        for size, window in ((112, 3), (28, 1)):
            yield ConvCase(32, filters, (size, size), (window,) * 2, gives=False)
    for inputs, size in ((128, 56), (256, 28), (512, 14), (1024, 7)):
        yield ConvCase(inputs, inputs, (size, size), (3, 3), groups=32)
        yield ConvCase(inputs, inputs, (size, size), (3, 3), 2, groups=32)
    yield ConvCase(96, 96, (28, 28), (3, 3), groups=4)
    yield ConvCase(64, 64, (56, 56), (3, 3), groups=16)
    yield ConvCase(240, 240, (28, 28), (1, 1), groups=3)
    for inputs, filters, length, window in (
        (512, 256, 400, 3), (128, 128, 2000, 7), (64, 64, 4000, 11), (32, 32, 8000, 3),
        (32, 1, 8000, 7), (80, 512, 200, 7), (1, 64, 8000, 15), (16, 16, 4000, 3),
    ):  # fmt: skip
        yield ConvCase(inputs, filters, (length,), (window,))
    for inputs, size, window in ((32, 112, 3), (144, 56, 3), (384, 14, 3), (96, 28, 7)):
        yield ConvCase(inputs, inputs, (size, size), (window,) * 2, groups=inputs)
    for inputs, filters, size in ((64, 64, 56), (256, 64, 56), (16, 32, 14), (64, 24, 7)):
        yield ConvCase(inputs, filters, (size, size), (1, 1))
        yield ConvCase(inputs, filters, (size, size), (3, 3))
        yield ConvCase(inputs, filters, (size, size), (3, 3), reads=False, gives=False)


def product_cases() -> Iterator[ProductCase]:
    """Yield products of few and of many rows with weights of several widths."""
    for rows in (1, 4, 16, 128, 1000):
        for steps, columns in ((64, 64), (256, 1000), (768, 768), (768, 3072), (512, 16), (40, 10)):
            yield ProductCase(rows, steps, columns)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the methods of a case take: cycles by their estimates, and measured seconds."""

    case: str
    chosen: str
    cycles: Mapping[str, float]
    seconds: Mapping[str, float]

    @property
    def fastest(self) -> str:
        """The method of the least time."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def lost(self) -> float:
        """How many times the least time the chosen method takes."""
        return self.seconds[self.chosen] / self.seconds[self.fastest]

    def is_right_of(self, method: str) -> bool:
        """True where the choice between a method and the best estimate of the others is right."""
        others = {m: self.cycles[m] for m in self.seconds if m != method}
        if method not in self.seconds or not others:
            return True
        other = self.chosen if self.chosen != method else min(others, key=others.__getitem__)
        rest = other if self.chosen == method else method
        return self.seconds[self.chosen] <= _CLOSE * self.seconds[rest]


def outcome(case: Case, rounds: int) -> Outcome:
    """Return what the methods of a case are said to take, and what they take."""
    function = case.function()
    with recorded_decisions() as decisions:
        compile_model(Module(function))
    decision = next(d for d in decisions if d.topic == "method" and d.call)
    cycles = {c.name: c.cycles for c in decision.candidates if c.cycles is not None}
    limit = _HOPELESS * min(cycles.values())
    tried = [m for m, c in cycles.items() if c <= limit or m == decision.choice]
    runs = {m: _runner(function, decision, m) for m in tried}
    return Outcome(case.name, decision.choice, cycles, _least(runs, rounds))


def _runner(function: Function, decision: Decision, method: str) -> Callable[[], object]:
    made = compile_model(Module(function), methods={decision.call: method})
    shape = tensor_type(function.params[0].type).static_shape
    value = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    executor = made.executor
    results = executor.run([value])
    return lambda: executor.run([value], results)


def _least(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the least time of a run of each, bursts taken in turns; the first one is not timed."""
    least = dict.fromkeys(runs, inf)
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            end = time.thread_time() + _BURST_SECONDS
            while (start := time.thread_time()) < end:
                run()
                least[name] = min(least[name], time.thread_time() - start)
    return least


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("call", "chosen", "fastest", "loses", "thousand cycles", "microseconds")
    for o in outcomes:
        said = " ".join(f"{m} {o.cycles[m] / 1e3:.0f}" for m in o.seconds)
        took = " ".join(f"{1e6 * s:.0f}" for s in o.seconds.values())
        table.add_row(o.case, o.chosen, o.fastest, f"{o.lost:.2f}", said, took)
    return table


def main() -> None:
    """Measure the cases and print what the estimates get wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose text contains it")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, help="write the figures into a file")
    arguments = parser.parse_args()
    os.environ.setdefault("TREADLE_NUM_THREADS", "1")
    cases: list[Case] = [*conv_cases(), *product_cases()]
    outcomes = [outcome(c, arguments.rounds) for c in cases if arguments.only in c.name]
    Console(width=200).print(_table(outcomes))
    right = sum(o.lost <= _CLOSE for o in outcomes)
    plain = sum(o.is_right_of("plain") for o in outcomes)
    print(f"{right} of {len(outcomes)} choices are right, {plain} between plain and the others")
    if arguments.json:
        with replacing(arguments.json) as file:
            found = [
                {
                    "case": o.case,
                    "chosen": o.chosen,
                    "cycles": dict(o.cycles),
                    "seconds": dict(o.seconds),
                }
                for o in outcomes
            ]
            file.write(json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
