# SPDX-License-Identifier: Apache-2.0
"""Small networks of words, sound, tables and queries on images, as torch modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.task_images import Attention, BasicBlock, conv


class Tagger(nn.Module):
    """Words in, a recurrent layer in both directions twice, a tag per word."""

    def __init__(self, recurrent: type[nn.LSTM] | type[nn.GRU], width: int = 256) -> None:
        super().__init__()
        self.words = nn.Embedding(10000, 128)
        self.layers = recurrent(128, width, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, 32)

    def forward(self, ids: Tensor) -> Tensor:
        """Return [n, words, 32] of int64 [n, words]."""
        return self.head(self.layers(self.words(ids))[0])


class Recommender(nn.Module):
    """DLRM-like: bags of embeddings, products of all pairs, two perceptrons."""

    places: Tensor

    def __init__(self, tables: int = 8, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20000, width) for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, 1),
            nn.Sigmoid(),
        )
        rows, columns = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("places", rows * (tables + 1) + columns)

    def forward(self, numbers: Tensor, *ids: Tensor) -> Tensor:
        """Return [n, 1] of float32 [n, 13] and, per table, int64 [n, words]."""
        dense = self.dense(numbers)
        bags = [table(x).sum(1) for table, x in zip(self.tables, ids, strict=True)]
        x = torch.stack([dense, *bags], 1)
        products = torch.bmm(x, x.transpose(1, 2)).flatten(1)[:, self.places]
        return self.top(torch.cat([dense, products], 1))


class Perceptron(nn.Sequential):
    """Three wide layers for tables."""

    def __init__(self, width: int = 512) -> None:
        super().__init__(
            nn.Linear(64, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )


def point_field(width: int = 256) -> nn.Module:
    """Return eight layers for many points, as radiance fields have them."""
    layers: list[nn.Module] = [nn.Linear(63, width), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 4))


class QueryDecoder(nn.Module):
    """DETR: a ResNet-18 at stride 32, an encoder of two layers, a decoder of 100 queries."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        stages = [nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))]
        for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
            stages.append(
                nn.Sequential(
                    BasicBlock(inputs, outputs, 1 + (inputs != outputs)),
                    BasicBlock(outputs, outputs),
                )
            )
        self.body = nn.Sequential(*stages, nn.Conv2d(512, width, 1))
        self.transformer = nn.Transformer(width, 8, 2, 3, 1024, batch_first=True)
        self.queries = nn.Parameter(torch.zeros(1, 100, width))
        self.classes = nn.Linear(width, 92)
        self.boxes = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return [n, 100, 92] and [n, 100, 4]."""
        places = self.body(x).flatten(2).transpose(1, 2)
        y = self.transformer(places, self.queries)
        return self.classes(y), self.boxes(y)


class Windows(nn.Module):
    """A SAM-like image encoder: relative places by row and column, windows and all places."""

    def __init__(self, width: int = 192, heads: int = 3, size: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.layers = nn.ModuleList(
            _RelativeBlock(width, heads, 8 if layer % 2 == 0 else size) for layer in range(layers)
        )
        self.neck = nn.Sequential(
            nn.Conv2d(width, 128, 1, bias=False),
            _ChannelNorm(128),
            nn.Conv2d(128, 128, 3, 1, 1, bias=False),
            _ChannelNorm(128),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, 128, h / 16, w / 16]."""
        y = self.patches(x).permute(0, 2, 3, 1)
        for layer in self.layers:
            y = layer(y)
        return self.neck(y.permute(0, 3, 1, 2))


class _ChannelNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        apart = x - x.mean(1, keepdim=True)
        y = apart / torch.sqrt(apart.pow(2).mean(1, keepdim=True) + 1e-6)
        return self.scale[:, None, None] * y + self.shift[:, None, None]


class _RelativeBlock(nn.Module):
    apart: Tensor

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.units = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.rows = nn.Parameter(torch.zeros(2 * window - 1, width // heads))
        self.columns = nn.Parameter(torch.zeros(2 * window - 1, width // heads))
        apart = torch.arange(window)[:, None] - torch.arange(window)[None] + window - 1
        self.register_buffer("apart", apart)

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        s = self.window
        y = self.norms[0](x).view(n, h // s, s, w // s, s, c).transpose(2, 3).reshape(-1, s * s, c)
        q, k, v = self.all(y).view(-1, s * s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        places = q.reshape(-1, s, s, c // self.heads)
        rows = torch.einsum("bhwc,hkc->bhwk", places, self.rows[self.apart])
        columns = torch.einsum("bhwc,wkc->bhwk", places, self.columns[self.apart])
        bias = rows[..., :, None] + columns[..., None, :]
        weights = (scores + bias.reshape(scores.shape)).softmax(-1)
        y = self.out((weights @ v).transpose(1, 2).flatten(2))
        y = y.view(n, h // s, w // s, s, s, c).transpose(2, 3).reshape(n, h, w, c)
        x = x + y
        return x + self.units(self.norms[1](x))


class Joiner(nn.Module):
    """A speech transducer's parts in one: conformer-like encoder, word predictor, joint network."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.shrink = nn.Sequential(
            nn.Conv2d(1, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU()
        )
        self.enter = nn.Linear(64 * 20, width)
        self.layers = nn.ModuleList(_ConformerLayer(width) for _ in range(3))
        self.words, self.predict = nn.Embedding(500, width), nn.LSTM(width, width, batch_first=True)
        self.join = nn.Sequential(nn.Tanh(), nn.Linear(width, 500), nn.LogSoftmax(-1))

    def forward(self, sound: Tensor, ids: Tensor) -> Tensor:
        """Return [n, frames / 4, words, 500] of [n, frames, 80] and int64 [n, words]."""
        x = self.enter(self.shrink(sound[:, None]).transpose(1, 2).flatten(2))
        for layer in self.layers:
            x = layer(x)
        y = self.predict(self.words(ids))[0]
        return self.join(x[:, :, None] + y[:, None])


class _ConformerLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.units = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.SiLU(),
                nn.Linear(4 * width, width),
            )
            for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attend = Attention(width, 4)
        self.convs = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, 15, 1, 7, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.units[0](x)
        x = x + self.attend(self.norms[0](x))
        x = x + self.convs(self.norms[1](x).transpose(1, 2)).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.units[1](x))
