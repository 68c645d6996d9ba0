# SPDX-License-Identifier: Apache-2.0
"""`treadle compare`: hold a compiled model against its network: every output, or every layer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from treadle.build.agreement import agreement
from treadle.build.load import is_artifact
from treadle.build.loaded import Runnable
from treadle.cli.arguments import add_compile_options, add_inputs, add_threads, share
from treadle.cli.exact import Verdict, verdicts
from treadle.cli.inputs import given_inputs
from treadle.cli.layers import Layer, compare_layers
from treadle.cli.models import compile_file, open_artifact
from treadle.cli.named import check_readable
from treadle.cli.reference import expected_outputs
from treadle.cli.text import console, count_text, print_row
from treadle.errors import UsageError
from treadle.runtime import native
from treadle.runtime.array import NDArray
from treadle.settings import use


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("model", type=Path, metavar="NETWORK", help="the ONNX file")
    parser.add_argument(
        "artifact",
        type=Path,
        nargs="?",
        metavar="MODEL",
        help="the .tar made from it (default: the network is compiled now)",
    )
    parser.add_argument(
        "--layers", action="store_true", help="find the first layer whose result departs"
    )
    parser.add_argument(
        "--tolerance",
        type=share,
        metavar="SHARE",
        help="the distance allowed, as a share of the largest element (default: 1e-4 for float32)",
    )
    add_inputs(parser)
    add_threads(parser)
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run both, compare, print; return 1 where something departs."""
    check_readable(arguments.model, "an ONNX file")
    if is_artifact(arguments.model):
        raise UsageError(
            f"{arguments.model} holds machine code, not a network",
            hint="name the ONNX file first: treadle compare model.onnx model.tar",
        )
    with use(num_threads=arguments.threads or native.num_threads()):
        model = _open(arguments)
        inputs = given_inputs(arguments, model)
        if arguments.layers:
            return _layers(arguments, model, inputs)
        return compare_outputs(
            arguments.model, model, inputs, arguments.artifact, arguments.tolerance
        )


def _open(arguments: argparse.Namespace) -> Runnable:
    if arguments.artifact is None:
        return compile_file(arguments, sized=not arguments.dynamic)
    check_readable(arguments.artifact, "a .tar made by treadle compile")
    return open_artifact(arguments, arguments.artifact)


def compare_outputs(
    network: Path,
    model: Runnable,
    inputs: Mapping[str, NDArray],
    artifact: Path | None,
    share: float | None = None,
) -> int:
    """Compare every output with what it should be, print how far it is; return 1 if one departs.

    `artifact` is the file the model is in, if any.
    Raises: UsageError when the model has other outputs than the network.
    """
    found = [np.asarray(o) for o in model.run(inputs)]
    expected, source = expected_outputs(network, inputs, model.executor.num_threads)
    if len(found) != len(expected):
        raise UsageError(
            f"the model has {len(found)} outputs, the network {len(expected)}",
            at=str(network),
            hint="is the model made from this network?",
        )
    out = console()
    print_row(out, "check", f"against {source}")
    results = [agreement(*pair, share) for pair in zip(found, expected, strict=True)]
    judged: list[Verdict | None] = [None] * len(results)
    if not all(r.holds for r in results):
        judged = verdicts(network, inputs, found, expected, results)
    wrong = 0
    for (name, _, _), result, verdict in zip(model.outputs, results, judged, strict=True):
        departs = not (result if verdict is None else verdict).holds
        wrong += departs
        print_row(out, "", f"{name}: {result}" + ("  ← departs" if departs else ""))
        if verdict is not None:
            print_row(out, "", str(verdict))
    if wrong:
        print(f"error: {count_text(wrong, 'output')} of {len(found)} departs", file=sys.stderr)
        command = f"treadle compare {network} {artifact or ''}".rstrip()
        print(f"  hint  {command} --layers shows where", file=sys.stderr)
    return 1 if wrong else 0


def _layers(arguments: argparse.Namespace, model: Runnable, inputs: dict[str, NDArray]) -> int:
    layers, total = compare_layers(arguments.model, model, inputs, arguments.tolerance)
    out = console()
    departs = bool(layers) and not layers[-1].agreement.holds
    agree = layers[:-1] if departs else layers
    compared = f"{len(layers)} of {count_text(total, 'instruction')} compared with their nodes"
    print_row(out, "layers", f"{compared}, {len(agree)} agree")
    if agree:
        worst = max(agree, key=lambda la: la.agreement.worst / (la.agreement.allowed or 1.0))
        print_row(out, "worst", _text(worst))
    if departs:
        print_row(out, "departs", _text(layers[-1]))
        print(f"error: {', '.join(layers[-1].nodes)} departs first", file=sys.stderr)
        return 1
    return 0


def _text(layer: Layer) -> str:
    return f"{layer.number}  {layer.kernel} ({', '.join(layer.nodes)})\n{layer.agreement}"
