# SPDX-License-Identifier: Apache-2.0
"""The bytes of the protocol as the server in C reads and writes them: the shared vectors, mutated
ones beside the code in Python, and a fuzzer."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rpc.services import server_in_c
from tests.runtime import artifacts
from tests.runtime.artifacts import ROOT
from treadle.errors import RpcError
from treadle.rpc import wire
from treadle.rpc.poly1305 import code_without_library
from treadle.rpc.values import decode, encode
from treadle.rpc.wire import Seal
from treadle.runtime.native_build import FLAGS, STRICT_FLAGS

HERE = Path(__file__).parent
NATIVE = ROOT / "native"
INCLUDES = [f"-I{NATIVE / name}" for name in ("include", "src", "rpc")]
VECTORS = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
HANDSHAKE: dict[str, str] = VECTORS["handshake"]
SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
RUNS = 20_000
"""Of the fuzzer in tests; docs/how-to/fuzz.md says how to go on for minutes."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that answers what the C code makes of bytes."""
    library = server_in_c().parent / "libtreadle.a"
    made = tmp_path_factory.mktemp("wire") / "wire"
    names = ("errors", "frames", "seal", "values")
    sources = [str(NATIVE / "rpc" / f"{name}.c") for name in names]
    command = [*artifacts.compiler(), *FLAGS, *STRICT_FLAGS, "-O1", *INCLUDES]
    command += [str(HERE / "wire_program.c"), *sources, str(library), "-ldl", "-o", str(made)]
    subprocess.run(command, check=True, timeout=120)
    return made


def asked(program: Path | Sequence[str], questions: Sequence[str]) -> list[str]:
    """Return the program's answers to some lines."""
    command = [str(program)] if isinstance(program, Path) else list(program)
    text = "\n".join(questions) + "\n"
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, timeout=120
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def test_values_are_those_of_the_vectors(program: Path) -> None:
    good = [vector["hex"] for vector in VECTORS["values"]]
    bad = [vector["hex"] for vector in VECTORS["bad_values"]]
    assert asked(program, [f"values {text}" for text in good]) == good
    assert set(asked(program, [f"values {text}" for text in bad])) == {"refused"}


def test_headers_are_those_of_the_vectors(program: Path) -> None:
    largest = VECTORS["largest_frame"]
    assert largest == wire.LARGEST_FRAME
    bad = [f"header {largest} {vector['hex']}" for vector in VECTORS["bad_headers"]]
    assert set(asked(program, bad)) == {"refused"}
    sizes = (largest, largest + 1, 1 << 31, 1 << 63, (1 << 64) - 1)
    heads = [wire.Header(size, wire.Kind.CALL, 7).packed().hex() for size in sizes]
    answers = asked(program, [f"header {largest} {head}" for head in heads])
    assert answers == [f"{largest} 1 7"] + 4 * ["refused"]


def key_of(vector: dict[str, Any]) -> str:
    if not vector["keyed"]:
        return "-"
    return HANDSHAKE["to_server" if vector["direction"] == "to server" else "to_client"]


def test_frames_are_those_of_the_vectors(program: Path) -> None:
    vectors = VECTORS["frames"]
    questions = [f"frame {key_of(v)} {v['counter']} {v['hex']}" for v in vectors]
    wanted = [f"{v['kind']} {v['number']} {v['blob']} {v['hex']}" for v in vectors]
    assert asked(program, questions) == wanted
    moved = [f"frame {key_of(v)} {v['counter'] + 1} {v['hex']}" for v in vectors
             if v["keyed"] and v["kind"] != wire.Kind.CLOSE]  # fmt: skip
    assert set(asked(program, moved)) == {"refused"}


def test_openings_and_keys_are_those_of_the_vectors(program: Path) -> None:
    transcript = HANDSHAKE["hello"] + HANDSHAKE["challenge"]
    questions = [f"opening 1 1 {HANDSHAKE['client_nonce']}",
                 f"opening 0 1 {HANDSHAKE['server_nonce']}",
                 f"derive {HANDSHAKE['key']} {transcript}"]  # fmt: skip
    names = ("client_proof", "server_proof", "to_server", "to_client")
    assert asked(program, questions) == [
        HANDSHAKE["hello"],
        HANDSHAKE["challenge"],
        " ".join(HANDSHAKE[name] for name in names),
    ]


@pytest.mark.parametrize("size", [16, 63, 64, 65, 200, 4096])
def test_keys_of_any_length_are_used_as_hmac_says(program: Path, size: int) -> None:
    key, transcript = random.Random(size).randbytes(size), bytes(range(96))
    (answer,) = asked(program, [f"derive {key.hex()} {transcript.hex()}"])
    message = b"treadle-rpc 2 proof of the client\0" + transcript
    assert answer.split()[0] == hmac.new(key, message, hashlib.sha256).hexdigest()


