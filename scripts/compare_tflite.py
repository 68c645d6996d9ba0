#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares TFLite files with the interpreter of ai-edge-litert, on random inputs from a fixed seed.

`python scripts/compare_tflite.py FILE ...` prints, per output, the largest difference from the
interpreter's reference kernels and, in brackets, from those it uses by default (XNNPACK): of floats
absolute, of integers in steps. Sizes that a file leaves open are 1 in front, else `--open`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import treadle

_LARGEST_INDEX = 60
"""Integers without a scale are often places in tables."""

_REFERENCE = (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
"""Reference kernels; where an operator has none, the interpreter's own optimised ones."""


def random_inputs(details: list[dict[str, Any]], open_size: int) -> dict[str, np.ndarray]:
    """Return values for the inputs that the interpreter lists."""
    random = np.random.default_rng(0)
    made = {}
    for detail in details:
        dtype = np.dtype(detail["dtype"])
        shape = tuple(
            int(d) if d >= 0 else open_size if axis else 1
            for axis, d in enumerate(detail["shape_signature"])
        )
        value: np.ndarray
        if dtype.kind == "f":
            value = random.normal(size=shape)
        elif dtype.itemsize > 2:
            value = random.integers(0, _LARGEST_INDEX, shape)
        else:
            value = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape)
        made[str(detail["name"])] = np.asarray(value).astype(dtype)
    return made


def loaded(path: Path, *kinds: OpResolverType) -> Interpreter:
    """Return an interpreter with the first set of kernels that has all operators of a file."""
    try:
        return Interpreter(str(path), experimental_op_resolver_type=kinds[0])
    except ValueError:
        if len(kinds) == 1:
            raise
    return loaded(path, *kinds[1:])


def results_of(run: Interpreter, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return what the interpreter makes of inputs."""
    for detail in run.get_input_details():
        value = inputs[detail["name"]]
        if tuple(detail["shape"]) != value.shape:
            run.resize_tensor_input(detail["index"], value.shape)
    run.allocate_tensors()
    for detail in run.get_input_details():
        run.set_tensor(detail["index"], inputs[detail["name"]])
    run.invoke()
    return [run.get_tensor(d["index"]) for d in run.get_output_details()]


def difference(made: np.ndarray, wanted: np.ndarray) -> str:
    """Return how far two results are from each other, in words."""
    if made.shape != wanted.shape:
        return f"shape {made.shape}, not {wanted.shape}"
    distance = np.abs(made.astype("float64") - wanted.astype("float64"))
    if made.dtype.kind == "f":
        return f"{distance.max(initial=0):.1e} of {np.abs(wanted).max(initial=0):.1e}"
    return f"{int(distance.max(initial=0))} steps, {100 * np.mean(distance > 0):.1f} % differ"


def compared(path: Path, open_size: int) -> str:
    """Return the differences of all outputs of a file, or what refuses it, in words."""
    try:
        reference = loaded(path, *_REFERENCE)
        inputs = random_inputs(reference.get_input_details(), open_size)
        wanted = results_of(reference, inputs)
        default = results_of(loaded(path, OpResolverType.AUTO), inputs)
    except (ValueError, RuntimeError) as error:
        return f"the interpreter refuses it: {str(error).splitlines()[0]}"
    try:
        shapes = {name: value.shape for name, value in inputs.items()}
        made = [np.asarray(v) for v in treadle.compile(path, shapes=shapes).run(inputs)]
    except treadle.TreadleError as error:
        return f"{error.problem} ({error.at})"
    found = zip(made, wanted, default, strict=True)
    return "; ".join(f"{difference(a, b)} ({difference(a, c)})" for a, b, c in found)


def main() -> None:
    """Print a line per file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--open", type=int, default=1, help="what open sizes behind the first are (default: 1)"
    )
    arguments = parser.parse_args()
    for path in arguments.files:
        print(f"{path.name}: {compared(path, arguments.open)}", flush=True)


if __name__ == "__main__":
    main()
