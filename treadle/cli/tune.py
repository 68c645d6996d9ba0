# SPDX-License-Identifier: Apache-2.0
"""`treadle tune`: faster schedules for the kernels of a model, measured on this machine."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from math import inf
from pathlib import Path
from typing import Any

from treadle.build.compile import fused_model
from treadle.build.record_database import shown, shown_within
from treadle.cli.arguments import (
    add_compile_options,
    add_model,
    add_threads,
    compile_words,
    count,
    duration,
    record_place,
)
from treadle.cli.named import check_readable, given_shapes
from treadle.cli.operators import load_operators
from treadle.cli.remote import add_device, target_of_session, tracker_of
from treadle.cli.roofline import Limits, measured_limits
from treadle.cli.table import print_table
from treadle.cli.text import console, count_text, print_row
from treadle.cli.tune_report import write_report
from treadle.cli.tune_view import View, best_text, live_view, of_roofline, share_of, time_text
from treadle.errors import UsageError
from treadle.files import check_writable
from treadle.runtime import native
from treadle.settings import use
from treadle.target.probes import PROBE_KIND
from treadle.tune.method_task import MethodTask
from treadle.tune.methods import MethodResult
from treadle.tune.model import TuneResult, tune_model
from treadle.tune.options import TuneOptions
from treadle.tune.rpc_executor import RpcExecutor, rpc_executor
from treadle.tune.runner import MeasureOptions
from treadle.tune.search import SEARCHES
from treadle.tune.spaces import KINDS
from treadle.tune.task import Tasks, extract_tasks, shares
from treadle.tune.tuner import Tuner

_MINUTES = 10.0
_FAILED, _INTERRUPTED = 1, 130
_SHOWN_FAILURES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "an ONNX or TFLite file")
    parser.add_argument(
        "-o",
        "--output",
        type=record_place,
        metavar="FILE",
        help="the records, JSON lines that compile, run and bench take as --tuning-records; of a "
        "file that is there nothing is tried again. Or the URL of a database, which many may share",
    )
    parser.add_argument(
        "--tasks", action="store_true", help="print the kernels there are to tune, and stop"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with curves")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    _add_search(parser)
    _add_measuring(parser)
    add_threads(parser)
    add_device(parser)
    parser.add_argument("--rpc-devices", type=count, metavar="N", help="measure on so many devices "
                        "at the same time (default: all that the tracker has)")  # fmt: skip
    add_compile_options(parser)


def _add_search(parser: argparse.ArgumentParser) -> None:
    """Add what says how much is tried, and which candidates."""
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--trials", type=count, metavar="N", help="candidates in all, those in FILE included"
    )
    budget.add_argument(
        "--minutes", type=_minutes, metavar="M", help=f"how long to try (default: {_MINUTES:g})"
    )
    parser.add_argument("--space", choices=KINDS, default="template", help="what to choose from: "
                        "the knobs of the operators' schedules, schedules derived from the "
                        "computation, or both (default: template)")  # fmt: skip
    parser.add_argument(
        "--search",
        choices=SEARCHES,
        default="evolutionary",
        help="how candidates are chosen (default: evolutionary)",
    )
    parser.add_argument(
        "--no-methods",
        action="store_true",
        help="leave how convolutions and products are computed (direct, Winograd, ...) to the "
        "records and the estimates (default: measure it, in at most half of the budget)",
    )
    parser.add_argument("--sizes", type=_sizes, default={}, metavar="NAME=N,...", help="with "
                        "--dynamic: the sizes at which kernels are measured")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all random choices")
    parser.add_argument(
        "--early-stopping",
        type=count,
        metavar="N",
        help="leave a kernel after N trials without a better one",
    )
    parser.add_argument(
        "--in-turn",
        action="store_true",
        help="give all kernels as many trials (default: more to those that promise more)",
    )


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    """Add what says where and how candidates are built and measured."""
    parser.add_argument("--builders", type=count, metavar="N", help="processes that build "
                        "candidates (default: the CPUs this process may use)")  # fmt: skip
    parser.add_argument(
        "--executor",
        default="local",
        metavar="WHERE",
        help="where candidates are built and measured: local, or the workers of a Dask cluster by "
        "the address of its scheduler, dask:tcp://host:8786 (default: local)",
    )
    parser.add_argument(
        "--timeout",
        type=duration,
        default=10.0,
        metavar="SECONDS",
        help="that a candidate may run altogether (default: 10)",
    )
    parser.add_argument(
        "--flush",
        action="store_true",
        help="drive the arguments out of the caches before every call",
    )


def _minutes(text: str) -> float:
    try:
        return duration(text)
    except argparse.ArgumentTypeError:
        problem = f"{text[:40]!r} is not a number of minutes above 0"
        raise argparse.ArgumentTypeError(problem) from None


def _sizes(text: str) -> dict[str, int]:
    """Return the sizes in "batch=4,seq=128"."""
    found: dict[str, int] = {}
    for word in text.split(","):
        name, equals, size = word.strip().partition("=")
        if not name or not equals or name in found:
            raise argparse.ArgumentTypeError(f"{word!r} is no NAME=N, or stands twice")
        found[name] = count(size)
    return found


def run(arguments: argparse.Namespace) -> int:
    """Tune, showing how it goes; print what was found and how to use it."""
    check_readable(arguments.model, "an ONNX file")
    load_operators(arguments.operators)
    device = None if arguments.tasks else _device(arguments)
    threads = arguments.threads or native.num_threads()
    with use(num_threads=threads):
        if arguments.tasks:
            return _print_tasks(
                extract_tasks(
                    fused_model(arguments.model, **_compiling(arguments)), arguments.sizes
                )
            )
        _check(arguments)
        return _tune(arguments, threads, device)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.records is not None:
        raise UsageError(
            "--tuning-records is for compiling; tuning goes on from the records in --output",
            hint=f"copy {shown(arguments.records)} and name the copy with -o",
        )
    if arguments.output is None:
        raise UsageError(
            "there is no file for the records", hint="name one, for example -o records.jsonl"
        )
    if arguments.html is not None:
        check_writable(arguments.html)
        for other in (arguments.model, arguments.output):
            if isinstance(other, Path) and other.absolute() == arguments.html.absolute():
                raise UsageError(
                    f"the report would take the place of {other}", hint="give --html another name"
                )


def _compiling(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of treadle.compile that the command line has."""
    found: dict[str, Any] = {
        "shapes": given_shapes(arguments),
        "winograd": arguments.winograd,
        "weight_growth": arguments.weight_growth,
        "unchecked": arguments.unchecked,
        "dynamic": arguments.dynamic,
    }
    if arguments.target is not None:
        found["target"] = arguments.target
    if arguments.opt_level is not None:
        found["opt_level"] = arguments.opt_level
    return found


