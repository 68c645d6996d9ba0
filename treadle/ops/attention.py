# SPDX-License-Identifier: Apache-2.0
"""Attention after its scores: `attend`, a softmax over keys and the sum of values it weights.

The scores lie with the keys outside and the rows (the queries) inside, so that neighbours in a
vector belong to different rows: largest scores and sums of a row need no work across a vector. The
sum over keys is divided once, at the end, by the sum of the weights (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018, without its running rescaling).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike
from treadle.graph.operator import Attrs, Example, Fusion, Group, Operator, register
from treadle.graph.size_rules import SizeRule, aligned, equal
from treadle.graph.types import (
    Dim,
    TensorType,
    Type,
    broadcast_shapes,
    known_true,
    same_dim,
    tensor_type,
)
from treadle.ops.example_numbers import uniform
from treadle.ops.numeric import (
    FLOATS,
    accumulator,
    broadcast_index,
    check_elements,
    check_same_elements,
    dims_of,
    half_examples,
    numpy_reference,
)
from treadle.ops.schedules.attention import attention_cases, schedule_attention
from treadle.ops.schedules.gpu.attention import schedule_device_attention
from treadle.ops.summation import CHAINS
from treadle.target.base import Target
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class AttendAttrs(Attrs):
    """`nan_is_zero`: weights that are no number, as those of a row without keys to see, are 0.

    A row of scores that are all -inf has the sum of values weighted by 0, one with a NaN or +inf
    among its scores is 0. `ahead`: weights of keys that come later than so many after their row are
    0, whatever the values are, and need not be looked at; -1: any key may have a weight.
    """

    nan_is_zero: bool = False
    ahead: int = -1


def _infer_attend(attrs: AttendAttrs, scores: Type, values: Type) -> TensorType:
    x, v = check_elements(scores, FLOATS, "the scores"), check_elements(values, FLOATS)
    check_same_elements(x, v)
    if x.ndim < 2 or v.ndim < 2:
        raise TypeMismatch(f"{x} and {v} are not [..., keys, rows] and [..., keys, columns]")
    keys, other = x.shape[-2], v.shape[-2]
    if not same_dim(keys, other) and isinstance(keys, int) and isinstance(other, int):
        raise TypeMismatch(f"the scores {x} have {keys} keys, the values {v} have {other}")
    batch = broadcast_shapes(x.shape[:-2], v.shape[:-2])
    return x.with_shape((*batch, x.shape[-1], v.shape[-1]))


def _rules_attend(a: AttendAttrs, result: Type, scores: Type, values: Type) -> Iterator[SizeRule]:
    x, v = tensor_type(scores).shape, tensor_type(values).shape
    batch = tensor_type(result).shape[:-2]
    yield from equal([(x[-2], v[-2])])
    for shape in (x[:-2], v[:-2]):
        yield from aligned(shape, batch)


def _over_keys(
    combine: Callable[[Expr, list[te.IterVar]], Expr],
    read: Callable[..., Expr],
    dims: Sequence[Dim],
    name: str,
) -> list[Tensor]:
    """Return the stages that combine read(..., key, row) over the keys; the result is last.

    Keys k, k + 4, k + 8, ... make one chain; the chains and the keys left over are combined at the
    end. Where there are too few keys, or their number is not known, there is one chain.
    """
    *batch, keys, rows = dims
    if not isinstance(keys, int) or keys < 2 * CHAINS:
        k = te.reduce_axis((0, keys), "k")

        def whole(*i: Expr) -> Expr:
            return combine(read(*i[:-1], k, i[-1]), [k])

        return [te.compute_one([*batch, rows], whole, name)]
    count = keys // CHAINS
    r = te.reduce_axis((0, count), "r")

    def chain(*i: Expr) -> Expr:
        return combine(read(*i[:-2], r * CHAINS + i[-2], i[-1]), [r])

    parts = te.compute_one([*batch, CHAINS, rows], chain, f"{name}.part")

    def joined(*i: Expr) -> Expr:
        values = [parts[(*i[:-1], c, i[-1])] for c in range(CHAINS)]
        values += [read(*i[:-1], k, i[-1]) for k in range(count * CHAINS, keys)]
        return _pairwise(combine, values)

    return [parts, te.compute_one([*batch, rows], joined, name, tag=te.KEPT)]


def _pairwise(combine: Callable[[Expr, list[te.IterVar]], Expr], values: Sequence[Expr]) -> Expr:
    made = combine(values[0], [te.reduce_axis((0, 2), "r")])
    assert isinstance(made, te.Reduce)
    left = list(values)
    while len(left) > 1:
        pairs = zip(left[::2], left[1::2], strict=False)
        joined = [made.combiner.combine([a], [b])[0] for a, b in pairs]
        left = joined + left[2 * len(joined) :]
    return left[0]


def _attend(attrs: AttendAttrs, scores: Tensor, values: Tensor) -> list[Tensor]:
    """Return the stages: the softmax's, then the sums of products, then their quotient."""
    wide, dims, guards = accumulator(scores.dtype), dims_of(scores), attrs.nan_is_zero

    def read(*i: ExprLike) -> Expr:
        return nodes.cast(scores[i], wide)

    top = _over_keys(te.max, read, dims, "attend.max")
    if guards:
        top.append(_without(-np.inf, top[-1], lambda x: x, "attend.level"))

    def power(*i: Expr) -> Expr:
        return te.exp_weight(read(*i) - top[-1][(*i[:-2], i[-1])])

    powers = te.compute_one(dims, power, "attend.exp")
    total = _over_keys(te.sum, lambda *i: powers[i], dims, "attend.sum")
    if guards or known_true(nodes.convert(dims[-2]) > 0) is not True:  # perhaps there is no key
        share = _without(0.0, total[-1], lambda x: 1.0 / x, "attend.share")
    else:
        share = te.compute_one(total[-1].shape, lambda *i: 1.0 / total[-1][i], "attend.share")
    k = te.reduce_axis((0, dims[-2]), "k")
    batch = broadcast_shapes(dims[:-2], dims_of(values)[:-2])
    shape = (*batch, dims[-1], values.shape[-1])

    def weighted(*i: Expr) -> Expr:
        *lead, row, column = i
        weight = powers[broadcast_index(powers, (*lead, k, row))]
        return te.sum(weight * _wide(values, (*lead, k, column)), axis=k)

    product = te.compute_one(shape, weighted, "attend.product")

    def quotient(*i: Expr) -> Expr:
        part = share[broadcast_index(share, i[:-1])]
        made = product[i] * part
        if guards:
            made = nodes.select(te.isnan(part), te.const(0, wide), made)
        return nodes.cast(made, scores.dtype)

    result = te.compute_one(shape, quotient, "attend")
    return [*top, powers, *total, share, product, result]


