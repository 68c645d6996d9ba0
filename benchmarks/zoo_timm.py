# SPDX-License-Identifier: Apache-2.0
"""One small member of every family of timm, at a size that keeps compiling short."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.task_networks import draw_weights
from benchmarks.zoo import Case

FAMILIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "beit": ("beit_base_patch16_224", 64, {"img_size": 64, "depth": 2}),
    "byoanet": ("halonet26t", 256, {}),
    "byobnet": ("test_byobnet", 96, {}),
    "cait": ("cait_xxs24_224", 64, {"img_size": 64, "depth": 2}),
    "coat": ("coat_lite_tiny", 64, {"img_size": 64}),
    "convit": ("convit_tiny", 64, {"img_size": 64, "depth": 4}),
    "convmixer": ("convmixer_768_32", 56, {}),
    "convnext": ("test_convnext", 96, {}),
    "cpubone": ("cpubone_nano", 96, {}),
    "crossvit": ("crossvit_9_240", 240, {}),
    "csatv2": ("csatv2", 512, {}),
    "cspnet": ("darknet17", 96, {}),
    "cspnext": ("cspnext_tiny", 96, {}),
    "davit": ("davit_tiny", 96, {"depths": (1, 1, 1, 1)}),
    "deepseek_vit": ("deepseek_vit_412m", 56, {"img_size": 56, "depth": 2}),
    "deit": ("deit_tiny_distilled_patch16_224", 64, {"img_size": 64, "depth": 2}),
    "densenet": ("densenet121", 64, {"block_config": (2, 2, 2, 2)}),
    "dla": ("dla34", 64, {}),
    "dpn": ("dpn68", 64, {}),
    "edgenext": ("edgenext_xx_small", 96, {}),
    "efficientformer": ("efficientformer_l1", 224, {}),
    "efficientformer_v2": ("efficientformerv2_s0", 224, {}),
    "efficientnet": ("test_efficientnet", 96, {}),
    "efficientvim": ("efficientvim_m1", 96, {}),
    "efficientvit_mit": ("efficientvit_b0", 96, {}),
    "efficientvit_msra": ("efficientvit_m0", 224, {}),
    "eva": ("eva02_tiny_patch14_224", 56, {"img_size": 56, "depth": 2}),
    "fasternet": ("fasternet_t0", 96, {}),
    "fastvit": ("fastvit_t8", 128, {}),
    "focalnet": ("focalnet_tiny_srf", 96, {}),
    "gcvit": ("gcvit_xxtiny", 224, {}),
    "gemma4_vit": ("gemma4_vit_167m", 96, {"img_size": 96, "depth": 2}),
    "ghostnet": ("ghostnet_050", 96, {}),
    "hardcorenas": ("hardcorenas_a", 96, {}),
    "hgnet": ("hgnetv2_b0", 96, {}),
    "hiera": ("hiera_tiny_224", 224, {"stages": (1, 1, 1, 1)}),
    "hieradet_sam2": ("sam2_hiera_tiny", 128, {}),
    "hrnet": ("hrnet_w18_small", 64, {}),
    "iformer": ("iformer_t", 96, {}),
    "inception_next": ("inception_next_atto", 96, {}),
    "inception_resnet_v2": ("inception_resnet_v2", 96, {}),
    "inception_v3": ("inception_v3", 96, {}),
    "inception_v4": ("inception_v4", 96, {}),
    "lcnetv2": ("lcnetv2_small", 96, {}),
    "levit": ("levit_128s", 224, {}),
    "lowformer": ("lowformer_b0", 96, {}),
    "mambaout": ("test_mambaout", 96, {}),
    "maxxvit": ("test_maxvit", 160, {}),
    "metaformer": ("poolformerv2_s12", 96, {}),
    "mlp_mixer": ("gmlp_ti16_224", 64, {"img_size": 64}),
    "mobilenetv3": ("lcnet_050", 96, {}),
    "mobilenetv5": ("mobilenetv5_base", 128, {}),
    "mobilevit": ("mobilevitv2_050", 96, {}),
    "mvitv2": ("mvitv2_tiny", 64, {"img_size": (64, 64)}),
    "naflexvit": ("naflexvit_base_patch16_gap", 96, {"depth": 2}),
    "nasnet": ("nasnetalarge", 96, {}),
    "nest": ("nest_tiny", 224, {}),
    "nextvit": ("nextvit_small", 96, {}),
    "nfnet": ("test_nfnet", 96, {}),
    "pit": ("pit_ti_224", 224, {}),
    "pnasnet": ("pnasnet5large", 96, {}),
    "pvt_v2": ("pvt_v2_b0", 64, {}),
    "qwen3_vit": ("qwen3_vit_88m", 96, {"img_size": 96, "depth": 2}),
    "rdnet": ("rdnet_tiny", 64, {}),
    "regnet": ("regnety_002", 64, {}),
    "repghost": ("repghostnet_050", 96, {}),
    "repvit": ("repvit_m1", 96, {}),
    "res2net": ("res2net50_14w_8s", 64, {}),
    "resnest": ("resnest14d", 64, {}),
    "resnet": ("test_resnet", 96, {}),
    "resnetv2": ("resnetv2_18", 64, {}),
    "rexnet": ("rexnet_100", 96, {}),
    "selecsls": ("selecsls42", 64, {}),
    "senet": ("legacy_seresnet18", 64, {}),
    "sequencer": ("sequencer2d_s", 64, {"img_size": 64, "layers": (1, 1, 1, 1)}),
    "shvit": ("shvit_s1", 128, {}),
    "sknet": ("skresnet18", 64, {}),
    "starnet": ("starnet_s050", 96, {}),
    "swiftformer": ("swiftformer_xs", 96, {}),
    "swin_transformer": (
        "swin_tiny_patch4_window7_224",
        56,
        {"img_size": 56, "depths": (2, 1), "num_heads": (3, 6)},
    ),
    "swin_transformer_v2": (
        "swinv2_tiny_window8_256",
        64,
        {"img_size": 64, "depths": (2, 1), "num_heads": (3, 6)},
    ),
    "swin_transformer_v2_cr": (
        "swinv2_cr_tiny_224",
        56,
        {"img_size": 56, "depths": (2, 1), "num_heads": (3, 6)},
    ),
    "tiny_vit": ("tiny_vit_5m_224", 224, {}),
    "tnt": ("tnt_s_patch16_224", 64, {"img_size": 64, "depth": 2}),
    "tresnet": ("tresnet_m", 64, {}),
    "twins": ("twins_pcpvt_small", 224, {"depths": (1, 1, 1, 1)}),
    "vgg": ("vgg11_bn", 64, {}),
    "visformer": ("visformer_tiny", 224, {}),
    "vision_transformer": ("test_vit", 96, {}),
    "vision_transformer_hybrid": ("vit_tiny_r_s16_p8_224", 64, {"img_size": 64, "depth": 2}),
    "vision_transformer_relpos": ("test_vit_relpos", 160, {}),
    "vision_transformer_sam": ("samvit_base_patch16_224", 64, {"img_size": 64, "depth": 2}),
    "vitamin": ("vitamin_small_224", 64, {"img_size": 64}),
    "volo": ("volo_d1_224", 64, {"img_size": 64}),
    "vovnet": ("ese_vovnet19b_dw", 64, {}),
    "xception": ("xception", 96, {}),
    "xception_aligned": ("xception41", 96, {}),
    "xcit": ("xcit_nano_12_p16_224", 64, {"img_size": 64, "depth": 2}),
}
"""By family (a module of timm.models): a model, the side of its image, what shrinks it."""


def case_of(family: str) -> Case:
    """Return the member of a family with seeded weights, and an image."""
    import timm  # optional, and slow to import

    name, side, sizes = FAMILIES[family]
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, **sizes).eval()
    draw_weights(module)
    channels = module.default_cfg.get("input_size", (3,))[0]
    return Case(name, module, (torch.randn(1, channels, side, side),))
