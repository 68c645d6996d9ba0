# SPDX-License-Identifier: Apache-2.0
"""Every TREADLE_* variable: name, type, default, help; the only reader of the environment."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

from treadle.errors import SettingError, name_hint

MOST_THREADS = 512
"""Threads, of the native runtime or of the compiler's workers."""


@dataclass(frozen=True)
class Settings:
    """The values in force. `None` means: not set, the program decides."""

    debug: int
    dump: Path | None
    dump_only: str
    override: Path | None
    verify: int
    time: bool
    num_threads: int | None
    cache: Path
    model_cache: int
    compile_workers: int | None
    winograd: bool
    weight_growth: float
    host_cpu: str
    c_compiler: str

    @property
    def is_watched(self) -> bool:
        """True when the user wants to see or to replace what happens between graph and code.

        Then everything must be made anew, and what is edited must not be kept under its old key.
        """
        return bool(self.dump or self.override or self.time or self.debug)


@dataclass(frozen=True)
class Setting:
    """One row of the table: how a value is read, and what it is for."""

    name: str
    read: Callable[[str], object]
    default: Callable[[], object]
    wanted: str
    help: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"TREADLE_{self.name.upper()}"


# ---- reading one value ---------------------------------------------------------------------------


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return read


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def _command(text: str) -> str:
    shlex.split(text)  # raises ValueError for quotes that do not close
    return text


def _bool(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True}
    words |= {"0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _folder(text: str) -> Path:
    path = Path(text).expanduser()
    if os.path.exists(path) and not os.path.isdir(path):  # Path.exists raises where it may not look
        raise ValueError(text)
    return path


def _existing_folder(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise ValueError(text)
    return path


def _default_cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return Path(named) / "treadle"
    try:
        return Path.home() / ".cache" / "treadle"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"treadle-{os.getuid()}"


def _none() -> None:
    return None


TABLE = (
    Setting("debug", _integer(0, 7), lambda: 0, "a number from 0 to 7", "how much to print"),
    Setting("dump", _folder, _none, "a folder", "write every stage's text there"),
    Setting("dump_only", str, lambda: "*", "a name pattern", "dump only matching kernels"),
    Setting(
        "override",
        _existing_folder,
        _none,
        "a folder that exists",
        "compile the edited dumps of graph and LLVM IR found there",
    ),
    Setting("verify", _integer(0, 2), lambda: 1, "0, 1 or 2", "how much to check between passes"),
    Setting("time", _bool, lambda: False, "0 or 1", "print the time of every pass"),
    Setting(
        "num_threads",
        _integer(1, MOST_THREADS),
        _none,
        f"a number from 1 to {MOST_THREADS}",
        "threads of the native runtime (default: the CPUs this process may use)",
    ),
    Setting(
        "cache",
        _folder,
        _default_cache,
        "a folder",
        "compiled kernels and models (default: ~/.cache/treadle)",
    ),
    Setting(
        "model_cache",
        _integer(0, 1 << 40),
        lambda: 4096,
        "a number of megabytes, 0 for none",
        "megabytes of compiled models that the command line keeps there (default: 4096)",
    ),
    Setting(
        "compile_workers",
        _integer(1, MOST_THREADS),
        _none,
        f"a number from 1 to {MOST_THREADS}",
        "processes that compile kernels (default: the CPUs this process may use)",
    ),
    Setting(
        "winograd",
        _bool,
        lambda: True,
        "0 or 1",
        "let convolutions run by Winograd's filtering and large products by Strassen's "
        "algorithm (faster, less exact) where it pays",
    ),
    Setting(
        "weight_growth",
        _share,
        lambda: 0.1,
        "a number from 0, such as 0.1",
        "by which part of themselves weights may grow for Winograd's and Strassen's algorithms "
        "(half a megabyte may always be added)",
    ),
    Setting(
        "host_cpu",
        str,
        str,
        "the name of a CPU",
        "compile for that CPU where no other is named, as if this machine had it and no more",
    ),
    Setting(
        "c_compiler",
        _command,
        str,
        "a command with quotes that close",
        "the C compiler of targets of kind c, with options (default: the first one found)",
    ),
)

_BY_NAME = {setting.name: setting for setting in TABLE}


def _read(setting: Setting, text: str, said: str) -> object:
    try:
        return setting.read(text)
    except ValueError:
        raise SettingError(
            f"{said} is {text!r}; it must be {setting.wanted}",
            hint=f"unset it or correct it: {setting.help}",
        ) from None


# ---- what is in force ----------------------------------------------------------------------------


_DEFAULTS_READ = ("XDG_CACHE_HOME", "HOME", "USERPROFILE")
_SHORTEST_SPIN = "4"  # the power of 2 of the clock's cycles that OpenBLAS takes at the least
_VARIABLES = (*(setting.variable for setting in TABLE), *_DEFAULTS_READ)


def let_blas_sleep() -> None:
    """Let the threads of NumPy's BLAS sleep between products, unless the user has set for how long.

    OpenBLAS has them spin for tens of milliseconds after they start and after each product, on
    cores that the threads of kernels and the compile workers then share with them. It reads this as
    it is loaded: a program says it before it imports NumPy. A library does not say it for others.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", _SHORTEST_SPIN)


def environment() -> dict[str, str]:
    """Return the variables of this process, for one that it starts."""
    return dict(os.environ)


def _from_environment() -> Settings:
    return _settings_of(tuple([os.environ.get(name, "") for name in _VARIABLES]))


@lru_cache(maxsize=16)
def _settings_of(texts: tuple[str, ...]) -> Settings:
    """Return the settings that the texts of `_VARIABLES` say: asked for all the time, read once."""
    values: dict[str, object] = {}
    for setting, text in zip(TABLE, texts, strict=False):
        values[setting.name] = _read(setting, text, setting.variable) if text else setting.default()
    return Settings(**values)  # type: ignore[arg-type]  # the table's rows are typed by Settings


_no_changes: Mapping[str, object] = {}
_changes: ContextVar[Mapping[str, object]] = ContextVar("treadle_settings", default=_no_changes)


def get() -> Settings:
    """Return the settings in force: the environment's, changed by the `use` blocks around.

    Raises: SettingError when a variable has a value it cannot have.
    """
    changes = _changes.get()
    settings = _from_environment()
    return replace(settings, **changes) if changes else settings  # type: ignore[arg-type]


def _check_change(name: str, value: object) -> object:
    setting = _BY_NAME.get(name)
    if setting is None:
        hint = name_hint(name, _BY_NAME, f"settings are {', '.join(_BY_NAME)}")
        raise SettingError(f"{name!r} is not a setting", hint=hint)
    if value is None:
        return setting.default()
    return _read(setting, str(int(value) if isinstance(value, bool) else value), name)


@contextmanager
def use(**changes: object) -> Iterator[Settings]:
    """Change settings inside a `with` block (this thread or task only); None means the default.

    Example: `with settings.use(debug=3, num_threads=1): ...`
    """
    checked = {name: _check_change(name, value) for name, value in changes.items()}
    token = _changes.set({**_changes.get(), **checked})
    try:
        yield get()
    finally:
        _changes.reset(token)


def describe() -> list[tuple[str, str, str]]:
    """Return (variable, value in force, help) of every setting."""
    now = get()
    names = [field.name for field in fields(now)]
    return [(_BY_NAME[n].variable, str(getattr(now, n)), _BY_NAME[n].help) for n in names]
