# SPDX-License-Identifier: Apache-2.0
"""Times the benchmark networks as this checkout and another revision compile them, side by side.

    python -m benchmarks.revisions REVISION [--threads 1,2] [--seconds 3] [--options JSON]
                                   [network ...]

Each checkout compiles a network to an artifact in a process of its own; both artifacts run in this
process, in turns, on the same inputs. A ratio above 1 says that this checkout is faster. The other
revision must write artifacts that this one's runtime loads. Options of `treadle.compile` for this
checkout alone, as {"weight_growth": 9}, show what a default that has changed since accounts for.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import treadle
from benchmarks import networks
from benchmarks.engines import Run, random_inputs
from benchmarks.measure import largest_error, run_in_rounds

ROOT = Path(__file__).parent.parent
NAMES = (
    "resnet50", "mobilenet_v2", "squeezenet", "shufflenet", "efficientnet_b0", "densenet121",
    "inception_v2", "vgg19", "unet_small", "bert_base", "gpt2", "vit_base",
)  # fmt: skip
"""The networks that are timed where none is named."""

COMPILE = """
import json, sys, treadle
model, artifact, options = sys.argv[1:]
treadle.compile(model, **json.loads(options)).save(artifact)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of one network, in seconds, and how far the results are apart."""

    network: str
    threads: int
    before: float
    after: float
    error: float

    @property
    def ratio(self) -> float:
        """How many times as fast this checkout is."""
        return self.before / self.after

    def __str__(self) -> str:
        times = f"{1e3 * self.before:9.3f} {1e3 * self.after:9.3f} ms"
        return f"{self.network:20}{self.threads:2} {times}  {self.ratio:5.2f}  {self.error:.0e}"


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """Yield a folder with another revision, its native library built."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(path), revision], check=True)
        try:
            build = [sys.executable, "scripts/build_native.py"]
            subprocess.run(build, cwd=path, check=True, stdout=subprocess.DEVNULL)
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)


def compiled(model: Path, folder: Path, artifact: Path, options: str = "{}") -> Path:
    """Compile a model by the checkout in `folder`, with a cache of its own; `options` are JSON."""
    cache = str(artifact.parent / f"cache-{artifact.stem}")
    environment = {**os.environ, "PYTHONPATH": str(folder), "TREADLE_CACHE": cache}
    command = [sys.executable, "-c", COMPILE, str(model), str(artifact), options]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return artifact


def timed(
    name: str, other: Path, threads: Sequence[int], seconds: float, options: str
) -> Iterator[Row]:
    """Yield a row of each number of threads for one network; `options` are this checkout's."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / f"{name}.onnx"
        networks.write(networks.build(name), model)
        inputs = random_inputs(model)
        loaded = {
            label: treadle.load(compiled(model, place, Path(folder) / f"{label}.tar", own))
            for label, place, own in (("before", other, "{}"), ("after", ROOT, options))
        }
        runs: dict[str, Run] = {
            label: lambda x=x: [np.asarray(o) for o in x.run(inputs)]  # type: ignore[misc]
            for label, x in loaded.items()
        }
        error = largest_error(runs["after"](), [o.copy() for o in runs["before"]()])
        for count in threads:
            for x in loaded.values():
                x.executor.num_threads = count
            medians = {k: statistics.median(v) for k, v in run_in_rounds(runs, seconds).items()}
            yield Row(name, count, medians["before"], medians["after"], error)


def options_of(text: str) -> dict[str, object]:
    """Return the options of `treadle.compile` that a text is. Raises: ArgumentTypeError if none."""
    try:
        options = json.loads(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {e}") from None
    if not isinstance(options, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is not an object such as {{"opt_level": 2}}')
    return options


def main() -> None:
    """Time the networks named on the command line; print a row each and the geometric mean."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.revisions")
    parser.add_argument("revision", help="what to compare with, for example main")
    parser.add_argument("names", nargs="*", metavar="network", help=f"default: {', '.join(NAMES)}")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    parser.add_argument("--seconds", type=float, default=3, help="per network and threads")
    parser.add_argument("--options", type=options_of, default={}, help="JSON, for this checkout")
    arguments = parser.parse_args()
    if unknown := [n for n in arguments.names if n not in networks.BUILDERS]:
        parser.error(f"unknown network {', '.join(unknown)}")
    counts = [int(n) for n in arguments.threads.split(",")]
    rows = []
    print(f"{'network':20}threads  before     after     ratio  error")
    with checkout(arguments.revision) as other:
        for name in arguments.names or NAMES:
            for row in timed(name, other, counts, arguments.seconds, json.dumps(arguments.options)):
                print(row, flush=True)
                rows.append(row)
    for count in counts:
        mean = statistics.geometric_mean(r.ratio for r in rows if r.threads == count)
        print(f"geometric mean on {count} threads: {mean:.3f}")


if __name__ == "__main__":
    main()
