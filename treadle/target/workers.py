# SPDX-License-Identifier: Apache-2.0
"""Kernels from LLVM IR text to object files: cached on disk, compiled by worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from treadle.errors import InternalError
from treadle.settings import get as get_settings
from treadle.target.cache import kernel_cache, object_cache_folder
from treadle.target.compiler_facts import compiler_facts
from treadle.target.host import usable_cores
from treadle.target.worker_pool import Compiled, Run, pool

JOB_SECONDS = 300.0
"""How long one kernel may compile."""

_PIPELINE = 1  # raise when the passes or options of treadle.target.llvm change


OnDone = Callable[[str, bool], None]
"""Called with a kernel's name and whether it came from the cache, as each is ready."""


def compile_many(
    jobs: Iterable[tuple[str, str]], on_done: OnDone | None = None
) -> dict[str, bytes]:
    """Return the object file of every (name, IR text) job.

    Jobs are taken one by one and compiled while the next are made.

    Raises: InternalError naming the kernels that LLVM refuses, that crash it or take too long.
    """
    texts: dict[str, str] = {}

    def each() -> Iterator[tuple[str, str]]:
        for name, text in jobs:
            if name not in texts:
                texts[name] = text
                yield name, text
            elif texts[name] != text:
                raise InternalError(f"two different kernels have the name {name}")

    done: dict[str, bytes] = {}
    failed: list[Compiled] = []
    for result in compile_each(each()):
        if result.data is None:
            failed.append(result)
        else:
            done[result.name] = result.data
            if on_done is not None:
                on_done(result.name, result.is_cached)
    if failed:
        raise _failure(failed, texts)
    return {name: done[name] for name in texts}


def compile_each(
    jobs: Iterable[tuple[str, str]], *, seconds: float = JOB_SECONDS
) -> Iterator[Compiled]:
    """Compile kernels and yield each when it is ready, failures included, in any order."""
    settings = get_settings()
    store = kernel_cache(object_cache_folder())
    texts: dict[str, str] = {}

    def kept(results: Iterable[Compiled]) -> Iterator[Compiled]:
        for result in results:
            if result.data is not None:
                store.store(_key(texts.pop(result.name)), result.data)
            yield result

    with Run(pool(), settings.compile_workers or usable_cores(), seconds) as run:
        for name, text in jobs:
            data = store.load(_key(text))
            if data is not None:
                yield Compiled(name, data, is_cached=True)
                continue
            texts[name] = text
            run.add(name, text)
            yield from kept(run.results(wait=False))
        while run.has_work:
            yield from kept(run.results(wait=True))


def assembly(jobs: Mapping[str, str]) -> dict[str, str]:
    """Return the assembly of every kernel's IR text, as it stands in the object files.

    Raises: InternalError naming the kernels that LLVM refuses, that crash it or take too long.
    """
    results: list[Compiled] = []
    count = get_settings().compile_workers or usable_cores()
    with Run(pool(), count, JOB_SECONDS, "assembly") as run:
        for name, text in jobs.items():
            run.add(name, text)
        while run.has_work:
            results += run.results(wait=True)
    found = {r.name: r.data.decode() for r in results if r.data is not None}
    if failed := [r for r in results if r.data is None]:
        raise _failure(failed, dict(jobs))
    return {name: found[name] for name in jobs}


def prepare() -> None:
    """Start the workers without waiting for them, while there is nothing to compile yet."""
    pool().grow(get_settings().compile_workers or usable_cores())


def shut_down() -> None:
    """End the workers; the next compilation starts fresh ones."""
    pool().close()


def start_anew() -> None:
    """Forget the workers in a process that was forked; those it starts are of its process group."""
    pool.cache_clear()
    pool().has_own_sessions = False


def refusal(ir_text: str) -> str:
    """Return why LLVM refuses a module; "" where it compiles."""
    (result,) = compile_each([("kernel", ir_text)])
    return result.error


@cache
def compiler_version() -> str:
    """Return what, in addition to the IR, decides the object code."""
    facts = compiler_facts()
    return f"llvm {facts.llvm}, llvmlite {facts.llvmlite}, pipeline {_PIPELINE}"


def _key(ir_text: str) -> str:
    # The IR names the triple, the CPU and the features.
    return f"{compiler_version()}\n{ir_text}"


def _failure(failed: list[Compiled], texts: dict[str, str]) -> InternalError:
    folder = get_settings().dump
    if folder is None:
        hint = "set TREADLE_DUMP to a folder to keep the IR, and report it"
    else:
        folder.mkdir(parents=True, exist_ok=True)
        for f in failed:
            (folder / f"{f.name}.failed.ll").write_text(texts[f.name])
        hint = f"report this with the files *.failed.ll in {folder}"
    problem = "\n".join(f"kernel {f.name}: {f.error}" for f in failed)
    return InternalError(problem, at="compiling LLVM IR", hint=hint)
