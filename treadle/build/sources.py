# SPDX-License-Identifier: Apache-2.0
"""Source texts of kernels, which this process and copies of it make together.

Lowering is Python, of which a process runs one thread at a time, and takes longer than LLVM. Copies
(`fork`) know the kernels already, and send back no more than texts. Each process takes the next
kernel that nobody has taken from a pipe of numbers, and no copy outlives the call. What a copy does
not make (it was killed, memory is short, a kernel has an error) this process makes itself, so that
errors are those of one process.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from treadle import limits
from treadle.settings import get
from treadle.target.host import usable_cores
from treadle.target.worker_pool import message, take_message

if TYPE_CHECKING:
    from treadle.build.kernel import Kernel

_MOST_KERNELS = 8192
"""Numbers of kernels that a pipe holds for sure."""
_PIPE_BYTES = 1 << 20
"""Texts that a copy sends without waiting for a reader, where the system grants so large a pipe."""
_NUMBER = struct.Struct("=I")

_makers = 0
_count = threading.Lock()


@dataclass(frozen=True, slots=True)
class Source:
    """What a kernel is compiled from.

    `workspace` is the scratch memory its caller lends it, as `sizes.size_to_json`, `stack` what its
    buffers take of the stack, in bytes; `seconds` is what making the text took.
    """

    kernel: Kernel
    text: str
    workspace: object
    stack: int
    seconds: float


def source_of(kernel: Kernel) -> Source:
    """Return the source of a kernel, made by this process."""
    start = time.perf_counter()
    workspace, text = kernel.workspace(), kernel.source()
    stack = 0 if kernel.target.family == "gpu" else kernel.stack_bytes
    return Source(kernel, text, workspace, stack, time.perf_counter() - start)


def sources_of(kernels: Sequence[Kernel]) -> Iterator[Source]:
    """Yield the source of every kernel, in any order; what copies made is not kept by the kernels.

    Raises: what a kernel raises that cannot be made.
    """
    with _counted() as is_alone:
        count = copies_for(len(kernels)) if is_alone else 0
        if not count:
            yield from map(source_of, kernels)
            return
        with _Copies(kernels, count) as copies:
            yield from copies.sources()


def copies_for(kernels: int) -> int:
    """Return how many copies of this process help to make so many kernels."""
    settings = get()
    if sys.platform != "linux" or settings.is_watched or kernels > _MOST_KERNELS:
        return 0
    others = (settings.compile_workers or usable_cores()) - 1
    return min(others, kernels // limits.KERNELS_OF_PROCESS)


@contextmanager
def _counted() -> Iterator[bool]:
    """Tell whether no other thread makes kernels: a copy would inherit the locks that it holds."""
    global _makers
    with _count:
        _makers += 1
        is_alone = _makers == 1
    try:
        yield is_alone
    finally:
        with _count:
            _makers -= 1


@dataclass(eq=False, slots=True)
class _Copy:
    """A copy of this process, and what has arrived from it."""

    process: int
    output: int
    received: bytearray = field(default_factory=bytearray)


class _Copies:
    """The copies that make some of the kernels; a context that ends with them."""

    def __init__(self, kernels: Sequence[Kernel], count: int) -> None:
        self._kernels = kernels
        self._missing = set(range(len(kernels)))
        self._queue, end = os.pipe()
        os.write(end, b"".join(map(_NUMBER.pack, range(len(kernels)))))
        os.close(end)
        self._selector = selectors.DefaultSelector()
        self._copies: list[_Copy] = []
        for _ in range(count):
            with suppress(OSError):  # no memory, or no more processes: the others make more
                self._start()

    def _start(self) -> None:
        output, end = os.pipe()
        try:
            with warnings.catch_warnings():
                # Of locks that other threads hold: what a copy does takes none of them.
                warnings.simplefilter("ignore", DeprecationWarning)
                process = os.fork()
        except OSError:
            os.close(output)
            os.close(end)
            raise
        if process == 0:
            _make(self._kernels, self._queue, end)
        os.close(end)
        copy = _Copy(process, output)
        self._copies.append(copy)
        self._selector.register(output, selectors.EVENT_READ, copy)

    def __enter__(self) -> _Copies:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._queue)
        self._selector.close()
        for copy in self._copies:
            os.close(copy.output)
            with suppress(ProcessLookupError):
                os.kill(copy.process, signal.SIGKILL)
            with suppress(ChildProcessError):  # somebody else waited for it
                os.waitpid(copy.process, 0)

    def sources(self) -> Iterator[Source]:
        """Yield what this process makes and what arrives meanwhile, then the rest."""
        while number := os.read(self._queue, _NUMBER.size):
            yield self._source(_NUMBER.unpack(number)[0])
            yield from self._arrived(wait=False)
        while self._selector.get_map():
            yield from self._arrived(wait=True)
        for left in sorted(self._missing):
            yield self._source(left)

    def _source(self, number: int) -> Source:
        self._missing.discard(number)
        return source_of(self._kernels[number])

    def _arrived(self, *, wait: bool) -> Iterator[Source]:
        for key, _ in self._selector.select(None if wait else 0):
            copy: _Copy = key.data
            chunk = os.read(copy.output, _PIPE_BYTES)
            if not chunk:
                self._selector.unregister(copy.output)
            copy.received += chunk
            while (arrived := take_message(copy.received)) is not None:
                head, text = arrived
                self._missing.discard(head["number"])
                kernel = self._kernels[head["number"]]
                yield Source(kernel, text.decode(), **head["made"])


def _make(kernels: Sequence[Kernel], queue: int, output: int) -> NoReturn:
    """Make kernels as long as there are some and somebody to read them; the life of a copy."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever reads ends it
        gc.disable()
        with suppress(ImportError, OSError, AttributeError):
            import fcntl

            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        parent = os.getppid()
        while os.getppid() == parent and (number := os.read(queue, _NUMBER.size)):
            _send(kernels, _NUMBER.unpack(number)[0], output)
    finally:
        os._exit(0)


def _send(kernels: Sequence[Kernel], number: int, output: int) -> None:
    """Make a kernel and send it; one with an error is left to whoever reads."""
    try:
        made = source_of(kernels[number])
    except Exception:
        return
    kernels[number].release()
    facts = {"workspace": made.workspace, "stack": made.stack, "seconds": made.seconds}
    head = {"number": number, "made": facts}
    with open(output, "wb", closefd=False) as file:
        file.write(message(head, made.text.encode()))
