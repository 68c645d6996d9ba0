# SPDX-License-Identifier: Apache-2.0
"""The command `treadle`: finds the subcommand, and turns what goes wrong into text and exit codes.

Exit codes: 0 done; 1 a defect of Treadle, or a finding of `doctor`; 2 a mistake the user can act
on; 130 and 143 interrupted; 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import NoReturn, Protocol

from treadle.cli.arguments import Parser
from treadle.cli.machine import treadle_version
from treadle.cli.operators import mistake_in
from treadle.cli.text import print_error
from treadle.errors import InternalError, TreadleError, UsageError


class Command(Protocol):
    """What a module of a subcommand holds."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; return the exit code."""


COMMANDS = {
    "compile": "compile a model to a file that runs with or without Python",
    "run": "run a model",
    "deploy": "bring a model to a board, run it there, compare it with this machine, and time it",
    "bench": "time a model, side by side with other runtimes, or each of its kernels alone",
    "tune": "find faster schedules for the kernels of a model by measuring them on this machine",
    "records": "list, join, prune and exchange what tuning has measured",
    "rpc": "lend devices to programs on other machines: tracker, server, query, key",
    "profile": "show where the time of a model goes, kernel by kernel",
    "explain": "say what was fused, which layout and kernel each node got, and why",
    "compare": "hold a compiled model against its network: every output, or every layer",
    "runtime": "build the native runtime and the RPC server, to run models without Python",
    "doctor": "say what this machine can do",
}
"""What each subcommand does; the module of its name in this package is imported to do it."""

_INTERRUPTED, _BROKEN_PIPE = 130, 141
_KNOCK_SECONDS = 0.02


class _Version(argparse.Action):
    """Prints the version; finding it may load the native runtime, so it is not done ahead."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"treadle {treadle_version()}")
        parser.exit()


def load(words: Sequence[str]) -> dict[str, Command]:
    """Import the module of the subcommand that a command line names; none where it names none."""
    name = next((word for word in words if word in COMMANDS), None)
    return {} if name is None else {name: import_module(f"treadle.cli.{name}")}


def make_parser(loaded: Mapping[str, Command]) -> Parser:
    """Return the parser of the command line; of commands that are not loaded it knows the names."""
    parser = Parser(prog="treadle", description="A deep-learning compiler: ONNX to machine code.")
    debug_help = "show the full traceback of an error"
    parser.add_argument("--debug", action="store_true", help=debug_help)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in loaded:
            loaded[name].add_arguments(command)
        # Suppressed: the default here would hide what stands before the command.
        command.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help=debug_help
        )
        command.set_defaults(parser=command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return the exit code."""
    try:
        _prepare_streams()
        loaded = load(sys.argv[1:] if argv is None else argv)
        parser = make_parser(loaded)
        arguments, rest = parser.parse_known_args(argv)
        if arguments.command is None:
            parser.print_help()
            return 2
        if rest:
            arguments.parser.unknown(rest)
        with _ended_by_signals():
            return _run(loaded[arguments.command], arguments)
    except KeyboardInterrupt:  # before the command has begun, or as it ends
        print("\ninterrupted", file=sys.stderr)
        return _INTERRUPTED


def _run(command: Command, arguments: argparse.Namespace) -> int:
    try:
        code = command.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except InternalError as error:
        return _failed(error, arguments.debug, 1)
    except (TreadleError, OSError, MemoryError) as error:
        return _failed(_mistake(arguments, error.__cause__) or error, arguments.debug, 2)
    except Exception as error:  # a defect of Treadle: say so, and how to report it
        mistake = _mistake(arguments, error)
        if mistake is not None:
            return _failed(mistake, arguments.debug, 2)
        print_error(error)
        hint = "this is a defect of Treadle; report it with what --debug shows"
        print(f"  hint  {hint}", file=sys.stderr)
        return _failed(None, arguments.debug, 1)
    return code


def _mistake(arguments: argparse.Namespace, error: BaseException | None) -> UsageError | None:
    """Return what an error becomes that arose in one of the user's operators, else None."""
    return mistake_in(getattr(arguments, "operators", ()), error) if error is not None else None


def _failed(error: BaseException | None, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc()
    if error is not None:
        print_error(error)
    return code


def _prepare_streams() -> None:
    """Let a terminal that cannot show a character show another one instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the block by an exception, so that all is cleaned up.

    The interpreter drops an exception raised inside a destructor, a callback of a weak reference
    or a callback from C, and tells sys.unraisablehook: the signal then knocks again.
    """
    pending: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGALRM:
            pending[:] = [number]
        raise KeyboardInterrupt if pending[0] == signal.SIGINT else _Ended(128 + pending[0])

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt | _Ended):
            signal.setitimer(signal.ITIMER_REAL, _KNOCK_SECONDS)
        else:
            hook_before(unraisable)

    before, hook_before = {}, sys.unraisablehook
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        usual = (signal.SIG_DFL, signal.default_int_handler)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
        before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) in usual}
        sys.unraisablehook = dropped
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        sys.unraisablehook = hook_before
        if pending:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


class _Ended(SystemExit):
    """A signal ends the process."""


def _nobody_reads() -> int:
    """Send what is still buffered nowhere, so that the end of the process says nothing."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE


if __name__ == "__main__":
    sys.exit(main())
