# SPDX-License-Identifier: Apache-2.0
"""The toolchain: linkers found, used without a shell, missed with a hint."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from tests.runtime import artifacts
from treadle.errors import ToolchainError
from treadle.runtime import native, native_build, toolchain


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return artifacts.compile_object(
        artifacts.KERNELS_C, tmp_path_factory.mktemp("object") / "kernels.o"
    )


def linkers() -> dict[str, toolchain.Tool]:
    return {tool.name: tool for tool in toolchain.find_linkers()}


@pytest.mark.parametrize("name", ["ld.lld", "cc", "zig ld.lld"])
def test_every_linker_makes_a_library_that_needs_nothing(
    name: str, kernels: bytes, tmp_path: Path
) -> None:
    if name not in linkers():
        pytest.skip(f"{name} is not on this machine")
    out = toolchain.link_shared([kernels], tmp_path / "k.so", tool=linkers()[name].command)
    library = native.Library(out)
    assert library.kernel("add")
    assert b"libc.so" not in out.read_bytes()
    assert os.listdir(tmp_path) == ["k.so"]


def test_objects_come_from_files_too(kernels: bytes, tmp_path: Path) -> None:
    (tmp_path / "a b;c.o").write_bytes(kernels)
    out = toolchain.link_shared([tmp_path / "a b;c.o"], tmp_path / "made" / "k.so")
    assert native.Library(out).kernel("add")


def test_code_for_another_machine_is_linked(tmp_path: Path) -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    triple, other = "aarch64-unknown-linux-gnu", 183
    if toolchain.is_native(triple):
        triple, other = "x86_64-unknown-linux-gnu", 62
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly("define i32 @k() { ret i32 0 }")
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic")
    out = toolchain.link_shared([machine.emit_object(module)], tmp_path / "k.so", triple)
    assert out.read_bytes()[18] == other


def test_an_undefined_symbol_is_named(tmp_path: Path) -> None:
    source = tmp_path / "needs.c"
    source.write_text("float sinf(float); float k(float x) { return sinf(x); }\n")
    code = artifacts.compile_object(source, tmp_path / "needs.o")
    with pytest.raises(ToolchainError, match="sinf"):
        toolchain.link_shared([code], tmp_path / "k.so")
    assert not (tmp_path / "k.so").exists()
    toolchain.link_shared([code], tmp_path / "k.so", allow_undefined=True)


@pytest.fixture
def _no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.setattr(native_build.importlib.util, "find_spec", lambda name: None)
    assert toolchain.find_linkers() == []


@pytest.mark.skipif(toolchain.own_machine(None) is None, reason="no linker of ours for this CPU")
@pytest.mark.usefixtures("_no_tools")
def test_no_linker_is_needed_here(tmp_path: Path, kernels: bytes) -> None:
    toolchain.check_linkable(None)
    out = toolchain.link_shared([kernels], tmp_path / "k.so")
    assert native.Library(out).kernel("add")
    assert os.listdir(tmp_path) == ["k.so"]


@pytest.mark.usefixtures("_no_tools")
def test_no_linker_at_all(tmp_path: Path, kernels: bytes) -> None:
    for refused in (
        lambda: toolchain.link_shared([kernels], tmp_path / "k.so", "riscv64-linux-gnu"),
        lambda: toolchain.check_linkable("riscv64-linux-gnu"),
    ):
        with pytest.raises(ToolchainError) as caught:
            refused()
        assert "no linker is found for riscv64-linux-gnu" in caught.value.problem
        assert 'pip install "treadle[cross]"' in caught.value.hint
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(toolchain.own_machine(None) is None, reason="no linker of ours for this CPU")
def test_what_our_linker_refuses_is_given_to_another(tmp_path: Path) -> None:
    source = tmp_path / "state.c"
    source.write_text("int state = 7;\nint* k(void) { return &state; }\n")
    code = artifacts.compile_object(source, tmp_path / "state.o")
    out = toolchain.link_shared([code], tmp_path / "k.so")
    assert out.is_file()


@pytest.mark.skipif(toolchain.own_machine(None) is None, reason="no linker of ours for this CPU")
@pytest.mark.usefixtures("_no_tools")
def test_what_no_linker_takes_is_an_error_with_our_words(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="object 0 is not a 64-bit little-endian ELF file"):
        toolchain.link_shared([b"not an object"], tmp_path / "k.so")
    assert os.listdir(tmp_path) == []


def test_without_a_compiler_zig_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [tool.name for tool in toolchain.find_linkers()] == ["zig ld.lld"]


def test_a_named_tool_is_used_and_checked(kernels: bytes, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="the linker 'no-such-ld' is not found"):
        toolchain.link_shared([kernels], tmp_path / "k.so", tool="no-such-ld")
    failing = [sys.executable, "-c", "import sys; sys.exit('out of ink')"]
    with pytest.raises(ToolchainError, match="out of ink"):
        toolchain.link_shared([kernels], tmp_path / "k.so", tool=failing)
    assert os.listdir(tmp_path) == []


def test_names_decide_how_a_tool_is_called() -> None:
    assert toolchain.named_tool([sys.executable, "-m", "ziglang", "ld.lld"]).kind == "linker"
    assert toolchain.named_tool(sys.executable).kind == "driver"


def test_a_name_with_shell_characters_stays_a_name(kernels: bytes, tmp_path: Path) -> None:
    out = tmp_path / "$(touch pwned); k.so"
    assert toolchain.link_shared([kernels], out) == out
    assert sorted(os.listdir(tmp_path)) == [out.name]


def test_garbage_is_refused_with_the_linkers_words(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="says:"):
        toolchain.link_shared([b"not an object"], tmp_path / "k.so")
    with pytest.raises(ToolchainError, match="no object code"):
        toolchain.link_shared([], tmp_path / "k.so")
    with pytest.raises(ToolchainError, match="choose a Linux target"):
        toolchain.link_shared([b""], tmp_path / "k.so", "x86_64-pc-windows-msvc")


def test_two_builds_of_one_file_do_not_disturb_each_other(kernels: bytes, tmp_path: Path) -> None:
    problems: list[Exception] = []

    def work() -> None:
        try:
            native.Library(toolchain.link_shared([kernels], tmp_path / "k.so")).close()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not problems
    assert os.listdir(tmp_path) == ["k.so"]


def test_what_is_native() -> None:
    assert toolchain.is_native(None)
    machine = os.uname().machine
    assert toolchain.is_native(f"{machine}-unknown-linux-gnu")
    assert not toolchain.is_native("riscv64-unknown-linux-gnu")