def _without(empty: float, x: Tensor, of: Callable[[Expr], Expr], name: str) -> Tensor:
    """Return a stage of of(x), 0 where x has the value of a row without keys."""

    def element(*i: Expr) -> Expr:
        return nodes.select(x[i] == empty, te.const(0, x.dtype), of(x[i]))

    return te.compute_one(x.shape, element, name)


def _wide(x: Tensor, index: Sequence[ExprLike]) -> Expr:
    return nodes.cast(x[broadcast_index(x, index)], accumulator(x.dtype))


def _numpy_attend(attrs: AttendAttrs, scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - np.max(scores, -2, keepdims=True, initial=-np.inf))
        weights = powers / powers.sum(-2, keepdims=True)
    if attrs.nan_is_zero:
        weights = np.where(np.isnan(weights), 0, weights)
    return np.asarray(np.matmul(weights.swapaxes(-1, -2), values))


def _flops_attend(attrs: AttendAttrs, scores: Type, values: Type) -> Dim:
    out = _infer_attend(attrs, scores, values)
    x = check_elements(scores, FLOATS)
    return 2 * out.elements * x.shape[-2] + 4 * x.elements


_example = partial(Example, low=-5.0, high=5.0, atol=1e-5)


def _scores_without_keys(keys: int, rows: int) -> np.ndarray:
    """Return random scores of which every third row sees no key, and one has a NaN."""
    scores = uniform((keys, rows), -5, 5).astype(np.float32)
    scores[:, ::3] = -np.inf
    scores[1, 1] = np.nan
    scores[: keys // 2, 2] = -np.inf
    return scores


def _scores_of_earlier_keys(heads: int, keys: int, rows: int, ahead: int) -> np.ndarray:
    """Return random scores; -inf for keys later than `ahead` after their row."""
    scores = uniform((heads, keys, rows), -5, 5).astype(np.float32)
    scores[:, np.arange(keys)[:, None] > np.arange(rows) + ahead] = -np.inf
    return scores


def _cases(group: Group, target: Target) -> Sequence[Expr]:
    """Return the conditions on sizes for which a CPU has loops of their own; a GPU has none."""
    return attention_cases(group, target) if target.family == "cpu" else ()


attend: Operator[AttendAttrs] = register(
    Operator(
        name="attend",
        schedule={"cpu": schedule_attention, "gpu": schedule_device_attention},
        cases=_cases,
        infer=_infer_attend,
        reference=numpy_reference(_numpy_attend),
        compute=_attend,
        attrs_type=AttendAttrs,
        rules=_rules_attend,
        fusion=Fusion.ANCHOR,
        flops=_flops_attend,
        flushes_subnormals=True,
        examples=(
            _example(((3, 4), (3, 5))),
            _example(((1, 2), (1, 3))),
            _example(((2, 3, 21, 37), (2, 3, 21, 33))),
            _example(((2, 3, 64, 48), (1, 3, 64, 64))),
            _example(((2, 1, 9, 16), (3, 9, 8))),
            _example(((2, 19, 20), (2, 19, 8)), {}, ("float64",) * 2),
            _example(((0, 4), (0, 5))),
            *(
                _example(
                    ((keys, 20), (keys, 24)),
                    {"nan_is_zero": True},
                    inputs={0: _scores_without_keys(keys, 20)},
                )
                for keys in (3, 18)
            ),
            _example(
                ((2, 40, 36), (2, 40, 16)),
                {"ahead": 4},
                inputs={0: _scores_of_earlier_keys(2, 40, 36, ahead=4)},
            ),
            *half_examples(((2, 30, 20), (2, 30, 16))),
        ),
    )
)
"""attend(scores: [..., keys, rows], values: [..., keys, columns]) -> [..., rows, columns]."""
