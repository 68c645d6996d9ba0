# SPDX-License-Identifier: Apache-2.0
"""The workers of a Dask cluster as the place where candidates are built and measured.

Every worker does one thing at a time, and is told which: so it is known what is lost with it when
it goes. Those of the target's CPU measure, and build while there is nothing to measure; the others
build. Workers that join later are taken up. A worker of another version of Treadle does nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from treadle.build.compiler_digest import compiler_digest
from treadle.build.kernel import ObjectCode
from treadle.build.method_records import MethodRecord
from treadle.errors import UsageError
from treadle.target.base import Target
from treadle.te.choice import Choice, choice_to_json
from treadle.tune import remote
from treadle.tune.executor import KnownCode, Outcome, WorkOptions
from treadle.tune.process import packed, unpacked
from treadle.tune.runner import Measured
from treadle.tune.task import Task
from treadle.tune.worker import setup_message

_CONNECT_SECONDS = 10
_HELLO_SECONDS = 300.0
"""How long a worker may take to start a process and to read the model."""
_SLACK_SECONDS = 300.0
"""How much longer than its limits allow an answer may take: machines wait until all is quiet."""
_LONELY_SECONDS = 120.0
"""How long no worker may be there that measures."""
_IDLE_SECONDS = 0.2
_EXTRA = "pip install 'treadle[fleet]'"


@dataclass(slots=True)
class _Job:
    """What a worker has been asked; `ticket`, `task` and `made` are those of the candidate."""

    kind: str
    future: Any
    deadline: float
    ticket: int = 0
    task: int = 0
    seconds: float = 0.0
    made: ObjectCode | None = None


@dataclass(slots=True)
class _Worker:
    """A worker of the cluster: whether it may build and measure, else why not; what it does."""

    address: str
    job: _Job | None = None
    builds: bool = False
    measures: bool = False
    unfit: str = ""


@dataclass(slots=True)
class DaskExecutor:
    """A cluster by the address of its scheduler, and the model whose candidates it works on."""

    address: str
    model: bytes
    target: Target
    compiling: Mapping[str, Any]
    methods: Sequence[MethodRecord] = ()
    _client: Any = None
    _token: str = field(default_factory=lambda: secrets.token_hex(8))
    _session: str = ""

    def connect(self) -> Any:
        """Return the client of the cluster.

        Raises: UsageError where a package is missing, or nobody answers.
        """
        if self._client is None:
            self._client = connected(self.address)
        return self._client

    def close(self) -> None:
        """Leave the cluster; the processes of its workers end."""
        if self._client is not None:
            with suppress(Exception):  # workers that have gone have ended their processes
                self._client.run(remote.end, self._session, on_error="ignore")
            self._client.close()
            self._client = None

    def workers(self, tasks: Sequence[Task], options: WorkOptions) -> DaskWorkers:
        """Return workers of the cluster, not yet asked.

        Their processes stay until `close`: later workers for the same tasks find them there.
        """
        setup = setup_message(self.model, self.target, dict(self.compiling), self.methods, options)
        client = self.connect()
        session = f"{self._token}-{hashlib.sha256(setup).hexdigest()[:16]}"
        if session != self._session:
            client.run(remote.end, self._session, on_error="ignore")
            self._session = session
        return DaskWorkers(client, self.address, session, setup, tasks, options)


def onnx_bytes(model: object) -> bytes:
    """Return an ONNX model as one message, weights in files of their own included.

    Raises: UsageError where it is none, or too large for one message.
    """
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    import onnx
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        if isinstance(model, (str, os.PathLike)):
            return onnx.load(model).SerializeToString()  # type: ignore[no-any-return, unused-ignore]
        if isinstance(model, onnx.ModelProto):
            return model.SerializeToString()  # type: ignore[no-any-return, unused-ignore]
    except (ValueError, EncodeError):
        raise UsageError(
            "the model is too large to be sent to workers: messages hold 2 GB",
            hint="tune it with the executor local",
        ) from None
    raise UsageError(
        "workers of a cluster are sent ONNX models, this is another",
        hint="name a file, or tune with the executor local",
    )


def connected(address: str) -> Any:
    """Return a client of the scheduler at an address.

    Raises: UsageError where a package is missing, or nobody answers there.
    """
    if importlib.util.find_spec("distributed") is None:
        raise UsageError("the executor dask needs dask.distributed", hint=_EXTRA)
    try:
        return _distributed().Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # a time-out is an OSError
        raise UsageError(
            f"no scheduler of Dask answers at {address}: {str(error).split(chr(10))[0][:200]}",
            hint="start one with `dask scheduler`, and name it as dask:tcp://host:8786",
        ) from None


def _distributed() -> Any:
    return importlib.import_module("distributed")


@dataclass(slots=True)
class DaskWorkers:
    """The workers of a cluster at work on some tasks; a context that ends what they do."""

    client: Any
    address: str
    session: str
    setup: bytes
    tasks: Sequence[Task]
    options: WorkOptions
    _brought: Any = None
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _waiting: deque[tuple[int, int, Choice]] = field(default_factory=deque)
    _made: deque[_Job] = field(default_factory=deque)
    _known: KnownCode = field(default_factory=KnownCode)
    _seen: float = field(default_factory=time.monotonic)

    def __enter__(self) -> DaskWorkers:
        try:
            if self.client.nthreads():  # else it would wait for a worker
                self._brought = self.client.scatter(self.setup, hash=False, broadcast=True)
            self._meet()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            if worker.job is not None:
                worker.job.future.cancel()
        self._brought = None
        self._workers.clear()

    @property
    def count(self) -> int:
        """The number of workers that build."""
        return max(1, sum(w.builds for w in self._workers.values()))

    @property
    def pending(self) -> int:
        """How many candidates have no outcome yet."""
        busy = sum(w.job is not None and w.job.kind != "hello" for w in self._workers.values())
        return len(self._waiting) + len(self._made) + busy

    def add(self, ticket: int, task: int, choice: Choice) -> None:
        """Queue a candidate."""
        self._waiting.append((ticket, task, choice))

    def results(self, wait: float, best: Callable[[int], float]) -> Iterator[Outcome]:
        """Give workers what to do, and yield what they have done."""
        self._feed(best)
        self._wait(wait)
        yield from self._finished()
        yield from self._lost()
        self._check_company()
        self._feed(best)

    def race(self, task: int, choices: Sequence[Choice], rounds: int) -> list[Measured]:
        """Let one worker build choices and time them alternately."""
        request = {"do": "race", "task": self.tasks[task].name, "rounds": rounds,
                   "choices": [choice_to_json(c) for c in choices]}  # fmt: skip
        options = self.options
        seconds = len(choices) * (options.build_timeout + options.measure.timeout)
        worker = next((w for w in self._workers.values() if w.measures and not w.job), None)
        if worker is None:
            return [Measured(error="no worker is left that measures")] * len(choices)
        job = self._ask(worker, "race", packed(request), seconds)
        lost: list[Outcome] = []
        while not job.future.done() and not lost:
            self._wait(1.0)
            lost = [*self._finished(), *self._lost()]
        worker.job = None
        head: dict[str, Any] = {"error": lost[0].measured.error} if lost else _answer(job.future)[0]
        if "rows" not in head:
            return [Measured(error=str(head["error"]))] * len(choices)
        return [Measured(tuple(row["seconds"]), row["error"]) for row in head["rows"]]

    # -- who works -------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Ask the workers there are what they are, and wait until all have said so.

        Raises: UsageError where none may measure.
        """
        self._look()
        while any(w.job is not None for w in self._workers.values()):
            self._wait(1.0)
            for _ in (*self._finished(), *self._lost()):
                pass
        if not any(w.measures for w in self._workers.values()):
            said = "\n".join(f"{w.address}: {w.unfit}" for w in self._workers.values())
            raise UsageError(
                f"no worker of {self.address} measures for {self.tasks[0].target}"
                + (f"\n{said}" if said else ": it has no workers"),
                hint="start workers on machines with the target's CPU: `dask worker ADDRESS`",
            )

    def _check_company(self) -> None:
        """Raise UsageError where for long no worker has been there that measures."""
        if any(w.measures or w.job is not None for w in self._workers.values()):
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _LONELY_SECONDS:
            raise UsageError(
                f"no worker of {self.address} is left that measures",
                hint="start one; the same command goes on from the records",
            )

    def _look(self) -> None:
        """Greet workers that have joined; forget those that have gone and do nothing.

        Raises: UsageError where the scheduler has gone.
        """
        try:
            present = set(self.client.nthreads())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the scheduler of Dask at {self.address} has gone: {error}",
                hint="the same command goes on from the records",
            ) from None
        for address in present - set(self._workers):
            worker = self._workers[address] = _Worker(address)
            self._ask(worker, "hello", packed({"do": "hello"}), _HELLO_SECONDS)
        for address in set(self._workers) - present:
            if self._workers[address].job is None:
                del self._workers[address]

    def _lost(self) -> Iterator[Outcome]:
        """Yield the candidates of workers that have gone or say nothing any more."""
        self._look()
        present = set(self.client.nthreads())
        now = time.monotonic()
        for worker in [*self._workers.values()]:
            job = worker.job
            if job is None or (worker.address in present and now < job.deadline):
                continue
            job.future.cancel()
            said = "died" if worker.address not in present else "says nothing any more"
            del self._workers[worker.address]
            if job.kind != "hello":
                yield Outcome(job.ticket, Measured(error=f"the worker {said}"), job.seconds)

    # -- what they do ----------------------------------------------------------------------------

    def _feed(self, best: Callable[[int], float]) -> None:
        """Give every idle worker something: what is built is measured first."""
        for worker in self._workers.values():
            if worker.job is not None:
                continue
            if self._made and worker.measures:
                self._measure(worker, self._made.popleft(), best)
            elif self._waiting and worker.builds:
                self._build(worker, *self._waiting.popleft())

    def _build(self, worker: _Worker, ticket: int, task: int, choice: Choice) -> None:
        request = {"do": "build", "task": self.tasks[task].name, "choice": choice_to_json(choice)}
        job = self._ask(worker, "build", packed(request), self.options.build_timeout)
        job.ticket, job.task = ticket, task

    def _measure(self, worker: _Worker, made: _Job, best: Callable[[int], float]) -> None:
        assert made.made is not None
        known = best(made.task)
        request = {
            "do": "measure",
            "task": self.tasks[made.task].name,
            "workspace": made.made.workspace,
            "best": None if known == inf else known,
        }
        message = packed(request, made.made.code)
        job = self._ask(worker, "measure", message, self.options.measure.timeout)
        job.ticket, job.task, job.made, job.seconds = (
            made.ticket,
            made.task,
            made.made,
            made.seconds,
        )

    def _ask(self, worker: _Worker, kind: str, request: bytes, seconds: float) -> _Job:
        future = self.client.submit(
            remote.ask, self.session, self._brought, request,
            workers=[worker.address], allow_other_workers=False, pure=False, retries=0,
        )  # fmt: skip
        worker.job = _Job(kind, future, time.monotonic() + seconds + _SLACK_SECONDS)
        return worker.job

    def _wait(self, seconds: float) -> None:
        """Wait for any worker."""
        futures = [w.job.future for w in self._workers.values() if w.job is not None]
        if not futures:
            time.sleep(min(seconds, _IDLE_SECONDS))
            return
        with self.client.as_current(), suppress(TimeoutError):
            _distributed().wait(futures, timeout=seconds, return_when="FIRST_COMPLETED")

    def _finished(self) -> Iterator[Outcome]:
        """Take the answers there are; yield the outcomes among them."""
        for worker in self._workers.values():
            job = worker.job
            if job is None or job.kind == "race" or not job.future.done():
                continue
            head, code = _answer(job.future)
            worker.job = None
            if job.kind == "hello":
                _introduced(worker, head)
            elif job.kind == "build":
                yield from self._built(job, head, code)
            else:
                measured = Measured(tuple(head.get("seconds", ())), head["error"])
                assert job.made is not None
                self._known.put(job.task, job.made, measured)
                yield Outcome(job.ticket, measured, job.seconds)

    def _built(self, job: _Job, head: dict[str, Any], code: bytes) -> Iterator[Outcome]:
        """Queue what was built to be measured; yield what needs not to be."""
        job.seconds = float(head.get("seconds", 0.0))
        if head["error"]:
            yield Outcome(job.ticket, Measured(error=head["error"]), job.seconds)
            return
        job.made = ObjectCode(code, head["workspace"])
        known = self._known.get(job.task, job.made)
        if known is not None:
            yield Outcome(job.ticket, known, job.seconds)
        else:
            self._made.append(job)


def _answer(future: Any) -> tuple[dict[str, Any], bytes]:
    """Return what a worker has answered; what went wrong there is an answer, too."""
    error = future.exception() if future.status == "error" else None
    if future.status != "finished":
        return {"error": f"the worker failed: {error or future.status}"[:500]}, b""
    return unpacked(future.result())


def _introduced(worker: _Worker, head: Mapping[str, Any]) -> None:
    """Take note of what a worker says of itself."""
    if head.get("error"):
        worker.unfit = str(head["error"])
    elif head["compiler"] != compiler_digest():
        worker.unfit = "it has another version of Treadle"
    else:
        worker.builds = True
        worker.unfit = str(head["unlike"])
        worker.measures = not worker.unfit
