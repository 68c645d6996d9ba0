# SPDX-License-Identifier: Apache-2.0
"""Small networks that find, divide, enlarge, paint and make images, as torch modules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Curve = Callable[[], nn.Module]


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    dilation: int = 1,
    curve: Curve = nn.ReLU,
) -> nn.Sequential:
    """Return a convolution that keeps the extent over the stride, its normalisation and curve."""
    pad = dilation * (kernel - 1) // 2
    core = nn.Conv2d(inputs, outputs, kernel, stride, pad, dilation, bias=False)
    return nn.Sequential(core, nn.BatchNorm2d(outputs), curve())


class Residual(nn.Module):
    """x plus a body of x."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + body(x)."""
        return x + self.body(x)


class SplitBlocks(nn.Module):
    """YOLOv8's C2f: two halves, of which one goes through residual blocks that all stay."""

    def __init__(self, inputs: int, outputs: int, count: int) -> None:
        super().__init__()
        half = outputs // 2
        self.head = conv(inputs, outputs, 1, curve=nn.SiLU)
        self.blocks = nn.ModuleList(
            Residual(conv(half, half, curve=nn.SiLU), conv(half, half, curve=nn.SiLU))
            for _ in range(count)
        )
        self.tail = conv(half * (2 + count), outputs, 1, curve=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, outputs, h, w]."""
        parts = list(self.head(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.tail(torch.cat(parts, 1))


class PyramidPool(nn.Module):
    """SPPF: the same 5x5 maximum three times over, all kept."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = conv(width, width // 2, 1, curve=nn.SiLU)
        self.tail = conv(2 * width, width, 1, curve=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, width, h, w]."""
        parts = [self.head(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.tail(torch.cat(parts, 1))


class Detector(nn.Module):
    """A YOLOv8-like detector (nano): boxes as distributions over distances, and classes."""

    WIDTHS = (16, 32, 64, 128, 256)

    distances: Tensor

    def __init__(self) -> None:
        super().__init__()
        w = self.WIDTHS
        self.stem = conv(3, w[0], 3, 2, curve=nn.SiLU)
        self.stages = nn.ModuleList(
            nn.Sequential(conv(a, b, 3, 2, curve=nn.SiLU), SplitBlocks(b, b, count))
            for (a, b), count in zip(pairwise(w), (1, 2, 2, 1), strict=True)
        )
        self.pool = PyramidPool(w[4])
        self.up = nn.ModuleList(
            [SplitBlocks(w[4] + w[3], w[3], 1), SplitBlocks(w[3] + w[2], w[2], 1)]
        )
        self.shrink = nn.ModuleList(
            [conv(w[2], w[2], 3, 2, curve=nn.SiLU), conv(w[3], w[3], 3, 2, curve=nn.SiLU)]
        )
        self.down = nn.ModuleList(
            [SplitBlocks(w[2] + w[3], w[3], 1), SplitBlocks(w[3] + w[4], w[4], 1)]
        )
        self.boxes = nn.ModuleList(self._head(width, 64) for width in w[2:])
        self.classes = nn.ModuleList(self._head(width, 80) for width in w[2:])
        self.register_buffer("distances", torch.arange(16.0))

    @staticmethod
    def _head(width: int, outputs: int) -> nn.Sequential:
        first, second = conv(width, 64, curve=nn.SiLU), conv(64, 64, curve=nn.SiLU)
        return nn.Sequential(first, second, nn.Conv2d(64, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, 84, places] of an image [n, 3, h, w]."""
        kept = [self.stem(x)]
        for stage in self.stages:
            kept.append(stage(kept[-1]))
        low, middle, high = kept[-3], kept[-2], self.pool(kept[-1])
        middle = self.up[0](torch.cat([F.interpolate(high, scale_factor=2.0), middle], 1))
        low = self.up[1](torch.cat([F.interpolate(middle, scale_factor=2.0), low], 1))
        middle = self.down[0](torch.cat([self.shrink[0](low), middle], 1))
        high = self.down[1](torch.cat([self.shrink[1](middle), high], 1))
        found = []
        for level, box, group in zip((low, middle, high), self.boxes, self.classes, strict=True):
            found.append(torch.cat([box(level), group(level)], 1).flatten(2))
        joined = torch.cat(found, 2)
        boxes, classes = joined[:, :64], joined[:, 64:]
        spread = boxes.view(x.shape[0], 4, 16, -1).softmax(2)
        reach = (spread * self.distances.view(1, 1, 16, 1)).sum(2)
        return torch.cat([reach, classes.sigmoid()], 1)


