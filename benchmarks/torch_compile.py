# SPDX-License-Identifier: Apache-2.0
"""Measures torch.compile(backend="treadle") beside eager and inductor, and their first calls.

    python -m benchmarks.torch_compile --threads 1,2 --seconds 10 --out table.json [network ...]

Needs torch, timm and transformers; inductor needs a C++ compiler. Every engine has a process and
empty caches of its own; the processes take turns, a few calls each, and only one runs at a time.
A first call is the time from torch.compile to the first result. What --out holds of a network in
all engines is not measured again. --caches keeps the caches: compile once with it (minutes, with
max-autotune), then measure from full caches when the machine is quiet; first calls are then warm.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

TIMM = (
    "convnext_tiny", "deit_tiny_patch16_224", "efficientnet_b0", "mobilenetv3_large_100",
    "mobilevit_s", "regnety_016", "resnet50", "swin_tiny_patch4_window7_224",
)  # fmt: skip
LIBRARY = ("bert4_512", "qwen2_like", "wav2vec2", "whisper_tiny_enc")
"""Of `library_networks`."""

ENGINES: Mapping[str, Mapping[str, str]] = {
    "eager": {},
    "inductor": {"backend": "inductor"},
    "max-autotune": {"backend": "inductor", "mode": "max-autotune"},
    "treadle": {"backend": "treadle"},
}
"""By name, the arguments of torch.compile; eager is not compiled."""

CALLS_PER_ROUND = 3
"""Timed calls of one engine before the next has its turn; one untimed call comes before them."""

LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Figures:
    """What was measured of a network in an engine: seconds, and the largest relative error."""

    network: str
    threads: int
    engine: str
    first_call: float
    median: float
    fastest: float
    calls: int
    error: float


# ---- one engine, in a process of its own ---------------------------------------------------------


def network(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a network with seeded weights, and its inputs."""
    if name in LIBRARY:
        from benchmarks import library_networks, task_networks

        return task_networks.seeded(library_networks.networks()[name])
    from benchmarks import timm_networks

    return timm_networks.seeded(name)


def serve(pipe: Connection, name: str, engine: str, threads: int, cache: str) -> None:
    """Answer each number of calls with their seconds; begin with the first call's, and results."""
    os.environ.update(
        OMP_NUM_THREADS=str(threads),
        TREADLE_NUM_THREADS=str(threads),
        TREADLE_CACHE=f"{cache}/treadle",
        TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor",
    )
    import torch  # after its variables are set

    from treadle.integrations.torch_compile import treadle_backend

    if "treadle" not in torch._dynamo.list_backends():  # run from its sources, not installed
        torch._dynamo.register_backend(treadle_backend, "treadle")
    torch.set_num_threads(threads)
    module, inputs = network(name)
    with torch.inference_mode():
        run, first = _opened(torch, module, inputs, ENGINES[engine])
        pipe.send((first, run().double().numpy()))
        while (calls := pipe.recv()) is not None:
            run()
            pipe.send([_seconds(run) for _ in range(calls)])


def _opened(
    torch: Any, module: nn.Module, inputs: tuple[Tensor, ...], options: Mapping[str, str]
) -> tuple[Callable[[], Any], float]:
    """Return one inference, and the seconds until its first result."""
    start = time.perf_counter()
    called = torch.compile(module, **options) if options else module

    def run() -> Any:
        made = called(*inputs)
        return made[0] if isinstance(made, (tuple, list)) else made

    run()
    return run, time.perf_counter() - start


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


class Engine:
    """A process that runs one network in one engine."""

    def __init__(self, name: str, engine: str, threads: int, cache: str) -> None:
        context = mp.get_context("spawn")
        self.name = engine
        self._pipe, theirs = context.Pipe()
        given = (theirs, name, engine, threads, cache)
        self._process = context.Process(target=serve, args=given, daemon=True)
        self._process.start()
        theirs.close()
        self.first, self.result = self._pipe.recv()
        self.seconds: list[float] = []

    def measure(self) -> None:
        """Time a round of calls."""
        self._pipe.send(CALLS_PER_ROUND)
        self.seconds += self._pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


# ---- a network in all engines --------------------------------------------------------------------


