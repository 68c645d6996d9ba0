# SPDX-License-Identifier: Apache-2.0
"""Says what machine a measurement was made on: its CPU, never its name."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import llvmlite.binding as llvm

from treadle.target.host import real_host

_TELLING_FEATURES = (
    *("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512vnni"),
    *("avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"),
    *("neon", "dotprod", "i8mm", "bf16", "fullfp16", "sve", "sve2"),
)
_PACKAGES = ("treadle", "llvmlite", "numpy", "onnx", "onnxruntime", "openvino", "torch")


def usable_cores() -> int:
    """Return the number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def features() -> list[str]:
    """Return the vector extensions of this CPU, by LLVM's names."""
    present = llvm.get_host_cpu_features()
    return [name for name in _TELLING_FEATURES if present.get(name)]


def describe() -> dict[str, object]:
    """Return what a reader of a result must know of the machine and the software."""
    return {
        "cpu": _cpu_model(),
        "llvm_cpu": real_host().cpu,
        "cores": usable_cores(),
        "features": features(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
