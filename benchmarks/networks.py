# SPDX-License-Identifier: Apache-2.0
"""Writes the benchmark networks as ONNX files: real architectures with seeded random weights.

    python -m benchmarks.networks --out DIR [--opset N] [name ...]

The same name always gives the same bytes (with the same versions of onnx and, for the exported
networks, torch).
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx

from benchmarks import (
    image_networks,
    light_networks,
    onnx_networks,
    transformers,
    volume_networks,
)
from benchmarks.architectures import ARCHITECTURES
from treadle.files import replacing

Builder = Callable[[int | None], onnx.ModelProto]


def _export(name: str, opset: int | None) -> onnx.ModelProto:
    from benchmarks import torch_networks  # torch is optional and slow to import

    return torch_networks.build(name, opset)


BUILDERS: dict[str, Builder] = {
    **{name: partial(light_networks.build, name) for name in light_networks.FILES},
    **{name: partial(onnx_networks.build, name) for name in ARCHITECTURES},
    **image_networks.NETWORKS,
    **transformers.NETWORKS,
    **volume_networks.NETWORKS,
    **{f"{name}_torch": partial(_export, name) for name in ARCHITECTURES},
}
"""Every network by name; those ending in `_torch` are exported by torch, and need it."""


def build(name: str, opset: int | None = None) -> onnx.ModelProto:
    """Return the network `name`, at its own opset or at `opset`."""
    model = BUILDERS[name](opset)
    onnx.checker.check_model(model)
    return model


def write(model: onnx.ModelProto, path: Path) -> None:
    """Write `model` to `path` in one step: a reader never sees half a file."""
    with replacing(path) as file:
        file.write(model.SerializeToString(deterministic=True))


def buildable_names() -> list[str]:
    """Return the networks that can be built here: without torch, those it exports are left out."""
    has_torch = importlib.util.find_spec("torch") is not None
    return [name for name in BUILDERS if has_torch or not name.endswith("_torch")]


def main() -> None:
    """Build the networks named on the command line, or all that can be built here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BUILDERS)}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "zoo")
    parser.add_argument("--opset", type=int, help="convert to this opset (default: each its own)")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in BUILDERS]:
        parser.error(f"unknown network {', '.join(unknown)}; networks are {', '.join(BUILDERS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or buildable_names():
        path = arguments.out / f"{name}.onnx"
        write(build(name, arguments.opset), path)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
