# SPDX-License-Identifier: Apache-2.0
"""Exports more networks of the package transformers, with seeded random weights, to ONNX.

    python -m benchmarks.drawn_library_networks --out DIR [name ...]

As `library_networks`, of families that none of the lists there has: drawn from what the package has
without a look at what they are made of, to be compiled as they are.
"""

from __future__ import annotations

from benchmarks.library_networks import WORDS, Builders, ids, networks_of, noise, of
from benchmarks.task_networks import export_named

_SIZES = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1376
}  # fmt: skip
_CAUSAL = WORDS | _SIZES

DRAWN: Builders = {
    "beit_small": (of("Beit", image_size=224), noise(1, 3, 224, 224)),
    "cvt_13": (of("Cvt", {}, depth=[1, 2, 4]), noise(1, 3, 224, 224)),
    "data2vec_text_128": (of("Data2VecText", vocab_size=8000), ids(128)),
    "data2vec_audio": (of("Data2VecAudio"), noise(1, 16000)),
    "sew_1s": (of("SEW"), noise(1, 16000)),
    "unispeech_sat": (of("UniSpeechSat"), noise(1, 16000)),
    "w2v_conformer": (of("Wav2Vec2Conformer", position_embeddings_type="rotary"), noise(1, 16000)),
    "depth_anything": (
        of(
            "DepthAnything",
            {},
            head="ForDepthEstimation",
            neck_hidden_sizes=[48, 96, 192, 384],
            fusion_hidden_size=64,
            reassemble_hidden_size=384,
        ),
        noise(1, 3, 224, 224),
    ),
    "hiera_b": (
        of("Hiera", {}, embed_dim=64, depths=[1, 2, 4, 2], num_heads=[1, 2, 4, 8]),
        noise(1, 3, 224, 224),
    ),
    "vivit_s": (of("Vivit", num_frames=8, image_size=112), noise(1, 8, 3, 112, 112)),
    "vit_msn": (of("ViTMSN"), noise(1, 3, 224, 224)),
    "pvt_tiny": (of("Pvt", {}, depths=[2, 2, 2, 2]), noise(1, 3, 224, 224)),
    "poolformer_hf": (of("PoolFormer", {}), noise(1, 3, 224, 224)),
    "levit_hf": (of("Levit", {}, depths=[2, 2, 2]), noise(1, 3, 224, 224)),
    "mobilevit_hf": (of("MobileViT", {}), noise(1, 3, 256, 256)),
    "rembert_128": (
        of("RemBert", _SIZES, vocab_size=8000, input_embedding_size=128),
        ids(128),
    ),
    "nystromformer_256": (of("Nystromformer", vocab_size=8000), ids(256)),
    "funnel_128": (
        of(
            "Funnel",
            {},
            vocab_size=8000,
            block_sizes=[2, 2, 2],
            d_model=384,
            n_head=6,
            d_head=64,
            d_inner=1536,
        ),
        ids(128),
    ),
    "bigbird_128": (of("BigBird", vocab_size=8000, attention_type="original_full"), ids(128)),
    "ibert_128": (of("IBert", vocab_size=8000), ids(128)),
    "layoutlm_128": (of("LayoutLM", vocab_size=8000), ids(128)),
    "megatron_bert_128": (of("MegatronBert", vocab_size=8000), ids(128)),
    "roberta_prelayer_128": (of("RobertaPreLayerNorm", vocab_size=8000), ids(128)),
    "gpt_neo_64": (
        of(
            "GPTNeo",
            WORDS,
            hidden_size=512,
            num_layers=4,
            num_heads=8,
            attention_types=[[["global", "local"], 2]],
        ),
        ids(64),
    ),
    "gptj_64": (of("GPTJ", WORDS, n_embd=512, n_layer=4, n_head=8, rotary_dim=32), ids(64)),
    "codegen_64": (of("CodeGen", WORDS, n_embd=512, n_layer=4, n_head=8, rotary_dim=32), ids(64)),
    "biogpt_64": (of("BioGpt", _CAUSAL), ids(64)),
    "llama_64": (of("Llama", _CAUSAL, num_key_value_heads=2), ids(64)),
    "cohere_64": (of("Cohere", _CAUSAL, pad_token_id=0), ids(64)),
    "granite_64": (of("Granite", _CAUSAL), ids(64)),
    "starcoder2_64": (of("Starcoder2", _CAUSAL, num_key_value_heads=2), ids(64)),
    "smollm3_64": (of("SmolLM3", _CAUSAL, num_key_value_heads=2, pad_token_id=0), ids(64)),
    "glm_64": (of("Glm", _CAUSAL, num_key_value_heads=2, head_dim=64, pad_token_id=0), ids(64)),
    "exaone4_64": (of("Exaone4", _CAUSAL, num_key_value_heads=2, pad_token_id=0), ids(64)),
    "diffllama_64": (of("DiffLlama", _CAUSAL, num_key_value_heads=4), ids(64)),
    "lfm2_64": (
        of(
            "Lfm2",
            _CAUSAL,
            num_key_value_heads=4,
            layer_types=["conv", "full_attention", "conv", "full_attention"],
        ),
        ids(64),
    ),
    "recurrent_gemma_32": (
        of(
            "RecurrentGemma",
            _CAUSAL,
            num_key_value_heads=1,
            lru_width=512,
            attention_window_size=64,
        ),
        ids(32),
    ),
    "mistral_64": (of("Mistral", _CAUSAL, num_key_value_heads=4, sliding_window=32), ids(64)),
    "nemotron_64": (of("Nemotron", _CAUSAL, num_key_value_heads=4), ids(64)),
    "persimmon_64": (of("Persimmon", _CAUSAL), ids(64)),
    "phi3_64": (of("Phi3", _CAUSAL, pad_token_id=0), ids(64)),
    "patchtsmixer": (
        of(
            "PatchTSMixer",
            {},
            num_input_channels=7,
            context_length=512,
            patch_length=16,
            patch_stride=16,
            d_model=128,
            num_layers=4,
        ),
        noise(1, 512, 7),
    ),
    "textnet": (of("TextNet", {}), noise(1, 3, 320, 320)),
    "convnextv2_hf": (of("ConvNextV2", {}, depths=[2, 2, 4, 2]), noise(1, 3, 224, 224)),
    "regnet_hf": (
        of("RegNet", {}, hidden_sizes=[64, 144, 320, 784], depths=[1, 2, 5, 2], groups_width=16),
        noise(1, 3, 224, 224),
    ),
    "swinv2_hf": (of("Swinv2", {}, depths=[2, 2, 2, 2]), noise(1, 3, 224, 224)),
    "focalnet_hf": (of("FocalNet", {}), noise(1, 3, 224, 224)),
    "upernet": (of("UperNet", {}, head="ForSemanticSegmentation"), noise(1, 3, 256, 256)),
    "perceiver_128": (
        of(
            "Perceiver",
            {},
            num_latents=64,
            d_latents=256,
            d_model=256,
            num_blocks=1,
            num_self_attends_per_block=4,
        ),
        noise(1, 128, 256),
    ),
    "ijepa": (of("IJepa"), noise(1, 3, 224, 224)),
    "aimv2": (of("Aimv2Vision"), noise(1, 3, 224, 224)),
    "xglm_64": (
        of("XGLM", WORDS, d_model=512, ffn_dim=2048, num_layers=4, attention_heads=8),
        ids(64),
    ),
    "lilt_128": (of("Lilt", vocab_size=8000), ids(128)),
    "splinter_128": (of("Splinter", vocab_size=8000), ids(128)),
    "ernie_128": (of("Ernie", vocab_size=8000), ids(128)),
    "ast_128_64": (
        of("AST", head="ForAudioClassification", max_length=128, num_mel_bins=64),
        noise(1, 128, 64),
    ),
}
"""By name, what makes the module of the package and what makes its inputs."""


if __name__ == "__main__":
    raise SystemExit(export_named(networks_of(DRAWN), "benchmarks.drawn_library_networks"))
