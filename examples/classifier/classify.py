# SPDX-License-Identifier: Apache-2.0
"""Names what is on a photograph by a classifier of torchvision, by way of torch.export.

    python -m examples.classifier.classify resnet18 --weights resnet18.pth -o resnet18.pt2
    treadle run resnet18.pt2 -i cat.jpg --preset imagenet --labels imagenet.txt
    python -m examples.classifier.classify resnet18 --weights resnet18.pth --compare cat.jpg

Needs torchvision for the definition of the network, and a file of trained weights (a state dict of
torchvision); without one they are random, and so are the classes. What -o writes needs neither any
more. --compare classifies a photograph by eager torch, with torchvision's scaling, and by Treadle.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import treadle

SIDE, SCALED = 224, 256
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TOP = 5


def network(name: str, weights: Path | None) -> nn.Module:
    """Return a network of torchvision by its name there, with trained or seeded weights."""
    from torchvision import models  # who has exported a network does not need it

    torch.manual_seed(0)
    module: nn.Module = models.get_model(name, weights=None)
    if weights is not None:
        module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return module.eval()


def export(module: nn.Module, path: Path) -> None:
    """Write a program for one photograph, float32[1, 3, 224, 224]."""
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3, SIDE, SIDE),)), path)


def photograph(path: Path) -> Tensor:
    """Return float32[1, 3, 224, 224] as ImageNet's networks were trained with.

    The shorter side becomes 256 pixels, of which the centre is cut out.
    """
    with Image.open(path) as image:
        share = SCALED / min(image.size)
        size = (int(image.width * share), int(image.height * share))
        scaled = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
    left, top = (round((s - SIDE) / 2) for s in size)
    pixels = np.asarray(scaled.crop((left, top, left + SIDE, top + SIDE)), np.float32) / 255
    values = (torch.from_numpy(pixels) - torch.tensor(MEAN)) / torch.tensor(DEVIATION)
    return values.permute(2, 0, 1)[None].contiguous()


def compare(module: nn.Module, path: Path) -> tuple[list[int], list[int], float]:
    """Return the likeliest classes by eager torch and by Treadle, and how far their scores differ.

    The distance is the largest of all scores, over the largest score.
    """
    image = photograph(path)
    with torch.no_grad():
        wanted = module(image)[0]
    (scores,) = treadle.compile(module, (image,)).run([image])
    found = torch.from_dlpack(scores)[0]
    tops = (s.argsort(descending=True)[:TOP].tolist() for s in (wanted, found))
    return *tops, float((found - wanted).abs().max() / wanted.abs().max())


def main() -> None:
    """Export a network, or compare both ways to run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("network", help="its name in torchvision.models")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="its state dict")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the .pt2 to write")
    parser.add_argument("--compare", type=Path, metavar="PHOTOGRAPH")
    args = parser.parse_args()
    module = network(args.network, args.weights)
    if args.output is not None:
        export(module, args.output)
        print(f"wrote {args.output}")
    if args.compare is not None:
        eager, compiled, distance = compare(module, args.compare)
        print(f"eager   {eager}\ntreadle {compiled}\nscores differ by {distance:.1e}")


if __name__ == "__main__":
    main()
