# SPDX-License-Identifier: Apache-2.0
"""The back end "cuda": loop nests to kernels in CUDA C, compiled by NVRTC."""

from __future__ import annotations

from treadle.target.backend import Backend
from treadle.target.gpu_backend import constant, lowering
from treadle.target.gpu_code import (
    check_cuda,
    compile_cuda,
    cuda_version,
    describe_cuda,
    not_addresses,
    ptx,
)
from treadle.target.gpu_text import emit

BACKEND = Backend(
    kind="cuda",
    suffix="cu",
    lowering=lowering,
    emit=emit,
    constant=constant,
    check=check_cuda,
    compile=compile_cuda,
    assembly=ptx,
    version=cuda_version,
    load=not_addresses,
    describe=describe_cuda,
)
