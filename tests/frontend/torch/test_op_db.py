# SPDX-License-Identifier: Apache-2.0
"""Samples of torch's operator database: a few of every family; the script runs all of them."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch.testing wants it

from scripts import torch_op_db  # noqa: E402  # imports torch
from tests.frontend.torch import op_db  # noqa: E402

pytestmark = pytest.mark.torch

NAMES = (
    "add", "sub", "mul", "div.floor_rounding", "pow", "remainder", "clamp", "where", "eq", "lt",
    "logical_and", "bitwise_xor", "bitwise_left_shift", "nn.functional.gelu", "nn.functional.elu",
    "nn.functional.softplus", "atan2", "log1p", "expm1", "log2", "log10", "exp2", "erfc",
    "copysign", "signbit", "nextafter", "fmax", "fmin", "hypot", "isfinite", "isposinf", "ldexp",
    "sum", "mean", "amax", "var", "argmax", "cumsum", "logsumexp", "softmax",
    "nn.functional.layer_norm", "native_group_norm", "native_layer_norm",
    "matmul", "addmm", "baddbmm", "einsum", "nn.functional.conv2d", "nn.functional.max_pool2d",
    "nn.functional.avg_pool1d", "nn.functional.interpolate.nearest", "reshape", "expand", "permute",
    "cat", "stack", "split", "roll", "flip", "tril", "diagonal", "diag_embed", "diagonal_scatter",
    "unfold", "select_scatter", "slice_scatter", "as_strided", "take", "put", "gather",
    "index_select", "scatter_add", "scatter_reduce.mean", "scatter_reduce.amax", "masked_scatter",
    "index_put", "topk", "sort", "argsort", "arange", "full_like",
    "masked_fill", "nn.functional.embedding", "nn.functional.pad.constant", "constant_pad_nd",
)  # fmt: skip
"""Operators of every family, one sample each, which must be right."""


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_agrees_with_eager(name: str) -> None:
    op = op_db.operators()[name]
    dtype = "float32" if "float32" in op_db.dtypes_of(op) else op_db.dtypes_of(op)[0]
    found = [o for o in op_db.outcomes(op, dtype, 1, "trace") if o is not None]
    assert [o.kind for o in found] == ["right"], found


@pytest.mark.parametrize("name", ["baddbmm", "nn.functional.adaptive_avg_pool2d",
                                  "nn.functional.conv3d", "argsort"])  # fmt: skip
def test_sums_of_halves_are_rounded_once(name: str) -> None:
    op = op_db.operators()[name]
    found = [o for o in op_db.outcomes(op, "float16", 2, "trace") if o is not None]
    assert [o.kind for o in found] == ["right", "right"], found


@pytest.mark.parametrize("name", ["add", "nn.functional.batch_norm", "diagonal"])
def test_a_sample_through_torch_compile(name: str) -> None:
    op = op_db.operators()[name]
    found = [o for o in op_db.outcomes(op, "float32", 1, "compile") if o is not None]
    assert [o.kind for o in found] == ["right"], found


def test_what_the_backend_leaves_to_torch_is_refused() -> None:
    op = op_db.operators()["special.airy_ai"]
    (found,) = op_db.outcomes(op, "float32", 1, "compile")
    assert found is not None
    assert found.kind == "refused"
    assert "airy_ai" in found.reason


def _call(op: Any, *tensors: Any) -> op_db.Call:
    leaves, spec = torch.utils._pytree.tree_flatten((tensors[0], tensors[1:], {}))
    return op_db.Call(op, leaves, spec)


def test_a_wrong_result_is_told_from_one_nearer_to_the_exact() -> None:
    op, x = op_db.operators()["exp"], torch.tensor([1.0, 2.0], dtype=torch.float16)
    call = _call(op, x)
    exact = x.double().exp().half()
    assert not op_db.difference(call, [exact], [exact + 0.5])
    assert op_db.difference(call, [exact + 0.5], [exact])
    assert op_db.difference(call, [exact.float()], [exact])
    assert op_db.difference(call, [], [exact])


def test_core_is_what_torch_tags() -> None:
    known = op_db.operators()
    assert op_db.is_core(known["nn.functional.relu"])
    assert not op_db.is_core(known["linalg.svd"])


def test_results_are_kept_and_run_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    command = ["exp", "--dtypes", "float32", "--samples", "1", "--workers", "1"]
    assert torch_op_db.main([*command, "--results", str(path)]) == 0
    first = path.read_text()
    assert torch_op_db.Result.of_line(first).counts == {"right": 1}
    assert torch_op_db.main([*command, "--results", str(path)]) == 0
    assert path.read_text() == first


def _die(pipe: Any, *_options: object) -> None:
    pipe.recv()
    pipe.send(("right", ""))
    os._exit(3)


def _hang(pipe: Any, *_options: object) -> None:
    pipe.recv()
    time.sleep(60)


@pytest.mark.parametrize(("work", "reason"), [(_die, "the process died"), (_hang, "no result")])
def test_a_crash_costs_one_operator(
    work: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_op_db, "work", work)
    options = Namespace(samples=1, road="trace", workers=1, limit=0.5)
    results = list(torch_op_db.run([("exp", "float32"), ("sin", "float32")], options))
    assert [r.op for r in results] == ["exp", "sin"]
    assert all(reason in r.reasons["crash"] for r in results)


def test_the_list_names_what_is_refused_below_the_reason() -> None:
    refused = torch_op_db.Result("svd", "float32")
    refused.add("refused", "no svd")
    right = torch_op_db.Result("add", "float32")
    right.add("right", "")
    assert torch_op_db.refused_list([refused, right]) == "[no svd]\nsvd: float32"
    assert torch_op_db.worst([refused, right]) == "refused"
    assert "Core ATen, operators: 1; right 1 (100.0 %)" in torch_op_db.summary([refused, right])
