# SPDX-License-Identifier: Apache-2.0
"""The passes over the graph, in order, per optimisation level."""

from __future__ import annotations

from collections.abc import Callable

from treadle.errors import InternalError
from treadle.graph.nodes import Call, Function, Node, rewrite
from treadle.graph.operator import bodies_of, with_bodies
from treadle.graph.parse import parse
from treadle.graph.text import function_text, functions_of, listed_constants
from treadle.optimize.attention import fuse_attention
from treadle.optimize.canonicalize import canonicalize, expand_tuples
from treadle.optimize.fold import fold_empty
from treadle.optimize.fuse import fuse
from treadle.optimize.halves import compute_halves_wide
from treadle.optimize.layout import choose_layouts
from treadle.optimize.methods.method import NO_CHOICES, Choices
from treadle.optimize.product_chains import why_apart
from treadle.optimize.quantised import multiply_quantised
from treadle.optimize.reductions import split_reductions
from treadle.optimize.resizes import convolve_before_resizing
from treadle.optimize.subnormals import keep_sums_normal
from treadle.optimize.tokens import convolve_tokens
from treadle.optimize.verify import verify
from treadle.passes import Pipeline, pipeline
from treadle.target.base import Target


def graph_pipeline(
    target: Target, opt_level: int = 3, choices: Choices = NO_CHOICES
) -> Pipeline[Function]:
    """Return THE list of passes.

    Level 0 runs every operator as its own kernel, for debugging; 1 canonicalises and fuses.
    """
    if opt_level <= 0:
        passes = [
            ("fold_empty", fold_empty),
            # A kernel has one result here too, so operators with several are taken apart.
            ("expand_tuples", expand_tuples),
            ("outline", lambda f: _keep_subnormals(fuse(f, limit=1))),
        ]
    else:
        passes = [
            # No pass or schedule meets a call without work, but where its sizes are open.
            ("fold_empty", fold_empty),
            # Before weights are folded into floats.
            ("multiply_quantised", lambda f: multiply_quantised(f, target)),
            # Early, so that all later passes see one form of everything.
            ("canonicalize", canonicalize),
            # Before all that looks at the types of products.
            ("compute_halves_wide", _compute_halves_wide),
            # After normalisations went into the weights, which are split here.
            ("convolve_before_resizing", convolve_before_resizing),
            # After all that scales weights, before they are packed and transformed.
            ("keep_sums_normal", keep_sums_normal),
            ("split_reductions", lambda f: split_reductions(f, target)),
            # After all that moves transposes.
            ("convolve_tokens", lambda f: convolve_tokens(f, target)),
            # Before fusion: the packing of weights and the padding it makes take part in it.
            ("choose_layouts", lambda f: choose_layouts(f, target, choices)),
            # What the layouts left next to each other: transforms that cancel, dead constants.
            ("canonicalize", canonicalize),
            # Before fusion, which takes products and softmaxes for kernels of their own.
            ("fuse_attention", lambda f: fuse_attention(f, target)),
            # Last: it hides operators inside functions. A producer writes into a padded buffer.
            ("fuse", lambda f: fuse(f, fuse_pad=True, why_apart=lambda a: why_apart(a, target))),
        ]
    return pipeline("optimize", passes, verify=verify, text=function_text, parse=_parse)


def _compute_halves_wide(function: Function) -> Function:
    """Return the function with products of 16-bit floats in float32, in the one form again.

    Normalisations fold into float32 weights, which the rounding to 16 bits would spoil.
    """
    made = compute_halves_wide(function)
    return function if made is function else canonicalize(made)


def _keep_subnormals(function: Function) -> Function:
    """Let the kernels of a function compute with subnormal numbers as they are."""
    for kernel in functions_of(function):
        if kernel is not function:
            kernel.attrs["keeps_subnormals"] = True
    return function


def _parse(text: str, function: Function) -> Function:
    return parse(text, constants=listed_constants(function))


def _with_bodies(function: Function, change: Callable[[Function], Function]) -> Function:
    """Return `function` with the bodies of its branches and loops changed, types kept."""
    done: dict[Function, Function] = {}

    def rule(node: Node) -> Node | None:
        bodies = bodies_of(node) if isinstance(node, Call) else ()
        if not isinstance(node, Call) or not bodies:
            return None
        for body in bodies:
            if body not in done:
                done[body] = change(body)
        return Call(node.op, node.args, with_bodies(node.attrs, done), node.type, node.origin)

    return rewrite(function, rule)


def optimize(
    function: Function, target: Target, opt_level: int = 3, choices: Choices = NO_CHOICES
) -> Function:
    """Return `function` as calls of fused functions, each of which becomes a kernel.

    `choices` name methods of calls, by their `call_text`; the others are chosen by estimates.

    Raises:
        ChoiceError: a method named in `choices` does not apply.
        ModelError: constants of the model cannot be evaluated.
        InternalError: a pass breaks the graph or changes the type of the result.
    """
    whole = _with_bodies(function, lambda body: optimize(body, target, opt_level, choices))
    result = graph_pipeline(target, opt_level, choices).run(whole, label=function.name or "main")
    if result.type != function.type:
        raise InternalError(f"the passes turn a {function.type} into a {result.type}")
    return result
