# SPDX-License-Identifier: Apache-2.0
"""The converter of TfIdfVectorizer: how often runs of integers from a list occur in a sequence."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, reshaped, shape_of
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, indexing, movement
from treadle.ops import reduce as reductions


@converter("TfIdfVectorizer", since=(9,))
def count_ngrams(node: OnnxNode) -> Node:
    """Convert counts of n-grams, plain (TF), capped at one (IDF), or weighted (TFIDF)."""
    mode = node.text("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ModelError(f"the mode of TfIdfVectorizer is {mode!r}, not TF, IDF or TFIDF")
    if node.texts("pool_strings"):
        raise ModelError("TfIdfVectorizer of strings is not supported")
    shape = node.shape(0)
    if len(shape) not in (1, 2):
        raise ModelError(f"TfIdfVectorizer takes [n] or [batch, n], not {node.type(0)}")
    rows = reshaped(converted(node.input(0), "int64"), (1, *shape)[-2:])
    counts = _counts(node, rows)
    weights = node.numbers("weights")
    if mode == "IDF":
        counts = elementwise.minimum(counts, Constant.of(1.0, "float32"))
    if mode != "TF" and weights is not None:
        if len(weights) != shape_of(counts)[1]:
            raise ModelError(f"TfIdfVectorizer has {len(weights)} weights, not one per n-gram")
        counts = elementwise.multiply(counts, Constant.of(np.array(weights, "float32")))
    placed = _placed(node, counts)
    return reshaped(placed, shape_of(placed)[1:]) if len(shape) == 1 else placed


def _counts(node: OnnxNode, rows: Node) -> Node:
    """Return float32[batch, n-grams in the pool]; those of lengths not asked for count 0."""
    pool = np.array(node.integers("pool_int64s") or (), "int64")
    starts = [*(node.integers("ngram_counts") or ()), len(pool)]
    shortest, longest = node.integer("min_gram_length"), node.integer("max_gram_length")
    skips = node.integer("max_skip_count")
    if starts != sorted(starts) or starts[0] != 0:
        raise ModelError(f"the ngram_counts {starts[:-1]} do not fit a pool of {len(pool)}")
    found: list[Node] = []
    for length, (first, last) in enumerate(pairwise(starts), 1):
        if (last - first) % length:
            raise ModelError(f"{last - first} integers do not make up {length}-grams")
        grams = pool[first:last].reshape(-1, length)
        steps = range(1, skips + 2) if length > 1 else range(1, 2)
        if len(grams):
            wanted = steps if shortest <= length <= longest else ()
            found.append(_occurrences(rows, grams, wanted))
    if not found:
        raise ModelError("TfIdfVectorizer has an empty pool_int64s")
    return found[0] if len(found) == 1 else movement.concat(*found, axis=1)


def _occurrences(rows: Node, grams: np.ndarray, steps: range | tuple[int, ...]) -> Node:
    """Return how often each gram occurs with its members one of `steps` apart."""
    (batch, size), (count, length) = shape_of(rows), grams.shape
    total: Node = Constant.of(np.zeros((batch, count), "float32"))
    for step in steps:
        windows = size - (length - 1) * step
        if windows <= 0:
            continue
        members = []
        for k in range(length):
            begin, end = (0, k * step), (batch, k * step + windows)
            member = reshaped(movement.slice_(rows, begin=begin, end=end), (batch, windows, 1))
            members.append(elementwise.equal(member, Constant.of(grams[:, k].copy())))
        hits = converted(reduce(elementwise.logical_and, members), "float32")
        total = elementwise.add(total, reductions.sum_(hits, axes=(1,)))
    return total


def _placed(node: OnnxNode, counts: Node) -> Node:
    """Return the counts at their places in the output, zeros between."""
    batch, count = shape_of(counts)
    places = node.integers("ngram_indexes") or ()
    if len(places) != count or len(set(places)) != count or min(places) < 0:
        raise ModelError(f"the ngram_indexes are not {count} different places")
    source = np.full(max(places) + 1, count, "int64")
    source[list(places)] = np.arange(count)
    if bool((source == count).any()):
        counts = movement.concat(counts, Constant.of(np.zeros((batch, 1), "float32")), axis=1)
    return indexing.gather(counts, Constant.of(source), axis=1)
