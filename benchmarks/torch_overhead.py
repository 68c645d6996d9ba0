# SPDX-License-Identifier: Apache-2.0
"""What a call through torch.compile costs beside the work itself: guards, wrappers, bindings.

    python -m benchmarks.torch_overhead [--calls 3000]

Needs torch; inductor needs a C++ compiler. Two layers of 16 features and a ReLU run on one thread,
with fixed and with symbolic sizes. Printed are medians of a call in microseconds; eager is the
module itself, whose time is that of dispatch, as two products of 16 take well under a microsecond.
"dynamo alone" is torch.compile with a backend that hands the graph back, less eager.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from treadle.integrations.torch_compile import treadle_backend

FEATURES, ROWS = 16, 4
AIM = 30.0
"""Microseconds of a call of the backend treadle, its kernels included."""


def median(run: Callable[[], Any], calls: int) -> float:
    """Return the median of calls, in microseconds."""
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return 1e6 * statistics.median(seconds)


def compiled(module: nn.Module, backend: Any, is_dynamic: bool) -> Callable[[], Any]:
    """Return a call of the module through a backend, compiled already."""
    torch._dynamo.reset()
    called = torch.compile(module, backend=backend, dynamic=is_dynamic)
    for rows in (ROWS - 1, ROWS) if is_dynamic else (ROWS, ROWS):
        called(torch.ones(rows, FEATURES))
    x = torch.ones(ROWS, FEATURES)
    return lambda: called(x)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for fixed and one for symbolic sizes; return 1 where the aim is not met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=3000)
    calls = parser.parse_args(argv).calls
    torch.set_num_threads(1)
    layers = (nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES))
    module = nn.Sequential(*layers).eval()
    x = torch.ones(ROWS, FEATURES)
    worst = 0.0
    with torch.inference_mode():
        for name, is_dynamic in (("fixed sizes", False), ("symbolic sizes", True)):
            ours = median(compiled(module, treadle_backend, is_dynamic), calls)
            peer = median(compiled(module, "inductor", is_dynamic), calls)
            alone = median(compiled(module, "eager", is_dynamic), calls)
            eager = median(lambda: module(x), calls)
            worst = max(worst, ours)
            print(
                f"{name:15} treadle {ours:.1f} us, inductor {peer:.1f}, eager {eager:.1f}, "
                f"dynamo alone {alone - eager:.1f}",
                flush=True,
            )
    return int(worst > AIM)


if __name__ == "__main__":
    sys.exit(main())