def measured(
    name: str, names: Sequence[str], threads: int, seconds: float, caches: Path | None
) -> list[Figures]:
    """Return the figures of a network in each engine that could compile it; eager is the truth."""
    engines: list[Engine] = []
    with tempfile.TemporaryDirectory() as empty:
        folder = caches / f"{name}.{threads}" if caches else Path(empty)
        try:
            for engine in names:
                try:
                    engines.append(Engine(name, engine, threads, str(folder / engine)))
                except EOFError:  # the process has said why
                    print(f"{name}: {engine} failed", file=sys.stderr)
            end, rounds = time.perf_counter() + seconds, 0
            while rounds < LEAST_ROUNDS or time.perf_counter() < end:
                for one in engines:
                    one.measure()
                rounds += 1
            return [_figures(name, threads, e, engines[0].result) for e in engines]
        finally:
            for one in engines:
                one.stop()


def _figures(name: str, threads: int, engine: Engine, truth: Any) -> Figures:
    error = abs(engine.result - truth).max() / max(abs(truth).max(), 1e-30)
    return Figures(
        network=name,
        threads=threads,
        engine=engine.name,
        first_call=engine.first,
        median=statistics.median(engine.seconds),
        fastest=min(engine.seconds),
        calls=len(engine.seconds),
        error=float(error),
    )


def table(figures: Sequence[Figures]) -> str:
    """Return medians in milliseconds, first calls in seconds, and ratios to each other engine."""
    lines = []
    for f in figures:
        lines.append(
            f"{f.network:30} {f.threads} {f.engine:13} {1e3 * f.median:9.2f} ms"
            f"  first call {f.first_call:7.1f} s  error {f.error:.0e}"
        )
    by_case = {(f.network, f.threads, f.engine): f for f in figures}
    for threads in sorted({f.threads for f in figures}):
        for engine in ENGINES:
            pairs = [
                (f, by_case[f.network, threads, "treadle"])
                for f in figures
                if f.threads == threads
                and f.engine == engine != "treadle"
                and (f.network, threads, "treadle") in by_case
            ]
            if pairs:
                fast = [peer.median / ours.median for peer, ours in pairs]
                first = [peer.first_call / ours.first_call for peer, ours in pairs]
                lines.append(
                    f"{threads} thread(s), {engine}: treadle is {_mean(fast)} times as fast, "
                    f"its first call {_mean(first)} times ({len(pairs)} networks)"
                )
    return "\n".join(lines)


def _mean(ratios: Sequence[float]) -> str:
    """Return the geometric mean of ratios, and the least."""
    return f"{prod(ratios) ** (1 / len(ratios)):.2f} (least {min(ratios):.2f})"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line names; return 1 where a network could not be measured."""
    args = _arguments(argv)
    found = _kept(args.out)
    for name in args.names or (*TIMM, *LIBRARY):
        for threads in map(int, args.threads.split(",")):
            done = {f.engine for f in found if (f.network, f.threads) == (name, threads)}
            if not done.issuperset(args.engines.split(",")):
                found = [f for f in found if (f.network, f.threads) != (name, threads)]
                found += measured(name, args.engines.split(","), threads, args.seconds, args.caches)
                print(table([f for f in found if f.network == name]), flush=True)
                _keep(args.out, found)
    print(table(found))
    return int(any(f.engine == "treadle" and not f.error < 1e-3 for f in found))


def _kept(path: Path | None) -> list[Figures]:
    """Return the figures of a report."""
    if path is None or not path.exists():
        return []
    return [Figures(**f) for f in json.loads(path.read_text(encoding="utf-8"))["figures"]]


def _keep(path: Path | None, found: Sequence[Figures]) -> None:
    """Write a report."""
    if path is None:
        return
    machine = platform.processor() or platform.machine()
    report = {"machine": machine, "figures": [asdict(f) for f in found]}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report, indent=1), encoding="utf-8")
    os.replace(part, path)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="of timm or `library_networks`: 12 by default")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--engines", default=",".join(ENGINES), help="eager comes first")
    parser.add_argument("--seconds", type=float, default=10, help="per network, beside compiling")
    parser.add_argument("--caches", type=Path, metavar="FOLDER", help="kept and used again")
    parser.add_argument("--out", type=Path, metavar="FILE")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
