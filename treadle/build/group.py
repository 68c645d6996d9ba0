# SPDX-License-Identifier: Apache-2.0
"""From a fused function to a te group, and from that to a scheduled loop nest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from inspect import signature
from typing import Any

from treadle import dtype as dt
from treadle import te
from treadle.build.in_place import overwritable
from treadle.errors import ConfigError, InternalError, ScheduleError, TreadleError
from treadle.expr.conditions import all_of
from treadle.expr.nodes import Const, Expr, Var
from treadle.expr.traversal import free_vars
from treadle.graph import nodes as g
from treadle.graph.broadcasting import stretches
from treadle.graph.nodes import Function, Node
from treadle.graph.operator import Fusion, Group, Operator, ScheduleFn
from treadle.graph.types import TensorType, tensor_type
from treadle.loop import nodes as lp
from treadle.loop.from_schedule import Case, cases_to_func
from treadle.loop.nodes import PrimFunc
from treadle.ops.reshaping import broadcast_to
from treadle.ops.schedules.families import DEFAULT_SCHEDULES
from treadle.target.base import Target
from treadle.te.choice import Choice, Script
from treadle.te.knobs import DEFAULTS, Knobs, Space
from treadle.te.schedule import create_schedule

_RANK = {Fusion.ANCHOR: 3, Fusion.OPAQUE: 3, Fusion.REDUCE: 2}


def build_group(function: Function, target: Target) -> tuple[Group, ScheduleFn]:
    """Return the te group of a fused function and the schedule function for it.

    The anchor is the heaviest call (anchor, then reduction), of several the last; without one the
    default schedule applies.
    """
    builder = _GroupBuilder(function, target)
    return builder.build()


def function_sizes(function: Function) -> tuple[Var, ...]:
    """Return the symbolic sizes a fused function depends on, in the order its kernel takes them."""
    sizes: dict[Var, None] = {}
    for node in (*function.params, *g.topological([function.body])):
        for dim in _dims_of(node):
            if isinstance(dim, Expr):
                sizes.update(dict.fromkeys(free_vars(dim)))
    return tuple(sizes)


def _dims_of(node: Node) -> list[object]:
    """Return the extents of a value, and what stands in the attributes of a call."""
    types = [node.type]
    found: list[object] = []
    while types:
        type_ = types.pop(0)
        if isinstance(type_, TensorType):
            found += type_.shape
        else:
            types += type_.fields
    values: list[object] = []
    if isinstance(node, g.Call) and node.attrs is not None:
        values += [getattr(node.attrs, f.name) for f in fields(node.attrs)]
    while values:
        value = values.pop(0)
        if isinstance(value, tuple):
            values += value
        elif isinstance(value, Expr):
            found.append(value)
    return found


def lower_group(
    function: Function, target: Target, name: str, choice: Choice = DEFAULTS
) -> tuple[list[Case], PrimFunc]:
    """Return the cases of a fused function, scheduled, and its loop nest, called `name`.

    The schedule is that of the template with a configuration, or a script in place of a template;
    a script is one case, for all sizes.

    Raises: ConfigError where `choice` fits neither the knobs nor the stages.
    """
    builder = _GroupBuilder(function, target)
    first, _ = builder.build()
    with _blamed(builder, name):
        if isinstance(choice, Script):
            cases = [builder.replayed(first, choice)]
        else:
            knobs = Knobs(choice)
            cases = builder.scheduled(first, knobs)
            knobs.check_known()
        func = cases_to_func(cases, name, line_bytes=target.machine.line_bytes)
    func = without_stretching(func, _stretches(function))
    func.attrs["overwritable"] = overwritable(function)
    func.attrs["flushes_subnormals"] = _flushes_subnormals(function)
    return cases, func


def _flushes_subnormals(function: Function) -> bool:
    """True where a call in float32 says that subnormal numbers may count as zeros.

    Kernels of unoptimised models compute with all numbers as they are.
    """
    return not function.attrs.get("keeps_subnormals") and any(
        isinstance(node, g.Call)
        and isinstance(node.op, Operator)
        and node.op.flushes_subnormals
        and isinstance(node.type, TensorType)
        and node.type.dtype == "float32"
        for node in g.topological([function.body])
    )


def group_space(function: Function, target: Target, name: str) -> Space:
    """Return the configurations of the schedule of a fused function, whose kernel is `name`.

    The knobs of each of several cases begin with `case1.`, `case2.` and so on; the last is the one
    that runs if no condition holds.
    """

    def run(knobs: Knobs) -> None:
        builder = _GroupBuilder(function, target)
        first, _ = builder.build()
        with _blamed(builder, name):
            builder.scheduled(first, knobs)
            knobs.check_known()

    return Space(run)


@contextmanager
def _blamed(builder: _GroupBuilder, name: str) -> Iterator[None]:
    """Let errors of a schedule say whose they are: the configuration's, a user's or this package's.

    Raises: ConfigError, what a user's own operator raises, or InternalError.
    """
    try:
        yield
    except ConfigError as e:
        raise e.located(f"kernel {name}") from None
    except TreadleError as e:
        if builder.is_foreign:
            raise e.located(f"the schedule of operator {builder.anchor_name}") from None
        raise InternalError(
            f"the schedule of kernel {name} does not apply: {e}",
            at=f"function {builder.function.name}",
        ) from e


def _stretches(function: Function) -> list[Expr]:
    """Return when the broadcasts of a group, of which only a run knows it, repeat nothing."""
    found: dict[Expr, None] = {}
    for node in g.topological([function.body]):
        if isinstance(node, g.Call) and node.op is broadcast_to:
            source, whole = tensor_type(node.args[0].type), tensor_type(node.type)
            found |= dict.fromkeys(stretches(source.shape, whole.shape))
    return list(found)


def without_stretching(func: PrimFunc, conditions: Sequence[Expr]) -> PrimFunc:
    """Return `func` with a body of its own for sizes at which nothing is repeated.

    before: z[i] = x[select(a == c, i, 0)]
    after:  if a == c: z[i] = x[i]  else: z[i] = x[select(a == c, i, 0)]
    """
    if not conditions:
        return func
    true = Const.of(True, "bool")
    plain = lp.substitute(func.body, dict.fromkeys(conditions, true))
    return func.with_body(lp.If(all_of(list(conditions)), plain, func.body))


class _GroupBuilder:
    def __init__(self, function: Function, target: Target) -> None:
        self.function = function
        self.target = target
        self.tensors: dict[Node, tuple[te.Tensor, ...]] = {}
        self.anchor: g.Call | None = None
        self.anchor_stages: tuple[te.Tensor, ...] = ()
        self.default = DEFAULT_SCHEDULES[target.family]
        self.schedule: ScheduleFn = self.default
        self.cases: Callable[[Group, Target], Sequence[Expr]] | None = None
        self.names: dict[str, int] = {}

    def build(self) -> tuple[Group, ScheduleFn]:
        inputs = [self._placeholder(p) for p in self.function.params]
        for node in g.topological([self.function.body]):
            if node not in self.tensors:
                self._node(node)
        outputs = [t for o in g.outputs_of(self.function.body) for t in self.tensors[o]]
        outputs = [self._owned(t) for t in outputs]
        schedule = create_schedule([o.op for o in dict.fromkeys(outputs)])
        attrs: Any = self.anchor.attrs if self.anchor is not None else None
        group = Group(schedule, tuple(inputs), self.anchor_stages, tuple(outputs), attrs)
        return group, self.schedule

    def scheduled(self, first: Group, knobs: Knobs) -> list[Case]:
        """Return the schedules by the conditions under which they run; the last has none.

        `first` is the group that was built, not scheduled yet; it becomes the one of the last.
        """
        if self.is_foreign:
            _check_template(self.schedule, self.anchor_name)
        sizes = function_sizes(self.function)
        conditions = self.cases(first, self.target) if sizes and self.cases is not None else ()
        groups = [build_group(self.function, self.target)[0] for _ in conditions]
        found: list[Case] = []
        for number, when in enumerate((*conditions, None), start=1):
            group = first if when is None else groups[number - 1]
            group.when = when
            inner = knobs.within(f"case{number}") if conditions else knobs
            self.schedule(group, self.target, inner)
            found.append(self._case(group, when))
        return found

    def replayed(self, group: Group, script: Script) -> Case:
        """Return the only case of a group that is scheduled by steps.

        Raises: ConfigError that names the first step that does not fit.
        """
        try:
            group.schedule.replay(script.steps)
        except ScheduleError as e:
            raise ConfigError(f"the steps do not fit: {e.problem}", at=e.at, hint=e.hint) from None
        return self._case(group, None)

    def _case(self, group: Group, when: Expr | None) -> Case:
        args: list[te.Tensor | Var] = [
            *function_sizes(self.function),
            *group.inputs,
            *group.outputs,
        ]
        return Case(group.schedule, args, when)

    @property
    def is_foreign(self) -> bool:
        """True when the schedule was written outside of this package: its mistakes are a user's."""
        package = __name__.partition(".")[0]
        return self.anchor is not None and self.schedule.__module__.partition(".")[0] != package

    @property
    def anchor_name(self) -> str:
        """The name of the operator whose schedule applies."""
        return "" if self.anchor is None else self.anchor.op.name

    def _placeholder(self, param: g.Var) -> te.Tensor:
        type_ = tensor_type(param.type)
        tensor = te.placeholder(type_.shape, type_.dtype, param.name)
        self.tensors[param] = (tensor,)
        return tensor

    def _owned(self, tensor: te.Tensor) -> te.Tensor:
        """A result that is an input itself is copied."""
        if not isinstance(tensor.op, te.PlaceholderOp):
            return tensor
        return te.compute_one(tensor.shape, lambda *i: tensor[i], name="copy")

    def _node(self, node: Node) -> None:
        if isinstance(node, g.Constant):
            self.tensors[node] = (_constant(node),)
        elif isinstance(node, g.Tuple):
            self.tensors[node] = tuple(t for f in node.fields for t in self.tensors[f])
        elif isinstance(node, g.TupleItem):
            self.tensors[node] = (self.tensors[node.value][node.index],)
        elif isinstance(node, g.Call):
            self._call(node)

    def _call(self, node: g.Call) -> None:
        operator = node.op
        if isinstance(operator, Function):
            raise InternalError(f"function {operator.name} is called inside a fused group")
        args = [self.tensors[a][0] for a in node.args]
        if operator.compute is None:
            raise InternalError(f"operator {operator.name} has no compute")
        made = operator.compute(node.attrs, *args)
        stages = tuple(made) if isinstance(made, Sequence) else (made,)
        fields = node.type.fields if not isinstance(node.type, TensorType) else None
        self.tensors[node] = stages[-1:] if fields is None else stages[-len(fields) :]
        self._consider(node, operator, stages)

    def _consider(
        self,
        node: g.Call,
        operator: Operator[Any],
        stages: tuple[te.Tensor, ...],
    ) -> None:
        rank = _RANK.get(operator.fusion, 0)
        best = 0
        if self.anchor is not None and not isinstance(self.anchor.op, Function):
            best = _RANK.get(self.anchor.op.fusion, 0)
        if rank == 0 or rank < best:
            return
        self.anchor, self.anchor_stages = node, stages
        self.schedule = operator.schedule.get(self.target.family, self.default)
        self.cases = operator.cases


def _check_template(template: ScheduleFn, operator: str) -> None:
    """Raise ScheduleError where a user's schedule does not take a group, a target and knobs."""
    try:
        signature(template).bind(None, None, None)
    except TypeError:
        raise ScheduleError(
            f"the schedule {getattr(template, '__name__', template)} of operator {operator} does "
            "not take three arguments",
            hint="a schedule is a function f(group, target, knobs)",
        ) from None


def _constant(node: g.Constant) -> te.Tensor:
    if node.value.size != 1:
        raise InternalError(f"a constant of type {node.type} is inside a fused group")
    only = node.value.reshape(-1)[:1]
    if dt.is_narrow(node.type.dtype):
        only = only.view("uint8")
    value = Const.of(only[0].item(), node.type.dtype)
    return te.compute_one(node.type.shape, lambda *i: value, name="const")
