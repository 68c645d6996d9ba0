# SPDX-License-Identifier: Apache-2.0
"""What the tests of the importer share: a module compiled through torch.export, beside eager."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle


def exported_outputs(module: Any, args: tuple[Any, ...], dynamic_shapes: Any = None) -> list[Any]:
    """Return what a module compiled by treadle.compile gives, as tensors."""
    import torch

    exe = treadle.compile(module, args, dynamic_shapes=dynamic_shapes, opt_level=1)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    return [torch.from_dlpack(o) for o in exe.run(tensors)]


def leaves_of(results: Any) -> list[Any]:
    """Return the tensors of what a module returns."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(results)
    return [r if isinstance(r, torch.Tensor) else torch.tensor(r) for r in leaves]


def assert_agrees(module: Any, *args: Any, tolerance: float = 1e-5) -> None:
    """Assert that a module (or function) compiled through torch.export gives what eager gives."""
    import torch

    if not isinstance(module, torch.nn.Module):
        module = as_module(module)
    with torch.no_grad():
        expected = leaves_of(module(*[a.clone() if hasattr(a, "clone") else a for a in args]))
    found = exported_outputs(module, args)
    for want, got in zip(expected, found, strict=False):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(
            got.double().numpy(), want.double().numpy(), rtol=tolerance, atol=tolerance
        )


def as_module(function: Any) -> Any:
    """Return a function as a module."""
    import torch

    class Of(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Of()
