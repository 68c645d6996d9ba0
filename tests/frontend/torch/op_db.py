# SPDX-License-Identifier: Apache-2.0
"""Samples of torch's operator database, each compiled and compared with eager.

`scripts/torch_op_db.py` runs all of them in processes of its own; tests run a few.
"""

from __future__ import annotations

import itertools
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

import treadle
from treadle.errors import InternalError, TreadleError, UnsupportedOperators
from treadle.frontend.builders.closure import anchored
from treadle.frontend.torch.decompose import Decompositions, for_compile
from treadle.frontend.torch.reader import Reader, raise_if_unsupported
from treadle.frontend.torch.tensors import in_row_major
from treadle.graph.nodes import Function, Module, Tuple
from treadle.integrations.torch_compile import treadle_backend

database = common_methods_invocations.op_db

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "bool")

COMPLEX = ("complex64", "complex128")
"""Element types that are run where they are asked for."""

SEED = 42
"""What the database's own operators that draw random numbers set before they do."""

Kind = Literal["right", "torch", "refused", "wrong", "crash"]
Road = Literal["trace", "compile"]
"""Through make_fx and the importer, or through torch.compile."""


@dataclass(frozen=True)
class Outcome:
    """What became of a sample, and why if it is not right.

    Refused is what Treadle says that it lacks; under torch.compile also what it leaves to torch.
    What torch.compile cannot do without Treadle (backend="aot_eager") is torch's.
    """

    kind: Kind
    reason: str = ""


def operators() -> dict[str, Any]:
    """Return the entries of the database by name, which tells variants of one operator apart."""
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in database}


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
    return [name for name in (*DTYPES, *COMPLEX) if getattr(torch, name) in known]


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
        return tensors_in(self.op.op(given, *args, **kwargs))

    def written(self, prefix: str, known: dict[str, Any]) -> str:
        """Return the call as a line of Python, which TorchDynamo traces sooner than trees.

        Its names begin with `prefix`; `known` receives the values of all but the tensors, which are
        `{prefix}0`, `{prefix}1` and so on.
        """
        names: list[Any] = []
        count = 0
        for k, leaf in enumerate(self.leaves):
            if isinstance(leaf, torch.Tensor):
                names.append(_Name(f"{prefix}{count}"))
                count += 1
            elif leaf is None or type(leaf) in (bool, int, str):
                names.append(leaf)
            else:
                names.append(_Name(f"{prefix}known{k}"))
                known[str(names[-1])] = leaf
        given, args, kwargs = pytree.tree_unflatten(names, self.spec)
        known[f"{prefix}op"] = self.op.op
        return f"{prefix}op({given!r}, *{args!r}, **{kwargs!r})"


class _Name(str):
    """A name in a program: what it prints as has no quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def tensors_in(results: Any) -> list[torch.Tensor]:
    """Return the tensors of a tree of results."""
    return [r for r in pytree.tree_leaves(results) if isinstance(r, torch.Tensor)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone() if tensor.layout is torch.strided else tensor.detach()


def outcome_of(op: Any, sample: Any, road: Road = "trace") -> Outcome | None:
    """Run one sample; None where eager itself refuses it, or gives no tensor."""
    call = Call.of(op, sample)
    expected = _eager(call)
    return _compared(call, expected, road) if expected else None


def _eager(call: Call) -> list[torch.Tensor]:
    """Return what eager gives for a call: no tensor where it refuses it."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*call.tensors())
        except Exception:  # the database is of all devices and kinds of gradients
            return []


def _compared(call: Call, expected: list[torch.Tensor], road: Road) -> Outcome:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _outcome(call, expected, road)


def _outcome(call: Call, expected: list[torch.Tensor], road: Road) -> Outcome:
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
        return _unless_torchs(call, expected, road, Outcome("refused", str(e)))
    except Exception as e:  # whatever is not an error of ours is a defect
        crash = Outcome("crash", f"{type(e).__name__}: {e}"[:500])
        return _unless_torchs(call, expected, road, crash)
    problem = difference(call, found, expected)
    if problem:
        return _unless_torchs(call, expected, road, Outcome("wrong", problem))
    return Outcome("refused", said[0]) if said else Outcome("right")


