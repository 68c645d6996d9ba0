# SPDX-License-Identifier: Apache-2.0
"""`treadle deploy`: a model goes to a board, runs there, is compared with this machine, timed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from treadle.build.agreement import agreement
from treadle.build.load import is_artifact
from treadle.build.loaded import Runnable
from treadle.build.remote_executable import RemoteExecutable
from treadle.cli.arguments import (
    add_compile_options,
    add_cross_compiler,
    add_inputs,
    add_model,
    add_threads,
    count,
    cross_compiler,
    duration,
    share,
)
from treadle.cli.inputs import given_inputs
from treadle.cli.models import compile_file, open_artifact, open_model
from treadle.cli.named import check_readable
from treadle.cli.remote import target_of_session
from treadle.cli.rpc import TRACKER_PORT, parse_address
from treadle.cli.table import print_table
from treadle.cli.text import console, count_text, print_row, size_text
from treadle.errors import TreadleError, UsageError
from treadle.rpc.boards import Board, board_of, opened_board
from treadle.rpc.client import CALL_SECONDS, Session
from treadle.rpc.tls import connecting_context
from treadle.rpc.tracking import connect_tracker
from treadle.runtime.array import NDArray
from treadle.runtime.native_package import SERVER, SHARED
from treadle.runtime.timing import BenchmarkResult
from treadle.target.cpu_names import target_of
from treadle.target.cpus import architecture_of
from treadle.target.parse import parse_target

_MODEL = "model.tar"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "an ONNX file, or a .tar that is compiled for the board")
    parser.add_argument(
        "--board",
        required=True,
        metavar="BOARD",
        help="ssh:USER@HOST[:PORT], adb:SERIAL (adb: for the only one) or rpc:TRACKER[:PORT]/KEY",
    )
    parser.add_argument(
        "--repeat", type=count, default=10, metavar="N", help="measurements (default: 10)"
    )
    parser.add_argument(
        "--number", type=count, default=1, metavar="N", help="runs per measurement (default: 1)"
    )
    parser.add_argument(
        "--tolerance",
        type=share,
        metavar="SHARE",
        help="how far outputs may be apart, as a share of the largest element (default: 1e-4 for "
        "float32)",
    )
    parser.add_argument(
        "--call-timeout",
        type=duration,
        default=CALL_SECONDS,
        metavar="SECONDS",
        help="the longest that loading, a run or all measurements may take (default: 600)",
    )
    add_inputs(parser)
    _add_board_options(parser)
    add_threads(parser)
    add_compile_options(parser)


def _add_board_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave model, runtime and server on the board, and print where they are",
    )
    parser.add_argument(
        "--board-folder",
        metavar="FOLDER",
        help="where on the board to work (default: /tmp, with Android /data/local/tmp)",
    )
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="FOLDER",
        help="what treadle runtime build has written for the board (default: it is built when "
        "first needed)",
    )
    add_cross_compiler(
        parser,
        "the C compiler to build runtime and server with (default: this machine's, a Debian cross "
        "gcc, or zig)",
    )
    parser.add_argument(
        "--rpc-key-file",
        type=Path,
        metavar="FILE",
        help="with rpc: the key of the tracker and the device",
    )
    parser.add_argument(
        "--rpc-tls-ca",
        type=Path,
        metavar="FILE",
        help="with rpc: who signed the certificates of tracker and device, PEM",
    )


def run(arguments: argparse.Namespace) -> int:
    """Deploy, compare, print; return 1 where an output departs."""
    check_readable(arguments.model)
    with _session(arguments) as (session, board):
        target = arguments.target or _target_of(session, board)
        print_row(console(), "target", target)
        _check_target(target, session.info().get("machine", ""), session.address)
        with tempfile.TemporaryDirectory(prefix="treadle-") as name:
            artifact = _artifact(arguments, target, Path(name))
            session.upload(artifact, _MODEL)
            there = RemoteExecutable(session.load(_MODEL, arguments.threads or 0))
            code = _try(arguments, there)
            if arguments.keep and board is not None:
                _keep(board, artifact)
    return code


# ---- the board -----------------------------------------------------------------------------------


@contextmanager
def _session(arguments: argparse.Namespace) -> Iterator[tuple[Session, Board | None]]:
    """Open a session on the board that is named; with a tracker there is no board of ours."""
    if arguments.board.startswith("rpc:"):
        with _lent(arguments) as session:
            yield session, None
        return
    for option in ("rpc_key_file", "rpc_tls_ca"):
        if getattr(arguments, option) is not None:
            raise UsageError(
                f"--{option.replace('_', '-')} is for boards of a tracker",
                hint="--board rpc:TRACKER/KEY",
            )
    with opened_board(
        board_of(arguments.board),
        compiler=cross_compiler(arguments),
        package=arguments.runtime,
        folder=arguments.board_folder,
        keep=arguments.keep,
    ) as board:
        print_row(console(), "board", f"{board.transport.at}: {board.facts}")
        print_row(console(), "server", board.package.origin)
        with board.session(call_timeout=arguments.call_timeout) as session:
            yield session, board


def _lent(arguments: argparse.Namespace) -> Session:
    """Return a session on a device of a tracker, rpc:HOST[:PORT]/KEY."""
    for option in ("keep", "board_folder", "runtime", "cross_compiler"):
        if getattr(arguments, option):
            raise UsageError(
                f"--{option.replace('_', '-')} is for boards that have no server",
                hint="leave it out, or use --board ssh:USER@HOST or adb:SERIAL",
            )
    address, slash, key = arguments.board.removeprefix("rpc:").partition("/")
    if not slash or not key:
        raise UsageError(
            f"{arguments.board[:100]!r} names no kind of device",
            hint="write rpc:TRACKER:PORT/KEY, as in rpc:127.0.0.1:9190/rk3399",
        )
    host, port = parse_address(address, TRACKER_PORT)
    authority = arguments.rpc_tls_ca
    tls = None if authority is None else connecting_context(authority)
    tracker = connect_tracker(host, port, key_file=arguments.rpc_key_file, tls=tls)
    session = tracker.request(key, call_timeout=arguments.call_timeout)
    print_row(console(), "board", f"{key} at {session.address}")
    return session


def _target_of(session: Session, board: Board | None) -> str:
    stated = target_of_session(session)
    if board is None:
        return stated
    features = session.info().get("features", "").split()
    return target_of(stated, board.facts.cpuinfo, features)


def _check_target(text: str, machine: str, at: str) -> None:
    """Raise UsageError where a target is for another architecture than the board's."""
    target = parse_target(text)
    if machine and architecture_of(target.triple) is not architecture_of(machine):
        raise UsageError(
            f"the target is for {target.triple.partition('-')[0]}, the board is {machine}",
            at=at,
            hint="leave --target out: the board says what it is",
        )


