# SPDX-License-Identifier: Apache-2.0
"""What LLVM says of itself and of this machine, without LLVM in this process.

LLVM takes some fifty megabytes and a tenth of a second. A compile worker has it in any case and is
asked once; the answer is kept on disk for other processes, under everything it depends on.
"""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from treadle.errors import TreadleError
from treadle.runtime import native
from treadle.target.cache import kernel_cache, object_cache_folder
from treadle.target.worker_pool import Run, pool

_SECONDS = 60.0
_CPU_INFO = Path("/proc/cpuinfo")
_TELLING = {
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",  # x86
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",  # Arm
    "isa", "uarch", "mvendorid", "marchid", "mimpid",  # RISC-V
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompilerFacts:
    """Versions such as "22.1.0", and this machine's triple, CPU and features under LLVM's names.

    `features` is None where LLVM cannot read them on this system.
    """

    llvm: str
    llvmlite: str
    triple: str
    cpu: str
    features: tuple[str, ...] | None


@cache
def compiler_facts() -> CompilerFacts:
    """Return what LLVM says: from disk, else from a worker, else from LLVM in this process."""
    key, store = _key(), kernel_cache(object_cache_folder())
    kept = None if key is None else store.load(key)
    if kept is not None:
        return _from_json(kept)
    told = None if key is None else _asked()
    if told is None:
        return _from_json(import_module("treadle.target.llvm").facts_text().encode())
    facts = _from_json(told)
    if key is not None:
        store.store(key, json.dumps(asdict(facts)).encode())
    return facts


def _asked() -> bytes | None:
    """Return what a worker answers, None where it gives no answer."""
    with suppress(OSError), Run(pool(), 1, _SECONDS, "facts") as run:  # none can be started
        run.add("facts", "")
        while run.has_work:
            for answer in run.results(wait=True):
                return answer.data
    return None


def _from_json(text: bytes) -> CompilerFacts:
    found = json.loads(text)
    features = found.pop("features")
    return CompilerFacts(**found, features=None if features is None else tuple(features))


def _key() -> str | None:
    """Return what the answer depends on; None where that cannot be told."""
    library, cpu = _library(), _cpu_lines()
    if library is None or not cpu:
        return None
    try:
        # What the processor itself says: an emulator may show another one's file.
        features = native.cpu_features()
    except TreadleError:
        features = []
    here = platform.system(), platform.machine()
    return "\n".join(["compiler facts", *here, *library, *features, *cpu])


def _library() -> list[str] | None:
    """Return which LLVM there is: its files with their sizes and times."""
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return None
    try:
        files = sorted(Path(spec.origin).parent.glob("binding/*llvmlite.*"))
        facts = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    except OSError:
        return None
    return [" ".join(map(str, f)) for f in facts] or None


def _cpu_lines() -> list[str]:
    """Return what the system says of the kinds of CPUs, without what changes or counts them."""
    try:
        lines = _CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return sorted({line for line in lines if line.partition(":")[0].strip() in _TELLING})