def _options(arguments: argparse.Namespace, threads: int) -> TuneOptions:
    has_budget = arguments.trials is not None or arguments.minutes is not None
    return TuneOptions(
        trials=arguments.trials,
        minutes=arguments.minutes if has_budget else _MINUTES,
        space=arguments.space,
        search=arguments.search,
        seed=arguments.seed,
        early_stopping=arguments.early_stopping,
        in_turn=arguments.in_turn,
        methods=not arguments.no_methods,
        sizes=arguments.sizes,
        builders=arguments.builders,
        executor=arguments.executor,
        measure=MeasureOptions(threads=threads, timeout=arguments.timeout, flush=arguments.flush),
    )


def _device(arguments: argparse.Namespace) -> RpcExecutor | None:
    """Return the devices of the kind that is named as a place to measure, None where none is.

    What the command line does not say of target and threads becomes what the device says.
    """
    found = tracker_of(arguments)
    if found is None:
        if arguments.rpc_devices is not None:
            raise UsageError("--rpc-devices is for --rpc-tracker", hint="name the tracker, too")
        return None
    if arguments.executor != "local":
        raise UsageError(
            f"--executor {arguments.executor} and --rpc-tracker both say where to measure",
            hint="leave one of them out",
        )
    tracker, key = found
    with tracker.request(key) as session:
        arguments.target = arguments.target or target_of_session(session)
        arguments.threads = arguments.threads or session.cores()
    arguments.executor = f"rpc:{key}"
    return rpc_executor(tracker, key, count=arguments.rpc_devices)


def _tune(arguments: argparse.Namespace, threads: int, device: RpcExecutor | None) -> int:
    options = _options(arguments, threads)
    limits = _limits(arguments, threads) if device is None else None
    with live_view(limits) as view:
        try:
            result = tune_model(
                arguments.model,
                arguments.output,
                options=options,
                on_change=view.show,
                on_stage=view.stage,
                executor=device,
                **_compiling(arguments),
            )
        except KeyboardInterrupt:
            view.close()
            _print_interrupted(view, arguments.output)
            return _INTERRUPTED
    if arguments.html is not None:
        write_report(result, arguments.html, str(arguments.model), limits)
    if arguments.json:
        print(json.dumps(_figures(result, limits), indent=2))
    else:
        _print_result(result, arguments)
    return _FAILED if any(s.failed for s in result.tuner.states) else 0


def _limits(arguments: argparse.Namespace, threads: int) -> Limits | None:
    """Measure the machine's limits, two seconds, where something shows the roofline."""
    is_shown = arguments.json or arguments.html is not None or sys.stderr.isatty()
    return measured_limits(threads, arguments.target or PROBE_KIND) if is_shown else None


# ---- printing ------------------------------------------------------------------------------------


def _print_tasks(tasks: Tasks) -> int:
    out = console()
    parts = shares([t.uses * t.cycles for t in tasks.tasks])
    rows = [
        (
            t.name,
            t.origins[0] if t.origins else "",
            str(t.uses),
            f"{t.flops / 1e6:.1f}",
            f"{t.cycles / 1e3:.1f}",
            f"{share:.1%}",
        )
        for t, share in zip(tasks.tasks, parts, strict=True)
    ]
    if rows:
        headings = ("kernel", "first node", "uses", "MFLOP", "roofline kcycles", "share")
        print_table(out, headings, rows, names=2, spare=("first node",))
    elif not tasks.dynamic:
        print_row(out, "kernels", "none: a run computes nothing that could be tuned")
    if rows and tasks.dynamic:
        out.print()
    if tasks.dynamic:
        print_row(out, "left", tasks.note)
    return 0


