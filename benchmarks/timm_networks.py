# SPDX-License-Identifier: Apache-2.0
"""Exports networks of the package timm, with seeded random weights, to ONNX.

    python -m benchmarks.timm_networks --out DIR [name ...]

Needs torch, torchvision and timm. The networks are those by which it is tried whether networks that
nobody tuned for are fast too; any name that timm knows can be given.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

NAMES = (
    "convmixer_768_32", "convnext_tiny", "cspdarknet53", "deit_tiny_patch16_224", "dpn68",
    "edgenext_small", "efficientformer_l1", "fbnetc_100", "hrnet_w18_small", "inception_v3",
    "levit_192", "mixer_b16_224", "mnasnet_100", "mobileone_s1", "mobilevit_s", "pvt_v2_b1",
    "regnety_016", "repvgg_a0", "res2net50_26w_4s", "swin_tiny_patch4_window7_224",
    "wide_resnet50_2", "xception41",
)  # fmt: skip
MORE_NAMES = (
    "coatnet_0_rw_224", "convnextv2_nano", "davit_tiny", "dla34", "efficientvit_m4",
    "ese_vovnet19b_dw", "fastvit_t8", "focalnet_tiny_srf", "gernet_s", "ghostnetv2_100",
    "hgnetv2_b1", "mobilenetv4_conv_small", "mobilevitv2_100", "mvitv2_tiny", "regnetx_032",
    "repvit_m1", "resnest14d", "resnet18", "resnet101", "rexnet_100", "selecsls42b",
    "swiftformer_s", "tresnet_m", "visformer_tiny", "volo_d1_224", "xcit_tiny_12_p16_224",
)  # fmt: skip
"""What came later, with what the first were mended for."""
OPSET = 18


def export(name: str, path: Path) -> None:
    """Write the network `name` for one image of its usual size."""
    import timm  # optional, and slow to import
    import torch

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False).eval()
    with torch.no_grad():
        for tensor in module.parameters():
            if tensor.dim() > 1:
                fan = int(np.prod(tensor.shape[1:]))
                torch.nn.init.normal_(
                    tensor, 0, (2.0 / fan if tensor.dim() > 2 else 1 / fan) ** 0.5
                )
        for key, buffer in module.named_buffers():
            if key.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
            elif key.endswith("running_mean"):
                buffer.normal_(0, 0.1)
    part = path.with_suffix(".part")
    image = torch.randn(1, *module.default_cfg.get("input_size", (3, 224, 224)))
    try:
        torch.onnx.export(
            module, (image,), part, dynamo=True, external_data=False, opset_version=OPSET
        )
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def main() -> int:
    """Export what the command line names; return 1 where one cannot be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="name", help="of timm (default: all here)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    status = 0
    for name in options.names or (*NAMES, *MORE_NAMES):
        try:
            export(name, options.out / f"{name}.onnx")
            print(name)
        except (ImportError, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