class BasicBlock(nn.Module):
    """ResNet's pair of 3x3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.first = conv(inputs, outputs, 3, stride, dilation=dilation)
        self.second = conv(outputs, outputs, dilation=dilation, curve=nn.Identity)
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity() if same else conv(inputs, outputs, 1, stride, curve=nn.Identity)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, outputs, h / stride, w / stride]."""
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


class Segmenter(nn.Module):
    """DeepLab v3 on a ResNet-18 of dilated last stages: atrous pyramid, resized to the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        plan = ((64, 64, 1, 1), (64, 128, 2, 1), (128, 256, 1, 2), (256, 512, 1, 4))
        self.body = nn.Sequential(
            *(nn.Sequential(BasicBlock(a, b, s, d), BasicBlock(b, b, 1, d)) for a, b, s, d in plan)
        )
        self.pyramid = nn.ModuleList(
            [conv(512, 128, 1), *(conv(512, 128, dilation=d) for d in (6, 12, 18))]
        )
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(512, 128, 1), nn.ReLU())
        self.join = nn.Sequential(conv(5 * 128, 128, 1), conv(128, 128), nn.Conv2d(128, 21, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, 21, h, w]."""
        y = self.body(self.stem(x))
        size = y.shape[2:]
        wide = F.interpolate(self.mean(y), size=size, mode="bilinear")
        parts = [*(branch(y) for branch in self.pyramid), wide]
        found = self.join(torch.cat(parts, 1))
        return F.interpolate(found, size=x.shape[2:], mode="bilinear")


class Pyramid(nn.Module):
    """A feature pyramid on ResNet-18 with a RetinaNet-like head shared by all levels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        widths = (64, 64, 128, 256, 512)
        self.stages = nn.ModuleList(
            nn.Sequential(BasicBlock(a, b, 1 if i == 0 else 2), BasicBlock(b, b))
            for i, (a, b) in enumerate(pairwise(widths))
        )
        self.sides = nn.ModuleList(nn.Conv2d(width, 128, 1) for width in widths[2:])
        self.smooth = nn.ModuleList(nn.Conv2d(128, 128, 3, 1, 1) for _ in range(3))
        body = [
            nn.Sequential(nn.Conv2d(128, 128, 3, 1, 1), nn.GroupNorm(16, 128), nn.ReLU())
            for _ in range(2)
        ]
        self.head = nn.Sequential(*body, nn.Conv2d(128, 9 * 24, 3, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return a map of 216 channels for each of three strides."""
        y, kept = self.stem(x), []
        for stage in self.stages:
            y = stage(y)
            kept.append(y)
        levels = [side(y) for side, y in zip(self.sides, kept[1:], strict=True)]
        for i in (1, 0):
            levels[i] = levels[i] + F.interpolate(levels[i + 1], scale_factor=2.0)
        return tuple(self.head(f(y)) for f, y in zip(self.smooth, levels, strict=True))


class UNet(nn.Module):
    """U-Net: pairs of convolutions, halved four times, grown by bilinear resizing."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        w = [width << level for level in range(5)]
        self.down = nn.ModuleList(self._pair(a, b) for a, b in pairwise([3, *w]))
        self.up = nn.ModuleList(self._pair(w[i] + w[i + 1], w[i]) for i in range(4))
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(conv(inputs, outputs), conv(outputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, 2, h, w]."""
        kept = [self.down[0](x)]
        for pair in list(self.down)[1:]:
            kept.append(pair(F.max_pool2d(kept[-1], 2)))
        y = kept[-1]
        for level in (3, 2, 1, 0):
            y = F.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=True)
            y = self.up[level](torch.cat([kept[level], y], 1))
        return self.head(y)


