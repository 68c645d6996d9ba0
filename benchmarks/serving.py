# SPDX-License-Identifier: Apache-2.0
"""Serves networks from several Python threads, in Treadle and in onnxruntime.

    python -m benchmarks.serving [network or file.onnx ...] [--streams 4] [--rounds 7]

All threads call one executable (one session), each with inputs of its own, on all CPUs. The engines
take turns, so that whatever else the machine does meets both. Treadle runs from a saved artifact;
every result is compared with the one a single thread gets, bit by bit.

Memory is measured in a process per engine: what it grows by from before the model is loaded until
after it has been served. It is set against one set of weights, which is what the streams share.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine, networks
from benchmarks.engines import Arrays, random_inputs

FOLDER = Path(__file__).parent
DEFAULT = ("resnet50", "bert_base")

Serve = Callable[[Arrays], list[NDArray[np.generic]]]
"""Runs one request; may be called by several threads."""


def open_treadle(model: Path) -> Serve:
    """Load the artifact at `model` in Treadle."""
    import treadle

    executable = treadle.load(model)
    return lambda inputs: [np.asarray(output) for output in executable.run(inputs)]


def open_onnxruntime(model: Path) -> Serve:
    """Open the network at `model` in onnxruntime, with its default number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Its threads spin while it works; after that they must leave the cores to the other engine.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: [np.asarray(output) for output in session.run(None, inputs)]


ENGINES: Mapping[str, Callable[[Path], Serve]] = {
    "treadle": open_treadle,
    "onnxruntime": open_onnxruntime,
}


def requests_of(model: Path, count: int) -> list[Arrays]:
    """Return different inputs for so many threads."""
    first = random_inputs(model)
    return [
        {name: np.roll(value, shift, axis=-1).copy() for name, value in first.items()}
        for shift in range(count)
    ]


def serve(
    run: Serve,
    requests: list[Arrays],
    expected: Sequence[Sequence[NDArray[np.generic]]],
    seconds: float,
) -> int:
    """Send the requests from a thread each, over and over; return how many were answered.

    Raises: AssertionError when a result is not the one expected.
    """
    end = time.perf_counter() + seconds
    start = threading.Barrier(len(requests))

    def work(index: int) -> int:
        start.wait()
        count = 0
        while count == 0 or time.perf_counter() < end:
            for found, wanted in zip(run(requests[index]), expected[index], strict=True):
                assert found.tobytes() == wanted.tobytes(), f"request {index} got another result"
            count += 1
        return count

    with ThreadPoolExecutor(len(requests)) as pool:
        return sum(pool.map(work, range(len(requests))))


def throughputs(
    files: Mapping[str, Path], streams: int, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Return the requests per second of every round by engine."""
    runs = {name: ENGINES[name](files[name]) for name in files}
    requests = requests_of(files["onnxruntime"], streams)
    expected = {name: [run(r) for r in requests] for name, run in runs.items()}
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            before = time.perf_counter()
            answered = serve(run, requests, expected[name], seconds)
            rates[name].append(answered / (time.perf_counter() - before))
    return rates


# ---- memory --------------------------------------------------------------------------------------


def resident_bytes() -> int:
    """Return the resident memory of this process, mapped files included."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def print_growth(engine: str, file: Path, model: Path, streams: int) -> None:
    """Print by how many bytes this process grows when it serves `file`."""
    requests = requests_of(model, streams)
    __import__(engine)
    before = resident_bytes()
    start = time.perf_counter()
    run = ENGINES[engine](file)
    loaded = time.perf_counter() - start
    expected = [run(r) for r in requests]
    serve(run, requests, expected, 0)
    print(json.dumps({"bytes": resident_bytes() - before, "load_seconds": loaded}))


def growth(engine: str, file: Path, model: Path, streams: int) -> dict[str, float]:
    """Measure `print_growth` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.serving", str(model), "--streams", str(streams)]
    child = subprocess.run(
        [*command, "--grow", engine, "--file", str(file)],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(child.stdout)
    return found


# ---- command line --------------------------------------------------------------------------------


def measure(model: Path, streams: int, rounds: int, seconds: float) -> dict[str, float]:
    """Return the figures of one network."""
    import treadle

    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        artifact = Path(folder) / f"{model.stem}.tar"
        treadle.compile(model).save(artifact)
        files = {"treadle": artifact, "onnxruntime": model}
        row: dict[str, float] = {"weights_mb": treadle.load(artifact).executor.constant_bytes / 1e6}
        for name, file in files.items():
            memory = growth(name, file, model, streams)
            row[f"{name}_mb"] = memory["bytes"] / 1e6
            row[f"{name}_load_ms"] = 1e3 * memory["load_seconds"]
        rates = throughputs(files, streams, rounds, seconds)
    for name, column in rates.items():
        row[f"{name}_per_second"] = statistics.median(column)
    pairs = zip(rates["treadle"], rates["onnxruntime"], strict=True)
    row["ratio"] = statistics.median(ours / theirs for ours, theirs in pairs)
    return row


def model_file(name: str) -> Path:
    """Return the file of a network by name, made where there is none, or the path given."""
    if name.endswith(".onnx"):
        return Path(name)
    path = FOLDER / "zoo" / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        networks.write(networks.build(name), path)
    return path


def main() -> int:
    """Print a row per network, write JSON if asked to; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("networks", nargs="*", default=DEFAULT, help="names, or .onnx files")
    parser.add_argument("--streams", type=int, default=4, metavar="N", help="Python threads")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="turns of each engine")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--grow", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow:
        print_growth(options.grow, options.file, Path(options.networks[0]), options.streams)
        return 0
    print(f"{machine.describe()['cpu']}; {options.streams} threads; requests/s, ratio, MB, load ms")
    results = {}
    for name in options.networks:
        row = measure(model_file(name), options.streams, options.rounds, options.seconds)
        results[Path(name).stem] = row
        print(
            f"{Path(name).stem:16}treadle {row['treadle_per_second']:8.1f}/s  "
            f"onnxruntime {row['onnxruntime_per_second']:8.1f}/s  ratio {row['ratio']:.2f}   "
            f"weights {row['weights_mb']:.0f} MB, treadle {row['treadle_mb']:.0f} MB, "
            f"onnxruntime {row['onnxruntime_mb']:.0f} MB   "
            f"load {row['treadle_load_ms']:.0f} ms against {row['onnxruntime_load_ms']:.0f} ms",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
