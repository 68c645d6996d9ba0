# SPDX-License-Identifier: Apache-2.0
"""The back end "opencl": loop nests to kernels in OpenCL C, compiled by the device's driver."""

from __future__ import annotations

from treadle.target.backend import Backend
from treadle.target.gpu_backend import constant, lowering
from treadle.target.gpu_code import (
    check_opencl,
    compile_opencl,
    describe_opencl,
    not_addresses,
    opencl_version,
    same_texts,
)
from treadle.target.gpu_text import emit

BACKEND = Backend(
    kind="opencl",
    suffix="cl",
    lowering=lowering,
    emit=emit,
    constant=constant,
    check=check_opencl,
    compile=compile_opencl,
    assembly=same_texts,
    version=opencl_version,
    load=not_addresses,
    describe=describe_opencl,
)
