# SPDX-License-Identifier: Apache-2.0
"""Text generation with past keys: a prompt, then one word at a time, beside onnxruntime.

    python -m benchmarks.decode --networks gpt2_cached,llama_cached --threads 1,2

One model of open sizes (`benchmarks.open_networks`) serves the prompt and every step: a step takes
one word with the keys and values of all before it and gives back those of all. The next word is the
likeliest one; both engines get the same words, and their logits are compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
import onnxruntime

import treadle
from benchmarks import open_networks
from treadle.build.executable import Executable

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]
_SEED = 0


@dataclass
class Times:
    """Seconds of one generation: of the prompt, and of every step."""

    prompt: float
    steps: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Decoder:
    """A decoder as its model describes it."""

    outputs: Sequence[str]
    past: Mapping[str, tuple[int, int]]
    """Heads and width of every tensor of past keys or values."""

    @classmethod
    def of(cls, model: onnx.ModelProto) -> Decoder:
        """Return the decoder of a model whose past is [batch, heads, length, width]."""
        past = {}
        for i in model.graph.input:
            dims = i.type.tensor_type.shape.dim
            if i.name.startswith("past"):
                past[i.name] = (dims[1].dim_value, dims[3].dim_value)
        return cls([o.name for o in model.graph.output], past)

    def start(self, batch: int) -> Arrays:
        """Return a past without any words."""
        return {n: np.zeros((batch, h, 0, w), np.float32) for n, (h, w) in self.past.items()}

    def generate(
        self, run: Run, words: np.ndarray, count: int, followed: Sequence[np.ndarray] = ()
    ) -> tuple[Times, list[np.ndarray], np.ndarray]:
        """Return the times, the words of `count` steps after `words`, and the last logits.

        words: int64[batch, length]. The steps take the words of `followed` where they are given.
        """
        past, times, said = self.start(len(words)), Times(0.0), list(followed)
        logits = np.zeros(0)
        for step in range(count + 1):
            given = words if step == 0 else said[step - 1]
            begin = time.perf_counter()
            results = run({"input_ids": given, **past})
            seconds = time.perf_counter() - begin
            present = dict(zip(self.outputs, results, strict=True))
            logits = present["logits"]
            past = {n: present[n.replace("past", "present")] for n in self.past}
            if len(said) == step:
                said.append(logits[:, -1:].argmax(-1))
            if step == 0:
                times.prompt = seconds
            else:
                times.steps.append(seconds)
        return times, said, logits


def treadle_run(exe: Executable, threads: int) -> Run:
    """Return the compiled network as a function."""

    def run(inputs: Arrays) -> list[np.ndarray]:
        exe.executor.num_threads = threads
        return [o.numpy() for o in exe.run(inputs)]

    return run


def onnxruntime_run(model: bytes, threads: int) -> Run:
    """Return onnxruntime's session as a function."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return partial(session.run, None)


def compare(
    name: str, threads: Sequence[int], prompt: int, steps: int, rounds: int, batch: int
) -> None:
    """Print words per second of the prompt and of the steps beside onnxruntime."""
    model = open_networks.NETWORKS[name](None)
    decoder, data = Decoder.of(model), model.SerializeToString()
    exe = treadle.compile(model, dynamic=True)
    words = np.random.default_rng(_SEED).integers(0, 8000, (batch, prompt))
    for number in threads:
        engines = treadle_run(exe, number), onnxruntime_run(data, number)
        _, said, wanted = decoder.generate(engines[1], words, steps)
        _, _, got = decoder.generate(engines[0], words, steps, said)
        print(f"{name}, {number} threads: logits differ by {np.abs(got - wanted).max():.1e} "
              f"of {np.abs(wanted).max():.1e}")  # fmt: skip
        pairs = [
            [decoder.generate(run, words, steps, said)[0] for run in engines] for _ in range(rounds)
        ]
        _print_row("prompt", batch * prompt, [[t.prompt for t in p] for p in pairs])
        _print_row("steps", batch * steps, [[sum(t.steps) for t in p] for p in pairs])


def _print_row(what: str, words: int, pairs: Sequence[Sequence[float]]) -> None:
    ours, theirs = (min(column) for column in zip(*pairs, strict=True))
    print(f"  {what:6} Treadle {words / ours:7.0f} words/s, onnxruntime {words / theirs:7.0f} "
          f"words/s, ratio {theirs / ours:.2f}")  # fmt: skip


def main() -> None:
    """Run the comparison the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", default="gpt2_cached,llama_cached")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1)
    arguments = parser.parse_args()
    threads = [int(n) for n in arguments.threads.split(",")]
    for name in arguments.networks.split(","):
        compare(name, threads, arguments.prompt, arguments.steps, arguments.rounds, arguments.batch)


if __name__ == "__main__":
    main()
