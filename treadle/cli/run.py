# SPDX-License-Identifier: Apache-2.0
"""`treadle run`: run a saved or freshly compiled model, print and save its outputs, time it."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treadle.build.loaded import Runnable
from treadle.cli.arguments import add_compile_options, add_inputs, add_model, add_threads, count
from treadle.cli.inputs import given_inputs
from treadle.cli.labels import labelled, print_classes, read_labels
from treadle.cli.pictures import PRESETS
from treadle.cli.profile import measure, print_layers
from treadle.cli.remote import add_device, opened_model
from treadle.cli.text import console, count_text, print_row, printable, size_text, type_text
from treadle.errors import UsageError
from treadle.files import check_writable, replacing
from treadle.runtime.array import NDArray
from treadle.settings import get, use

_PROFILED_RUNS = 10
_CLASSES = 5
"""How many classes are named where --print-top does not say."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "a .tar made by treadle compile, or an ONNX or TFLite file (compiled first)")
    add_inputs(parser)
    parser.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="--inputs is a picture: scale, crop and normalise it as these networks want it",
    )
    parser.add_argument(
        "-o",
        "--outputs",
        type=Path,
        metavar="FILE",
        help="write the outputs here: an .npz, or an .npy of the only output",
    )
    parser.add_argument(
        "--fill-mode",
        choices=("random", "ones", "zeros"),
        help="what fills the inputs when no --inputs are given (default: random, seeded)",
    )
    parser.add_argument(
        "--print-top", type=count, metavar="N", help="print the N largest values of each output"
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help=f"print the {_CLASSES} likeliest classes, or --print-top of them, by their names in "
        "this file: one in each line, or JSON",
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
    add_device(parser)
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run and print what is asked for."""
    if arguments.outputs is not None:
        check_writable(arguments.outputs)
        check_format(arguments.outputs, count=1)
    labels = [] if arguments.labels is None else read_labels(arguments.labels)
    threads = arguments.threads or get().num_threads
    with use(num_threads=threads), opened_model(arguments) as model:
        if arguments.outputs is not None:
            check_format(arguments.outputs, len(model.outputs))
        inputs = given_inputs(arguments, model, arguments.fill_mode)
        outputs = model.run(inputs)
        _report(arguments, model, inputs, outputs, labels)
    return 0


def _report(
    arguments: argparse.Namespace,
    model: Runnable,
    inputs: dict[str, NDArray],
    outputs: list[NDArray],
    labels: Sequence[str],
) -> None:
    out = console()
    for (name, dtype, _), value in zip(model.outputs, outputs, strict=True):
        print_row(out, "output", type_text(name, dtype, value.shape))
    if labels:
        most = arguments.print_top or _CLASSES
        for k in labelled([value.shape for value in outputs], labels, arguments.labels):
            print_classes(model.outputs[k][0], np.asarray(outputs[k]), labels, most)
    elif arguments.print_top:
        for (name, _, _), value in zip(model.outputs, outputs, strict=True):
            print_top(name, np.asarray(value), arguments.print_top)
    if arguments.outputs is not None:
        write_outputs(arguments.outputs, [name for name, _, _ in model.outputs], outputs)
        size = size_text(arguments.outputs.stat().st_size)
        print_row(out, "wrote", f"{arguments.outputs} ({size})")
    if arguments.print_time:
        print(model.benchmark(inputs, number=arguments.number, repeat=arguments.repeat))
    if arguments.profile:
        layers, _ = measure(model, inputs, _PROFILED_RUNS)
        print_layers(layers, None, len(layers))
        total = sum(layer.seconds for layer in layers)
        print_row(out, "total", f"{total * 1e3:.3f} ms in {count_text(len(layers), 'instruction')}")


def print_top(name: str, values: np.ndarray, count: int) -> None:
    """Print the largest values of an output with their positions, the largest first."""
    flat = values.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:count]
    print(f"{printable(name)}: the {len(order)} largest of {flat.size} values")
    print(f"{'index':>16}  value")
    for position in order:
        index = ", ".join(map(str, np.unravel_index(position, values.shape)))
        print(f"{f'[{index}]':>16}  {flat[position]!s}")


def check_format(path: Path, count: int) -> None:
    """Raise UsageError where the suffix promises what cannot be written."""
    if path.suffix == ".npy" and count != 1:
        raise UsageError(
            f"{path} can hold one array, the model has {count} outputs",
            hint=f"write {path.with_suffix('.npz')}",
        )
    if path.suffix not in ("", ".npy", ".npz"):
        raise UsageError(
            f"{path} is named as a {path.suffix} file, but outputs are written as NumPy's",
            hint=f"write {path.with_suffix('.npz')}",
        )


def write_outputs(path: Path, names: list[str], outputs: list[NDArray]) -> None:
    """Write arrays by name, or the only one as .npy; the file appears complete or not at all."""
    if path.suffix == ".npy":
        with replacing(path) as file:
            np.lib.format.write_array(file, np.asarray(outputs[0]), allow_pickle=False)
        return
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, value in zip(names, outputs, strict=True):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)
