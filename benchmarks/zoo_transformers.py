# SPDX-License-Identifier: Apache-2.0
"""Architectures of transformers from small configurations: encoders, decoders, vision, speech."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.zoo import Case

WORDS = 120
"""The tokens that ids are drawn from, but the first three."""

_Sizes = Mapping[str, Any]

_USUAL: _Sizes = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED: _Sizes = {**_USUAL, "num_key_value_heads": 2, "pad_token_id": 0}
_HEADS_OF_8: _Sizes = {**_GROUPED, "head_dim": 8}
_EXPERTS: _Sizes = {
    **_GROUPED, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
}  # fmt: skip
_GPT: _Sizes = {
    "vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_PAIR: _Sizes = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
_T5: _Sizes = {
    "vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
_SEEN: _Sizes = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
_STAGES: _Sizes = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1], "image_size": 64}
_WINDOWS: _Sizes = {
    "image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4],
    "window_size": 4,
}  # fmt: skip
_HEARD: _Sizes = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0,
}  # fmt: skip
_TOWER: _Sizes = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": WORDS, "max_position_embeddings": 32, "image_size": 32, "patch_size": 8,
    "projection_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


# ---- what they are called with -------------------------------------------------------------------


def _ids(steps: int = 12) -> Tensor:
    return torch.randint(3, WORDS, (2, steps))


def _text() -> dict[str, Tensor]:
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 8:] = 0
    return {"input_ids": _ids(), "attention_mask": mask}


def _prompt() -> dict[str, Tensor]:
    return {"input_ids": _ids(), "attention_mask": torch.ones(2, 12, dtype=torch.int64)}


def _ids_alone() -> dict[str, Tensor]:
    return {"input_ids": _ids()}


def _translation() -> dict[str, Tensor]:
    return {**_text(), "decoder_input_ids": _ids(5)}


def _image(side: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(1, 3, side, side)}


def _picture() -> dict[str, Tensor]:
    return _image(64)


def _sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(1, 2000)}


def _spectrum() -> dict[str, Tensor]:
    return {"input_features": torch.randn(1, 16, 60), "decoder_input_ids": _ids(5)[:1]}


def _frames() -> dict[str, Tensor]:
    return {"input_features": torch.randn(1, 40, 16), "decoder_input_ids": _ids(5)[:1]}


def _patches_of_sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(1, 64, 16)}


def _captioned() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 32, 32), **_text()}


def _boxed() -> dict[str, Tensor]:
    corners = torch.randint(0, 50, (2, 12, 2))
    return {**_text(), "bbox": torch.cat([corners, corners + 9], -1)}


Inputs = Callable[[], dict[str, Tensor]]


@dataclass(frozen=True)
class Architecture:
    """What makes a network: the automatic class of its task, its sizes, and its inputs.

    `decodes` are the caches that it generates with.
    """

    task: str
    sizes: _Sizes
    inputs: Inputs
    decodes: tuple[str, ...] = ()
    parts: Mapping[str, _Sizes] = field(default_factory=dict)


def _encoder(sizes: _Sizes = _USUAL, inputs: Inputs = _text, **more: Any) -> Architecture:
    return Architecture("AutoModel", {**sizes, **more}, inputs)


def _decoder(sizes: _Sizes, *decodes: str, **more: Any) -> Architecture:
    chosen = decodes or ("static", "dynamic")
    return Architecture("AutoModelForCausalLM", {**sizes, **more}, _prompt, chosen)


def _pair(sizes: _Sizes = _PAIR, *decodes: str, **more: Any) -> Architecture:
    chosen = decodes or ("static",)
    return Architecture("AutoModelForSeq2SeqLM", {**sizes, **more}, _translation, chosen)


ARCHITECTURES: dict[str, Architecture] = {
    # encoders of text
    "albert": _encoder(embedding_size=16),
    "bert": _encoder(),
    "big_bird": _encoder(attention_type="original_full"),
    "camembert": _encoder(),
    "canine": _encoder(num_hash_buckets=64, downsampling_rate=2, local_transformer_stride=4),
    "convbert": _encoder(embedding_size=32),
    "data2vec-text": _encoder(),
    "deberta": _encoder(relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "deberta-v2": _encoder(relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "distilbert": _encoder({"vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 4,
                            "hidden_dim": 64, "max_position_embeddings": 64}),
    "electra": _encoder(embedding_size=16),
    "ernie": _encoder(),
    "esm": _encoder(pad_token_id=0, mask_token_id=1, position_embedding_type="rotary"),
    "flaubert": _encoder({"vocab_size": WORDS, "emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    "fnet": _encoder(inputs=_ids_alone),
    "ibert": _encoder(),
    "layoutlm": _encoder(inputs=_boxed),
    "lilt": _encoder({**_USUAL, "hidden_size": 48}, _boxed),
    "longformer": _encoder(attention_window=[8, 8]),
    "megatron-bert": _encoder(),
    "mobilebert": _encoder(embedding_size=16, true_hidden_size=16, intra_bottleneck_size=16),
    "modernbert": _encoder(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                           sep_token_id=2),
    "mpnet": _encoder(),
    "rembert": _encoder(input_embedding_size=16),
    "roberta": _encoder(),
    "roformer": _encoder(embedding_size=32),
    "splinter": _encoder(),
    "squeezebert": _encoder(embedding_size=32),
    "xlm": _encoder({"vocab_size": WORDS, "emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    "xlm-roberta": _encoder(),
    "xlnet": _encoder({"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4,
                       "d_inner": 64}),
    # decoders
    "biogpt": _decoder(_USUAL),
    "bloom": _decoder({"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4,
                       "pad_token_id": 0}),
    "codegen": _decoder({**_GPT, "rotary_dim": 4}),
    "cohere": _decoder(_GROUPED),
    "falcon": _decoder({**_USUAL, "num_kv_heads": 2, "pad_token_id": 0,
                        "new_decoder_architecture": True}),
    "gemma": _decoder(_HEADS_OF_8),
    "gemma2": _decoder(_HEADS_OF_8, sliding_window=8),
    "gemma3_text": _decoder(_HEADS_OF_8, sliding_window=8),
    "gpt2": _decoder(_GPT),
    "gpt_bigcode": _decoder(_GPT),
    "gpt_neo": _decoder({"vocab_size": WORDS, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
                         "attention_types": [[["global", "local"], 1]], "window_size": 8,
                         "max_position_embeddings": 64, "pad_token_id": 0}),
    "gpt_neox": _decoder(_USUAL, pad_token_id=0),
    "gptj": _decoder({**_GPT, "rotary_dim": 4}),
    "gpt_oss": _decoder(_EXPERTS, head_dim=8),
    "granite": _decoder(_GROUPED),
    "llama": _decoder(_GROUPED),
    "mamba": _decoder({"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2,
                       "state_size": 8, "pad_token_id": 0}, "own"),
    "mistral": _decoder(_GROUPED, sliding_window=8),
    "mixtral": _decoder(_EXPERTS),
    "mpt": _decoder({"vocab_size": WORDS, "d_model": 32, "n_layers": 2, "n_heads": 4,
                     "max_seq_len": 64, "pad_token_id": 0}, "dynamic"),
    "olmo2": _decoder(_GROUPED),
    "openai-gpt": _decoder(_GPT, "own"),
    "opt": _decoder({"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2,
                     "num_attention_heads": 4, "ffn_dim": 64, "max_position_embeddings": 64,
                     "word_embed_proj_dim": 32, "pad_token_id": 0}),
    "persimmon": _decoder(_USUAL, pad_token_id=0),
    "phi": _decoder(_USUAL, pad_token_id=0),
    "phi3": _decoder(_GROUPED),
    "qwen2": _decoder(_GROUPED),
    "qwen2_moe": _decoder(_EXPERTS),
    "qwen3": _decoder(_HEADS_OF_8),
    "smollm3": _decoder(_GROUPED),
    "stablelm": _decoder(_GROUPED),
    "starcoder2": _decoder(_GROUPED),
    # encoders with decoders
    "bart": _pair(),
    "blenderbot": _pair(),
    "led": _pair(attention_window=8, max_encoder_position_embeddings=64,
                 max_decoder_position_embeddings=64),
    "m2m_100": _pair(),
    "marian": _pair(),
    "mbart": _pair(),
    "mt5": _pair(_T5, feed_forward_proj="gated-gelu"),
    "pegasus": _pair(),
    "prophetnet": _pair({"vocab_size": WORDS, "hidden_size": 32, "encoder_ffn_dim": 64,
                         "decoder_ffn_dim": 64, "num_encoder_layers": 2, "num_decoder_layers": 2,
                         "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4,
                         "max_position_embeddings": 64}, "dynamic"),
    "t5": _pair(_T5),
    # images
    "beit": _encoder(_SEEN, _image),
    "convnext": _encoder(_STAGES, _picture),
    "convnextv2": _encoder(_STAGES, _picture),
    "data2vec-vision": _encoder(_SEEN, _image),
    "deit": _encoder(_SEEN, _image),
    "dinov2": _encoder(_SEEN, _image),
    "efficientnet": _encoder({"image_size": 64, "width_coefficient": 0.25,
                              "depth_coefficient": 0.25, "hidden_dim": 320}, _picture),
    "focalnet": _encoder({"image_size": 32, "embed_dim": 16, "depths": [1, 1],
                          "hidden_sizes": [16, 32], "focal_levels": [2, 2],
                          "focal_windows": [3, 3]}, _image),
    "levit": _encoder({"image_size": 64, "hidden_sizes": [16, 32, 48], "depths": [1, 1, 1],
                       "num_attention_heads": [2, 2, 2], "key_dim": [8, 8, 8]}, _picture),
    "mobilenet_v2": _encoder({"image_size": 64, "depth_multiplier": 0.25}, _picture),
    "mobilevit": _encoder({"image_size": 64, "hidden_sizes": [16, 24, 32],
                           "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}, _picture),
    "poolformer": _encoder({"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}, _picture),
    "pvt_v2": _encoder({"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1],
                        "num_attention_heads": [1, 2, 2, 4], "image_size": 64}, _picture),
    "regnet": _encoder({"embedding_size": 16, "hidden_sizes": [16, 24, 32, 40],
                        "depths": [1, 1, 1, 1], "groups_width": 8}, _picture),
    "resnet": _encoder({"embedding_size": 16, "hidden_sizes": [16, 24, 32, 40],
                        "depths": [1, 1, 1, 1]}, _picture),
    "segformer": _encoder({"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1],
                           "num_attention_heads": [1, 2, 2, 4]}, _picture),
    "swin": _encoder(_WINDOWS, _image),
    "swinv2": _encoder(_WINDOWS, _image),
    "vit": _encoder(_SEEN, _image),
    "yolos": Architecture("AutoModelForObjectDetection",
                          {**_SEEN, "image_size": [32, 32], "num_detection_tokens": 5}, _image),
    # sound
    "audio-spectrogram-transformer": _encoder({**_SEEN, "max_length": 64, "num_mel_bins": 16},
                                              _patches_of_sound),
    "data2vec-audio": _encoder(_HEARD, _sound),
    "hubert": _encoder(_HEARD, _sound),
    "sew": _encoder(_HEARD, _sound, squeeze_factor=2),
    "speech_to_text": Architecture("AutoModelForSpeechSeq2Seq",
                                   {**_PAIR, "input_feat_per_channel": 16, "conv_channels": 32,
                                    "max_source_positions": 80, "max_target_positions": 40},
                                   _frames),
    "wav2vec2": _encoder(_HEARD, _sound),
    "wavlm": _encoder(_HEARD, _sound),
    "whisper": Architecture("AutoModelForSpeechSeq2Seq",
                            {**_PAIR, "num_mel_bins": 16, "max_source_positions": 30,
                             "max_target_positions": 40, "suppress_tokens": None,
                             "begin_suppress_tokens": None}, _spectrum),
    # images with text
    "blip": Architecture("AutoModel", {}, _captioned,
                         parts={"text_config": _TOWER, "vision_config": _TOWER}),
    "clip": Architecture("AutoModel", {"projection_dim": 16}, _captioned,
                         parts={"text_config": _TOWER, "vision_config": _TOWER}),
    "siglip": Architecture("AutoModel", {}, _captioned,
                           parts={"text_config": _TOWER, "vision_config": _TOWER}),
    "vilt": _encoder({**_SEEN, "vocab_size": WORDS, "max_position_embeddings": 32}, _captioned),
}  # fmt: skip
"""By the name of a configuration in transformers."""


def case_of(name: str) -> Case:
    """Return an architecture with seeded weights, and inputs."""
    import transformers  # optional, and slow to import

    entry = ARCHITECTURES[name]
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    parts = {key: dict(sizes) for key, sizes in entry.parts.items()}
    config = transformers.AutoConfig.for_model(name, **entry.sizes, **parts)
    config.use_cache = False
    module = getattr(transformers, entry.task).from_config(config).eval()
    _draw(module)
    return Case(type(module).__name__, module, (), entry.inputs(), entry.decodes)


def _draw(module: torch.nn.Module) -> None:
    """Let weights be large enough that every layer counts in the result."""
    for parameter in module.parameters():
        if parameter.dim() > 1 and parameter.std() < 0.1:
            torch.nn.init.normal_(parameter, 0.0, 0.1)
