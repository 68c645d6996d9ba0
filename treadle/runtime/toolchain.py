# SPDX-License-Identifier: Apache-2.0
"""Linking object code into shared objects: by Treadle itself, or by a linker that is found."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from treadle.errors import ToolchainError
from treadle.runtime import native_build
from treadle.runtime.elf.link import MACHINE_NAMES, link_objects

_TIMEOUT_S = 300
_INSTALL_HINT = 'install a linker (lld or a C compiler), or: pip install "treadle[cross]"'


@dataclass(frozen=True)
class Tool:
    """A command that links: a linker itself, or a compiler that calls one."""

    name: str
    command: tuple[str, ...]
    kind: Literal["linker", "driver"]

    def link_command(self, objects: Sequence[str], output: str, strict: bool) -> list[str]:
        """Return the command that links `objects` into a shared object without libc."""
        options = ["-shared", "-nostdlib", "-o", output, *objects]
        linker_options = ["-z", "noexecstack", "--hash-style=gnu"]
        if strict:
            linker_options.append("--no-undefined")
        if self.kind == "driver":
            linker_options = ["-Wl," + ",".join(linker_options)]
        return [*self.command, *options, *linker_options]


# ---- finding -------------------------------------------------------------------------------------


def _architecture(triple: str) -> str:
    name = triple.split("-", 1)[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def is_native(triple: str | None) -> bool:
    """True if code of that target triple runs on this machine (None: it does)."""
    if triple is None:
        return True
    system = platform.system().lower()
    machine = _architecture(platform.machine())
    return _architecture(triple) == machine and (system in triple or "-" not in triple)


def _first(names: Sequence[str]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def find_lld() -> Tool | None:
    """Return LLVM's linker from PATH."""
    path = _first(["ld.lld", *(f"ld.lld-{version}" for version in range(23, 13, -1))])
    return Tool("ld.lld", (path,), "linker") if path else None


def find_compiler(triple: str | None = None) -> Tool | None:
    """Return a C compiler for the target: cc, gcc or clang, or `<triple>-gcc` for another one."""
    names = ["cc", "gcc", "clang"] if is_native(triple) else _cross_names(triple or "")
    path = _first(names)
    return Tool(Path(path).name, (path,), "driver") if path else None


def _cross_names(triple: str) -> list[str]:
    parts = triple.split("-")
    short = f"{parts[0]}-linux-gnu"
    return [f"{triple}-gcc", f"{short}-gcc"]


def find_zig() -> Tool | None:
    """Return the linker inside zig (on PATH or in the `ziglang` wheel)."""
    command = native_build.zig_command()
    return Tool("zig ld.lld", (*command, "ld.lld"), "linker") if command else None


def named_tool(command: str | Sequence[str]) -> Tool:
    """Return the tool a user names: a program, or a list of program and options.

    Raises: ToolchainError when the program does not exist.
    """
    words = (command,) if isinstance(command, str) else tuple(command)
    if not words or shutil.which(words[0]) is None:
        raise ToolchainError(
            f"the linker {words[0] if words else ''!r} is not found",
            hint="name a program on PATH, or its full path",
        )
    last = Path(words[-1]).name
    is_linker = last == "ld" or last.startswith(("ld.", "ld-")) or last.endswith("-ld")
    return Tool(words[0], words, "linker" if is_linker else "driver")


def find_linkers(triple: str | None = None) -> list[Tool]:
    """Return every tool other than Treadle that can link for the target, the preferred first."""
    candidates = (find_lld(), find_compiler(triple), find_zig())
    return [tool for tool in candidates if tool is not None]


def linkers_for(triple: str | None, tool: str | Sequence[str] | None = None) -> list[Tool]:
    """Return the tools to try for the target, in order: the named one, else all that are found.

    Raises: ToolchainError when there is none.
    """
    tools = [named_tool(tool)] if tool else find_linkers(triple)
    if not tools:
        raise ToolchainError(
            f"no linker is found for {triple or 'this machine'}", hint=_INSTALL_HINT
        )
    return tools