def _print_interrupted(view: View, output: Path | str) -> None:
    """Say where a run stands that was interrupted, and how to go on."""
    out = console()
    tuner = view.tuner
    if tuner is not None:
        trials = count_text(tuner.trials + view.earlier, "trial")
        print_row(out, "stopped", f"after {trials}, {best_text(tuner)}")
    words = [shlex.quote(shown_within(word)) for word in sys.argv[1:]]
    print_row(out, "records", shown(output))
    print_row(out, "go on", f"treadle {' '.join(words)}")


def _print_result(result: TuneResult, arguments: argparse.Namespace) -> None:
    out = console()
    tuner = result.tuner
    for note in tuner.notes:
        print_row(out, "note", note)
    _print_methods(result.methods)
    resumed = sum(s.resumed for t in result.tuners for s in t.states)
    said = f"{result.trials} in {result.seconds / 60:.1f} min"
    print_row(out, "trials", said + (f", {resumed} of them from the records" if resumed else ""))
    _print_failures(tuner)
    chosen = [s for s in tuner.states if s.decided is not None and s.decided.choice.to_json()]
    kept = len(chosen) - len(result.reverted)
    print_row(out, "faster", f"{kept} of {count_text(len(tuner.states), 'kernel')}")
    if result.reverted:
        print_row(out, "", _reverted_text(len(result.reverted)))
    both = result.comparison
    if both is None:
        print_row(out, "model", "stays as it is: no kernel was found that is faster in it")
    else:
        gain = 1 / both.share
        times = f"{time_text(both.before)} -> {time_text(both.after)}"
        print_row(out, "model", f"{times}, {gain:.2f} times as fast (both run in turns)")
    place = shown(arguments.output)
    print_row(out, "records", place)
    words = [str(arguments.model), "--tuning-records", place, *compile_words(arguments)]
    print_row(out, "use", f"treadle compile {shlex.join(words)}")


def _reverted_text(count: int) -> str:
    return f"{count} {'was' if count == 1 else 'were'} faster alone and not in the model"


def _print_methods(found: MethodResult | None) -> None:
    """Print of how many calls the methods were measured, and which are computed otherwise now."""
    if found is None:
        return
    out, tuner = console(), found.tuner
    decided = sum(s.decided is not None for s in tuner.states)
    trials = count_text(tuner.trials, "trial")
    print_row(out, "methods", f"{decided} of {count_text(len(tuner.states), 'call')}, {trials}")
    now = {r.call: r.method for r in found.decided}
    lines = [f"{now[call]}: {call}" for call in found.changed]
    if found.reverted:
        lines.append(_reverted_text(len(found.reverted)))
    for line in lines:
        print_row(out, "", line)
    _print_failures(tuner)


def _print_failures(tuner: Tuner) -> None:
    """Print every kind of failure once, with the first candidate that had it."""
    out = console()
    total = sum(sum(s.failures.values()) for s in tuner.states)
    if not total:
        return
    print_row(out, "failed", count_text(total, "trial"))
    shown = 0
    for state in tuner.states:
        for kind, number in state.failures.items():
            if shown < _SHOWN_FAILURES or state.failed:
                first = state.first_failures[kind]
                print_row(out, "", f"{number} x {first.error}\n{state.task.name}: {first.choice}")
                shown += 1


def _figures(result: TuneResult, limits: Limits | None) -> dict[str, object]:
    tuner, both = result.tuner, result.comparison
    total = tuner.now
    return {
        "trials": result.trials,
        "seconds": result.seconds,
        "host_seconds": tuner.host_seconds,
        "before": None if both is None else both.before,
        "after": None if both is None else both.after,
        "reverted": list(result.reverted),
        "notes": tuner.notes,
        "methods": _method_figures(result.methods),
        "machine": None if limits is None else limits.to_json(),
        "tasks": [
            {
                "kernel": s.task.name,
                "uses": s.task.uses,
                "share": share_of(s, total),
                "state": s.status,
                "trials": len(s.trials),
                "default": s.default,
                "best": None if s.seconds == inf else s.seconds,
                "of_roofline": of_roofline(s, limits),
                "config": None if s.decided is None else s.decided.choice.to_json(),
                "failures": dict(s.failures),
            }
            for s in tuner.states
        ],
    }


def _method_figures(found: MethodResult | None) -> list[dict[str, object]]:
    """Return what was measured of the methods of every call: seconds by name, what was decided."""
    if found is None:
        return []
    now = {r.call: r.method for r in found.decided}
    rows: list[dict[str, object]] = []
    for state in found.tuner.states:
        task = state.task
        assert isinstance(task, MethodTask)
        rows.append(
            {
                "call": task.call,
                "uses": task.uses,
                "layouts": task.layouts,
                "estimated": task.default,
                "method": now.get(task.call),
                "seconds": {task.method_of(t.choice): t.time for t in state.trials if t.time < inf},
                "failures": dict(state.failures),
            }
        )
    return rows
