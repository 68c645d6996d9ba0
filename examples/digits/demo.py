# SPDX-License-Identifier: Apache-2.0
"""Compiles the digit classifier and compares it with onnxruntime on digits it never saw.

python -m examples.digits.demo
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import treadle
from examples.digits import data, picture

MODEL = Path(__file__).parent / "digits.onnx"
PICTURE = Path("digits.png")
THREADS = 1
SHOWN = 8
ROUNDS = 300

Classify = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From image: float32[n, 1, 8, 8] to probabilities: float32[n, 10]."""


def main() -> None:
    """Compile, run, compare, show."""
    console = Console()
    _, digits = data.load()
    with treadle.settings(num_threads=THREADS):
        single, batch = compile_with_treadle(console, len(digits))
        peer = open_with_onnxruntime()
        ours = np.concatenate([single(digits.images[i : i + 1]) for i in range(len(digits))])
        theirs = np.concatenate([peer(digits.images[i : i + 1]) for i in range(len(digits))])
        batched = batch(digits.images)
        table = Table(title=f"{len(digits)} held-out digits, {THREADS} thread")
        for heading in ("", "treadle", "onnxruntime"):
            table.add_column(heading, justify="right" if heading else "left")
        table.add_row("right, one by one", *(score(p, digits) for p in (ours, theirs)))
        table.add_row(
            "right, in one batch", score(batched, digits), score(peer(digits.images), digits)
        )
        one = digits.images[:1]
        table.add_row("one digit", *interleaved_medians((single, peer), one))
        table.add_row(f"batch of {len(digits)}", *interleaved_medians((batch, peer), digits.images))
        console.print(table)
    console.print(f"largest difference of a probability: {np.abs(ours - theirs).max():.1e}")
    show(console, digits, ours.argmax(axis=1))


def compile_with_treadle(console: Console, count: int) -> tuple[Classify, Classify]:
    """Return the classifier for one digit, gone through a file, and the one for `count` digits."""
    start = time.perf_counter()
    compiled = treadle.compile(MODEL, shapes={"image": (1, 1, 8, 8)})
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "digits.tar"
        compiled.save(artifact)
        console.print(
            f"compiled {MODEL.name} in {seconds:.2f} s; "
            f"saved as {artifact.stat().st_size / 1000:.0f} kB; loaded again"
        )
        single = treadle.load(artifact)
    batch = treadle.compile(MODEL, shapes={"image": (count, 1, 8, 8)})
    return (lambda x: np.asarray(single(x)[0])), (lambda x: np.asarray(batch(x)[0]))


def open_with_onnxruntime() -> Classify:
    """Return onnxruntime's classifier, for any number of digits."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(None, {"image": x})[0])


def score(probabilities: NDArray[np.float32], digits: data.Digits) -> str:
    """Return the share of right answers as text."""
    is_right = probabilities.argmax(axis=1) == digits.labels
    return f"{is_right.mean():.2%} ({is_right.sum()}/{len(is_right)})"


def interleaved_medians(
    classifiers: tuple[Classify, Classify], images: NDArray[np.float32]
) -> list[str]:
    """Return each one's median time as text; they take turns, to meet the same machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for classify, taken in zip(classifiers, times, strict=True):
            start = time.perf_counter()
            classify(images)
            taken.append(time.perf_counter() - start)
    return [f"{statistics.median(taken) * 1e6:.1f} us" for taken in times]


def show(console: Console, digits: data.Digits, predictions: NDArray[np.int64]) -> None:
    """Print some digits, the wrong ones first, and write them as a PNG file."""
    is_right = predictions == digits.labels
    chosen = np.argsort(is_right, kind="stable")[:SHOWN]
    images, labels = digits.images[chosen], digits.labels[chosen].tolist()
    answers = predictions[chosen].tolist()
    console.print(picture.terminal_rows(images, answers, labels))
    picture.write_png(PICTURE, images, answers, labels)
    console.print(f"the same as a picture: {PICTURE}")


if __name__ == "__main__":
    main()
