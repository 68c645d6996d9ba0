# SPDX-License-Identifier: Apache-2.0
"""The library of intrinsics: every instruction computes what its record means."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.kernel import flat, native, run
from tests.te_eval import evaluate
from treadle import te
from treadle.dtype import is_float, to_numpy
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import For, PrimFunc, Store
from treadle.target.backend import backend_of
from treadle.target.base import Target
from treadle.target.intrinsics import arm, x86
from treadle.target.intrinsics.dots import DOTS, dot_for
from treadle.target.parse import parse_target
from treadle.te.intrinsics import Intrinsic, intrinsics
from treadle.te.operations import ComputeOp

LIBRARY = [r for r in intrinsics() if r.name.startswith(("x86.", "arm."))]
COUNT = 75


def numbers(dtype: str, *shape: int) -> np.ndarray:
    """Return numbers of all of a type's range, the extreme ones among them."""
    chance = np.random.default_rng(sum(shape))
    if is_float(dtype):
        return chance.normal(size=shape).astype(to_numpy(dtype))
    limits = np.iinfo(dtype)
    made = chance.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    made[0], made[1] = limits.min, limits.max
    return made


def operands(record: Intrinsic) -> list[np.ndarray]:
    """Return for every operand its elements in each of COUNT lanes: [COUNT, count]."""
    made = [numbers(o.dtype, COUNT, o.count) for o in record.operands]
    for array, operand in zip(made, record.operands, strict=True):
        array[:] = array[3] if operand.shared else array
    return made


def meant(record: Intrinsic, arrays: list[np.ndarray], start: np.ndarray) -> np.ndarray:
    """Return what the meaning gives, by the evaluator of tensor expressions."""
    made = record.meaning(*record.placeholders)
    assert isinstance(made, te.Tensor)
    inputs = [
        dict(zip(record.placeholders, rows, strict=True)) for rows in zip(*arrays, strict=True)
    ]
    lanes = np.array([evaluate([made], values)[0] for values in inputs])
    return (start + lanes).astype(lanes.dtype) if record.accumulates else lanes


