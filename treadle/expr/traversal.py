# SPDX-License-Identifier: Apache-2.0
"""Walking over expressions and rewriting them, without recursion: depth is no limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.expr.nodes import Apply, Call, Expr, Load, Select, Var


def rewrite(
    root: Expr,
    rule: Callable[[Expr], Expr | None],
    memo: dict[Expr, Expr] | None = None,
) -> Expr:
    """Return `root` with `rule` applied to every node, operands first.

    `rule` gets a node whose operands are already rewritten and returns its replacement, or None
    to keep it. Shared nodes are visited once. Works without recursion, so depth is no limit.
    """
    done: dict[Expr, Expr] = {} if memo is None else memo
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        children = node.children
        waiting = [c for c in children if c not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        fresh = node
        for child in children:
            if done[child] is not child:
                fresh = node.with_children(tuple([done[c] for c in children]))
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
        return rewrite(root, mapping.get, memo)
    if leaves(root).isdisjoint(mapping):
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
                if child.leaves_of.isdisjoint(mapping):
                    done[child] = child
                else:
                    stack.append(child)
        if len(stack) == count:
            stack.pop()
            done[node] = node.with_children(tuple([done[c] for c in children]))
    return done[root]


_NOTHING: frozenset[object] = frozenset()


def leaves(root: Expr) -> frozenset[object]:
    """Return the variables of an expression and the sources that it loads from.

    It notes on every node, too, whether there is a lazy `Select` in it, `is_lazy_of`, or a function
    or an instruction, `has_call_of`.
    """
    try:
        return root.leaves_of
    except AttributeError:
        pass
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [c for c in node.children if not hasattr(c, "leaves_of")]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        found, lazy = _NOTHING, isinstance(node, Select) and node.lazy
        called = isinstance(node, (Call, Apply))
        for child in node.children:
            inner = child.leaves_of
            if not inner <= found:
                found = inner if found <= inner else found | inner
            lazy = lazy or child.is_lazy_of
            called = called or child.has_call_of
        if isinstance(node, Var):
            found = frozenset((node,))
        elif isinstance(node, Load):
            found |= {node.source}
        node.leaves_of, node.is_lazy_of, node.has_call_of = found, lazy, called
    return root.leaves_of


def has_lazy_select(root: Expr) -> bool:
    """True where only a part of an expression may be evaluated."""
    leaves(root)
    return root.is_lazy_of


def has_call(root: Expr) -> bool:
    """True where an expression applies a function or an instruction."""
    leaves(root)
    return root.has_call_of


def walk(root: Expr) -> list[Expr]:
    """Return every distinct node below and including `root`, operands before users."""
    seen: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready:
            seen[node] = None
            continue
        stack.append((node, True))
        stack.extend((c, False) for c in reversed(node.children) if c not in seen)
    return list(seen)


def free_vars(root: Expr) -> list[Var]:
    """Return the distinct variables of an expression in order of first evaluation."""
    return [n for n in walk(root) if isinstance(n, Var)]


def uses(root: Expr, leaf: object) -> bool:
    """True where an expression has a variable in it, or loads from a source."""
    return leaf in leaves(root)


def reads_memory(root: Expr) -> bool:
    """True where an expression loads from any source."""
    return not all(isinstance(leaf, Var) for leaf in leaves(root))
