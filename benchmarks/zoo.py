# SPDX-License-Identifier: Apache-2.0
"""One network as the zoo of torch tries it, and what comes of it on each road.

The roads are torch.compile(backend="treadle"), treadle.compile by way of torch.export, and, for
decoders, `generate` with a cache of keys and values around a compiled `forward`.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import treadle
from treadle.errors import InternalError, TreadleError
from treadle.integrations.torch_compile import treadle_backend

Road: TypeAlias = Literal["compile", "export", "generate"]
State: TypeAlias = Literal["whole", "partitioned", "refused", "wrong", "crash", "late"]

TOLERANCE = 1e-4
"""The largest error, over the largest magnitude of the output that it is in (1 if that is less).

Where eager's own float32 results are farther than that from what it computes in float64, seeded
weights make the network amplify roundings: then the error may be twice eager's own.
"""

NEW_TOKENS = 6
"""How many tokens `generate` adds."""


@dataclass(frozen=True)
class Case:
    """A network with seeded weights, and what it is called with.

    `decodes` are the kinds of caches that `generate` is tried with: "static", "dynamic", or "own"
    for an architecture that has a kind of its own, or none.
    """

    model: str
    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    decodes: tuple[str, ...] = ()


@dataclass
class Result:
    """What came of a network on a road.

    `in_torch` says which operators torch ran, how often; `share` of the time; `graphs` how many
    graphs Dynamo made; `error` is the largest, as TOLERANCE counts it.
    """

    name: str
    road: str
    state: State
    model: str = ""
    detail: str = ""
    operators: int = 0
    in_torch: list[str] = field(default_factory=list)
    share: str = ""
    graphs: int = 0
    error: float = 0.0
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """Return the result as what JSON can hold."""
        return asdict(self)


# ---- roads ---------------------------------------------------------------------------------------


def results_of(name: str, case: Case, roads: tuple[Road, ...]) -> Iterator[Result]:
    """Yield what comes of a network on each road that it has."""
    with torch.no_grad():
        torch.manual_seed(0)
        wanted = _tensors(case.module(*case.args, **case.kwargs))
        for road in roads:
            if road == "generate":
                for cache in case.decodes:
                    yield _timed(name, case, f"generate, {cache}", *_generating(case, cache))
            else:
                yield _timed(name, case, road, partial(_ROADS[road], case), wanted)


def _timed(
    name: str, case: Case, road: str, run: Callable[[], list[Tensor]], wanted: list[Tensor]
) -> Result:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    start = time.monotonic()
    with _listening() as said:
        result = _outcome(name, road, run, wanted)
    if result.state == "wrong" and not result.detail:
        _allow_rounding(result, case, wanted)
    result.model = case.model
    result.seconds = round(time.monotonic() - start, 1)
    result.graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    _note_parts(result, said)
    return result


def _outcome(name: str, road: str, run: Callable[[], list[Tensor]], wanted: list[Tensor]) -> Result:
    torch.manual_seed(0)
    try:
        found = run()
    except InternalError as e:
        return Result(name, road, "crash", detail=str(e)[:2000])
    except TreadleError as e:
        return Result(name, road, "refused", detail=" ".join(str(e).split())[:600])
    except Exception as e:  # whatever is not an error of ours is a defect
        return Result(name, road, "crash", detail=f"{type(e).__name__}: {e}"[:2000])
    error, problem = difference(found, wanted)
    is_wrong = bool(problem) or not error <= TOLERANCE
    return Result(name, road, "wrong" if is_wrong else "whole", detail=problem, error=error)


def _note_parts(result: Result, said: list[logging.LogRecord]) -> None:
    """Take over what the backend said of operators that torch runs."""
    for record in said:
        if result.state == "whole":
            result.state = "partitioned"
        given = record.args if isinstance(record.args, tuple) else ()
        if len(given) == 4:
            _, whole, share, names = map(str, given)
            result.operators += int(whole)
            result.share = share.removeprefix(", ").removesuffix(" of the time")
            result.in_torch.append(names)
        else:
            result.in_torch.append(record.getMessage()[:600])


def _allow_rounding(result: Result, case: Case, wanted: list[Tensor]) -> None:
    """Forgive an error that is no larger than twice that of eager's own rounding."""
    module = copy.deepcopy(case.module).double()
    args, kwargs = pytree.tree_map(_doubled, (case.args, dict(case.kwargs)))
    torch.manual_seed(0)
    exact = [e.to(w.dtype) for e, w in zip(_tensors(module(*args, **kwargs)), wanted, strict=True)]
    own, problem = difference(wanted, exact)
    if not problem and result.error <= 2 * own:
        result.state = "whole"
        result.detail = f"eager itself is {own:.0e} away from float64"


