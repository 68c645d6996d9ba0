# SPDX-License-Identifier: Apache-2.0
"""Source texts compiled by threads, for back ends whose compiler is not LLVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from treadle.errors import InternalError
from treadle.settings import get as get_settings
from treadle.target.backend import CompileError, OnDone
from treadle.target.cache import kernel_cache, object_cache_folder
from treadle.target.host import usable_cores


def compile_texts(
    jobs: Iterable[tuple[str, str]],
    version: str,
    compiled: Callable[[str], bytes],
    language: str,
    on_done: OnDone | None,
) -> dict[str, bytes]:
    """Compile as many kernels at a time as the settings say, while the next texts are made.

    See `Backend.compile`. `compiled` makes the object code of a text, in a thread, or raises
    CompileError; code is kept by the text and `version`, which is all else that decides it.

    Raises: InternalError where a text does not compile.
    """
    store = kernel_cache(object_cache_folder())
    done: dict[str, bytes] = {}
    waiting: dict[str, tuple[str, Future[bytes]]] = {}
    with ThreadPoolExecutor(get_settings().compile_workers or usable_cores()) as pool:
        for name, text in jobs:
            kept = store.load(f"{version}\n{text}")
            if kept is None:
                waiting[name] = text, pool.submit(compiled, text)
                continue
            done[name] = kept
            if on_done is not None:
                on_done(name, True)
        for name, (text, result) in waiting.items():
            done[name] = _result(name, result, language)
            store.store(f"{version}\n{text}", done[name])
            if on_done is not None:
                on_done(name, False)
    return done


def _result(name: str, result: Future[bytes], language: str) -> bytes:
    try:
        return result.result()
    except CompileError as error:
        raise InternalError(
            f"kernel {name}: {error}",
            at=f"compiling {language}",
            hint="set TREADLE_DUMP to a folder to keep the source, and report it",
        ) from error
