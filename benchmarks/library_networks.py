# SPDX-License-Identifier: Apache-2.0
"""Exports small networks of the package transformers, with seeded random weights, to ONNX.

    python -m benchmarks.library_networks --out DIR [name ...]

Needs torch and transformers. They are made from configurations: nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.task_networks import Network, export_named

Library = Any  # transformers, which has no types


class First(nn.Module):
    """A network of the package that gives one tensor: its hidden states, or its logits."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Return what the network makes of ids, images or sound."""
        made = self.body(x)
        return made.logits if "logits" in made else made.last_hidden_state


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


def _ids(words: int, batch: int = 1) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randint(0, 1000, (batch, words)),)


def _noise(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


BUILDERS: dict[str, tuple[Callable[[Library], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "bert4_512": (_bert, _ids(512)),
    "bert4_b8": (_bert, _ids(64, 8)),
    "clip_text": (_clip_text, _ids(77)),
    "deberta_v3_like": (_deberta, _ids(128)),
    "dinov2_small": (_dinov2, _noise(1, 3, 224, 224)),
    "electra_small_128": (_electra, _ids(128)),
    "qwen2_like": (_qwen2, _ids(64)),
    "segformer_b0": (_segformer, _noise(1, 3, 256, 256)),
    "wav2vec2": (_wav2vec2, _noise(1, 16000)),
    "whisper_tiny_enc": (_whisper, _noise(1, 80, 3000)),
    "albert_128": (_albert, _ids(128)),
    "gpt_neox_64": (_gpt_neox, _ids(64)),
    "mobilebert_128": (_mobilebert, _ids(128)),
    "modernbert_128": (_modernbert, _ids(128)),
    "opt_32": (_opt, _ids(32)),
    "t5_small_enc_128": (_t5, _ids(128)),
    "yolos_tiny": (_yolos, _noise(1, 3, 256, 320)),
}
"""By name, what makes the module of the package and what makes its inputs."""


def networks() -> dict[str, Network]:
    """Return the networks, made from the package when they are asked for."""

    def maker(build: Callable[[Library], nn.Module]) -> Callable[[], nn.Module]:
        def make() -> nn.Module:
            import transformers  # optional, and slow to import

            return build(transformers)

        return make

    return {name: (maker(build), inputs) for name, (build, inputs) in BUILDERS.items()}


if __name__ == "__main__":
    raise SystemExit(export_named(networks(), "benchmarks.library_networks"))
