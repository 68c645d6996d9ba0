# SPDX-License-Identifier: Apache-2.0
"""Exports networks of the package torchvision, with seeded random weights, to ONNX.

    python -m benchmarks.torchvision_networks --out DIR [name ...]

Needs torch and torchvision: segmentation, backbones of detection, video and optical flow, and
classifiers that the other scripts do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.task_networks import Network, export_named

Models = Any  # torchvision.models, which has no types


class Picked(nn.Module):
    """A network and what is picked of its results."""

    def __init__(self, body: nn.Module, pick: Callable[[Any], Any]) -> None:
        super().__init__()
        self.body, self.pick = body, pick

    def forward(self, x: Tensor) -> Any:
        """Return what is picked of the results for an image."""
        return self.pick(self.body(x))


def _whole(name: str) -> Callable[[Models], nn.Module]:
    return lambda models: models.get_model(name, weights=None)


def _segmenter(name: str) -> Callable[[Models], nn.Module]:
    def build(models: Models) -> nn.Module:
        made = models.get_model(name, weights=None, weights_backbone=None)
        return Picked(made, lambda found: found["out"])

    return build


def _googlenet(models: Models) -> nn.Module:
    return models.googlenet(init_weights=False, aux_logits=False)


def _ssdlite(models: Models) -> nn.Module:
    made = models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    return Picked(made.backbone, lambda found: tuple(found.values()))


def _pyramid(models: Models) -> nn.Module:
    made = models.detection.backbone_utils.resnet_fpn_backbone
    body = made(backbone_name="resnet50", weights=None)
    return Picked(body, lambda found: tuple(found.values()))


def _raft_features(models: Models) -> nn.Module:
    return models.optical_flow.raft_small(weights=None).feature_encoder


IMAGE = (1, 3, 224, 224)
BUILDERS: dict[str, tuple[Callable[[Models], nn.Module], tuple[int, ...]]] = {
    "deeplab_mnv3": (_segmenter("deeplabv3_mobilenet_v3_large"), IMAGE),
    "lraspp": (_segmenter("lraspp_mobilenet_v3_large"), IMAGE),
    "fcn_r50": (_segmenter("fcn_resnet50"), IMAGE),
    "densenet169": (_whole("densenet169"), IMAGE),
    "googlenet": (_googlenet, IMAGE),
    "mnasnet0_5": (_whole("mnasnet0_5"), IMAGE),
    "shufflenet_x1_5": (_whole("shufflenet_v2_x1_5"), IMAGE),
    "mvit_v2_s": (_whole("mvit_v2_s"), (1, 3, 16, 224, 224)),
    "s3d": (_whole("s3d"), (1, 3, 16, 224, 224)),
    "r2plus1d": (_whole("r2plus1d_18"), (1, 3, 8, 112, 112)),
    "ssdlite_backbone": (_ssdlite, (1, 3, 320, 320)),
    "fpn_r50": (_pyramid, IMAGE),
    "raft_feat": (_raft_features, (1, 3, 224, 320)),
    "vgg11_bn": (_whole("vgg11_bn"), IMAGE),
}
"""By name, what makes the module of the package, and the shape of its input."""


def networks() -> dict[str, Network]:
    """Return the networks, made from the package when they are asked for."""

    def network(build: Callable[[Models], nn.Module], shape: tuple[int, ...]) -> Network:
        def make() -> nn.Module:
            from torchvision import models  # optional, and slow to import

            return build(models)

        return make, lambda: (torch.randn(*shape),)

    return {name: network(*found) for name, found in BUILDERS.items()}


if __name__ == "__main__":
    raise SystemExit(export_named(networks(), "benchmarks.torchvision_networks"))
