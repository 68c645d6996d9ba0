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
    "kthvalue", "median", "nanmedian", "mode", "cummax", "logcumsumexp", "searchsorted",
    "masked_select", "unique", "unique_consecutive", "nonzero_static", "bincount", "histc",
    "histogram", "nn.functional.embedding_bag", "_segment_reduce.lengths", "cdist",
    "nn.functional.bilinear", "addbmm", "index_reduce.mean", "as_strided_scatter", "frexp",
    "nn.functional.adaptive_max_pool2d", "nn.functional.pad.replicate_negative",
    "_upsample_bilinear2d_aa", "grid_sampler_3d", "special.bessel_j1", "i0", "lgamma", "igamma",
    "polygamma.polygamma_n_1", "special.log_ndtr", "special.ndtri", "gcd",
    "special.hermite_polynomial_h", "linalg.solve", "linalg.lu", "linalg.slogdet",
    "linalg.cholesky_ex", "cholesky_solve", "triangular_solve", "linalg.qr", "ormqr",
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


def test_samples_that_are_right_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[int] = []
    compiled_by = op_db._compiled_by

    def counted(backend: Any, calls: Any) -> Any:
        programs.append(len(calls))
        return compiled_by(backend, calls)

    monkeypatch.setattr(op_db, "_compiled_by", counted)
    op = op_db.operators()["sum"]
    found = [o for o in op_db.outcomes(op, "float32", 7, "compile") if o is not None]
    assert [o.kind for o in found] == ["right"] * 7
    assert programs == [1, 6]


def test_of_samples_compiled_together_the_wrong_one_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[op_db.Call] = []

    def spoiled(backend: Any, calls: Any) -> Any:
        given.extend(call for call in calls if all(call is not g for g in given))
        results = [call(*call.tensors()) for call in calls]
        for call, made in zip(calls, results, strict=True):
            if backend != "aot_eager" and [call is g for g in given].index(True) == 4:
                made[0] = made[0] + 1
        return results

    monkeypatch.setattr(op_db, "_compiled_by", spoiled)
    op = op_db.operators()["sum"]
    found = [o for o in op_db.outcomes(op, "float32", 7, "compile") if o is not None]
    assert [k for k, o in enumerate(found) if o.kind == "wrong"] == [4]
    assert sum(o.kind == "right" for o in found) == 6


def test_what_the_backend_leaves_to_torch_is_refused() -> None:
    op = op_db.operators()["linalg.svdvals"]
    (found,) = op_db.outcomes(op, "float32", 1, "compile")
    assert found is not None
    assert found.kind == "refused"
    assert "linalg_svd" in found.reason
    assert "%" not in found.reason


def test_what_torch_cannot_compile_is_no_failure_of_ours() -> None:
    op = op_db.operators()["cov"]
    (found,) = op_db.outcomes(op, "float32", 1, "compile")
    assert found is not None
    assert found.kind == "torch"
    assert "Data dependent operator" in found.reason
    torchs, right = (torch_op_db.Result(name, "float32") for name in ("cov", "add"))
    torchs.add("torch", found.reason)
    right.add("right", "")
    assert "operators: 1; right 1 (100.0 %)" in torch_op_db.summary([torchs, right])


def test_a_sample_that_sets_a_seed_goes_through_torch_compile() -> None:
    op = op_db.operators()["nn.functional.scaled_dot_product_attention"]
    found = [o for o in op_db.outcomes(op, "float32", 1, "compile") if o is not None]
    assert [o.kind for o in found] == ["right"], found


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
    _, dtypes = pipe.recv()
    pipe.send((dtypes[0], "right", ""))
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
    results = list(torch_op_db.run([("exp", ("float32",)), ("sin", ("float32", "bool"))], options))
    assert [(r.op, r.dtype) for r in results] == [
        ("exp", "float32"), ("sin", "bool"), ("sin", "float32")
    ]  # fmt: skip
    assert all(reason in r.reasons["crash"] for r in results)


def test_the_list_names_what_is_refused_below_the_reason() -> None:
    refused = torch_op_db.Result("svd", "float32")
    refused.add("refused", "no svd")
    right = torch_op_db.Result("add", "float32")
    right.add("right", "")
    assert torch_op_db.refused_list([refused, right]) == "[no svd]\nsvd: float32"
    assert torch_op_db.worst([refused, right]) == "refused"
    assert "Core ATen, operators: 1; right 1 (100.0 %)" in torch_op_db.summary([refused, right])
