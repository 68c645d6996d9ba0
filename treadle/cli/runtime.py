# SPDX-License-Identifier: Apache-2.0
"""`treadle runtime build`: the native runtime and the RPC server, to do without Python."""

from __future__ import annotations

import argparse
from pathlib import Path

from treadle.cli.arguments import add_cross_compiler, cross_compiler
from treadle.cli.text import console, print_row, size_text
from treadle.runtime.native_package import build_package, find_toolchain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=type(parser)
    )
    build = actions.add_parser(
        "build", help="write libtreadle.so, libtreadle.a, treadle.h and treadle-rpc-server"
    )
    build.add_argument(
        "--target",
        metavar="TRIPLE",
        help="the machine: aarch64-linux-gnu, or with a version of glibc, aarch64-linux-gnu.2.17 "
        "(default: this machine)",
    )
    build.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where to write (default: this folder)",
    )
    add_cross_compiler(build, "the C compiler to build with (default: one for the machine, or zig)")


def run(arguments: argparse.Namespace) -> int:
    """Build, and print what was written."""
    toolchain = find_toolchain(arguments.target, cross_compiler(arguments))
    out = console()
    print_row(out, "compiler", " ".join(toolchain.compiler))
    for path in build_package(arguments.output, toolchain, with_server=True):
        print_row(out, "wrote", f"{path} ({size_text(path.stat().st_size)})")
    return 0
