# SPDX-License-Identifier: Apache-2.0
"""Exports networks of the package timm, with seeded random weights, to ONNX.

    python -m benchmarks.timm_networks --out DIR [name ...]

Needs torch, torchvision and timm. The networks are those by which it is tried whether networks that
nobody tuned for are fast too; any name that timm knows can be given.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.task_networks import draw_weights, export_each

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
LAST_NAMES = (
    "botnet26t_256", "caformer_s18", "cait_xxs24_224", "coat_lite_mini", "convit_tiny",
    "crossvit_9_240", "eca_nfnet_l0", "efficientnet_lite0", "eva02_tiny_patch14_224",
    "fasternet_t0", "gcvit_xxtiny", "hiera_tiny_224", "inception_next_tiny", "lcnet_100",
    "mambaout_femto", "maxvit_tiny_rw_224", "mixnet_s", "mobilenetv3_large_100",
    "nextvit_small", "pit_xs_224", "poolformer_s12", "rdnet_tiny", "resmlp_12_224",
    "resnext26ts", "seresnet50", "shvit_s1", "skresnet18", "starnet_s1",
    "swinv2_tiny_window8_256", "tf_efficientnetv2_b0", "tiny_vit_5m_224", "tinynet_a",
)  # fmt: skip
"""Tried when nothing of the others was left to mend."""
NEWEST_NAMES = (
    "convformer_s18", "convnext_atto", "cs3darknet_m", "densenetblur121d", "ecaresnet26t",
    "edgenext_xx_small", "efficientnet_b1", "efficientnet_es", "fbnetv3_b", "gcresnext26ts",
    "ghostnet_100", "gmlp_s16_224", "hardcorenas_a", "hgnet_tiny", "lcnetv2_base",
    "legacy_seresnet18", "levit_128s", "mobilenetv1_100", "mobilenetv3_small_100", "pvt_v2_b0",
    "regnetv_040", "repvit_m0_9", "resnet34", "resnetrs50", "vit_small_patch32_224",
    "vit_small_r26_s32_224", "vit_tiny_patch16_224",
)  # fmt: skip
"""And when nothing of those was."""
FURTHER_NAMES = (
    "bat_resnext26ts", "coat_tiny", "coatnext_nano_rw_224", "cpubone_b0_bfrobust",
    "crossvit_tiny_240", "cs3edgenet_x", "cs3sedarknet_xdw", "cspnext_tiny", "darknet17",
    "davit_small", "dla46x_c", "dla60_res2net", "eca_botnext26ts_256", "edgenext_base",
    "efficientnet_b0_gn", "efficientnet_cc_b0_4e", "efficientvit_m2", "ese_vovnet39b_evos",
    "fastvit_sa12", "focalnet_tiny_lrf", "gcresnet33ts", "ghostnetv3_100", "gmixer_24_224",
    "haloregnetz_b", "hrnet_w18_small_v2", "inception_v4", "legacy_xception", "mixer_s32_224",
    "mixnet_m", "mobilenet_edgetpu_v2_xs", "mobilenetv4_conv_medium", "nf_regnet_b0",
    "nf_resnet26", "regnetx_002", "regnety_002", "repvit_m1_5", "res2next50", "resmlp_24_224",
    "resnetaa50", "resnetv2_18", "sebotnet33ts_256", "sedarknet21", "selecsls60",
    "seresnext26d_32x4d", "spnasnet_100", "starnet_s3", "swiftformer_xs", "swinv2_cr_tiny_224",
    "twins_pcpvt_small", "vit_tiny_r_s16_p8_224", "vitamin_small_224", "vovnet39a",
    "xcit_tiny_24_p8_224",
)  # fmt: skip
"""What depthwise convolutions without padded images were tried on first."""
DRAWN_NAMES = (
    "coat_lite_tiny", "cspnext_l", "cspresnet50w", "efficientformer_l3", "efficientvit_b0",
    "ese_vovnet19b_slim_dw", "fastvit_mci1", "ghostnetv2_130", "hrnet_w18_ssld",
    "iformer_l2_distilled", "lambda_resnet26rpt_256", "lcnet_050", "levit_384_s8", "mnasnet_small",
    "mobileone_s2", "nextvit_base", "res2net50_26w_6s", "resmlp_36_224", "resnest26d",
    "resnetblur101d", "resnetv2_18d", "rexnetr_300", "selecsls60b", "skresnet50d", "starnet_s050",
    "vit_medium_patch16_reg1_gap_256", "xcit_small_12_p16_224",
)  # fmt: skip
"""Drawn at random, of at most 45 million parameters and images of 288 pixels."""
DRAWN_LATER_NAMES = (
    "cait_xxs36_224", "convnextv2_atto", "cs3darknet_focus_x", "efficientnet_x_b3",
    "gcresnext50ts", "iformer_l", "lambda_resnet50ts", "levit_conv_384", "mobileone_s4",
    "nf_ecaresnet50", "regnetx_008", "regnety_040_sgn", "regnetz_005", "resnet50c",
    "resnetaa34d", "resnetblur50d", "rexnet_300", "starnet_s150", "tf_mobilenetv3_large_075",
    "vit_little_patch16_reg4_gap_256",
)  # fmt: skip
"""Drawn in the same way when those had been looked at."""
DRAWN_LAST_NAMES = (
    "coatnet_rmlp_0_rw_224", "convit_small", "convnext_nano_ols",
    "deit_small_distilled_patch16_224", "efficientnet_lite2", "efficientvit_m3", "hgnetv2_b5",
    "hrnet_w30", "legacy_seresnet50", "lowformer_e3", "mambaout_kobe", "mobilenetv1_100h",
    "mobileone_s3", "pit_ti_distilled_224", "regnety_004", "repghostnet_150", "repvgg_a1",
    "resnet26d", "resnetv2_50d", "rexnet_200", "rexnetr_100", "sehalonet33ts", "shvit_s4",
    "skresnet50", "tf_mixnet_m", "vit_small_patch16_rope_mixed_ape_224",
)  # fmt: skip
"""And once more."""
DRAWN_NEWEST_NAMES = (
    "coatnet_rmlp_nano_rw_224", "crossvit_15_dagger_240", "deit_tiny_distilled_patch16_224",
    "efficientnet_blur_b0", "ese_vovnet57b", "gernet_m", "hgnetv2_b2", "hgnetv2_b3",
    "levit_256", "nf_seresnet26", "resnet101d", "resnet34d", "rexnet_130", "rexnetr_130",
    "swiftformer_l3", "test_coatnet", "test_efficientnet_ln", "tf_efficientnet_b1",
    "tf_efficientnet_es", "vit_pwee_patch16_reg1_gap_256", "vit_small_patch16_rope_224",
    "vovnet57a",
)  # fmt: skip
"""And again, on a machine with AVX-512."""


def seeded(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the network `name` and one image of its usual size, the same ones each time."""
    import timm  # optional, and slow to import

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False).eval()
    draw_weights(module)
    return module, (torch.randn(1, *module.default_cfg.get("input_size", (3, 224, 224))),)


def main() -> int:
    """Export what the command line names; return 1 where one cannot be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="name", help="of timm (default: all here)")
    options = parser.parse_args()
    every = (
        *NAMES, *MORE_NAMES, *LAST_NAMES, *NEWEST_NAMES, *FURTHER_NAMES, *DRAWN_NAMES,
        *DRAWN_LATER_NAMES, *DRAWN_LAST_NAMES, *DRAWN_NEWEST_NAMES,
    )  # fmt: skip
    return export_each(options.names or every, options.out, seeded)


if __name__ == "__main__":
    sys.exit(main())
