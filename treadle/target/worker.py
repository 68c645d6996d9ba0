# SPDX-License-Identifier: Apache-2.0
"""The program of a compile worker: IR text in on stdin, machine code out on stdout, until EOF.

    worker.py [IDLE_SECONDS]

A message is a 4-byte length, a JSON header of that length, and `bytes` more bytes of payload. The
header of a job says in `form` if "object" code or "assembly" is wanted, or "facts" of LLVM.
The program is started by its path and loads only treadle.target.llvm, so that it starts quickly.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

_LENGTH = struct.Struct(">I")
_WATCH_SECONDS = 1.0
_SMAPS = Path("/proc/self/smaps")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S{4}(?: +\S+){3} *(.*)")
_HAS_PAGES = re.compile(r"Rss: +[1-9]")
_WAS_WRITTEN = re.compile(r"(?:Anonymous|Swap): +[1-9]")
_MADV_DONTNEED = 4


def _load_llvm() -> ModuleType:
    """Load treadle.target.llvm by its path, without the package around it."""
    path = Path(__file__).resolve().with_name("llvm.py")
    spec = importlib.util.spec_from_file_location("treadle_worker_llvm", path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _unchanged(smaps: Iterable[str], library: str) -> list[tuple[int, int]]:
    """Return address and size of a library's mappings with pages, none written by this process."""
    found: dict[int, int] = {}
    start, end, is_library = 0, 0, False
    for line in map(str.rstrip, smaps):
        if mapping := _MAPPING.fullmatch(line):
            start, end = int(mapping[1], 16), int(mapping[2], 16)
            is_library = mapping[3].endswith(library)
        elif is_library and _HAS_PAGES.match(line):
            found[start] = end - start
        elif is_library and _WAS_WRITTEN.match(line):
            found.pop(start, None)
    return list(found.items())


def _forget_loading(library: str) -> None:
    """Give back the pages of LLVM's file that only loading it took: relocations, constructors.

    They are 35 MB, of which compiling needs a half; that half comes back from the page cache.
    """
    if sys.platform != "linux":
        return
    try:
        with _SMAPS.open() as smaps:
            unchanged = _unchanged(smaps, library)
    except OSError:  # the system does not say; the pages stay
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, size in unchanged:
        madvise(start, size, _MADV_DONTNEED)


def _read(stream: BinaryIO, seconds: float | None) -> tuple[str, str] | None:
    """Return the next job's IR text and form; None at the end, or when none comes in time."""
    if not select.select([stream], [], [], seconds)[0]:
        return None
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    header = json.loads(stream.read(_LENGTH.unpack(head)[0]))
    return stream.read(header["bytes"]).decode(), header["form"]


def _write(stream: BinaryIO, header: dict[str, object], payload: bytes) -> None:
    head = json.dumps({**header, "bytes": len(payload)}).encode()
    stream.write(_LENGTH.pack(len(head)) + head + payload)
    stream.flush()


def _die_with_parent(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a long compilation."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


def _own_stdout() -> BinaryIO:
    """Keep stdout for messages; what a library prints goes to stderr."""
    channel = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(channel, "wb")


def _made(llvm: ModuleType, text: str, form: str) -> bytes:
    if form == "object":
        return bytes(llvm.compile_ir(text))
    made: str = llvm.facts_text() if form == "facts" else llvm.asm_text(text)
    return made.encode()


def main() -> None:
    """Serve jobs until the parent closes the pipe, or sends none for the seconds it names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The folder of this file would put our modules in the way of top-level ones.
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).parent]
    output = _own_stdout()
    if hasattr(os, "getppid"):
        threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    llvm = _load_llvm()
    llvm.disable_machine_scheduler()
    _forget_loading(f"/{llvm.LIBRARY}")
    seconds = float(sys.argv[1]) if sys.argv[1:] else None
    while (job := _read(sys.stdin.buffer, seconds)) is not None:
        text, form = job
        try:
            result = _made(llvm, text, form)
        except llvm.CompileError as error:
            _write(output, {"error": str(error)}, b"")
        else:
            _write(output, {}, result)


if __name__ == "__main__":
    main()