def espcn() -> nn.Module:
    """Return ESPCN of Shi et al. (2016): pixels shuffled to three times the size."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, 1, 2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, 1, 1),
        nn.Tanh(),
        nn.Conv2d(32, 9, 3, 1, 1),
        nn.PixelShuffle(3),
    )


def edsr(width: int = 64, blocks: int = 8) -> nn.Module:
    """Return EDSR of Lim et al. (2017), small, four times the size."""
    block = [
        Residual(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1))
        for _ in range(blocks)
    ]
    grow = [nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2)]
    again = [nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2)]
    body = Residual(*block, nn.Conv2d(width, width, 3, 1, 1))
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1), body, *grow, *again, nn.Conv2d(width, 3, 3, 1, 1)
    )


def style(width: int = 32) -> nn.Module:
    """Return Johnson's style transfer (2016): reflected edges, instance normalisation."""

    def step(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
        core = nn.Conv2d(inputs, outputs, kernel, stride)
        norm = nn.InstanceNorm2d(outputs, affine=True)
        return nn.Sequential(nn.ReflectionPad2d(kernel // 2), core, norm, nn.ReLU())

    w = width
    blocks = [Residual(step(4 * w, 4 * w, 3), step(4 * w, 4 * w, 3)[:3]) for _ in range(5)]
    grow: list[nn.Module] = []
    for inputs in (4 * w, 2 * w):
        grow += [nn.Upsample(scale_factor=2), step(inputs, inputs // 2, 3)]
    last = [nn.ReflectionPad2d(4), nn.Conv2d(w, 3, 9)]
    return nn.Sequential(
        step(3, w, 9), step(w, 2 * w, 3, 2), step(2 * w, 4 * w, 3, 2), *blocks, *grow, *last
    )


class Attention(nn.Module):
    """Attention of x over itself or over a context."""

    def __init__(self, width: int, heads: int, context: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(context or width, width, bias=False)
        self.v = nn.Linear(context or width, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return [n, rows, width]."""
        context = x if context is None else context
        q, k, v = self.q(x), self.k(context), self.v(context)
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        made = F.scaled_dot_product_attention(q, k, v)
        return self.out(made.transpose(1, 2).flatten(2))


class GatedUnits(nn.Module):
    """A linear map whose one half gates the other by GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both, self.out = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [n, rows, width]."""
        a, gate = self.both(x).chunk(2, -1)
        return self.out(a * F.gelu(gate))


class SpatialTransformer(nn.Module):
    """Stable diffusion's: self-attention, attention over a text and gated units at each place."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = Attention(width, 8), Attention(width, 8, context)
        self.units = GatedUnits(width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """Return [n, width, h, w]."""
        y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        y = y + self.own(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), text)
        y = y + self.units(self.norms[2](y))
        return x + self.leave(y.transpose(1, 2).view_as(x))


class TimedBlock(nn.Module):
    """Diffusion's residual block: group norm, SiLU, convolution, and a shift by the time."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, 1, 1)
        )
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, outputs))
        self.second = nn.Sequential(
            nn.GroupNorm(32, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, 1, 1)
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return [n, outputs, h, w]."""
        y = self.first(x) + self.time(time)[:, :, None, None]
        return self.second(y) + self.shortcut(x)


class Diffusion(nn.Module):
    """Two resolutions of a diffusion UNet with attention over a text."""

    def __init__(self, width: int = 128, context: int = 256) -> None:
        super().__init__()
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(4, width, 3, 1, 1)
        self.blocks = nn.ModuleList(
            [
                TimedBlock(width, width, time),
                TimedBlock(width, 2 * width, time),
                TimedBlock(2 * width, 2 * width, time),
                TimedBlock(3 * width, width, time),
            ]
        )
        self.texts = nn.ModuleList(
            SpatialTransformer(w, context) for w in (width, 2 * width, 2 * width, width)
        )
        self.shrink = nn.Conv2d(width, width, 3, 2, 1)
        self.grow = nn.Conv2d(2 * width, 2 * width, 3, 1, 1)
        self.leave = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, 1, 1))

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """Return [n, 4, h, w] of a latent image, the waves of its time and a text."""
        t = self.time(time)
        first = self.texts[0](self.blocks[0](self.enter(x), t), text)
        y = self.shrink(first)
        for block, attend in zip(list(self.blocks)[1:3], list(self.texts)[1:3], strict=True):
            y = attend(block(y, t), text)
        y = self.grow(F.interpolate(y, scale_factor=2.0))
        y = self.texts[3](self.blocks[3](torch.cat([y, first], 1), t), text)
        return self.leave(y)


def vae_decoder(width: int = 32) -> nn.Module:
    """Return the decoder of a variational autoencoder: a latent image to eight times its size."""

    def block(size: int) -> nn.Module:
        step = [nn.GroupNorm(32, size), nn.SiLU(), nn.Conv2d(size, size, 3, 1, 1)]
        return Residual(*step, nn.GroupNorm(32, size), nn.SiLU(), nn.Conv2d(size, size, 3, 1, 1))

    w = width
    layers: list[nn.Module] = [nn.Conv2d(4, 8 * w, 3, 1, 1), block(8 * w)]
    for inputs, outputs in ((8 * w, 4 * w), (4 * w, 2 * w), (2 * w, w)):
        layers += [nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 3, 1, 1), block(outputs)]
    layers += [nn.GroupNorm(32, w), nn.SiLU(), nn.Conv2d(w, 3, 3, 1, 1)]
    return nn.Sequential(*layers)
