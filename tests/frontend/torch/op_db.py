# SPDX-License-Identifier: Apache-2.0
"""Samples of torch's operator database, each compiled and compared with eager.

`scripts/torch_op_db.py` runs all of them in processes of its own; tests run a few.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import treadle
from treadle.errors import InternalError, TreadleError, UnsupportedOperators
from treadle.frontend.builders.closure import anchored
from treadle.frontend.torch.decompose import Decompositions, for_compile
from treadle.frontend.torch.reader import Reader, raise_if_unsupported
from treadle.frontend.torch.tensors import array_of
from treadle.graph.nodes import Constant, Function, Module, Tuple
from treadle.integrations.torch_compile import treadle_backend

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "bool")

Kind = Literal["right", "refused", "wrong", "crash"]
Road = Literal["trace", "compile"]
"""Through make_fx and the importer, or through torch.compile."""


@dataclass(frozen=True)
class Outcome:
    """What became of a sample, and why if it is not right.

    Refused is what Treadle says that it lacks; under torch.compile also what it leaves to torch.
    """

    kind: Kind
    reason: str = ""


def operators() -> dict[str, Any]:
    """Return the entries of the database by name, which tells variants of one operator apart."""
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}


def is_core(op: Any) -> bool:
    """True for an operator of Core ATen: one overload or more carries torch's tag for it."""
    name = (op.aten_name or op.name).rpartition(".")[2]
    packets = [getattr(torch.ops.aten, n, None) for n in {name, op.name.rpartition(".")[2]}]
    return any(
        torch.Tag.core in getattr(packet, overload).tags
        for packet in packets
        if packet is not None
        for overload in packet.overloads()
    )


def dtypes_of(op: Any) -> list[str]:
    """Return the element types that are run of an operator."""
    known = op.supported_dtypes("cpu")
    return [name for name in DTYPES if getattr(torch, name) in known]