def kernel(record: Intrinsic, lanes: int) -> PrimFunc:
    """Return a kernel that applies an intrinsic to operands [COUNT, count], `lanes` at once."""
    operands = [flat(o.name, o.dtype, COUNT * o.count) for o in record.operands]
    start, out = (flat(n, record.result, COUNT) for n in ("start", "out"))
    i = Var("i")
    first = i * lanes

    def read(source: object, count: int, k: int) -> Expr:
        place = first * count + k
        return ex.load(source, [place if lanes == 1 else ex.ramp(place, count, lanes)])  # type: ignore[arg-type]

    args = [read(start, 1, 0)] if record.accumulates else []
    for buffer, operand in zip(operands, record.operands, strict=True):
        elements = [read(buffer, operand.count, k) for k in range(operand.count)]
        args += (
            [ex.load(buffer, [Const.of(k)]) for k in range(operand.count)]
            if (operand.shared)
            else elements
        )
    index: Expr = first if lanes == 1 else ex.ramp(first, 1, lanes)
    body = For(i, Const.of(COUNT // lanes), "serial", Store(out, (index,), ex.apply(record, args)))
    return PrimFunc("k", (*operands, start, out), (), body)


@pytest.mark.parametrize("lanes", [1, 3, 4, 5, 8, 15, 16, 25, 37])
@pytest.mark.parametrize("record", LIBRARY, ids=lambda r: r.name)
def test_an_instruction_computes_its_meaning(record: Intrinsic, lanes: int) -> None:
    if not record.forms_for(native().features):
        pytest.skip(f"this machine has no {record.name}")
    arrays = operands(record)
    start = numbers(record.result, COUNT)
    got = np.zeros(COUNT, to_numpy(record.result))
    run(kernel(record, lanes), [*arrays, start, got])
    done = COUNT // lanes * lanes
    wanted = meant(record, arrays, start)
    if is_float(record.result):
        np.testing.assert_allclose(got[:done], wanted[:done], rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(got[:done], wanted[:done])


WRITTEN = {
    "znver4": ("x86_64", {"x86.vpdpbusd": "vpdpbusd", "x86.vdpbf16ps": "vdpbf16ps"}),
    "sapphirerapids": ("x86_64", {"x86.vpdpbusd": "vpdpbusd", "x86.vdpbf16ps": "vdpbf16ps"}),
    "alderlake": ("x86_64", {"x86.vpdpbusd": "vpdpbusd", "x86.vpdpwssd": "vpdpwssd"}),
    "haswell": ("x86_64", {"x86.pmaddwd": "vpmaddwd", "x86.vpermd.8": "vperm"}),
    "x86-64": ("x86_64", {"x86.pmaddwd": "pmaddwd"}),
    "neoverse-v1": (
        "aarch64",
        {"arm.sdot": "sdot", "arm.udot": "udot", "arm.usdot": "usdot", "arm.bfdot": "bfdot"},
    ),
    "neoverse-n1": ("aarch64", {"arm.sdot": "sdot"}),
}


def written(cpu: str) -> Target:
    return parse_target(f"llvm -mtriple={WRITTEN[cpu][0]}-linux-gnu -mcpu={cpu}")


def assembly(func: PrimFunc, target: Target) -> str:
    backend = backend_of(target)
    return backend.assembly({"k": backend.emit(func, target)}, target)["k"]


@pytest.mark.parametrize("cpu", WRITTEN)
def test_the_instruction_is_in_the_assembly(cpu: str) -> None:
    by_name = {r.name: r for r in LIBRARY}
    for name, instruction in WRITTEN[cpu][1].items():
        text = assembly(kernel(by_name[name], 8), written(cpu))
        assert f"\t{instruction}" in text, f"{name} on {cpu}"


@pytest.mark.parametrize(
    ("cpu", "types", "expected"),
    [
        ("znver4", ("uint8", "int8"), x86.vpdpbusd),
        ("alderlake", ("uint8", "int8"), x86.vpdpbusd),
        ("haswell", ("uint8", "int8"), None),
        ("haswell", ("int16", "int16"), x86.pmaddwd),
        ("znver4", ("int16", "int16"), x86.vpdpwssd),
        ("neoverse-v1", ("int8", "int8"), arm.sdot),
        ("neoverse-v1", ("uint8", "int8"), arm.usdot),
        ("neoverse-n1", ("uint8", "int8"), None),
        ("neoverse-n1", ("bfloat16", "bfloat16"), None),
    ],
)
def test_dot_products_by_target(
    cpu: str, types: tuple[str, str], expected: Intrinsic | None
) -> None:
    assert dot_for(*types, written(cpu)) is expected


def test_all_dot_products_are_known() -> None:
    sums = [r for r in LIBRARY if len(r.operands) == 2 and not r.operands[0].shared]
    assert {r.name for r in sums} == {r.name for r in DOTS}
    assert all(isinstance(r.meaning(*r.placeholders).op, ComputeOp) for r in LIBRARY)  # type: ignore[attr-defined]


def spread(record: Intrinsic, stride: int, lanes: int) -> PrimFunc:
    """Return a kernel whose lanes read their elements of the first operand `stride` apart."""
    a, b = record.operands
    sources = [flat(o.name, o.dtype, 512) for o in (a, b)]
    out = flat("out", record.result, lanes)
    lane = ex.ramp(Const.of(0), 1, lanes)

    def at(step: int, k: int) -> Expr:
        return ex.ramp(Const.of(k), step, lanes) if step else Const.of(k)

    args = [ex.convert(0, record.result)] if record.accumulates else []
    args += [ex.load(sources[0], [at(stride, k)]) for k in range(a.count)]
    args += [ex.load(sources[1], [at(b.count, k)]) for k in range(b.count)]
    return PrimFunc("k", (*sources, out), (), Store(out, (lane,), ex.apply(record, args)))


@pytest.mark.parametrize("stride", [0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24])
@pytest.mark.parametrize("lanes", [4, 7, 16])
@pytest.mark.parametrize("record", [x86.pmaddwd, x86.vpdpbusd], ids=lambda r: r.name)
def test_elements_of_a_lane_are_read_wherever_they_are(
    record: Intrinsic, lanes: int, stride: int
) -> None:
    if not record.forms_for(native().features):
        pytest.skip(f"this machine has no {record.name}")
    count = record.operands[0].count
    a, b = (numbers(o.dtype, 512) for o in record.operands)
    got = np.zeros(lanes, "int32")
    run(spread(record, stride, lanes), [a, b, got])
    rows = np.stack([a[k * stride : k * stride + count] for k in range(lanes)]).astype("int64")
    wanted = (rows * b[: lanes * count].reshape(lanes, count)).sum(axis=1)
    np.testing.assert_array_equal(got, wanted.astype("int32"))


def test_words_are_read_at_once() -> None:
    target = written("znver4")
    for stride, first in ((2, "load <32 x i16>"), (0, "load i32"), (4, "load <16 x i32>")):
        text = backend_of(target).emit(spread(x86.pmaddwd, stride, 16), target)
        loads = [n for n in text.splitlines() if " = load " in n and "load ptr" not in n]
        assert first in loads[0]
        assert len(loads) == (3 if stride == 4 else 2)
        assert "masked.gather" not in text
