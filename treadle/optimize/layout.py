# SPDX-License-Identifier: Apache-2.0
"""Choose how convolutions and products are computed, and with that the layouts of values.

For every such call all methods of its operator are asked, and the cheapest or the recorded one
makes it (`methods/method.py`). Where that is on blocks of channels the layout is carried through
every operator that can work on it (`blocked_rules.py`), so that no transform stands between two
convolutions. Weights are packed here, once. Padding becomes a `pad` of its own, which fusion lets
the producer write. Where it cannot, depthwise convolutions and Winograd's filtering read zeros
around the image themselves; of small images depthwise convolutions always do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import TensorType, known_sizes, tensor_type
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.lowered.channel_blocks import PackAttrs, unpack_nchwc
from treadle.ops.lowered.interleave_phases import interleave_phases
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.blocked import IMAGES, Blocked, Flat, Values, block_of, channels_of
from treadle.optimize.blocked_rules import blocked_call, can_carry_blocks, pointwise
from treadle.optimize.channel_order import ChannelOrder, packed_constant
from treadle.optimize.flat_rules import flat_call
from treadle.optimize.fold import is_empty
from treadle.optimize.layout_rules import moved_channels
from treadle.optimize.methods.builtin import BUILT_IN
from treadle.optimize.methods.convolution import FLOATS, ConvSite
from treadle.optimize.methods.growth import grant, weight_bytes
from treadle.optimize.methods.layout_moves import following
from treadle.optimize.methods.method import (
    NO_CHOICES,
    Choices,
    Chosen,
    Method,
    MethodCall,
    Site,
    choose,
)
from treadle.optimize.methods.phases import Phased
from treadle.optimize.methods.product import ProductSite
from treadle.optimize.methods.shared import Shared
from treadle.optimize.methods.transposed import TransposedSite
from treadle.optimize.tied_tables import look_up_in_panels, looked_up
from treadle.passes import decided
from treadle.settings import get
from treadle.target.base import Target

_SITES: Mapping[object, Callable[[Call, Values, Shared], Site]] = {
    conv: ConvSite,
    conv_transpose: TransposedSite,
    matmul: ProductSite,
}
"""By operator: a call as its methods see it."""
assert all(method.operator in _SITES for method in BUILT_IN)


def choose_layouts(function: Function, target: Target, choices: Choices = NO_CHOICES) -> Function:
    """Return `function` with convolutions and products as the methods chosen for them.

    Parameters and results keep their layout: what leaves the function is converted back.

    Raises:
        ChoiceError: `choices` name a method that does not apply to a call.
    """
    return _Layouts(target, choices).run(function)


class _Layouts:
    """One walk over a function, from operands to results."""

    def __init__(self, target: Target, choices: Choices) -> None:
        self.values = Values(target)
        self.shared = Shared()
        self.choices = choices
        self.phased: dict[Node, Phased] = {}
        self.calls: list[tuple[MethodCall, Method[Any]]] = []

    def run(self, function: Function) -> Function:
        self.shared.users = users = g.users([function.body])
        nodes = list(users)
        self.shared.readers.update(n.args[0] for n in nodes if _has_known_weights(n))
        self.shared.following = following(
            users, function.body, self._wants_blocks, can_carry_blocks
        )
        self.shared.looked_up = looked_up(nodes)
        self._grant(nodes)
        for node in nodes:
            self._node(node)
        body = self.values.as_plain(function.body)
        made = Function(function.params, body, function.name, dict(function.attrs))
        made = look_up_in_panels(made, self.shared.panels)
        self._tell_calls()
        self.values.clear()
        self.phased.clear()
        self.shared.clear()
        return made

    def _grant(self, nodes: Sequence[Node]) -> None:
        """Deal out by how much weights may grow, as calls are before any layout is chosen."""
        values = Values(self.values.target)
        sites = [_SITES[n.op](n, values, self.shared) for n in nodes if _has_known_weights(n)]
        made = grant(sites, self.choices, weight_bytes(nodes), get().weight_growth)
        self.shared.granted, self.shared.spare_bytes = made.by_call, made.spare_bytes

    def _wants_blocks(self, reader: Call, operand: Node) -> int:
        """Return the channels of the blocks in which a convolution, or a pack, reads its operand.

        So does a transpose that brings the channels to the end: it moves whole blocks then. 0 of
        other readers, and where there are channels for less than a block.
        """
        if isinstance(reader.attrs, PackAttrs):
            return reader.attrs.block
        type_ = tensor_type(operand.type)
        if type_.ndim not in IMAGES or type_.dtype not in FLOATS:
            return 0
        block, channels = block_of(self.values.target, type_.dtype), type_.shape[1]
        if not isinstance(channels, int) or channels < block:
            return 0
        if self._is_moved_to_end(reader, operand):
            return block if channels % block == 0 else 0
        if reader.op not in (conv, conv_transpose):
            return 0
        is_data = operand is reader.args[0] and isinstance(reader.args[1], Constant)
        return block if is_data else 0

    def _is_moved_to_end(self, reader: Call, image: Node) -> bool:
        """True where all that a call of an image does is to bring its channels to the end."""
        moves = self.shared.users.get(reader, ()) if reader.op is reshape else (reader,)
        return bool(moves) and all(
            isinstance(m, Call)
            and m.op is transpose
            and moved_channels(m, image, to_front=False) is not None
            for m in moves
        )

    def _node(self, node: Node) -> None:
        if _has_methods(node):
            self._by_method(node)
            return
        if isinstance(node, Call) and node.op is unpack_nchwc:
            self._unpacked(node)
            return
        if isinstance(node, Call) and isinstance(node.type, TensorType):
            flat = flat_call(self.values, node)
            if flat is not None:
                self.values.flat[node] = flat
                return
            made = self._in_blocks(node)
            if made is not None:
                self.values.blocked[node] = made
            if made is not None or node in self.values.plain:
                return
        operands = [self.values.as_plain(o) for o in g.operands(node)]
        self.values.plain[node] = g.with_operands(node, operands)

    def _unpacked(self, node: Call) -> None:
        """Store a value that comes in blocks: an operand of a call that is compiled alone."""
        source = self.values.as_plain(node.args[0])
        block = known_sizes(tensor_type(source.type).shape[-1:])[0]
        order = ChannelOrder.natural(channels_of(tensor_type(node.type)), block)
        self.values.blocked[node] = Blocked(source, order)

    def _by_method(self, node: Call) -> None:
        """Store the result of a call that methods compute."""
        site = _SITES[node.op](node, self.values, self.shared)
        chosen = choose(site, self.choices)
        method = chosen.method
        self._keep_call(site, chosen)
        _tell_layout(site, method)
        made = method.build(site)
        if isinstance(made, Phased):
            self._by_method(made.made)
            self.phased[node] = made
            self._interleave(node)
        elif isinstance(made, Blocked):
            self.values.blocked[node] = made
        elif isinstance(made, Flat):
            self.values.flat[node] = made.node
        else:
            self.values.plain[node] = made

    def _keep_call(self, site: Site, chosen: Chosen[Site]) -> None:
        """Keep what is told of a call at the end: as its operand is before anything is built."""
        if self.choices.on_call is None:
            return
        x, values = site.node.args[0], self.values
        reads = _block(values.blocked[x].order) if values.is_blocked(x) else 0
        offers = chosen.offers(site)
        name, source = chosen.method.name, chosen.source
        call = MethodCall(site.node, chosen.call, name, source, offers, reads)
        self.calls.append((call, chosen.method))

    def _tell_calls(self) -> None:
        """Tell of the calls that methods computed, and in which layout each result was read."""
        on_call, values = self.choices.on_call, self.values
        if on_call is None:
            return
        for call, method in self.calls:
            made = values.blocked.get(call.node)
            # The result of a method out of blocks is plain, and packed by what reads it in blocks.
            has_plain = call.node in values.plain and method.layout == "NCHWc"
            gives = 0 if made is None or has_plain else _block(made.order)
            on_call(replace(call, gives=gives))

    def _in_blocks(self, node: Call) -> Blocked | None:
        """Return the result of another call in blocks, where an operand is and it can be."""
        if isinstance(node.op, Function):
            return None
        if any(a in self.phased for a in node.args) and self._by_phase(node, node.op):
            self._interleave(node)
            return None
        if not any(self.values.is_blocked(a) for a in node.args):
            return None
        return blocked_call(self.values, node)

    # -- phases of transposed convolutions -------------------------------------------------------

    def _by_phase(self, node: Call, operator: Operator[Any]) -> bool:
        """Compute an element-wise operator before its operand is interleaved, where that can be."""
        source = next(self.phased[a] for a in node.args if a in self.phased)
        out = tensor_type(node.type)
        if operator.fusion not in POINTWISE or source.made not in self.values.blocked:
            return False
        operands: list[Node] = []
        for x in node.args:
            if x in self.phased:
                if self.phased[x].phases != source.phases or tensor_type(x.type).shape != out.shape:
                    return False
                operands.append(self.phased[x].made)
            elif isinstance(x, Constant) and _is_per_channel(x, out):
                repeated = packed_constant(source.phases.repeated(x.value, out.ndim), x)
                self.values.plain[repeated] = repeated
                operands.append(repeated)
            else:
                return False
        made = operator.call(node.attrs, operands, origin=node.origin)
        blocked = pointwise(self.values, made)
        if blocked is None:
            return False
        self.values.blocked[made] = blocked
        self.phased[node] = Phased(made, source.phases)
        return True

    def _interleave(self, node: Node) -> None:
        """Put the phases of a value in order: in whole blocks, else in plain layout at once."""
        found, channels = self.phased[node], tensor_type(node.type).static_shape[1]
        how = found.phases.interleave
        phases = self.values.blocked.get(found.made)
        if phases is not None and phases.order.is_natural and channels % phases.order.block == 0:
            made = interleave_phases.call(how, (phases.node,), origin=node.origin)
            order = ChannelOrder.natural(channels, phases.order.block)
            self.values.blocked[node] = Blocked(made, order)
            return
        apart = self.values.as_plain(found.made)
        self.values.plain[node] = interleave_phases.call(how, (apart,), origin=node.origin)


def _block(order: ChannelOrder) -> int:
    """Return the block of channels in their own order without padding lanes; 0 of others."""
    return order.block if order.is_natural and not order.has_padding_lanes else 0


def _has_methods(node: Node) -> TypeGuard[Call]:
    """True for a call that methods compute: what has no elements stays as it is, without one."""
    return isinstance(node, Call) and node.op in _SITES and not any(map(is_empty, node.args))


def _tell_layout(site: Site, method: Method[Any]) -> None:
    """Record which layout a method brings."""
    if method.layout != "NCHWc":
        decided(site.origin, "layout", method.layout, f"as the method {method.name!r} has it")
        return
    block = block_of(site.target, tensor_type(site.node.type).dtype)
    decided(site.origin, "layout", f"NCHW{block}c", "a vector register holds a block")


def _has_known_weights(node: Node) -> TypeGuard[Call]:
    """True for a call whose weights may grow, and which may share a form of its first operand with
    others: blocks, or sums of it.
    """
    return _has_methods(node) and isinstance(node.args[1], Constant)


def _is_per_channel(x: Constant, out: TensorType) -> bool:
    """True when `x` has at most one value per channel of a result."""
    full = (1,) * (out.ndim - x.type.ndim) + x.type.static_shape
    return len(full) == out.ndim and full[0] == 1 and all(d == 1 for d in full[2:])
