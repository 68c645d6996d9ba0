# SPDX-License-Identifier: Apache-2.0
"""What sizes count as that only a run knows: those of the benchmark networks."""

from __future__ import annotations

MATRIX_EXTENT = 128
"""Rows, columns or steps of a product: a sentence of a transformer."""

SORTED_PARTS = 32
"""How many times as many elements a row has as are taken of it in order: boxes of a detector."""

IMAGE_EXTENT = 28
"""Height or width of an image: half way between the first and the last of a network."""

IMAGE_WIDTHS = (7, 10, 14, 20, 28, 40, 56, 80, 112)
"""Widths of the images of networks: a tile for any width does well on all of these."""
