# SPDX-License-Identifier: Apache-2.0
"""Exports small networks of the package transformers, with seeded random weights, to ONNX.

    python -m benchmarks.library_networks --out DIR [name ...]

Needs torch and transformers. They are made from configurations: nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from benchmarks.task_networks import Network, export_named

Library = Any  # transformers, which has no types
Sizes: TypeAlias = dict[str, Any]  # what its configurations take


_RESULTS = ("logits", "predicted_depth", "reconstruction", "last_hidden_state")


class First(nn.Module):
    """A network of the package that gives one tensor: what its head makes, or its hidden states."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Return what the network makes of ids, images or sound."""
        made = self.body(x)
        found: Tensor = next(made[name] for name in _RESULTS if name in made)
        return found


def _bert(library: Library) -> nn.Module:
    made = library.BertModel(library.BertConfig(num_hidden_layers=4))
    return First(made)


def _deberta(library: Library) -> nn.Module:
    config = library.DebertaV2Config(
        hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_hidden_layers=4,
        vocab_size=8000, relative_attention=True, pos_att_type=["p2c", "c2p"],
        position_buckets=256,
    )  # fmt: skip
    return First(library.DebertaV2Model(config))


def _dinov2(library: Library) -> nn.Module:
    config = library.Dinov2Config(hidden_size=384, num_attention_heads=6, num_hidden_layers=6)
    return First(library.Dinov2Model(config))


def _qwen2(library: Library) -> nn.Module:
    config = library.Qwen2Config(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, vocab_size=8000, use_cache=False,
    )  # fmt: skip
    return First(library.Qwen2Model(config))


def _wav2vec2(library: Library) -> nn.Module:
    config = library.Wav2Vec2Config(
        num_hidden_layers=4, hidden_size=384, num_attention_heads=6, intermediate_size=1536
    )
    return First(library.Wav2Vec2Model(config))


def _whisper(library: Library) -> nn.Module:
    config = library.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536
    )
    return First(library.models.whisper.modeling_whisper.WhisperEncoder(config))


def _segformer(library: Library) -> nn.Module:
    return First(library.SegformerForSemanticSegmentation(library.SegformerConfig()))


def _clip_text(library: Library) -> nn.Module:
    return First(library.CLIPTextModel(library.CLIPTextConfig(num_hidden_layers=6)))


def _electra(library: Library) -> nn.Module:
    return First(library.ElectraModel(library.ElectraConfig()))


def _albert(library: Library) -> nn.Module:
    config = library.AlbertConfig(
        hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_hidden_layers=6
    )
    return First(library.AlbertModel(config))


def _gpt_neox(library: Library) -> nn.Module:
    config = library.GPTNeoXConfig(
        hidden_size=512, num_attention_heads=8, intermediate_size=2048, num_hidden_layers=6,
        vocab_size=8000, use_cache=False,
    )  # fmt: skip
    return First(library.GPTNeoXModel(config))


def _mobilebert(library: Library) -> nn.Module:
    return First(library.MobileBertModel(library.MobileBertConfig(num_hidden_layers=12)))


def _modernbert(library: Library) -> nn.Module:
    config = library.ModernBertConfig(num_hidden_layers=6, attn_implementation="eager")
    return First(library.ModernBertModel(config))


def _opt(library: Library) -> nn.Module:
    config = library.OPTConfig(num_hidden_layers=4, vocab_size=8000, use_cache=False)
    return First(library.OPTModel(config))


def _t5(library: Library) -> nn.Module:
    return First(library.T5EncoderModel(library.T5Config(attn_implementation="eager")))


def _yolos(library: Library) -> nn.Module:
    config = library.YolosConfig(
        hidden_size=192, num_attention_heads=3, intermediate_size=768, num_hidden_layers=8,
        image_size=[256, 320],
    )  # fmt: skip
    return First(library.YolosModel(config))


_SMALL: Sizes = {
    "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6, "intermediate_size": 1536
}  # fmt: skip
WORDS: Sizes = {"vocab_size": 8000, "use_cache": False}


def of(
    family: str, sizes: Sizes = _SMALL, head: str = "Model", **more: object
) -> Callable[[Library], nn.Module]:
    """Return what makes the network of a family with the sizes of its configuration."""

    def build(library: Library) -> nn.Module:
        config = getattr(library, f"{family}Config")(**sizes, **more)
        return First(getattr(library, f"{family}{head}")(config))

    return build


def ids(words: int, batch: int = 1) -> Callable[[], tuple[Tensor, ...]]:
    """Return what makes the ids of so many words."""
    return lambda: (torch.randint(0, 1000, (batch, words)),)


