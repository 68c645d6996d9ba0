# SPDX-License-Identifier: Apache-2.0
"""Plans that contradict themselves are refused before any pointer is used."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tests.native import hostile
from tests.runtime import artifacts
from tests.runtime.artifacts import Plan
from treadle.errors import ArtifactError, TreadleError
from treadle.runtime import native
from treadle.runtime.executor import Executor

KERNELS = ("add16", "twice16", "code_of")


def load(plan: Plan | bytes) -> Executor:
    return hostile.load(plan, KERNELS, artifacts.small_constants())


Change = Callable[[Plan], object]


def check(**changes: object) -> Plan:
    """Return an instruction that takes the first value for indices."""
    return {"op": "check", "args": [0], "dims": [4], "axis": 0, "origin": "", **changes}


BAD_PLANS: dict[str, tuple[Change, str]] = {
    "no version": (lambda p: p.pop("version"), '"version" must be an integer but is missing'),
    "newer version": (lambda p: p.update(version=3), "format version 3; this runtime"),
    "no values": (lambda p: p.pop("values"), '"values" must be a list but is missing'),
    "values not a list": (lambda p: p.update(values={}), '"values" must be a list but is an obj'),
    "value not an object": (
        lambda p: p["values"].__setitem__(0, 7),
        'plan value 0: "kind" must be a text',
    ),
    "unknown kind": (
        lambda p: p["values"][2].update(kind="heap"),
        'plan value 2: "heap" is not a kind of value',
    ),
    "unknown dtype": (
        lambda p: p["values"][0].update(dtype="float31"),
        'plan value 0: "float31" is not an element type',
    ),
    "negative size": (lambda p: p["values"][0].update(shape=[-4, 4]), "a list of integers from 0"),
    "fractional size": (lambda p: p["values"][0].update(shape=[4.5, 4]), "a list of integers"),
    "shape overflow": (
        lambda p: p["values"][0].update(shape=[1 << 40, 1 << 40]),
        "plan value 0: the shape does not fit into memory",
    ),
    "size beyond int64": (lambda p: p["values"][0].update(shape=[1 << 64]), "a list of integers"),
    "too many dimensions": (lambda p: p["values"][0].update(shape=[1] * 33), "33 dimensions"),
    "bytes too small": (
        lambda p: p["values"][0].update(bytes=32),
        'plan value 0: "bytes" is 32 but shape and element type need 64',
    ),
    "bytes too large": (lambda p: p["values"][5].update(bytes=128), '"bytes" is 128'),
    "negative bytes": (lambda p: p["values"][0].update(bytes=-64), '"bytes" must be a size'),
    "arena value past the end": (
        lambda p: p["values"][2].update(offset=192),
        "plan value 2: 64 bytes at offset 192 do not fit into the arena of 192 bytes",
    ),
    "arena offset overflow": (
        lambda p: p["values"][2].update(offset=(1 << 62) - 64),
        "do not fit into the arena",
    ),
    "workspace larger than the arena": (
        lambda p: p["values"][4].update(bytes=4096),
        "plan value 4: 4096 bytes at offset 128 do not fit",
    ),
    "misaligned offset": (
        lambda p: p["values"][2].update(offset=4),
        "offset 4 is not a multiple of 64",
    ),
    "alignment of inputs that is none": (
        lambda p: p.update(input_alignment=12),
        "input_alignment is 12, not a power of two up to 64",
    ),
    "alignment of inputs of nothing": (
        lambda p: p.update(input_alignment=0),
        "input_alignment is 0, not a power of two up to 64",
    ),
    "a stack of less than nothing": (
        lambda p: p.update(stack_bytes=-1),
        'plan: "stack_bytes" must be a size in bytes',
    ),
    "arena larger than the machine": (
        lambda p: p.update(arena_bytes=1 << 60),
        "the plan needs 1152921504606846976 bytes of working memory",
    ),
    "output larger than the machine": (
        lambda p: (
            p["values"][6].update(shape=[1 << 56], bytes=1 << 58)
            or p["values"][2].update(shape=[1 << 56], bytes=1 << 58)
        ),
        "do not fit into the arena",
    ),
    "constant without a parameter": (lambda p: p["values"][1].pop("param"), '"param" must be a'),
    "constant that is not there": (
        lambda p: p["values"][1].update(param="p9"),
        'constant "p9" of the plan is not among the weights',
    ),
    "constant of another size": (
        lambda p: [p["values"][i].update(shape=[8], bytes=32) for i in (0, 1, 2, 3, 5, 6)],
        'constant "p0" has 64 bytes but the plan expects 32',
    ),
    "input id out of range": (
        lambda p: p["inputs"][0].update(value=7),
        "plan input 0: value 7 does not exist; the plan has 7 values",
    ),
    "negative input id": (lambda p: p["inputs"][0].update(value=-1), "value -1 does not exist"),
    "input of the wrong kind": (
        lambda p: p["inputs"][0].update(value=2),
        "plan input 0: value 2 is not of kind input",
    ),
    "input not listed": (lambda p: p["inputs"].clear(), "plan value 0 is of kind input but is"),
    "input listed twice": (
        lambda p: p["inputs"].append({"name": "more", "value": 0}),
        'plan input "more": value 0 is bound twice',
    ),
    "output name twice": (
        lambda p: p["outputs"][1].update(name="out"),
        'plan output "out" occurs twice',
    ),
    "output without a name": (lambda p: p["outputs"][1].pop("name"), '"name" must be a text'),
    "output never written": (
        lambda p: p["instructions"].pop(),
        'plan output "sum" is written by no instruction',
    ),
    "argument out of range": (
        lambda p: p["instructions"][0].update(args=[0, 1, 7]),
        "plan instruction 0: value 7 does not exist",
    ),
    "argument not an integer": (
        lambda p: p["instructions"][0].update(args=[0, 1, "2"]),
        '"args" must be an integer but is a text',
    ),
    "call that writes nothing": (
        lambda p: p["instructions"][0].update(args=[0, 1]),
        "plan instruction 0: the call has no argument it could write its result to",
    ),
    "check of what are no indices": (
        lambda p: p["instructions"].append(check()),
        "plan instruction 4: a check is of one int32 or int64 value and at least one extent",
    ),
    "check of two values": (
        lambda p: p["instructions"].append(check(args=[0, 1])),
        "a check is of one int32 or int64 value",
    ),
    "check of no extent": (
        lambda p: p["instructions"].append(check(dims=[])),
        "a check is of one int32 or int64 value",
    ),
    "check of a negative extent": (
        lambda p: p["instructions"].append(check(dims=[-1])),
        "a list of integers from 0",
    ),
    "check without an axis": (
        lambda p: p["instructions"].append(check(axis=None)),
        '"axis" must be a size',
    ),
    "random key in a value of another kind": (
        lambda p: p["instructions"].append({"op": "random", "to": 2}),
        "plan instruction 4: value 2 is not one uint64 that can be written",
    ),
    "random key nowhere": (
        lambda p: p["instructions"].append({"op": "random", "to": 7}),
        "value 7 does not exist",
    ),
    "calls of one kernel that differ in arity": (
        lambda p: p["instructions"][2].update(args=[3, 5]),
        "plan instruction 2: the arguments differ in number or size",
    ),
    "calls of one kernel that differ in sizes": (
        lambda p: p["values"][3].update(shape=[4, 2], bytes=32),
        "plan instruction 2: the arguments differ in number or size",
    ),
    "calls of one kernel that differ in dims": (
        lambda p: p["instructions"][2].update(dims=[4]),
        "plan instruction 2: the arguments differ in number or size",
    ),
    "negative dim": (lambda p: p["instructions"][0].update(dims=[-1]), "a list of integers from"),
    "unknown kernel": (
        lambda p: p["instructions"][1].update(kernel="system"),
        'kernel "system" of the plan is not in the machine code',
    ),
    "unknown operation": (
        lambda p: p["instructions"][1].update(op="branch"),
        'plan instruction 1: this runtime (0.1.0) does not know the operation "branch"',
    ),
    "copy to an input": (
        lambda p: p["instructions"][3].update(to=0),
        "plan instruction 3: value 0 is an input or constant and cannot be written",
    ),
    "copy of another size": (
        lambda p: p["values"][6].update(shape=[4, 8], bytes=128),
        "a copy from value 2 (float32, 64 bytes) to value 6 (float32, 128 bytes) is not possible",
    ),
    "copy to nowhere": (lambda p: p["instructions"][3].pop("to"), '"to" must be an integer'),
    "unheard-of feature": (
        lambda p: p.update(cpu_features=["warp-drive"]),
        "CPU features this runtime cannot check: warp-drive",
    ),
    "another architecture": (
        lambda p: p.update(triple="vax-linux-gnu"),
        "the model is made for vax-linux-gnu, this machine is",
    ),
    "no triple": (lambda p: p.update(triple=1), '"triple" must be'),
    "features not texts": (lambda p: p.update(cpu_features=[1]), "a list of texts"),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_bad_plan_is_refused(name: str) -> None:
    change, message = BAD_PLANS[name]
    plan = artifacts.small_plan()
    change(plan)
    hostile.refused(plan, message, KERNELS, artifacts.small_constants())


def test_features_the_machine_lacks_are_listed() -> None:
    known = ("fma4", "xop", "lwp", "tbm", "sve2", "sme", "mte")
    missing = [name for name in known if native.has_cpu_feature(name) is False]
    if not missing:
        pytest.skip("this machine has every feature the test knows")
    plan = artifacts.small_plan()
    plan["cpu_features"] = missing
    with pytest.raises(ArtifactError) as caught:
        load(plan)
    assert f"CPU features this machine lacks: {', '.join(missing)}\n" in str(caught.value)
    assert "hint" in str(caught.value)


BAD_JSON = {
    "nothing": (b"", "a value is missing"),
    "cut off": (b'{"version": 1', "ends inside a list or object"),
    "not JSON": (b"plan", "this is not a JSON value"),
    "text after it": (b"{} {}", "text after the value"),
    "duplicate key": (b'{"a": 1, "a": 2}', "has a key twice"),
    "trailing comma": (b'{"a": [1,]}', "not a JSON value"),
    "bare key": (b"{a: 1}", "a key is missing"),
    "too deep": (b"[" * 100_000, "nested too deep"),
    "leading zero": (b"[01]", "starts with 0"),
    "lone minus": (b"[-]", "not a JSON value"),
    "NaN": (b"[NaN]", "not a JSON value"),
    "no digits after the point": (b"[1.]", "digits are missing"),
    "no digits in the exponent": (b"[1e]", "the exponent has no digits"),
    "unknown escape": (rb'["\x41"]', "unknown escape"),
    "cut-off escape": (b'["\\', "cut off"),
    "lone surrogate": (rb'["\ud800"]', "lone surrogate"),
    "NUL": (rb'["\u0000"]', "NUL"),
    "control character": (b'["\n"]', "control character"),
    "bad UTF-8": (b'["\xc3("]', "not valid UTF-8"),
    "overlong UTF-8": (b'["\xc0\xaf"]', "not valid UTF-8"),
    "open text": (b'["abc', "cut off"),
    "not an object": (b"[]", "the plan is not a JSON object"),
    "too many values": (b"[" + b"0," * 3_000_001 + b"0]", "too many values"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json_is_refused(name: str) -> None:
    text, message = BAD_JSON[name]
    hostile.refused(text, message, KERNELS, artifacts.small_constants())


def test_every_truncation_of_a_plan_is_refused() -> None:
    text = json.dumps(artifacts.small_plan()).encode()
    for length in range(0, len(text), 7):
        with pytest.raises(ArtifactError):
            load(text[:length])


def test_damaged_plans_never_do_worse_than_an_error(random: np.random.Generator) -> None:
    hostile.damage(artifacts.small_plan(), 2000, random, KERNELS, artifacts.small_constants())


def test_escapes_and_unicode_in_names_survive() -> None:
    plan = artifacts.small_plan()
    names = ['tab\t"quote" \\ slash', "größe 大 \U0001f600"]
    for port, name in zip(plan["outputs"], names, strict=True):
        port["name"] = name
    for text in (json.dumps(plan), json.dumps(plan, ensure_ascii=False)):
        assert [info.name for info in load(text.encode()).outputs] == names


def test_a_failing_kernel_is_named_with_its_origin() -> None:
    plan = artifacts.small_plan()
    plan["instructions"][1].update(kernel="code_of", args=[0, 3], origin="layer/relu")
    executor = load(plan)
    data = np.zeros((4, 4), np.float32)
    executor.run([data])
    data.view(np.int32)[0, 0] = 17
    with pytest.raises(TreadleError, match=r'kernel "code_of" \(from layer/relu\) returns code 17'):
        executor.run([data])
    data[:] = 0
    executor.run([data])
