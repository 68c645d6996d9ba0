# SPDX-License-Identifier: Apache-2.0
"""Walking over expressions and rewriting them, without recursion: depth is no limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.expr.nodes import Binary, Expr, Load, Var
from treadle.expr.vocabulary import (
    DIVISIONS,
    HAS_CALL,
    HAS_DIVISION,
    HAS_LAZY,
    HAS_LOAD,
    HAS_VECTOR,
)


def rewrite(
    root: Expr,
    rule: Callable[[Expr], Expr | None],
    memo: dict[Expr, Expr] | None = None,
    traits: int = 0,
) -> Expr:
    """Return `root` with `rule` applied to every node, operands first.

    `rule` gets a node whose operands are already rewritten and returns its replacement, or None
    to keep it. Shared nodes are visited once. Works without recursion, so depth is no limit. Where
    `traits` are given, what has none of them is kept without a look (`Expr.traits`).
    """
    if traits and not root.traits & traits:
        return root
    done: dict[Expr, Expr] = {} if memo is None else memo
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        children = node.children
        waiting = [c for c in children if c not in done and (not traits or c.traits & traits)]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        fresh = node
        for child in children:
            if done.get(child, child) is not child:
                fresh = node.with_children(tuple([done.get(c, c) for c in children]))
                break
        replaced = rule(fresh)
        done[node] = fresh if replaced is None else replaced
    return done[root]


def substitute(
    root: Expr, mapping: Mapping[Expr, Expr], memo: dict[Expr, Expr] | None = None
) -> Expr:
    """Return `root` with every node that is a key of `mapping` replaced by its value.

    `memo` may be shared between calls with the same mapping.
    """
    if not mapping:
        return root
    if not all(isinstance(key, Var) for key in mapping):
        needed = [key.leaves for key in mapping]
        if not any(inside <= root.leaves for inside in needed):
            return root
        return rewrite(root, mapping.get, memo)
    if root.leaves.isdisjoint(mapping):
        return root
    done: dict[Expr, Expr] = {} if memo is None else memo
    done.update(mapping)
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        children, count = node.children, len(stack)
        for child in children:
            if child not in done:
                if child.leaves.isdisjoint(mapping):
                    done[child] = child
                else:
                    stack.append(child)
        if len(stack) == count:
            stack.pop()
            done[node] = node.with_children(tuple([done[c] for c in children]))
    return done[root]


def has_vector(root: Expr) -> bool:
    """True where an expression has a vector in it."""
    return root.traits & HAS_VECTOR != 0


def has_lazy_select(root: Expr) -> bool:
    """True where only a part of an expression may be evaluated."""
    return root.traits & HAS_LAZY != 0


def has_call(root: Expr) -> bool:
    """True where an expression applies a function or an instruction."""
    return root.traits & HAS_CALL != 0


def has_division(root: Expr) -> bool:
    """True where an expression has a quotient or remainder in it."""
    return root.traits & HAS_DIVISION != 0


def divisors(root: Expr) -> list[Expr]:
    """Return what an expression divides by in its quotients and remainders, each once."""
    if not has_division(root):
        return []
    nodes = walk(root, HAS_DIVISION)
    found = (n.b for n in nodes if isinstance(n, Binary) and n.op in DIVISIONS)
    return list(dict.fromkeys(found))


def walk(root: Expr, traits: int = 0) -> list[Expr]:
    """Return every distinct node below and including `root`, operands before users.

    Where `traits` are given, those below it that have one of them (`Expr.traits`).
    """
    seen: dict[Expr, None] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in seen:
            stack.pop()
            continue
        waiting = [c for c in node.children if c not in seen and (not traits or c.traits & traits)]
        if waiting:
            waiting.reverse()
            stack += waiting
        else:
            seen[node] = None
            stack.pop()
    return list(seen)


def loads(root: Expr) -> list[Load]:
    """Return every distinct load in an expression, those in its indices before it."""
    return [n for n in walk(root, HAS_LOAD) if isinstance(n, Load)]


def free_vars(root: Expr) -> list[Var]:
    """Return the distinct variables of an expression in order of first evaluation."""
    return [n for n in walk(root) if isinstance(n, Var)]


def uses(root: Expr, leaf: object) -> bool:
    """True where an expression has a variable in it, or loads from a source."""
    return leaf in root.leaves


def reads_memory(root: Expr) -> bool:
    """True where an expression loads from any source."""
    return root.traits & HAS_LOAD != 0
