# SPDX-License-Identifier: Apache-2.0
"""Names of the classes that a network tells apart, out of a file, and the likeliest of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray as Numbers

from treadle.cli.named import check_readable
from treadle.cli.text import printable
from treadle.errors import InputError

_MOST_BYTES = 1 << 24
"""Of a file of labels."""
_ROUNDING = 0.01
"""How far from 1 the shares of a distribution may add up to, in float16."""


def read_labels(path: Path) -> list[str]:
    """Return the labels of a file, class by class.

    A text has one in each line. JSON is a list of them, or an object from "0", "1", ... to a label,
    or to a list that ends in it.

    Raises: InputError where the file is neither.
    """
    check_readable(path, "a file of labels")
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"a file of labels has at most {_MOST_BYTES} bytes", at=str(path))
    try:
        text = path.read_text("utf-8-sig")
        labels = _of_json(json.loads(text)) if path.suffix == ".json" else text.splitlines()
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"the labels cannot be read: {str(error) or type(error).__name__}",
            at=str(path),
            hint="write one label in each line, or a JSON list of them",
        ) from None
    while labels and not labels[-1].strip():
        labels.pop()
    if not labels:
        raise InputError("the file of labels is empty", at=str(path))
    return [label.strip() for label in labels]


def _of_json(data: object) -> list[str]:
    if isinstance(data, dict):
        missing = [k for k in range(len(data)) if str(k) not in data]
        if missing:
            raise ValueError(f"it has {len(data)} labels, but none for class {missing[0]}")
        data = [data[str(k)] for k in range(len(data))]
    if not isinstance(data, list):
        raise ValueError("it is neither a list nor an object")
    labels = [entry[-1] if isinstance(entry, list) and entry else entry for entry in data]
    for number, label in enumerate(labels):
        if not isinstance(label, str):
            raise ValueError(f"the label of class {number} is no text")
    return labels


def print_classes(name: str, values: Numbers[np.generic], labels: Sequence[str], most: int) -> None:
    """Print the likeliest classes of each row of an output, whose last axis counts the classes.

    Floats that are no distribution are taken for logits: the share of a class is their softmax.
    Integers are printed as they are.
    """
    rows = values.reshape(-1, values.shape[-1])
    for number, row in enumerate(rows):
        numbers = row.astype(np.float64)
        texts = [str(v) for v in row] if row.dtype.kind in "iub" else _shares(numbers)
        order = np.argsort(-numbers, kind="stable")[:most]
        which = f" of row {number}" if len(rows) > 1 else ""
        print(f"{printable(name)}: the {len(order)} likeliest of {len(row)} classes{which}")
        print(f"{'share' if row.dtype.kind not in 'iub' else 'value':>8}  {'class':>6}  label")
        for k in order:
            print(f"{texts[k]:>8}  {k:>6}  {printable(labels[k])}")


def labelled(outputs: Sequence[tuple[int, ...]], labels: Sequence[str], path: Path) -> list[int]:
    """Return which outputs, given by their shapes, have as many classes as there are labels.

    Raises: InputError where none has.
    """
    found = [k for k, shape in enumerate(outputs) if shape and shape[-1] == len(labels)]
    if not found:
        sizes = ", ".join(str(list(shape)) for shape in outputs)
        raise InputError(
            f"there are {len(labels)} labels, and no output's last axis has as many: {sizes}",
            at=str(path),
            hint="give a file with the label of every class, in the order of the classes",
        )
    return found


def _shares(row: Numbers[np.float64]) -> list[str]:
    if row.min() < 0 or abs(row.sum() - 1) > _ROUNDING:
        powers = np.exp(row - row.max())
        row = powers / powers.sum()
    return [f"{share:.1%}" for share in row]