def own_machine(triple: str | None) -> int | None:
    """Return the ELF number of a target's machine where Treadle links for it itself, else None."""
    return MACHINE_NAMES.get(_architecture(triple or platform.machine()))


def check_linkable(triple: str | None, tool: str | Sequence[str] | None = None) -> None:
    """Raise ToolchainError where `link_shared` has nothing to link with for the target."""
    _check_triple(triple)
    if tool is not None or own_machine(triple) is None:
        linkers_for(triple, tool)


# ---- linking -------------------------------------------------------------------------------------


def _check_triple(triple: str | None) -> None:
    if triple and any(system in triple for system in ("windows", "darwin", "wasm", "macos")):
        raise ToolchainError(
            f"shared objects for {triple} are not possible",
            hint="choose a Linux target",
        )


def run_tool(command: Sequence[str], failure: str = "says") -> str:
    """Run a compiler or the like; return what it prints.

    Raises: ToolchainError where it cannot be started, takes minutes or fails: `failure`, and what
        it says.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise ToolchainError(f"{command[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"{command[0]} does not finish in {_TIMEOUT_S} seconds") from None
    if done.returncode != 0:
        raise ToolchainError(f"{command[0]} {failure}: {done.stderr.strip()[:2000]}")
    return done.stdout


def _run_linker(command: Sequence[str]) -> str:
    """Run a linker; return "" or what it says."""
    try:
        run_tool(command)
    except ToolchainError as error:
        return error.problem
    return ""


def _write_objects(objects: Sequence[bytes | Path | str], folder: Path) -> list[str]:
    names = []
    for index, item in enumerate(objects):
        if isinstance(item, bytes):
            path = folder / f"{index}.o"
            path.write_bytes(item)
            names.append(str(path))
        else:
            names.append(str(Path(item).absolute()))
    return names


def _link_itself(objects: Sequence[bytes | Path | str], triple: str | None) -> bytes:
    """Return the shared object Treadle makes. Raises ToolchainError."""
    data = [item if isinstance(item, bytes) else Path(item).read_bytes() for item in objects]
    return link_objects(data, own_machine(triple))


def _link_by_tools(
    tools: Sequence[Tool], objects: Sequence[bytes | Path | str], folder: Path, strict: bool
) -> tuple[Path | None, list[str]]:
    """Return what the first tool that succeeds has made, and what the others say."""
    inputs = _write_objects(objects, folder)
    made = folder / "linked.so"
    failures: list[str] = []
    for tool in tools:
        failure = _run_linker(tool.link_command(inputs, str(made), strict))
        if not failure:
            return made, failures
        failures.append(failure)
    return None, failures


def link_shared(
    objects: Sequence[bytes | Path | str],
    out: Path | str,
    target_triple: str | None = None,
    tool: str | Sequence[str] | None = None,
    *,
    allow_undefined: bool = False,
) -> Path:
    """Link object files (their content, or paths) into the shared object `out`; return its path.

    The result depends on no library; a symbol that no object defines is an error unless
    `allow_undefined`. The file appears complete or not at all. Treadle links itself where it can
    (docs/design/linking.md), else the linkers that are found are tried; `tool` names the linker or
    compiler to use instead (never run through a shell). Raises: ToolchainError.
    """
    if not objects:
        raise ToolchainError("there is no object code to link")
    _check_triple(target_triple)
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix=".treadle-", dir=path.parent) as name:
        if tool is None and not allow_undefined and own_machine(target_triple) is not None:
            made = Path(name) / "own.so"
            try:
                made.write_bytes(_link_itself(objects, target_triple))
            except ToolchainError as error:
                failures.append(error.problem)
            else:
                made.replace(path)
                return path
        tools = find_linkers(target_triple) if failures else linkers_for(target_triple, tool)
        found, more = _link_by_tools(tools, objects, Path(name), not allow_undefined)
        if found is not None:
            found.replace(path)
            return path
    raise ToolchainError(
        f"the object code cannot be linked for {target_triple or 'this machine'}\n"
        + "\n".join(failures + more),
        hint="check the linker's options" if tool is not None else _INSTALL_HINT,
    )
