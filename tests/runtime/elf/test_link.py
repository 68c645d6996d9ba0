# SPDX-License-Identifier: Apache-2.0
"""Treadle's own linker: what it makes loads everywhere, means what it should, and is safe."""

from __future__ import annotations

import ctypes
import platform
import random
import shutil
import struct
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tests.processes import PATIENCE
from treadle.errors import ToolchainError
from treadle.runtime.elf.link import MACHINE_NAMES, link_objects

LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474E551, 0x6474E552
EXECUTABLE, WRITABLE = 1, 2
NEEDED = 1
HERE = platform.machine()

FIRST = """
@table = internal constant [5 x i64] [i64 3, i64 1, i64 4, i64 1, i64 5]
@bytes = internal constant [5 x i8] c"\\01\\02\\03\\04\\05"
@words = internal constant [5 x i16] [i16 10, i16 20, i16 30, i16 40, i16 50], align 16

declare i64 @from_the_other(i64)
declare i64 @deep(i64)

define internal i64 @case(i64 %x) noinline {
  switch i64 %x, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c
                                i64 3, label %d  i64 4, label %e ]
a: %ra = call i64 @deep(i64 70)
   ret i64 %ra
b: ret i64 -3
c: %rc = call i64 @deep(i64 90)
   ret i64 %rc
d: %rd = mul i64 %x, 12
   ret i64 %rd
e: ret i64 1000
other: ret i64 0
}

define i64 @first(i64 %x) {
  %p = getelementptr [5 x i64], ptr @table, i64 0, i64 %x
  %a = load i64, ptr %p
  %q = getelementptr [5 x i8], ptr @bytes, i64 0, i64 %x
  %b8 = load i8, ptr %q
  %b = zext i8 %b8 to i64
  %r = getelementptr [5 x i16], ptr @words, i64 0, i64 %x
  %c16 = load i16, ptr %r
  %c = zext i16 %c16 to i64
  %d = call i64 @case(i64 %x)
  %e = call i64 @from_the_other(i64 %x)
  %ab = add i64 %a, %b
  %abc = add i64 %ab, %c
  %abcd = add i64 %abc, %d
  %sum = add i64 %abcd, %e
  ret i64 %sum
}
"""

SECOND = """
@table = internal constant [5 x i64] [i64 100, i64 200, i64 300, i64 400, i64 500]

define i64 @deep(i64 %x) { ret i64 %x }

define i64 @from_the_other(i64 %x) {
  %p = getelementptr [5 x i64], ptr @table, i64 0, i64 %x
  %a = load i64, ptr %p
  ret i64 %a
}

define double @floats(double %x) {
  %a = fmul double %x, 1.2345678901234567
  %v = insertelement <4 x double> <double 1.5, double 2.5, double 3.5, double 4.25>,
                     double %a, i32 0
  %w = fmul <4 x double> %v, <double 0.5, double 3.0, double 7.0, double 11.0>
  %b = extractelement <4 x double> %w, i32 0
  %c = extractelement <4 x double> %w, i32 3
  %s = fadd double %b, %c
  ret double %s
}
"""


def first(x: int) -> int:
    """What FIRST's function computes."""
    case = (70, -3, 90, 36, 1000)
    sums = (3, 1, 4, 1, 5), (1, 2, 3, 4, 5), (10, 20, 30, 40, 50), case, (100, 200, 300, 400, 500)
    return sum(values[x] for values in sums)