def _doubled(value: Any) -> Any:
    is_real = isinstance(value, Tensor) and value.is_floating_point()
    return value.double() if is_real else value


def by_compile(case: Case) -> list[Tensor]:
    """Return the results of a second call through torch.compile, with the random numbers seeded."""
    compiled = torch.compile(case.module, backend=treadle_backend)
    compiled(*case.args, **case.kwargs)
    torch.manual_seed(0)
    return _tensors(compiled(*case.args, **case.kwargs))


def by_export(case: Case) -> list[Tensor]:
    """Return the results through torch.export; arguments are all by place, or all by name."""
    if case.args and case.kwargs:
        raise ValueError("a case has arguments of one kind: by place or by name")
    given: Any = list(case.args) or dict(case.kwargs)
    exe = treadle.compile(case.module, tuple(case.args) or given)
    return [torch.from_dlpack(r) for r in exe.run(given)]


def _generating(case: Case, cache: str) -> tuple[Callable[[], list[Tensor]], list[Tensor]]:
    """Return what generates with a compiled forward, and what eager generates."""
    module: Any = case.module
    options: dict[str, Any] = {
        "max_new_tokens": NEW_TOKENS,
        "min_new_tokens": NEW_TOKENS,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    if cache != "own":
        options["cache_implementation"] = cache

    def generate() -> list[Tensor]:
        made = module.generate(**case.kwargs, **options)
        return [made.sequences, *made.logits]

    def compiled() -> list[Tensor]:
        eager = module.forward
        module.forward = torch.compile(eager, backend=treadle_backend)
        try:
            return generate()
        finally:
            module.forward = eager

    return compiled, generate()


_ROADS: dict[Road, Callable[[Case], list[Tensor]]] = {"compile": by_compile, "export": by_export}


# ---- comparison ----------------------------------------------------------------------------------


def _tensors(results: Any) -> list[Tensor]:
    """Return the tensors of what a network returns."""
    return [r for r in pytree.tree_leaves(_plain(results)) if isinstance(r, Tensor)]


def _plain(results: Any) -> Any:
    """Return results without the caches among them: roads keep these in different places."""
    if isinstance(results, Mapping):
        return [v for k, v in results.items() if "past_key_values" not in k]
    return results


def difference(found: list[Tensor], wanted: list[Tensor]) -> tuple[float, str]:
    """Return the largest relative error, and what else differs ("" if nothing does)."""
    if len(found) < len(wanted):
        return 0.0, f"{len(found)} results where eager has {len(wanted)}"
    error = 0.0
    for f, w in zip(found, wanted, strict=False):
        if f.dtype != w.dtype or f.shape != w.shape:
            return 0.0, f"{f.dtype}{[*f.shape]} for {w.dtype}{[*w.shape]}"
        if not w.is_floating_point():
            if not torch.equal(f, w):
                return 0.0, f"{int((f != w).sum())} of {w.numel()} {w.dtype} elements differ"
        elif w.numel():
            error = max(error, _error(f.double(), w.double()))
    return error, ""


def _error(found: Tensor, wanted: Tensor) -> float:
    is_same = (found == wanted) | (found.isnan() & wanted.isnan())
    finite = torch.where(wanted.isfinite(), wanted, 0)
    gaps = torch.where(is_same, 0, (found - wanted).abs())
    return float(gaps.max() / max(float(finite.abs().max()), 1.0))


# ---- what the backend says -----------------------------------------------------------------------


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _listening() -> Iterator[list[logging.LogRecord]]:
    handler, log = _Said(), logging.getLogger("treadle.torch")
    log.addHandler(handler)
    log.propagate = False
    try:
        yield handler.records
    finally:
        log.removeHandler(handler)
        log.propagate = True
