# SPDX-License-Identifier: Apache-2.0
"""Builder of sums of products in index notation: matrix products of pairs, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    reshaped,
    shape_of,
    transposed,
)
from treadle.graph.broadcasting import common_dim
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, product_of, tensor_type
from treadle.ops import matmul, movement
from treadle.ops import reduce as reductions

Term: TypeAlias = tuple[Node, tuple[str, ...]]
"""A value and the label of each of its axes."""

_ELLIPSIS = "..."


def einsum(equation: str, values: Sequence[Node]) -> Node:
    """Return a sum of products as NumPy's einsum writes it, "ij,jk->ik".

    Raises: ModelError when the equation does not fit the values.
    """
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise ModelError(f"the equation {equation!r} has {len(terms)} terms, not {len(values)}")
    labelled = [(v, _labels(t, len(dims_of(v)))) for v, t in zip(values, terms, strict=True)]
    result = _output(right, labelled) if arrow else _implicit_output(labelled)
    labelled = _same_sizes([_diagonal(t) for t in labelled], result)
    while len(labelled) > 1:
        a, b, *rest = labelled
        later = {label for _, labels in rest for label in labels}
        labelled = [_product(a, b, later | set(result)), *rest]
    value, labels = _summed(labelled[0], set(result))
    return transposed(value, tuple(labels.index(label) for label in result))


def _labels(term: str, ndim: int) -> tuple[str, ...]:
    """Return a label per axis; the axes of an ellipsis are numbered from the right."""
    before, dots, after = term.partition(_ELLIPSIS)
    named = before + after
    if not all(c.isalpha() for c in named) or (not dots and len(named) != ndim):
        raise ModelError(f"the term {term!r} of the equation does not label {ndim} axes")
    hidden = ndim - len(named)
    if hidden < 0:
        raise ModelError(f"the term {term!r} of the equation has more labels than {ndim} axes")
    return (*before, *(str(k) for k in reversed(range(hidden))), *after)


def _ellipsis_labels(terms: Sequence[Term]) -> list[str]:
    found = {label for _, labels in terms for label in labels if label.isdigit()}
    return sorted(found, key=int, reverse=True)


def _output(text: str, terms: Sequence[Term]) -> list[str]:
    before, dots, after = text.partition(_ELLIPSIS)
    labels = [*before, *(_ellipsis_labels(terms) if dots else ()), *after]
    known = {label for _, own in terms for label in own}
    wrong = [label for label in labels if label not in known]
    if wrong or len(set(labels)) != len(labels):
        raise ModelError(f"the result {text!r} of the equation repeats or does not know a label")
    return labels


def _implicit_output(terms: Sequence[Term]) -> list[str]:
    every = [label for _, labels in terms for label in labels if label.isalpha()]
    return [*_ellipsis_labels(terms), *sorted(c for c in set(every) if every.count(c) == 1)]


def _diagonal(term: Term) -> Term:
    """Return a term in which no label is repeated: a repeated one walks along the diagonal."""
    value, labels = term
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            value, labels = _diagonal_of(value, labels, first, second)
    return value, labels


def _diagonal_of(value: Node, labels: tuple[str, ...], first: int, second: int) -> Term:
    rest = [k for k in range(len(labels)) if k not in (first, second)]
    shape = shape_of(value)
    n = shape[first]
    if n != shape[second]:
        raise ModelError(
            f"the label {labels[first]!r} of the equation has the sizes {n} and {shape[second]}"
        )
    lead = [shape[k] for k in rest]
    flat = reshaped(transposed(value, (*rest, first, second)), (*lead, n * n))
    if n > 1:
        axes = (len(lead),)
        flat = movement.slice_(flat, begin=(0,), end=(n * n,), strides=(n + 1,), axes=axes)
    return flat, (*(labels[k] for k in rest), labels[first])


def _same_sizes(terms: Sequence[Term], result: Sequence[str]) -> list[Term]:
    """Return the terms with every label of one size: axes of 1 are broadcast."""
    sizes: dict[str, Dim] = {}
    for value, labels in terms:
        for label, d in zip(labels, dims_of(value), strict=True):
            whole = common_dim(sizes.setdefault(label, d), d)
            if whole is None:
                raise ModelError(
                    f"the label {label!r} of the equation has the sizes {sizes[label]} and {d}"
                )
            sizes[label] = whole
    return [(broadcast(v, [sizes[c] for c in labels]), labels) for v, labels in terms]


def _summed(term: Term, keep: set[str]) -> Term:
    value, labels = term
    axes = tuple(k for k, label in enumerate(labels) if label not in keep)
    if not axes:
        return term
    total = reductions.sum_(value, axes=axes, keepdims=False)
    return total, tuple(label for label in labels if label in keep)


def _product(a: Term, b: Term, keep: set[str]) -> Term:
    """Return the product of two terms, summed over the shared labels nobody needs any more."""
    a = _summed(a, keep | set(b[1]))
    b = _summed(b, keep | set(a[1]))
    shared = [c for c in a[1] if c in b[1]]
    batch = [c for c in shared if c in keep]
    inner = [c for c in shared if c not in keep]
    rows = [c for c in a[1] if c not in shared]
    columns = [c for c in b[1] if c not in shared]
    left = _arranged(a, batch, rows, inner)
    right = _arranged(b, batch, inner, columns)
    sizes = dict(zip(a[1], dims_of(a[0]), strict=True)) | dict(
        zip(b[1], dims_of(b[0]), strict=True)
    )
    labels = (*batch, *rows, *columns)
    made = converted(matmul.matmul(left, right), tensor_type(a[0].type).dtype)  # of bytes, too
    return reshaped(made, [sizes[c] for c in labels]), labels


def _arranged(term: Term, batch: Sequence[str], *groups: Sequence[str]) -> Node:
    """Return a term with the axes of `batch` first, and then those of each group made one."""
    value, labels = term
    sizes = dict(zip(labels, dims_of(value), strict=True))
    order = [labels.index(c) for c in (*batch, *chain(*groups))]
    shape = [*(sizes[c] for c in batch), *(product_of(sizes[c] for c in g) for g in groups)]
    return reshaped(transposed(value, order), shape)