def _keep(board: Board, artifact: Path) -> None:
    """Leave what a program on the board needs."""
    paths = [board.push(artifact, _MODEL), board.push(board.package.folder / SHARED, SHARED)]
    for path in [*paths, f"{board.folder}/{SERVER}"]:
        print_row(console(), "kept", f"{board.transport.at} {path}")


# ---- the model -----------------------------------------------------------------------------------


def _artifact(arguments: argparse.Namespace, target: str, folder: Path) -> Path:
    """Return the file for the board: the one that is given, or the network compiled for it."""
    if is_artifact(arguments.model):
        return Path(arguments.model)
    path = folder / _MODEL
    given = argparse.Namespace(**{**vars(arguments), "target": target})
    compile_file(given, sized=not arguments.dynamic).save(path)
    print_row(console(), "compiled", size_text(path.stat().st_size))
    return path


def _here(arguments: argparse.Namespace) -> Runnable | None:
    """Return the same model for this machine; None, with a note, where there is none."""
    given = argparse.Namespace(**{**vars(arguments), "target": None})
    if not is_artifact(arguments.model):
        return open_model(given)
    try:
        return open_artifact(given, arguments.model)
    except TreadleError as error:
        note = f"not compared with this machine: {error.problem}; deploy the ONNX file"
        print_row(console(), "note", note)
        return None


def _try(arguments: argparse.Namespace, there: Runnable) -> int:
    """Run, compare and time a model; return 1 where an output departs."""
    inputs = given_inputs(arguments, there)
    found = there.run(inputs)
    here = _here(arguments)
    code = 0 if here is None else _compare(arguments, here, inputs, found)
    models = [("board", there), *([] if here is None else [("this machine", here)])]
    _print_times(
        [
            (name, model.executor.num_threads,
             model.benchmark(inputs, number=arguments.number, repeat=arguments.repeat))
            for name, model in models
        ]
    )  # fmt: skip
    return code


def _compare(
    arguments: argparse.Namespace,
    here: Runnable,
    inputs: dict[str, NDArray],
    found: list[NDArray],
) -> int:
    expected = here.run(inputs)
    wrong = 0
    for (name, _, _), there, wanted in zip(here.outputs, found, expected, strict=True):
        result = agreement(np.asarray(there), np.asarray(wanted), arguments.tolerance)
        wrong += not result.holds
        print_row(
            console(), "output", f"{name}: {result}" + ("" if result.holds else "  ← departs")
        )
    if wrong:
        print(f"error: {count_text(wrong, 'output')} of {len(found)} departs", file=sys.stderr)
        print("  hint  allow more with --tolerance, or look at each layer here with "
              f"treadle compare {arguments.model} --layers", file=sys.stderr)  # fmt: skip
    return 1 if wrong else 0


def _print_times(rows: list[tuple[str, int, BenchmarkResult]]) -> None:
    headings = ["latency (ms)", "threads", "mean", "median", "min", "max", "std"]
    cells = [
        [name, str(threads), *(f"{v * 1e3:.4f}" for v in (r.mean, r.median, r.min, r.max, r.std))]
        for name, threads, r in rows
    ]
    print_table(console(), headings, cells)