def _unless_torchs(
    call: Call, expected: list[torch.Tensor], road: Road, outcome: Outcome
) -> Outcome:
    """Return an outcome, or torch's where torch.compile does no better without Treadle."""
    if road != "compile":
        return outcome
    try:
        problem = difference(call, _compiled_by("aot_eager", [call])[0], expected)
    except Exception as e:  # whatever torch raises, it is not ours
        problem = f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0]}"
    return Outcome("torch", f"torch.compile itself: {problem}") if problem else outcome


# ---- the two roads -------------------------------------------------------------------------------


class NotTraceable(Exception):
    """torch itself makes no graph of a call."""


def by_trace(call: Call) -> list[torch.Tensor]:
    """Return the results of a call through make_fx, torch's decompositions and the importer."""
    tensors = call.tensors()
    traced = _traced(call, tensors)
    exe = treadle.compile(_imported(traced))
    found = [torch.from_dlpack(r) for r in exe.run([*map(in_row_major, tensors)])]
    results = pytree.tree_leaves(traced.graph.output_node().args[0])
    pairs = zip(found, results, strict=True)
    return [torch.view_as_complex(f) if r.meta["val"].is_complex() else f for f, r in pairs]


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
            reader.set_attribute(node, value)
        elif node.op == "call_function":
            reader.read(node)
        else:
            results = [reader.tensor(r) for r in pytree.tree_leaves(node.args[0])]
    made = anchored(results, reader.measured)
    return Module(Function(tuple(params), made[0] if len(made) == 1 else Tuple.of(made)))


def by_compile(call: Call) -> list[torch.Tensor]:
    """Return the results of a call through torch.compile."""
    try:
        return _compiled_by(treadle_backend, [call])[0]
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as e:
        raise NotTraceable(f"torch cannot trace it: {str(e).strip().splitlines()[0]}") from e


def _compiled_by(backend: Any, calls: Sequence[Call]) -> list[list[torch.Tensor]]:
    """Return the results of calls through a backend of torch.compile, without graph breaks.

    They are one program. The database's wrapper that sets a seed cannot be compiled: the seed is
    set outside.
    """
    torch._dynamo.reset()
    tensors = [call.tensors() for call in calls]
    compiled = torch.compile(_program(calls, tensors), backend=backend, fullgraph=True)
    with (
        mock.patch.object(common_methods_invocations, "wrapper_set_seed", _unseeded),
        torch.random.fork_rng(devices=()),
    ):
        torch.manual_seed(SEED)
        made = compiled(*itertools.chain.from_iterable(tensors))
    return [tensors_in(results) for results in made]