def samples_of(op: Any, dtype: str, limit: int | None) -> list[Any]:
    """Return at most `limit` samples of an operator, spread evenly over all of them."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False))
    if limit is None or len(found) <= limit:
        return found
    return [found[k * len(found) // limit] for k in range(limit)]


@dataclass(frozen=True)
class Call:
    """A sample as a function of its tensors alone; everything else is fixed."""

    op: Any
    leaves: list[Any]
    spec: Any

    @staticmethod
    def of(op: Any, sample: Any) -> Call:
        """Return the call that a sample is."""
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        return Call(op, leaves, spec)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors among the arguments, as copies."""
        return [_copy(t) for t in self.leaves if isinstance(t, torch.Tensor)]

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors among the results."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(t, torch.Tensor) else t for t in self.leaves]
        given, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.op.op(given, *args, **kwargs))
        return [r for r in results if isinstance(r, torch.Tensor)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone() if tensor.layout is torch.strided else tensor.detach()


def outcome_of(op: Any, sample: Any, road: Road = "trace") -> Outcome | None:
    """Run one sample; None where eager itself refuses it, or gives no tensor."""
    call = Call.of(op, sample)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = call(*call.tensors())
        except Exception:  # the database is of all devices and kinds of gradients
            return None
        if not expected:
            return None
        return _compared(call, expected, road)


def _compared(call: Call, expected: list[torch.Tensor], road: Road) -> Outcome:
    try:
        with _listening() as said:
            found = _ROADS[road](call)
    except UnsupportedOperators as e:
        return Outcome("refused", "; ".join(map(str.strip, e.problem.splitlines()[1:])))
    except InternalError as e:
        return Outcome("crash", str(e)[:500])
    except TreadleError as e:
        return Outcome("refused", e.problem.splitlines()[0])
    except NotTraceable as e:
        return Outcome("refused", str(e))
    except Exception as e:  # whatever is not an error of ours is a defect
        return Outcome("crash", f"{type(e).__name__}: {e}"[:500])
    problem = difference(call, found, expected)
    if problem:
        return Outcome("wrong", problem)
    return Outcome("refused", said[0]) if said else Outcome("right")


# ---- the two roads -------------------------------------------------------------------------------


class NotTraceable(Exception):
    """torch itself makes no graph of a call."""


def by_trace(call: Call) -> list[torch.Tensor]:
    """Return the results of a call through make_fx, torch's decompositions and the importer."""
    tensors = call.tensors()
    exe = treadle.compile(_imported(_traced(call, tensors)))
    return [torch.from_dlpack(r) for r in exe.run(tensors)]


def _traced(call: Call, tensors: list[torch.Tensor]) -> torch.fx.GraphModule:
    """Return a call as a graph without updates in place, of which decompositions make some."""
    try:
        made = _graph_of(lambda *given: call(*map(_copy, given)), tensors, for_compile())
        return _graph_of(made, tensors, {})
    except TreadleError:
        raise
    except Exception as e:
        lines = str(e).strip().splitlines() or [""]
        raise NotTraceable(f"torch cannot trace it: {type(e).__name__}: {lines[0]}") from e


def _graph_of(
    function: Callable[..., Any], tensors: list[torch.Tensor], table: Decompositions
) -> torch.fx.GraphModule:
    functional = torch.func.functionalize(function, remove="mutations")
    return make_fx(functional, decomposition_table=table, tracing_mode="fake")(*tensors)


def _imported(traced: torch.fx.GraphModule) -> Module:
    raise_if_unsupported(traced.graph.nodes, "sample")
    reader, params = Reader("sample"), []
    results: list[Any] = []
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            params.append(reader.add_input(node, node.name))
        elif node.op == "get_attr":
            value = getattr(traced, node.target)
            reader.set_value(node, Constant.of(array_of(value, node.target)))
        elif node.op == "call_function":
            reader.read(node)
        else:
            results = [reader.tensor(r) for r in pytree.tree_leaves(node.args[0])]
    made = anchored(results, reader.measured)
    return Module(Function(tuple(params), made[0] if len(made) == 1 else Tuple.of(made)))


def by_compile(call: Call) -> list[torch.Tensor]:
    """Return the results of a call through torch.compile."""
    torch._dynamo.reset()

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return call(*tensors)

    compiled = torch.compile(function, backend=treadle_backend, fullgraph=True)
    made: list[torch.Tensor] = compiled(*call.tensors())
    return made


class _Said(logging.Handler):
    """Keeps what the backend says of operators that it leaves to torch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage().removeprefix("treadle: "))


@contextmanager
def _listening() -> Iterator[list[str]]:
    handler, log = _Said(), logging.getLogger("treadle.torch")
    log.addHandler(handler)
    log.propagate = False
    try:
        yield handler.texts
    finally:
        log.removeHandler(handler)
        log.propagate = True


_ROADS: dict[Road, Callable[[Call], list[torch.Tensor]]] = {
    "trace": by_trace,
    "compile": by_compile,
}

# ---- comparison ----------------------------------------------------------------------------------

UNINITIALIZED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
"""Operators of which only the type of the result is decided."""


def difference(call: Call, found: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    """Return how results differ from eager's beyond torch's tolerances, "" where they do not.

    A result of floating-point numbers may also be as near to what eager computes in float64: eager
    itself need not be.
    """
    if len(found) != len(expected):
        return f"{len(found)} results where torch has {len(expected)}"
    problems = [_problem(call, f, e) for f, e in zip(found, expected, strict=True)]
    if not any(problems) or (not any(problems[:-1]) and _is_order_of_ties(call, found, expected)):
        return ""
    exact = _exact(call)
    if exact is None or len(exact) != len(found):
        return next(filter(None, problems))
    for problem, f, e, x in zip(problems, found, expected, exact, strict=True):
        same_type = f.dtype == e.dtype and f.shape == e.shape
        if problem and not (same_type and f.is_floating_point() and not _problem(call, f, x.to(f))):
            return problem
    return ""


def _is_order_of_ties(call: Call, found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """True where equal elements have another order than eager's, which torch leaves open."""
    given, args, kwargs = pytree.tree_unflatten(call.leaves, call.spec)
    at = {"sort": 0, "topk": 1, "argsort": 0}.get(call.op.name)
    if at is None or kwargs.get("stable"):
        return False
    dim = kwargs.get("dim", args[at] if len(args) > at else -1)
    places, wanted = found[-1], expected[-1]
    if places.shape != wanted.shape or given.ndim == 0:
        return False
    is_each_once = bool((places.sort(dim).values.diff(dim=dim) > 0).all())
    values = torch.gather(given, dim, wanted)
    return is_each_once and torch.equal(torch.gather(given, dim, places), values)


def _problem(call: Call, found: torch.Tensor, expected: torch.Tensor) -> str:
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{[*found.shape]} for {expected.dtype}{[*expected.shape]}"
    if call.op.name in UNINITIALIZED:
        return ""
    try:
        torch.testing.assert_close(found, expected, equal_nan=True, check_stride=False)
    except AssertionError as e:
        return " ".join(str(e).split())[:300]
    return ""


def _exact(call: Call) -> list[torch.Tensor] | None:
    """Return what eager computes with floats in float64; None where it cannot."""
    wide = [_widened(t) for t in call.leaves]
    try:
        return Call(call.op, wide, call.spec)(*[t for t in wide if isinstance(t, torch.Tensor)])
    except Exception:  # eager need not have the operator in float64
        return None


def _widened(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return _copy(leaf).double()
    return leaf


def outcomes(op: Any, dtype: str, limit: int | None, road: Road) -> Iterator[Outcome | None]:
    """Yield what becomes of the samples of an operator, one by one."""
    for sample in samples_of(op, dtype, limit):
        yield outcome_of(op, sample, road)
