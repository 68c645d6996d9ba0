#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares TFLite files with the interpreter of ai-edge-litert, on random inputs from a fixed seed.

`python scripts/compare_tflite.py FILE ...` prints, per output, the largest difference: absolute for
floats, in steps for integers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import treadle

_LARGEST_INDEX = 60
"""Integers without a scale are often places in tables."""


def random_inputs(details: list[dict[str, object]]) -> dict[str, np.ndarray]:
    """Return values for the inputs that the interpreter lists."""
    random = np.random.default_rng(0)
    made = {}
    for detail in details:
        dtype = np.dtype(detail["dtype"])  # type: ignore[call-overload]  # a NumPy type
        shape = tuple(np.asarray(detail["shape"]))
        value: np.ndarray
        if dtype.kind == "f":
            value = random.normal(size=shape)
        elif dtype.itemsize > 2:
            value = random.integers(0, _LARGEST_INDEX, shape)
        else:
            value = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape)
        made[str(detail["name"])] = np.asarray(value).astype(dtype)
    return made


def expected(path: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Return inputs and what the interpreter makes of them, by reference kernels where it can."""
    try:
        run = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    except ValueError:  # an operator that has an optimised kernel alone
        kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        run = Interpreter(str(path), experimental_op_resolver_type=kind)
    run.allocate_tensors()
    inputs = random_inputs(run.get_input_details())
    for detail in run.get_input_details():
        run.set_tensor(detail["index"], inputs[detail["name"]])
    run.invoke()
    return inputs, [run.get_tensor(d["index"]) for d in run.get_output_details()]


def difference(made: np.ndarray, wanted: np.ndarray) -> str:
    """Return how far two results are from each other, in words."""
    if made.shape != wanted.shape:
        return f"shape {made.shape}, not {wanted.shape}"
    distance = np.abs(made.astype("float64") - wanted.astype("float64"))
    if made.dtype.kind == "f":
        return f"{distance.max(initial=0):.1e} of {np.abs(wanted).max(initial=0):.1e}"
    return f"{int(distance.max(initial=0))} steps, {100 * np.mean(distance > 0):.1f} % differ"


def main() -> None:
    """Print a line per file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        inputs, wanted = expected(path)
        try:
            shapes = {name: value.shape for name, value in inputs.items()}
            made = treadle.compile(path, shapes=shapes).run(inputs)
        except treadle.TreadleError as error:
            print(f"{path.name}: {error.problem} ({error.at})")
            continue
        found = [difference(np.asarray(a), b) for a, b in zip(made, wanted, strict=True)]
        print(f"{path.name}: {'; '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
