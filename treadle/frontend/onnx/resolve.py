# SPDX-License-Identifier: Apache-2.0
"""What each node of a model means: a converter, a function to inline, or a missing operator.

Everything here happens before any node is converted, so that all missing operators are listed at
once and functions that call themselves or grow without bound are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx
from onnx.defs import OpSchema

from treadle.errors import ModelError
from treadle.frontend.importer import UnsupportedList, origin_of
from treadle.frontend.onnx.families import converters
from treadle.frontend.onnx.node import ConvertFn

EXPANSION_LIMIT = 100_000
"""A model may have this many nodes after its functions are inlined."""

Key: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converter for one version of an operator; no schema for operators ONNX does not define."""

    function: ConvertFn
    version: int
    schema: OpSchema | None


@dataclass(frozen=True, slots=True)
class Inlining:
    """A function whose body replaces the node."""

    function: onnx.FunctionProto


@dataclass(frozen=True, slots=True)
class Expansion:
    """An operator defined by ONNX itself through a function that depends on the node."""

    schema: OpSchema
    opset: int


@dataclass(frozen=True, slots=True)
class Branching:
    """An `If`, whose taken branch is inlined once its condition is known."""


@dataclass(frozen=True, slots=True)
class Repeating:
    """A `Loop` or `Scan`, whose body is inlined once per iteration."""

    version: int


@dataclass(frozen=True, slots=True)
class Missing:
    """No conversion exists."""

    version: int
    reason: str = ""


Meaning: TypeAlias = Conversion | Inlining | Expansion | Branching | Repeating | Missing


def domain_of(name: str) -> str:
    """Return a domain with ONNX's own spelled the one way: empty."""
    return "" if name == "ai.onnx" else name


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that are attributes of `node`."""
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            yield a.g
        elif a.type == onnx.AttributeProto.GRAPHS:
            yield from a.graphs


class Resolver:
    """Gives every node its meaning, from the model's opsets and functions."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.opsets = _opsets(model.opset_import, model.ir_version)
        self._functions: dict[Key, onnx.FunctionProto] = {}
        for f in model.functions:
            key = (domain_of(f.domain), f.name, f.overload)
            if key in self._functions:
                raise ModelError(f"the model defines the function {_named(key)} twice")
            self._functions[key] = f

    def meaning(self, node: onnx.NodeProto, opsets: Mapping[str, int]) -> Meaning:
        """Return what `node` stands for where `opsets` are imported."""
        domain = domain_of(node.domain)
        function = self._functions.get((domain, node.op_type, node.overload))
        if function is not None:
            return Inlining(function)
        if domain not in opsets:
            return Missing(0, f"the model does not import the domain {domain or 'ai.onnx'!r}")
        return _operator_meaning(domain, node.op_type, opsets[domain])

    def check(self, model: onnx.ModelProto, at: str) -> None:
        """Raise unless every node can be converted and every function ends.

        Raises:
            UnsupportedOperators: with the whole list.
            ModelError: a function calls itself, or inlining would exceed the budget.
        """
        missing = UnsupportedList()
        total = self._scan(model.graph.node, self.opsets, missing, {})
        calls: dict[Key, list[Key]] = {}
        own: dict[Key, int] = {}
        for key, f in self._functions.items():
            uses: dict[Key, int] = {}
            own[key] = self._scan(f.node, self.imports(f), missing, uses)
            calls[key] = [k for k, n in uses.items() for _ in range(n)]
        missing.raise_if_any(at)
        sizes = _expanded_sizes(calls, own)
        uses = {}
        self._scan(model.graph.node, self.opsets, missing, uses)
        total += sum(sizes[k] * n for k, n in uses.items())
        if total > EXPANSION_LIMIT:
            raise ModelError(
                f"the model has {total if total < 10**12 else 'more than 10**12'} nodes after "
                f"its functions are inlined; the limit is {EXPANSION_LIMIT}",
                at=at,
            )

    def imports(self, function: onnx.FunctionProto) -> dict[str, int]:
        """Return the opsets a function body uses; the model's where it names none."""
        if not function.opset_import:
            return dict(self.opsets)
        return {domain_of(o.domain): o.version for o in function.opset_import}

    def _scan(
        self,
        nodes: Sequence[onnx.NodeProto],
        opsets: Mapping[str, int],
        missing: UnsupportedList,
        uses: dict[Key, int],
    ) -> int:
        """Count nodes (with their subgraphs), note missing ones and calls of local functions."""
        count = 0
        stack = [nodes]
        while stack:
            for index, node in enumerate(stack.pop()):
                count += 1
                meaning = self.meaning(node, opsets)
                if isinstance(meaning, Missing):
                    origin = origin_of(node.name, node.op_type, index)
                    domain = domain_of(node.domain)
                    missing.add(domain, node.op_type, meaning.version, origin, meaning.reason)
                elif isinstance(meaning, Inlining):
                    key = (domain_of(node.domain), node.op_type, node.overload)
                    uses[key] = uses.get(key, 0) + 1
                stack.extend(g.node for g in subgraphs(node))
        return count


