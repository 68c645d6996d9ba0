# SPDX-License-Identifier: Apache-2.0
"""THE lists of passes over loop nests, in order, and why the order is this one.

`LOOPS` runs for every target. Of the others each back end names one: `LOWER` ends in vectors and
blocks of straight code, for back ends that write instructions; `SOURCE` keeps the loops, for those
that print a language which has a compiler of its own. Both keep loops over threads, shared memory
and barriers; `DEVICE` is `SOURCE` for languages of GPUs, which have words for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from treadle.expr.references import Instruction
from treadle.limits import VECTOR_LANES
from treadle.loop.nodes import PrimFunc, func_text, verify
from treadle.lower.bind_loops import bind_loops
from treadle.lower.expand_intrinsics import expand_intrinsics
from treadle.lower.expand_math import expand_math
from treadle.lower.fetch_ahead import fetch_ahead
from treadle.lower.flatten_buffers import flatten_buffers
from treadle.lower.hoist_conditions import hoist_conditions
from treadle.lower.insert_barriers import insert_barriers
from treadle.lower.limit_stack import limit_stack
from treadle.lower.mask_tails import mask_tails
from treadle.lower.move_vectors import move_vectors
from treadle.lower.partition_loops import partition_loops
from treadle.lower.plan_workspace import plan_workspace
from treadle.lower.read_fragments import read_fragments
from treadle.lower.reverse_odd_rows import reverse_odd_rows
from treadle.lower.share_results import share_results
from treadle.lower.simplify_loops import simplify_loops
from treadle.lower.specialize_guards import specialize_guards
from treadle.lower.spread_columns import spread_columns
from treadle.lower.transpose_tiles import transpose_tiles
from treadle.lower.unroll_loops import unroll_loops
from treadle.lower.vectorize_loops import vectorize_loops
from treadle.passes import Pass, Pipeline, pipeline

LOOPS = pipeline(
    "loops",
    (
        # Constants and loops of one iteration first: partitioning then sees bare conditions.
        ("simplify_loops", simplify_loops),
        # Before loops are cut: what does not change in a loop is no reason to cut it.
        ("hoist_conditions", hoist_conditions),
        # While indices still have their dimensions, so that the text stays readable.
        ("partition_loops", partition_loops),
        # After it, so that the remainders of splits have bodies of their own already.
        ("specialize_guards", specialize_guards),
        # When bodies are final: every statement that reads or writes a buffer is there.
        ("share_results", share_results),
        # When no more code is copied or moved: each access has its place.
        ("insert_barriers", insert_barriers),
    ),
    verify=verify,
    text=func_text,
)
"""What a person reads: multi-dimensional buffers, loops with their kinds."""

LOWER = pipeline(
    "lower",
    (
        # While indices have dimensions: rows of local buffers grow to whole vectors.
        ("mask_tails", mask_tails),
        # One index per access, so that a vector of lanes is a ramp of one expression.
        ("flatten_buffers", flatten_buffers),
        # While loops still say which are the rows and which the lanes of a tile.
        ("transpose_tiles", transpose_tiles),
        # Before unrolling: vector statements are copied, not rebuilt, by it.
        ("vectorize_loops", vectorize_loops),
        # Simplifies too: unrolled variables are constants, offsets fold, conditions are decided.
        ("unroll_loops", unroll_loops),
        ("plan_workspace", plan_workspace),
        # Before expand_math, whose functions may stand in the meaning of an intrinsic.
        ("expand_intrinsics", expand_intrinsics),
        # Last: what follows is arithmetic that the target has.
        ("expand_math", expand_math),
    ),
    verify=verify,
    text=func_text,
)
"""What is written as instructions: flat buffers, serial and parallel loops, vector expressions."""


def lowering(
    least_masked: int = 0,
    chunk: int = VECTOR_LANES,
    lookups: Sequence[Instruction] = (),
    is_kept: Callable[[Instruction], bool] = lambda _: False,
) -> Pipeline[PrimFunc]:
    """Return `LOWER` for a target.

    Its vector loads and stores leave out elements of `least_masked` bytes and more by a mask (0:
    none). Long vectorized loops are cut into vectors of `chunk` lanes. `lookups` are its
    instructions that pick a word by an index; `is_kept` tells whether its back end writes an
    intrinsic.
    """
    bound: dict[str, Callable[[PrimFunc], PrimFunc]] = {
        "expand_intrinsics": partial(expand_intrinsics, is_kept=is_kept),
        "expand_math": partial(expand_math, lookups=lookups),
        "mask_tails": partial(mask_tails, least_masked=least_masked),
        "vectorize_loops": partial(vectorize_loops, least_masked=least_masked, chunk=chunk),
    }
    return _bound(LOWER, bound)


def _bound(
    whole: Pipeline[PrimFunc], bound: Mapping[str, Callable[[PrimFunc], PrimFunc]]
) -> Pipeline[PrimFunc]:
    """Return a list of passes with some of them made for a target."""
    passes = (Pass(p.name, bound.get(p.name, p.run)) for p in whole.passes)
    return replace(whole, passes=tuple(passes))


SOURCE = pipeline(
    "lower",
    (
        ("flatten_buffers", flatten_buffers),
        ("simplify_loops", simplify_loops),
        # When no more loops are dropped, and before what it moves gets its place.
        ("limit_stack", limit_stack),
        ("plan_workspace", plan_workspace),
        ("expand_intrinsics", expand_intrinsics),
        ("expand_math", expand_math),
    ),
    verify=verify,
    text=func_text,
)
"""What source text is printed from: loops that its compiler vectorises and unrolls."""


def source_lowering(
    is_kept: Callable[[Instruction], bool], stack_bytes: int | None = None
) -> Pipeline[PrimFunc]:
    """Return `SOURCE` for a target; `is_kept` tells which intrinsics are written as text.

    `stack_bytes` are what buffers may take of the stack where there are no threads, else None.
    """
    bound: dict[str, Callable[[PrimFunc], PrimFunc]] = {
        "expand_intrinsics": partial(expand_intrinsics, is_kept=is_kept),
        "limit_stack": partial(limit_stack, most=stack_bytes),
    }
    return _bound(SOURCE, bound)


DEVICE = pipeline(
    "lower",
    (
        # While nests are as they were written: what no schedule made gets its threads.
        ("bind_loops", bind_loops),
        # While the last index is the column.
        ("spread_columns", spread_columns),
        ("flatten_buffers", flatten_buffers),
        ("simplify_loops", simplify_loops),
        # When an access is one index, and before functions hide what is read.
        ("move_vectors", move_vectors),
        # After it: vectors wait in registers whole.
        ("fetch_ahead", fetch_ahead),
        # When steps have two places.
        ("read_fragments", read_fragments),
        # What was made to be read as vectors.
        ("move_vectors", move_vectors),
        # Last of them: a factor is the same for all rows, or for all columns, until then.
        ("reverse_odd_rows", reverse_odd_rows),
        # Slots and first iterations are numbers then.
        ("simplify_loops", simplify_loops),
        ("plan_workspace", plan_workspace),
        ("expand_intrinsics", expand_intrinsics),
        ("expand_math", expand_math),
    ),
    verify=verify,
    text=func_text,
)
"""What source text for a GPU is printed from: launches one after the other."""


def device_lowering(is_kept: Callable[[Instruction], bool]) -> Pipeline[PrimFunc]:
    """Return `DEVICE` for a target; `is_kept` tells which intrinsics are written as text."""
    return _bound(DEVICE, {"expand_intrinsics": partial(expand_intrinsics, is_kept=is_kept)})