def assemble(text: str, machine: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = f"{machine}-unknown-linux-gnu"
    target = llvm.Target.from_triple(triple).create_target_machine(
        opt=2, reloc="pic", codemodel="default"
    )
    module = llvm.parse_assembly(f'target triple = "{triple}"\n{text}', llvm.create_context())
    return bytes(target.emit_object(module))


def objects_for(machine: str) -> list[bytes]:
    return [assemble(FIRST, machine), assemble(SECOND, machine), assemble(SECOND_AGAIN, machine)]


SECOND_AGAIN = (
    "define weak i64 @deep(i64 %x) { ret i64 -1 }\ndefine hidden void @quiet() { ret void }"
)


def segments_of(data: bytes) -> list[tuple[int, ...]]:
    """Return type, flags, offset, address, bytes in the file, bytes in memory, alignment."""
    start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    rows = [struct.unpack_from("<IIQQQQQQ", data, start + 56 * i) for i in range(count)]
    return [(*row[:4], *row[5:]) for row in rows]


each_machine = pytest.mark.parametrize("machine", sorted(MACHINE_NAMES))


@each_machine
def test_the_same_objects_make_the_same_bytes(machine: str) -> None:
    objects = objects_for(machine)
    assert link_objects(objects) == link_objects(objects)
    data = link_objects(objects)
    assert struct.unpack_from("<HH", data, 16) == (3, MACHINE_NAMES[machine])


@each_machine
def test_no_memory_is_writable_and_executable(machine: str) -> None:
    data = link_objects(objects_for(machine))
    segments = segments_of(data)
    loads = [s for s in segments if s[0] == LOAD]
    assert not any(s[1] & WRITABLE and s[1] & EXECUTABLE for s in segments)
    assert [s[1] for s in segments if s[0] == STACK] == [6]
    pages: set[int] = set()
    for _, _, offset, address, in_file, in_memory, align in loads:
        assert (address - offset) % align == 0
        assert offset + in_file <= len(data)
        mine = set(range(address // align, (address + max(in_memory, 1) - 1) // align + 1))
        assert not mine & pages  # or one segment would change the protection of another
        pages |= mine
    (writable,) = [s for s in loads if s[1] & WRITABLE]
    (relro,) = [s for s in segments if s[0] == RELRO]
    assert relro[3] == writable[3]  # all that is written to while loading is read-only then
    assert (relro[3] + relro[5]) % writable[6] == 0


@each_machine
def test_it_needs_no_library(machine: str) -> None:
    data = link_objects(objects_for(machine))
    (dynamic,) = [s for s in segments_of(data) if s[0] == DYNAMIC]
    tags = [struct.unpack_from("<Q", data, dynamic[2] + at)[0] for at in range(0, dynamic[4], 16)]
    assert NEEDED not in tags
    assert tags[-1] == 0


@each_machine
def test_readelf_reads_all_of_it(machine: str, tmp_path: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not on this machine")
    (tmp_path / "linked.so").write_bytes(link_objects(objects_for(machine)))
    command = ["readelf", "--all", "--wide", "--use-dynamic", "linked.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "There are no dynamic relocations in this file" in done.stdout
    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "--wide", "linked.so"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True,
    ).stdout  # fmt: skip
    names = {line.split()[-1] for line in symbols.splitlines() if "FUNC" in line}
    assert names == {"first", "from_the_other", "deep", "floats"}


@pytest.mark.skipif(HERE not in MACHINE_NAMES, reason="no linker for this machine")
def test_it_runs_here(tmp_path: Path) -> None:
    path = tmp_path / "linked.so"
    path.write_bytes(link_objects(objects_for(HERE)))
    library = ctypes.CDLL(str(path))
    library.first.restype, library.first.argtypes = ctypes.c_int64, [ctypes.c_int64]
    library.floats.restype, library.floats.argtypes = ctypes.c_double, [ctypes.c_double]
    assert [library.first(x) for x in range(5)] == [first(x) for x in range(5)]
    assert library.floats(2.0) == 2.0 * 1.2345678901234567 * 0.5 + 4.25 * 11.0
    assert not hasattr(library, "quiet")


LOADER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return puts(dlerror()), 1;
  long (*first)(long) = (long (*)(long))dlsym(library, "first");
  double (*floats)(double) = (double (*)(double))dlsym(library, "floats");
  for (long x = 0; x < 5; x++) printf("%ld ", first(x));
  printf("%.17g %d\\n", floats(2.0), dlsym(library, "quiet") != NULL);
  return dlclose(library);
}
"""

LOADERS = {
    "musl": ("x86_64", "musl-gcc", ()),
    "qemu": ("aarch64", "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")),
}


@pytest.mark.parametrize("name", LOADERS)
def test_it_runs_elsewhere(name: str, tmp_path: Path) -> None:
    """By another C library, and on another machine that is emulated."""
    machine, compiler, emulator = LOADERS[name]
    if shutil.which(compiler) is None or any(shutil.which(e) is None for e in emulator[:1]):
        pytest.skip(f"{compiler} or {' '.join(emulator[:1])} is not on this machine")
    if not emulator and machine != HERE:
        pytest.skip(f"this machine is no {machine}")
    (tmp_path / "loader.c").write_text(LOADER)
    (tmp_path / "linked.so").write_bytes(link_objects(objects_for(machine)))
    build = [compiler, "-O1", "loader.c", "-o", "loader", "-ldl"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=120, capture_output=True)
    command = [*emulator, "./loader", "./linked.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    want = [*(str(first(x)) for x in range(5)), f"{2.0 * 1.2345678901234567 * 0.5 + 46.75:.17g}"]
    assert done.stdout.split() == [*want, "0"], done.stdout + done.stderr


def test_what_cannot_be_linked_is_named() -> None:
    missing = assemble("declare i64 @lost(i64)\ndefine i64 @k(i64 %x) {\n"
                       " %y = call i64 @lost(i64 %x)\n ret i64 %y }", "x86_64")  # fmt: skip
    with pytest.raises(ToolchainError, match="no object defines lost"):
        link_objects([missing])
    twice = assemble("define void @k() { ret void }", "x86_64")
    with pytest.raises(ToolchainError, match="k is defined twice, in object 0 and object 1"):
        link_objects([twice, twice])
    state = assemble("@state = global i32 7\ndefine void @k() { ret void }", "x86_64")
    with pytest.raises(ToolchainError, match=r"section \.data is neither code nor constants"):
        link_objects([state])
    with pytest.raises(ToolchainError, match="object 1 is for another machine"):
        link_objects([twice, assemble("define void @l() { ret void }", "aarch64")])
    with pytest.raises(ToolchainError, match="object 0 is for another machine"):
        link_objects([twice], MACHINE_NAMES["aarch64"])
    with pytest.raises(ToolchainError, match="defines no function that can be called"):
        link_objects([assemble("define hidden void @k() { ret void }", "x86_64")])
    with pytest.raises(ToolchainError, match="without a linker"):
        link_objects([assemble("define void @k() { ret void }", "riscv64")])
    with pytest.raises(ToolchainError, match="there is no object code"):
        link_objects([])


@each_machine
def test_damaged_objects_are_refused_or_linked_but_never_crash(machine: str) -> None:
    good = assemble(FIRST, machine)
    others = objects_for(machine)[1:]
    generator = random.Random(7)
    refused = 0
    for _ in range(300):
        data = bytearray(good)
        if generator.random() < 0.3:
            del data[generator.randrange(len(data)) :]
        for _ in range(generator.randrange(1, 4)):
            if data:
                data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            link_objects([bytes(data), *others])
        except ToolchainError:
            refused += 1
    assert refused > 100
