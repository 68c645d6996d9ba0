# SPDX-License-Identifier: Apache-2.0
"""`treadle run`: run a saved or freshly compiled model, print and save its outputs, time it."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np

from treadle.build.artifact import check_writable, replacing
from treadle.build.executable import Runnable
from treadle.cli.arguments import add_compile_options, add_model, add_threads, count
from treadle.cli.inputs import filled_inputs, read_npz
from treadle.cli.models import given_shapes, open_model
from treadle.cli.text import console, print_row, printable, size_text, type_text
from treadle.runtime.array import NDArray
from treadle.runtime.executor import ProfileRow
from treadle.settings import get, use

HELP = "run a model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "a .tar made by treadle compile, or an ONNX file (compiled first)")
    parser.add_argument("-i", "--inputs", type=Path, metavar="NPZ", help="the inputs, by name")
    parser.add_argument("-o", "--outputs", type=Path, metavar="NPZ", help="write the outputs here")
    parser.add_argument(
        "--fill-mode",
        choices=("random", "ones", "zeros"),
        default="random",
        help="what fills the inputs when no --inputs are given (default: random, seeded)",
    )
    parser.add_argument(
        "--print-top", type=count, metavar="N", help="print the N largest values of each output"
    )
    parser.add_argument("--print-time", action="store_true", help="print the time of the runs")
    parser.add_argument(
        "--repeat", type=count, default=1, metavar="N", help="measurements (default: 1)"
    )
    parser.add_argument(
        "--number", type=count, default=1, metavar="N", help="runs per measurement (default: 1)"
    )
    parser.add_argument("--profile", action="store_true", help="print the time of every kernel")
    add_threads(parser)
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run and print what is asked for."""
    if arguments.outputs is not None:
        check_writable(arguments.outputs)
    with use(num_threads=arguments.threads or get().num_threads):
        model = open_model(arguments)
        if arguments.inputs is not None:
            inputs = read_npz(arguments.inputs, model.inputs)
        else:
            inputs = filled_inputs(model, arguments.fill_mode, given_shapes(arguments))
        outputs = model.run(inputs)
        _report(arguments, model, inputs, outputs)
    return 0


def _report(
    arguments: argparse.Namespace,
    model: Runnable,
    inputs: dict[str, NDArray],
    outputs: list[NDArray],
) -> None:
    out = console()
    for (name, dtype, _), value in zip(model.outputs, outputs, strict=True):
        print_row(out, "output", type_text(name, dtype, value.shape))
    if arguments.print_top:
        for (name, _, _), value in zip(model.outputs, outputs, strict=True):
            print_top(name, np.asarray(value), arguments.print_top)
    if arguments.outputs is not None:
        write_npz(arguments.outputs, [name for name, _, _ in model.outputs], outputs)
        size = size_text(arguments.outputs.stat().st_size)
        print_row(out, "wrote", f"{arguments.outputs} ({size})")
    if arguments.print_time:
        print(model.benchmark(inputs, number=arguments.number, repeat=arguments.repeat))
    if arguments.profile:
        print_profile(model.profile(inputs))


def print_top(name: str, values: np.ndarray, count: int) -> None:
    """Print the largest values of an output with their positions, the largest first."""
    flat = values.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:count]
    print(f"{printable(name)}: the {len(order)} largest of {flat.size} values")
    print(f"{'index':>16}  value")
    for position in order:
        index = np.unravel_index(position, values.shape)
        print(f"{','.join(map(str, index)):>16}  {flat[position]!s}")


def write_npz(path: Path, names: list[str], outputs: list[NDArray]) -> None:
    """Write arrays by name; the file appears complete or not at all."""
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, value in zip(names, outputs, strict=True):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)


def print_profile(rows: list[ProfileRow]) -> None:
    """Print the time of every instruction, the slowest first."""
    from rich.table import Table
    from rich.text import Text

    total = sum(row.mean for row in rows) or 1.0
    table = Table(box=None, pad_edge=False)
    table.add_column("node", overflow="fold", ratio=1)
    table.add_column("kernel", overflow="fold")
    for heading in ("ms", "%"):
        table.add_column(heading, justify="right")
    for row in sorted(rows, key=lambda r: -r.mean):
        names = (Text(printable(row.origin)), Text(printable(row.kernel)))
        table.add_row(*names, f"{row.mean * 1e3:.4f}", f"{row.mean / total * 100:.1f}")
    out = console()
    out.print(table)
    print_row(out, "total", f"{total * 1e3:.4f} ms in {len(rows)} instructions")