@pytest.fixture(scope="module", params=["here", "portable", "aarch64"])
def codes_program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The program, by vectors of this machine, without any, and by those of AArch64."""
    made = tmp_path_factory.mktemp("codes") / "codes"
    compiler, flags, runner = artifacts.compiler(), SANITIZE, []
    if request.param == "portable":
        flags = [*SANITIZE, "-DTD_PORTABLE"]
    if request.param == "aarch64":
        found = [shutil.which(name) for name in ("aarch64-linux-gnu-gcc", "qemu-aarch64")]
        if None in found:
            pytest.skip("aarch64-linux-gnu-gcc or qemu-aarch64 is not installed")
        compiler, flags, runner = [str(found[0])], ["-static"], [str(found[1])]
    own = ["errors", "frames", "seal", "values"]
    shared = ["error", "features", "hash", "poly1305", "poly1305_lanes", "poly1305_wide"]
    names = [*(f"rpc/{name}" for name in own), *(f"src/{name}" for name in shared)]
    sources = [str(NATIVE / f"{name}.c") for name in names]
    command = [*compiler, *FLAGS, *STRICT_FLAGS, *flags, *INCLUDES]
    command += [str(HERE / "wire_program.c"), *sources, "-o", str(made)]
    subprocess.run(command, check=True, timeout=120)
    return [*runner, str(made)]


def test_codes_are_those_of_the_vectors_however_they_are_computed(
    codes_program: list[str],
) -> None:
    """Whole and cut anywhere, also in the first block; RFC 8439's among them."""
    questions, wanted = [], []
    for vector in VECTORS["codes"]:
        message = bytes.fromhex(vector["message"]) * vector["times"]
        for split in {0, min(5, len(message)), len(message) // 2, len(message)}:
            questions.append(f"code {vector['key']} {split} {message.hex() or '-'}")
            wanted.append(vector["code"])
    generator = random.Random(4)
    for length in [*range(0, 400, 7), 1 << 16]:
        key, message = generator.randbytes(32), generator.randbytes(length)
        questions.append(
            f"code {key.hex()} {generator.randrange(length + 1)} {message.hex() or '-'}"
        )
        wanted.append(code_without_library(key, message).hex())
    assert asked(codes_program, questions) == wanted


def test_both_languages_refuse_the_same_mutated_values(program: Path) -> None:
    generator = random.Random(7)
    good = [bytes.fromhex(vector["hex"]) for vector in VECTORS["values"]]
    tried = [bytes(_mutated(generator, generator.choice(good))) for _ in range(3000)]
    answers = asked(program, [f"values {data.hex()}" for data in tried])
    for data, answer in zip(tried, answers, strict=True):
        try:
            wanted = encode(decode(data))
        except RpcError:
            assert answer == "refused", data.hex()
            continue
        assert answer != "refused", data.hex()
        assert len(answer) == 2 * len(wanted)  # the payload of a NaN may differ


def _mutated(generator: random.Random, data: bytes) -> bytearray:
    made = bytearray(data)
    for _ in range(generator.randrange(1, 4)):
        made[generator.randrange(len(made))] = generator.randrange(256)
    if generator.random() < 0.2:
        del made[generator.randrange(1, len(made)) :]
    return made


def test_both_languages_refuse_the_same_mutated_frames(program: Path) -> None:
    generator = random.Random(8)
    vectors = VECTORS["frames"]
    tried = [(v, bytes(_mutated(generator, bytes.fromhex(v["hex"]))))
             for v in generator.choices(vectors, k=500)]  # fmt: skip
    questions = [f"frame {key_of(v)} {v['counter']} {data.hex()}" for v, data in tried]
    for (vector, data), answer in zip(tried, asked(program, questions), strict=True):
        assert (answer != "refused") == _is_frame(vector, data), data.hex()


def _is_frame(vector: dict[str, Any], data: bytes) -> bool:
    key = key_of(vector)
    seal = Seal(None if key == "-" else bytes.fromhex(key), vector["counter"])
    if len(data) < wire.HEADER_BYTES + seal.size:
        return False
    view = memoryview(data)
    try:
        header = wire.unpack_header(view[: wire.HEADER_BYTES], wire.LARGEST_FRAME)
        end = wire.HEADER_BYTES + header.size
        if end + seal.size != len(data):
            return False
        seal.check(view[end:], header.kind, view[:end])
        wire.frame_of(header, view[wire.HEADER_BYTES : end])
    except RpcError:
        return False
    return True


# ---- the fuzzer ----------------------------------------------------------------------------------


def write_corpus(folder: Path) -> list[str]:
    """Write what the fuzzer begins with; its first byte says what the rest is."""
    frames = [b"\0" + bytes.fromhex(vector["hex"]) for vector in VECTORS["frames"]]
    values = [b"\1" + bytes.fromhex(vector["hex"]) for vector in VECTORS["values"]]
    shape = [1, "n", {"text": "n + 1", "formula": ["add", ["size", 0], 1]}]
    param = {"name": "x", "dtype": "float32", "shape": shape, "is_output": False}
    kernel = {"params": [param], "workspace_bytes": 64, "symbols": ["n"]}
    kernels = [b"\2" + json.dumps({"k\u00e9": kernel}).encode()]
    codes = [b"\3" + random.Random(1).randbytes(size) for size in (20, 300, 3000)]
    openings = [b"\4" + bytes.fromhex(HANDSHAKE["hello"])]
    folder.mkdir()
    made = []
    for number, data in enumerate((*frames, *values, *kernels, *codes, *openings)):
        made.append(str(folder / f"{number:03}"))
        (folder / f"{number:03}").write_bytes(data)
    return made


def test_fuzzed_bytes_break_nothing(tmp_path: Path) -> None:
    """By libFuzzer where there is clang, else by the mutations of the program itself."""
    corpus = write_corpus(tmp_path / "corpus")
    sources = [str(path) for path in sorted((NATIVE / "rpc").glob("*.c")) if path.stem != "main"]
    sources += [str(path) for path in sorted((NATIVE / "src").glob("*.c"))]
    clang = shutil.which("clang")
    compiler = [clang, "-fsanitize=fuzzer"] if clang else [*artifacts.compiler(), "-DSTANDALONE"]
    command = [*compiler, *FLAGS, "-O1", *SANITIZE, *INCLUDES, str(HERE / "fuzz_wire.c"), *sources]
    command += ["-ldl", "-lm", "-o", str(tmp_path / "fuzz")]
    built = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if built.returncode != 0 and "sanitize" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    words = [f"-runs={RUNS}", "-seed=1", "corpus"] if clang else [str(RUNS), *corpus]
    done = subprocess.run(
        [str(tmp_path / "fuzz"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
