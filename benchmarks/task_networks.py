# SPDX-License-Identifier: Apache-2.0
"""Exports small networks of many tasks, with seeded random weights, to ONNX.

    python -m benchmarks.task_networks --out DIR [name ...]

Detection, segmentation, pictures made larger or painted, diffusion, speech, tagging and
recommendation: what classifiers of images do not try. Needs torch.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn

from benchmarks.task_images import (
    Detector,
    Diffusion,
    Pyramid,
    Segmenter,
    UNet,
    edsr,
    espcn,
    style,
    vae_decoder,
)
from benchmarks.task_sequences import (
    Joiner,
    Perceptron,
    QueryDecoder,
    Recommender,
    Tagger,
    Windows,
    point_field,
)

OPSET = 18


def _image(size: int, channels: int = 3) -> tuple[Tensor, ...]:
    return (torch.randn(1, channels, size, size),)


def _ids(end: int, *shape: int) -> Tensor:
    return torch.randint(0, end, shape)


def _diffusion_inputs() -> tuple[Tensor, ...]:
    return torch.randn(1, 4, 32, 32), torch.randn(1, 128), torch.randn(1, 77, 256)


def _recommender_inputs() -> tuple[Tensor, ...]:
    return (torch.randn(64, 13), *(_ids(20000, 64, 4) for _ in range(8)))


Network: TypeAlias = tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]

NETWORKS: dict[str, Network] = {
    "yolo_like": (Detector, lambda: _image(320)),
    "deeplab_like": (Segmenter, lambda: _image(256)),
    "retina_like": (Pyramid, lambda: _image(256)),
    "unet_256": (UNet, lambda: _image(256)),
    "espcn": (espcn, lambda: _image(360, 1)),
    "edsr": (edsr, lambda: _image(96)),
    "style": (style, lambda: _image(256)),
    "diffusion_unet": (Diffusion, _diffusion_inputs),
    "vae_decoder": (vae_decoder, lambda: _image(24, 4)),
    "lstm_tagger": (lambda: Tagger(nn.LSTM), lambda: (_ids(10000, 1, 40),)),
    "gru_tagger": (lambda: Tagger(nn.GRU), lambda: (_ids(10000, 8, 40),)),
    "recommender": (Recommender, _recommender_inputs),
    "perceptron": (Perceptron, lambda: (torch.randn(8, 64),)),
    "nerf_mlp": (point_field, lambda: (torch.randn(4096, 63),)),
    "detr_like": (QueryDecoder, lambda: _image(256)),
    "sam_like": (Windows, lambda: _image(256)),
    "transducer": (Joiner, lambda: (torch.randn(1, 400, 80), _ids(500, 1, 16))),
}
"""By name, what makes the module and what makes its inputs."""


def seeded(network: Network) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return module and inputs of a network, the same ones each time."""
    make, inputs = network
    torch.manual_seed(0)
    module = make().eval()
    draw_weights(module)
    return module, inputs()


def draw_weights(module: nn.Module) -> None:
    """Give `module` weights that keep the size of what passes, and moving averages."""
    with torch.no_grad():
        for tensor in module.parameters():
            if tensor.dim() > 1:
                fan = tensor[0].numel()
                nn.init.normal_(tensor, 0, (2.0 / fan if tensor.dim() > 2 else 1 / fan) ** 0.5)
        for key, buffer in module.named_buffers():
            if key.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
            elif key.endswith("running_mean"):
                buffer.normal_(0, 0.1)


def export(module: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> None:
    """Write `module` to `path`, for inputs of these shapes."""
    part = path.with_suffix(".part")
    try:
        torch.onnx.export(
            module, inputs, part, dynamo=True, external_data=False, opset_version=OPSET
        )
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def export_named(networks: Mapping[str, Network], program: str) -> int:
    """Export what the command line names; return 1 where one cannot be."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(networks)}")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in networks]:
        parser.error(f"unknown network {', '.join(unknown)}; networks are {', '.join(networks)}")
    return export_each(options.names or networks, options.out, lambda name: seeded(networks[name]))


def export_each(
    names: Iterable[str], out: Path, make: Callable[[str], tuple[nn.Module, tuple[Tensor, ...]]]
) -> int:
    """Export what `make` makes of each name into the folder `out`; return 1 where one cannot be."""
    out.mkdir(parents=True, exist_ok=True)
    status = 0
    for name in names:
        try:
            export(*make(name), out / f"{name}.onnx")
            print(name)
        except (ImportError, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(export_named(NETWORKS, "benchmarks.task_networks"))