def _program(calls: Sequence[Call], tensors: Sequence[Sequence[torch.Tensor]]) -> Any:
    """Return a function of all the tensors of calls: the tuple of their results."""
    known: dict[str, Any] = {}
    written = [call.written(f"call{n}_", known) for n, call in enumerate(calls)]
    names = [f"call{n}_{k}" for n, given in enumerate(tensors) for k in range(len(given))]
    exec(f"def program({', '.join(names)}):\n    return ({', '.join(written)},)", known)
    return known["program"]


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an operator of the database whose seed is set by the caller."""
    return op(*args, **kwargs)


class _Said(logging.Handler):
    """Keeps what the backend says of operators that it leaves to torch, but for the time."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().removeprefix("treadle: ")
        self.texts.append(re.sub(r", \d+% of the time", "", text))


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

    A result of floating-point numbers may also be as near to what eager computes in float64, or to
    what the database names as reference (SciPy's functions): eager itself need not be.
    """
    if len(found) != len(expected):
        return f"{len(found)} results where torch has {len(expected)}"
    problems = [_problem(call, f, e) for f, e in zip(found, expected, strict=True)]
    if not any(problems) or (not any(problems[:-1]) and _is_order_of_ties(call, found, expected)):
        return ""
    for exact in (_exact(call), _referenced(call)):
        pairs = zip(problems, found, expected, exact or (), strict=False)
        if (
            exact is not None
            and len(exact) == len(found)
            and not any(problem and not _is_exact(call, f, e, x) for problem, f, e, x in pairs)
        ):
            return ""
    return next(filter(None, problems))


def _is_exact(call: Call, found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> bool:
    """True for a result of eager's type and shape that is as near to an exact one."""
    is_like = found.dtype == expected.dtype and found.shape == expected.shape == exact.shape
    is_inexact = found.is_floating_point() or found.is_complex()
    return is_like and is_inexact and not _problem(call, found, exact.to(found))


_DIM_AT = {"sort": 0, "topk": 1, "argsort": 0, "kthvalue": 1, "median": 0, "nanmedian": 0}
"""Operators that name elements by position, of equal ones any: where their axis is given."""


def _is_order_of_ties(call: Call, found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """True where equal elements have another order than eager's, which torch leaves open."""
    given, args, kwargs = pytree.tree_unflatten(call.leaves, call.spec)
    at = _DIM_AT.get(call.op.name)
    if at is None or kwargs.get("stable"):
        return False
    dim = kwargs.get("dim", args[at] if len(args) > at else -1)
    places, wanted = found[-1], expected[-1]
    if places.shape != wanted.shape or given.ndim == 0:
        return False
    if places.ndim < given.ndim:
        places, wanted = places.unsqueeze(dim), wanted.unsqueeze(dim)
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


def _referenced(call: Call) -> list[torch.Tensor] | None:
    """Return what the database's own reference gives, where it names one that takes the sample."""
    arrays = [t.numpy() if isinstance(t, torch.Tensor) else t for t in map(_widened, call.leaves)]
    given, args, kwargs = pytree.tree_unflatten(arrays, call.spec)
    try:
        return [torch.from_numpy(np.asarray(call.op.ref(given, *args, **kwargs), "float64"))]
    except Exception:  # it need not have one, and SciPy need not be there
        return None


def _widened(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return _copy(leaf).double()
    if isinstance(leaf, torch.Tensor) and leaf.is_complex():
        return _copy(leaf).to(torch.complex128)
    return leaf


# ---- all samples of an operator ------------------------------------------------------------------

MOST_TOGETHER = 32
"""How many samples at most are one program."""


def outcomes(op: Any, dtype: str, limit: int | None, road: Road) -> Iterator[Outcome | None]:
    """Yield what becomes of the samples of an operator with one element type, one by one."""
    return (outcome for _, outcome in outcomes_of(op, (dtype,), limit, road))


def outcomes_of(
    op: Any, dtypes: Sequence[str], limit: int | None, road: Road
) -> Iterator[tuple[str, Outcome | None]]:
    """Yield what becomes of the samples of an operator, at most `limit` of each element type.

    For torch.compile, whose own work per program is longer than ours, many samples are one program,
    once a first one is right. A program that is not right as a whole is halved until each sample
    that is not is alone.
    """
    left = [(dtype, call) for dtype in dtypes for call in _calls_of(op, dtype, limit)]
    together = 1
    while left:
        taken, left = left[:together], left[together:]
        given = [(dtype, call, _eager(call)) for dtype, call in taken]
        made = iter(_settled([(call, expected) for _, call, expected in given if expected], road))
        known = [(dtype, next(made) if expected else None) for dtype, _, expected in given]
        yield from known
        is_right = all(o is None or o.kind == "right" for _, o in known)
        together = MOST_TOGETHER if road == "compile" and is_right else 1


def _calls_of(op: Any, dtype: str, limit: int | None) -> list[Call]:
    try:
        return [Call.of(op, sample) for sample in samples_of(op, dtype, limit)]
    except Exception as e:  # torch's own generator of samples fails
        logging.getLogger(__name__).warning("%s %s: no samples: %s", op.name, dtype, e)
        return []


def _settled(found: Sequence[tuple[Call, list[torch.Tensor]]], road: Road) -> list[Outcome]:
    if len(found) <= 1:
        return [_compared(call, wanted, road) for call, wanted in found]
    if _are_right(found):
        return [Outcome("right")] * len(found)
    half = len(found) // 2
    return [*_settled(found[:half], road), *_settled(found[half:], road)]


def _are_right(found: Sequence[tuple[Call, list[torch.Tensor]]]) -> bool:
    """True where torch.compile runs calls as one program, and all of them as eager does."""
    try:
        with torch.no_grad(), warnings.catch_warnings(), _listening() as said:
            warnings.simplefilter("ignore")
            made = _compiled_by(treadle_backend, [call for call, _ in found])
    except Exception:  # which call it is of shows when each is run alone
        return False
    pairs = zip(found, made, strict=True)
    return not said and not any(difference(call, m, wanted) for (call, wanted), m in pairs)