def _opsets(imports: Sequence[onnx.OperatorSetIdProto], ir_version: int) -> dict[str, int]:
    found = {domain_of(o.domain): o.version for o in imports}
    if not found and ir_version < 3:
        return {"": 1}
    if not found:
        raise ModelError(
            "the model does not say which operator set it uses",
            hint="save it with opset_import, for example through onnx.helper.make_model",
        )
    known = onnx.defs.onnx_opset_version()
    if found.get("", 1) > known:
        raise ModelError(
            f"the model uses opset {found['']}; the installed onnx package knows up to {known}",
            hint="upgrade the onnx package, or convert with onnx.version_converter",
        )
    if found.get("", 1) < 1:
        raise ModelError(f"the model uses opset {found['']}, which does not exist")
    return found


def _operator_meaning(domain: str, op: str, opset: int) -> Meaning:
    if domain == "" and op == "If":
        return Branching()
    if not onnx.defs.has(op, domain):
        found = converters().find(domain, op, opset, exact=False)
        if found is None:
            return Missing(opset, "" if domain else "not an operator of ONNX")
        return Conversion(found, opset, None)
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        found = converters().find(domain, op, 1, exact=True)  # as other tools had it before
        if found is not None:
            return Conversion(found, 1, None)
        return Missing(opset, f"ONNX has it only in later opsets than {opset}")
    if schema.deprecated:
        return Missing(schema.since_version, "removed from ONNX in this opset")
    if domain == "" and op in ("Loop", "Scan"):
        return Repeating(schema.since_version)
    found = converters().find(domain, op, schema.since_version, exact=True)
    if found is not None:
        return Conversion(found, schema.since_version, schema)
    if _has_body(schema):
        return Expansion(schema, opset)
    versions = converters().versions(domain, op)
    known = f"known versions: {', '.join(map(str, versions))}" if versions else ""
    return Missing(schema.since_version, known)


def _has_body(schema: OpSchema) -> bool:
    # the stubs of the onnx package leave these two out
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def _expanded_sizes(calls: Mapping[Key, Sequence[Key]], own: Mapping[Key, int]) -> dict[Key, int]:
    """Return the node count of every function with its calls inlined; calls form no cycle."""
    sizes: dict[Key, int] = {}
    for root in calls:
        path: dict[Key, None] = {}
        stack: list[tuple[Key, bool]] = [(root, False)]
        while stack:
            key, ready = stack.pop()
            if ready:
                path.popitem()
                sizes[key] = own[key] + sum(sizes[c] for c in calls[key])
            elif key in path:
                names = list(path)
                cycle = [*names[names.index(key) :], key]
                raise ModelError("a function calls itself: " + " -> ".join(map(_named, cycle)))
            elif key not in sizes:
                path[key] = None
                stack.append((key, True))
                stack.extend((c, False) for c in dict.fromkeys(calls[key]))
    return sizes


def _named(key: Key) -> str:
    domain, name, overload = key
    return f"{domain or 'ai.onnx'}.{name}" + (f":{overload}" if overload else "")