def noise(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    """Return what makes an image or a sound of this shape."""
    return lambda: (torch.randn(*shape),)


Builder: TypeAlias = Callable[[Library], nn.Module]
Builders: TypeAlias = dict[str, tuple[Builder, Callable[[], tuple[Tensor, ...]]]]

BUILDERS: Builders = {
    "bert4_512": (_bert, ids(512)),
    "bert4_b8": (_bert, ids(64, 8)),
    "clip_text": (_clip_text, ids(77)),
    "deberta_v3_like": (_deberta, ids(128)),
    "dinov2_small": (_dinov2, noise(1, 3, 224, 224)),
    "electra_small_128": (_electra, ids(128)),
    "qwen2_like": (_qwen2, ids(64)),
    "segformer_b0": (_segformer, noise(1, 3, 256, 256)),
    "wav2vec2": (_wav2vec2, noise(1, 16000)),
    "whisper_tiny_enc": (_whisper, noise(1, 80, 3000)),
    "albert_128": (_albert, ids(128)),
    "gpt_neox_64": (_gpt_neox, ids(64)),
    "mobilebert_128": (_mobilebert, ids(128)),
    "modernbert_128": (_modernbert, ids(128)),
    "opt_32": (_opt, ids(32)),
    "t5_small_enc_128": (_t5, ids(128)),
    "yolos_tiny": (_yolos, noise(1, 3, 256, 320)),
}
"""By name, what makes the module of the package and what makes its inputs."""

CONFIGURED: Builders = {
    "squeezebert_128": (of("SqueezeBert", {}, num_hidden_layers=6), ids(128)),
    "convbert_128": (of("ConvBert", {}, num_hidden_layers=4), ids(128)),
    "xlnet_128": (
        of("XLNet", {}, d_model=512, n_layer=6, n_head=8, d_inner=2048, vocab_size=8000),
        ids(128),
    ),
    "bloom_64": (of("Bloom", WORDS, hidden_size=512, n_layer=6, n_head=8), ids(64)),
    "gemma2_64": (
        of(
            "Gemma2", WORDS, hidden_size=640, intermediate_size=1728, num_hidden_layers=4,
            num_attention_heads=8, num_key_value_heads=4, head_dim=80, attn_implementation="eager",
        ),
        ids(64),
    ),
    "phi_64": (
        of(
            "Phi", WORDS, hidden_size=512, intermediate_size=2048, num_hidden_layers=6,
            num_attention_heads=8,
        ),
        ids(64),
    ),
    "wavlm_1s": (of("WavLM"), noise(1, 16000)),
    "ast_128": (of("AST", max_length=256), noise(1, 256, 128)),
    "siglip_small": (
        of("SiglipVision", _SMALL | {"num_hidden_layers": 6}), noise(1, 3, 224, 224)
    ),
    "mamba_32": (of("Mamba", WORDS, hidden_size=384, num_hidden_layers=6), ids(32)),
    "fnet_128": (of("FNet", {}, num_hidden_layers=4), ids(128)),
    "distilbert_384": (of("DistilBert", {}, n_layers=3), ids(384)),
    "mpnet_128": (of("MPNet", vocab_size=8000), ids(128)),
    "roformer_128": (of("RoFormer", vocab_size=8000), ids(128)),
    "esm_128": (
        of("Esm", vocab_size=33, pad_token_id=1, mask_token_id=32),
        lambda: (torch.randint(4, 30, (1, 128)),),
    ),
    "canine_256": (of("Canine"), ids(256)),
    "falcon_64": (
        of("Falcon", WORDS, hidden_size=512, num_hidden_layers=4, num_attention_heads=8), ids(64)
    ),
    "olmo2_64": (
        of(
            "Olmo2", WORDS, hidden_size=512, num_hidden_layers=4, num_attention_heads=8,
            intermediate_size=1376, pad_token_id=0,
        ),
        ids(64),
    ),
    "mpt_64": (of("Mpt", WORDS, d_model=512, n_layers=4, n_heads=8), ids(64)),
    "qwen3_64": (
        of(
            "Qwen3", WORDS, hidden_size=512, intermediate_size=1376, num_hidden_layers=4,
            num_attention_heads=8, num_key_value_heads=4, head_dim=64,
        ),
        ids(64),
    ),
    "hubert_1s": (of("Hubert"), noise(1, 16000)),
    "vitdet": (
        of(
            "VitDet", {}, hidden_size=384, num_hidden_layers=4, num_attention_heads=6,
            image_size=224, use_relative_position_embeddings=True, window_block_indices=[0, 2],
            window_size=7,
        ),
        noise(1, 3, 224, 224),
    ),
    "dpt_small": (
        of(
            "DPT", head="ForDepthEstimation", image_size=224, backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=128,
        ),
        noise(1, 3, 224, 224),
    ),
    "glpn": (of("GLPN", {}, "ForDepthEstimation", depths=[1] * 4), noise(1, 3, 224, 224)),
    "swin2sr": (
        of(
            "Swin2SR", {}, "ForImageSuperResolution", embed_dim=60, depths=[2, 2], num_heads=[6, 6]
        ),
        noise(1, 3, 64, 64),
    ),
    "timesformer": (of("Timesformer", num_frames=4), noise(1, 4, 3, 224, 224)),
    "patchtst": (
        of(
            "PatchTST", {}, num_input_channels=7, context_length=336, patch_length=16,
            patch_stride=8, d_model=128, num_hidden_layers=3,
        ),
        noise(1, 336, 7),
    ),
    "rwkv": (of("Rwkv", WORDS, hidden_size=256, num_hidden_layers=3), ids(16)),
}  # fmt: skip
"""The same, each made from a configuration alone."""


def networks() -> dict[str, Network]:
    """Return the networks, made from the package when they are asked for."""
    return networks_of(BUILDERS | CONFIGURED)


def networks_of(builders: Builders) -> dict[str, Network]:
    """Return networks by name, made from the package when they are asked for."""

    def maker(build: Builder) -> Callable[[], nn.Module]:
        def make() -> nn.Module:
            import transformers  # optional, and slow to import

            return build(transformers)

        return make

    return {name: (maker(build), inputs) for name, (build, inputs) in builders.items()}


if __name__ == "__main__":
    raise SystemExit(export_named(networks(), "benchmarks.library_networks"))
