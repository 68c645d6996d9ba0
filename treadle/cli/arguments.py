# SPDX-License-Identifier: Apache-2.0
"""What several commands read from the command line: shapes, counts, models; and the parser."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import NoReturn

from treadle.build.record_database import is_url, shown_within
from treadle.errors import UsageError
from treadle.settings import MOST_THREADS

_SHAPE = re.compile(r"\s*(?P<name>\S.*?)\s*:\s*\[(?P<sizes>[^\[\]]*)\]\s*[,;]?")
_LARGEST_SIZE = 1 << 40
_LONGEST = 1e6  # seconds
_SHAPES_HINT = 'write them as "data:[1,3,224,224] mask:[1,128]"'


class Parser(argparse.ArgumentParser):
    """An argument parser that says `error: …` like every other part, with "did you mean"."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake and what was probably meant; exit with 2."""
        print(f"error: {message}", file=sys.stderr)
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            self.suggest(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        print(f"  hint  {self.prog} --help", file=sys.stderr)
        sys.exit(2)

    def unknown(self, words: list[str]) -> NoReturn:
        """Complain about words no option or argument takes."""
        print(f"error: unknown argument: {' '.join(map(shown_within, words))}", file=sys.stderr)
        options = [o for action in self._actions for o in action.option_strings]
        self.suggest(words[0].partition("=")[0], options)
        print(f"  hint  {self.prog} --help", file=sys.stderr)
        sys.exit(2)

    def suggest(self, word: str, known: Iterable[str]) -> None:
        """Print the known word that is closest, if one is close."""
        for close in difflib.get_close_matches(word, known, 1):
            print(f"  hint  did you mean {close}?", file=sys.stderr)


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes in "data:[1,3,224,224] mask:[1,128]"; names may hold colons.

    Raises: UsageError when the text has another form or a size no array can have.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    position = 0
    while text[position:].strip():
        match = _SHAPE.match(text, position)
        if match is None:
            rest = text[position:].strip()
            raise UsageError(f"--input-shapes cannot be read at {rest[:60]!r}", hint=_SHAPES_HINT)
        name = match["name"].strip("\"'")
        if name in shapes:
            raise UsageError(f"--input-shapes gives {name!r} twice", hint=_SHAPES_HINT)
        shapes[name] = _sizes(name, match["sizes"])
        position = match.end()
    if not shapes:
        raise UsageError("--input-shapes is empty", hint=_SHAPES_HINT)
    return shapes


def _sizes(name: str, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    for word in words:
        if not (word.isascii() and word.isdigit()) or len(word) > 13 or int(word) > _LARGEST_SIZE:
            raise UsageError(
                f"{word[:40]!r} is not a size of input {name!r}",
                hint=f"sizes are whole numbers from 0 to {_LARGEST_SIZE}",
            )
    return tuple(map(int, words))


def count(text: str) -> int:
    """Read a whole number of 1 or more (an argparse type)."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:12]) <= 1_000_000_000:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number of 1 or more")
    return int(text)


def duration(text: str) -> float:
    """Read a number of seconds above 0 (an argparse type)."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < _LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds above 0")
    return seconds


def record_place(text: str) -> Path | str:
    """Read where records are, a file or the URL of a database (an argparse type)."""
    return text if is_url(text) else Path(text)


def share(text: str) -> float:
    """Return a part of something as a number from 0 (an argparse type)."""
    try:
        part = float(text)
    except ValueError:
        part = -1.0
    if not 0 <= part < inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 0")
    return part


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a file of inputs."""
    parser.add_argument(
        "-i",
        "--inputs",
        type=Path,
        metavar="NPZ",
        help="the inputs, by name (default: random numbers, seeded)",
    )


_OF_COMPILING = {
    "target": "--target",
    "opt_level": "--opt-level",
    "dynamic": "--dynamic",
    "winograd": "--no-winograd",
    "weight_growth": "--weight-growth",
    "unchecked": "--unchecked",
    "operators": "--operators",
    "records": "--tuning-records",
}
"""Options that say how a network is compiled, by the attribute they set."""


_UNSAID: dict[str, object] = {"dynamic": False, "unchecked": False, "operators": []}
"""The attributes' values where the option is not given, those that are not None."""


def refuse_compile_options(arguments: argparse.Namespace, artifact: Path) -> None:
    """Raise UsageError where an option would say how to compile what is compiled already."""
    given = [
        option
        for attribute, option in _OF_COMPILING.items()
        if getattr(arguments, attribute) != _UNSAID.get(attribute)
    ]
    if given:
        raise UsageError(
            f"{' and '.join(given)} cannot change {artifact}, which is compiled already",
            hint=f"compile the network with {' '.join(given)}, or leave it out",
        )


def compile_words(arguments: argparse.Namespace) -> list[str]:
    """Return the options that say how a network is compiled, as the words of another command.

    Those that are not given are left out, and so is --tuning-records.
    """
    words: list[str] = []
    for attribute, option in {"input_shapes": "--input-shapes", **_OF_COMPILING}.items():
        value = getattr(arguments, attribute)
        if attribute == "records" or value == _UNSAID.get(attribute):
            continue
        if isinstance(value, bool):
            words.append(option)
        else:
            each = value if isinstance(value, list) else [value]
            words += [word for one in each for word in (option, str(one))]
    return words


def add_model(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add the argument that names the model's file."""
    parser.add_argument("model", type=Path, metavar="MODEL", help=help_text)


def add_operators(parser: argparse.ArgumentParser) -> None:
    """Add the option that names files with operators, and templates, of the user."""
    parser.add_argument(
        "--operators",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file that registers operators of your own, run first (may be repeated)",
    )


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how an ONNX model is compiled."""
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help='the machine to compile for, such as "llvm -mcpu=haswell" (default: this machine)',
    )
    parser.add_argument(
        "--input-shapes",
        metavar="SHAPES",
        help='sizes of inputs that leave them open: "data:[1,3,224,224] mask:[1,128]"',
    )
    parser.add_argument(
        "--opt-level",
        type=int,
        choices=range(5),
        metavar="N",
        help="0: every operator is a kernel of its own, to find faults; 1 to 4: everything "
        "(default: 3)",
    )
    add_operators(parser)
    parser.add_argument(
        "--tuning-records",
        dest="records",
        type=record_place,
        metavar="FILE",
        help="configurations of the schedules of kernels: a file of JSON lines, or the URL of a "
        "database (default: every schedule as its cost model says)",
    )
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="keep the sizes that the model leaves open open: it runs at any (default: an unknown "
        "batch becomes 1)",
    )
    parser.add_argument(
        "--no-winograd",
        dest="winograd",
        action="store_false",
        default=None,
        help="run no convolution by Winograd's filtering and no product by Strassen's "
        "algorithm: slower, smaller weights, rounding errors of 1e-7",
    )
    parser.add_argument(
        "--weight-growth",
        type=share,
        metavar="PART",
        help="by which part of themselves, or up to half a megabyte, weights may grow for these "
        "algorithms (default: 0.1); 0: not at all. Larger is faster where products dominate",
    )
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="do not look if indices that are data are inside of what they index: those outside "
        "take the nearest element, or write nothing",
    )


def _threads(text: str) -> int:
    if count(text) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is more than {MOST_THREADS} threads")
    return int(text)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add the number of threads the model runs on."""
    parser.add_argument(
        "--threads",
        type=_threads,
        metavar="N",
        help="threads to run on (default: the CPUs this process may use)",
    )


def add_cross_compiler(parser: argparse.ArgumentParser, help: str, *names: str) -> None:
    """Add --cross-compiler, which has other `names` too, and the options for it."""
    parser.add_argument("--cross-compiler", *names, metavar="COMMAND", help=help)
    parser.add_argument(
        "--cross-compiler-options",
        metavar="OPTIONS",
        help='options for it, as one text: --cross-compiler-options="--sysroot=/opt/board -O2"',
    )


def cross_compiler(arguments: argparse.Namespace) -> list[str] | None:
    """Return the compiler that is named, with its options, as the words of a command.

    Raises: UsageError for options without a compiler, and for quotes that do not close.
    """
    command, options = arguments.cross_compiler, arguments.cross_compiler_options
    if command is None and options is None:
        return None
    if command is None:
        raise UsageError(
            "--cross-compiler-options are given, and no compiler",
            hint="name one with --cross-compiler",
        )
    words = _split_words("--cross-compiler (--linker)", command)
    if not words:
        raise UsageError(
            "--cross-compiler (--linker) is empty", hint="name a program, such as ld.lld or gcc"
        )
    return words + _split_words("--cross-compiler-options", options or "")


def _split_words(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} cannot be read: {error}") from None
