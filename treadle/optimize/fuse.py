# SPDX-License-Identifier: Apache-2.0
"""Partition a graph into groups of calls that become one kernel each.

Every group has one result: the value of its last call, its sink. All other calls of the group are
used inside it only, so a group can wait for nothing that waits for it and no cycle can arise. Who
joins follows from the operators' `Fusion` kinds:

1. A tail: the element-wise users of an anchor join it as long as every path from the anchor to
   the outside runs through them (the nearest such user is the immediate post-dominator; Cooper,
   Harvey, Kennedy, "A Simple, Fast Dominance Algorithm", 2001) and they keep its shape. Their
   other operands come from outside, residual sums included. The last anchor of a sum takes it.
2. With `fuse_pad`, one constant padding with zeros may end the tail of an anchor: the kernel then
   writes straight into the padded buffer of the next one.
3. Reductions take a tail likewise.
4. What is left, element-wise calls and moves, joins its users where all of them are in one group
   of such calls, or are the reduction of a group or what is computed before it. A call that would
   be evaluated more often than it has elements stays alone, unless it only moves.
   A group that has no room for more is cut where a single value passes.
5. Reshapes and concatenations stay alone: they cost nothing once memory is planned.
6. An anchor with its tail joins the anchor that alone reads it, as its first operand, where the
   caller's `why_apart` has nothing against it: their kernel keeps what passes between them near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from treadle.graph.nodes import Call, Function, Node, operands, topological
from treadle.graph.operator import POINTWISE, Fusion, Operator
from treadle.graph.types import TensorType, same_dim
from treadle.limits import GROUP_CALLS
from treadle.ops.movement import concat, pad
from treadle.ops.reshaping import reshape
from treadle.optimize.outline import outline
from treadle.passes import decided

WhyApart = Callable[[Sequence[Call]], str]
"""Says why anchors of which each reads the one before are not one kernel; "" where they are."""

OWN_SCHEDULE = "it has a schedule of its own that reads whole values"
"""Why an anchor takes in nothing but what follows it."""

_LIGHT = POINTWISE | {Fusion.INJECTIVE}
_ALONE = frozenset({reshape, concat})


def fuse(
    function: Function,
    *,
    limit: int = GROUP_CALLS,
    fuse_pad: bool = False,
    why_apart: WhyApart = lambda anchors: OWN_SCHEDULE,
) -> Function:
    """Return `function` with every call of an operator inside a function of its own.

    `limit` bounds the calls of a group; with 1 every call is a group.
    """
    partition = _Partition(function, limit, fuse_pad, why_apart)
    partition.grow_tails(Fusion.ANCHOR)
    partition.grow_tails(Fusion.REDUCE)
    partition.join_producers()
    partition.record_ends()
    return outline(function, partition.calls_by_sink())


@dataclass(slots=True, eq=False)
class _Group:
    """Calls to be one kernel. `heavy` is the anchor or reduction, if there is one."""

    sink: Call
    heavy: Call | None = None
    members: list[Call] = field(default_factory=list)
    before: set[Call] = field(default_factory=set)
    """The members that are computed before the reduction."""
    evaluations: dict[Call, int | None] = field(default_factory=dict)
    """How often a light member is evaluated when it is inlined; None where sizes are symbolic."""
    why_apart: str = ""
    """Why the anchor that reads the sink is another kernel."""


class _Partition:
    def __init__(self, function: Function, limit: int, fuse_pad: bool, why_apart: WhyApart) -> None:
        self.order = topological([function.body])
        self.users = _users(self.order)
        self.root = function.body
        self.limit = limit
        self.fuse_pad = fuse_pad
        self.why_apart = why_apart
        self.group_of: dict[Call, _Group] = {}
        self.post_dominator = _immediate_post_dominators(self.order, self.users, self.root)

    def calls_by_sink(self) -> dict[Call, list[Call]]:
        """Return the calls of each group in topological order, by the group's sink."""
        found: dict[Call, list[Call]] = {}
        for node in self.order:
            if isinstance(node, Call) and node in self.group_of:
                found.setdefault(self.group_of[node].sink, []).append(node)
        return found

    def record_ends(self) -> None:
        """Say of every group why it ends where it does."""
        for node in self.order:
            if isinstance(node, Call) and node in self.group_of:
                group = self.group_of[node]
                if group.sink is node:
                    why = partial(self._why_it_ends, node, group)
                    decided(node.origin, "fusion", _name(node), why)

    def _why_it_ends(self, sink: Call, group: _Group) -> str:
        users = self.users[sink]
        if sink is self.root or any(not isinstance(u, Call) for u in users):
            return "its result is an output or one of several results"
        if len(group.members) >= self.limit:
            return f"a kernel has at most {self.limit} operators"
        if _is_alone(group):
            return f"{_name(sink)} is a kernel of its own"
        grouped = [u for u in users if isinstance(u, Call) and u in self.group_of]
        if len(grouped) < len(users):
            return "it decides a size, or a branch or loop reads it"
        others = {id(self.group_of[u]): u for u in grouped}
        if len(others) > 1:
            return f"{len(others)} kernels read its result"
        return self._why_not_with(next(iter(others.values())), group)

    def _why_not_with(self, user: Call, group: _Group) -> str:
        name = f"{_name(user)} ({user.origin})" if user.origin else _name(user)
        kind = _kind(user)
        if user.op in _ALONE:
            return f"{name} moves no data where memory can be shared"
        if kind is Fusion.OPAQUE or kind is Fusion.ANCHOR:
            return f"{name}: {group.why_apart or OWN_SCHEDULE}"
        if kind is Fusion.REDUCE:
            return f"{name} combines elements of it"
        if group.heavy is not None and not _same_shape(user, group.heavy):
            return f"{name} has another shape"
        return f"{name} would compute it more than once, or is in another kernel already"

    def grow_tails(self, kind: Fusion) -> None:
        """Start a group at every call of `kind` and let its element-wise users join (1 to 3)."""
        for node in reversed(self.order):
            if isinstance(node, Call) and _kind(node) is kind:
                self._grow_tail(node)

    def _grow_tail(self, heavy: Call) -> None:
        group = _Group(heavy, heavy, [heavy])
        self.group_of[heavy] = group
        while (more := self._next_of_tail(group)) is not None:
            self._append(group, more)
        if _kind(heavy) is not Fusion.ANCHOR:
            return
        self._join_reader(group)
        if self.fuse_pad:
            last = self.users[group.sink]
            if len(last) == 1 and self._is_free(last[0]) and _is_zero_padding(last[0]):
                self._append(group, [last[0]])

    def _join_reader(self, group: _Group) -> None:
        """Let a group join that of the anchor that alone reads its sink (6)."""
        readers = self.users[group.sink]
        reader = readers[0] if group.sink is not self.root and len(readers) == 1 else None
        if not isinstance(reader, Call) or not reader.args:
            return
        other = self.group_of.get(reader)
        anchors = [] if other is None else _anchors(other)
        if other is None or not anchors or anchors[0] is not reader:
            return
        values, *others = reader.args
        is_first = values is group.sink and all(a is not group.sink for a in others)
        if not is_first or len(group.members) + len(other.members) > self.limit:
            return
        group.why_apart = self.why_apart([*_anchors(group), *anchors])
        if not group.why_apart:
            other.members = group.members + other.members
            self.group_of.update(dict.fromkeys(group.members, other))

    def _append(self, group: _Group, calls: Sequence[Node]) -> None:
        for call in calls:
            if isinstance(call, Call) and len(group.members) < self.limit:
                self.group_of[call] = group
                group.members.append(call)
                group.sink = call

    def _next_of_tail(self, group: _Group) -> list[Node] | None:
        """Return the calls from the sink to its post-dominator, the latter last; None: no more."""
        end = self.post_dominator.get(group.sink)
        if end is None:
            return None
        between: dict[Node, None] = {}
        stack = [u for u in self.users[group.sink] if u is not end]
        room = self.limit - len(group.members)
        while stack:
            node = stack.pop()
            if node in between:
                continue
            if len(between) + 1 >= room or not self._fits_tail(node, group):
                return None
            between[node] = None
            stack.extend(u for u in self.users[node] if u is not end)
        if len(between) + 1 > room or not self._fits_tail(end, group):
            return None
        return [*between, end]

    def _fits_tail(self, node: Node, group: _Group) -> bool:
        return (
            self._is_free(node)
            and _kind(node) in POINTWISE
            and group.heavy is not None
            and _same_shape(node, group.heavy)
        )

    def _is_free(self, node: Node) -> bool:
        return isinstance(node, Call) and node not in self.group_of

    def join_producers(self) -> None:
        """Let every call that is left join its users, users first, or start a group (4 and 5)."""
        for node in reversed(self.order):
            if not isinstance(node, Call) or isinstance(node.op, Function):
                continue
            if not node.op.is_kernel:
                continue
            if node in self.group_of:
                self._note_evaluations(node)
                continue
            group = self._common_group(node)
            if group is not None and len(group.members) >= self.limit:
                self._halve(group)
                group = self._common_group(node)
            if group is None or not self._may_join(node, group):
                group = _Group(node)
            self._join(node, group)

    def _halve(self, group: _Group) -> None:
        """Make two groups of a full one, where less than it now reads passes between them.

        Where a chain of steps is cut inside a step, all that later parts of it read would be
        written to memory; between two steps it is one value.
        """
        members = group.members
        reads = [self._read(members[: k + 1]) for k in range(len(members))]
        places = range(len(members) - 1, self.limit // 2, -1)
        last = min(places, key=lambda k: len(reads[k]), default=len(members))
        rest = members[last + 1 :]
        passing = [m for m in rest if m in reads[last]]
        if group.heavy is not None or len(passing) != 1 or len(reads[last]) == len(reads[-1]):
            return
        group.members = members[: last + 1]
        half = _Group(passing[0], members=rest)
        for member in rest:
            self.group_of[member] = half
            del group.evaluations[member]
        for member in rest:
            self._note_evaluations(member)

    def _read(self, members: Sequence[Call]) -> set[Call]:
        """Return the results of other calls that calls read."""
        read = {o for m in members for o in operands(m) if isinstance(o, Call)}
        return read - set(members)

    def _join(self, node: Call, group: _Group) -> None:
        group.members.append(node)
        self.group_of[node] = group
        if group.heavy is not None:
            group.before.add(node)
        self._note_evaluations(node)

    def _note_evaluations(self, node: Call) -> None:
        group = self.group_of[node]
        group.evaluations[node] = (
            _size(node) if node is group.sink else self._evaluations(node, group)
        )

    def _common_group(self, node: Call) -> _Group | None:
        """Return the group all users of a node are in, None if they differ or the user sees it."""
        found: _Group | None = None
        if node is self.root:
            return None
        for user in self.users[node]:
            group = self.group_of.get(user) if isinstance(user, Call) else None
            if group is None or (found is not None and group is not found):
                return None
            found = group
        return found

    def _may_join(self, node: Call, group: _Group) -> bool:
        kind = _kind(node)
        if kind not in _LIGHT or len(group.members) >= self.limit or _is_alone(group):
            return False
        if group.heavy is not None and not self._is_before_reduction(node, group):
            return False
        if kind is Fusion.INJECTIVE:
            return True
        count, size = self._evaluations(node, group), _size(node)
        if count is None or size is None:
            return all(
                _kind(u) is not Fusion.BROADCAST or _same_shape(u, node) for u in self.users[node]
            )
        return count <= size

    def _is_before_reduction(self, node: Call, group: _Group) -> bool:
        heavy = group.heavy
        return (
            heavy is not None
            and _kind(heavy) is Fusion.REDUCE
            and all(u is heavy or u in group.before for u in self.users[node])
        )

    def _evaluations(self, node: Call, group: _Group) -> int | None:
        """Return how often `node` is computed when inlined into its users, at most."""
        most = 0
        for user in self.users[node]:
            if not isinstance(user, Call):
                continue
            count = _size(node) if user is group.heavy else group.evaluations.get(user)
            if count is None:
                return None
            most = max(most, count)
        return most


def _name(call: Call) -> str:
    return call.op.name or "a function"


def _kind(node: Node) -> Fusion:
    """Return how a node may join a group; what has no plain tensor as its result never does."""
    if not isinstance(node, Call) or not isinstance(node.op, Operator) or node.op in _ALONE:
        return Fusion.OPAQUE
    return node.op.fusion if isinstance(node.type, TensorType) else Fusion.OPAQUE


def _anchors(group: _Group) -> list[Call]:
    """Return the anchors of a group, each of which reads the one before."""
    return [m for m in group.members if _kind(m) is Fusion.ANCHOR]


def _is_alone(group: _Group) -> bool:
    return _kind(group.sink) is Fusion.OPAQUE


def _is_zero_padding(node: Node) -> bool:
    if not isinstance(node, Call) or node.op is not pad:
        return False
    attrs = node.attrs
    return (
        getattr(attrs, "mode", "") == "constant"
        and getattr(attrs, "value", None) == 0
        and all(k >= 0 for k in (*getattr(attrs, "before", ()), *getattr(attrs, "after", ())))
    )


def _same_shape(a: Node, b: Node) -> bool:
    if not isinstance(a.type, TensorType) or not isinstance(b.type, TensorType):
        return False
    return a.type.ndim == b.type.ndim and all(
        same_dim(x, y) for x, y in zip(a.type.shape, b.type.shape, strict=True)
    )


def _size(node: Call) -> int | None:
    type_ = node.type
    return type_.size if isinstance(type_, TensorType) and type_.is_static else None


def _users(order: Sequence[Node]) -> dict[Node, list[Node]]:
    """Return the distinct users of every node in topological order."""
    found: dict[Node, dict[Node, None]] = {n: {} for n in order}
    for node in order:
        for operand in operands(node):
            found[operand][node] = None
    return {n: list(u) for n, u in found.items()}


def _immediate_post_dominators(
    order: Sequence[Node], users: dict[Node, list[Node]], root: Node
) -> dict[Node, Node | None]:
    """Return for every node the nearest one that all its paths to `root` meet; None for `root`."""
    parent: dict[Node, Node | None] = {}
    depth: dict[Node, int] = {}
    for node in reversed(order):
        nearest = None if node is root else _meet(users[node], parent, depth)
        parent[node] = nearest
        depth[node] = 0 if nearest is None else depth[nearest] + 1
    return parent


def _meet(
    nodes: Sequence[Node], parent: dict[Node, Node | None], depth: dict[Node, int]
) -> Node | None:
    """Return the deepest common ancestor of `nodes` in the post-dominator tree."""
    found: Node | None = nodes[0]
    for other in nodes[1:]:
        a: Node | None = found
        b: Node | None = other
        while a is not b and a is not None and b is not None:
            if depth[a] >= depth[b]:
                a = parent[a]
            else:
                b = parent[b]
        found = a if a is b else None
    return found
