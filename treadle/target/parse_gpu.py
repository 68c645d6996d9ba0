# SPDX-License-Identifier: Apache-2.0
"""Target strings of GPUs: "cuda -arch=sm_90", "opencl", "opencl -max_threads_per_block=512"."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from treadle.errors import DeviceError, TargetError
from treadle.runtime.gpu.devices import facts_of
from treadle.target.base import Target
from treadle.target.gpu_machine import Gpu
from treadle.target.gpu_rows import GPUS, OPTIONS

GPU_KINDS: Mapping[str, str] = {"cuda": "sm_80", "opencl": "generic"}
"""The kinds of target that are GPUs, and the architecture of each where none is named."""

_UNUSED = ("keys", "device", "model", "libs", "tag", "host", "max_num_threads")
_MOST = 1 << 24


def parse_gpu_target(text: str, triple: str) -> Target:
    """Return the GPU that a string describes, in a host of a triple.

    `-arch=` names a row of treadle.target.gpu_rows; options named after its facts say otherwise.
    `-keys`, `-device`, `-model`, `-libs`, `-host` and `-tag` of TVM v0.8 are accepted and have no
    effect.

    Raises: TargetError for an unknown option or architecture, and for facts that are no number.
    """
    kind, *words = _words(text)
    options: dict[str, str] = {}
    for word in words:
        key, has_value, value = word.lstrip("-").partition("=")
        known = ("arch", *OPTIONS, *_UNUSED)
        if not word.startswith("-") or key not in known:
            near = get_close_matches(key, known, 1)
            raise TargetError(
                f"target {text!r} has an unknown option {word!r}",
                hint=f"did you mean -{near[0]}?" if near else f"options are {_dashed(known)}",
            )
        if not has_value:
            raise TargetError(f"option -{key} of target {text!r} has no value",
                              hint=f"write -{key}=…")  # fmt: skip
        if key in options:
            raise TargetError(f"option -{key} stands twice in target {text!r}")
        options[key] = value
    arch = options.get("arch") or _here(kind)
    if arch not in GPUS or (kind == "cuda" and not arch.startswith("sm_")):
        names = [a for a in GPUS if kind != "cuda" or a.startswith("sm_")]
        raise TargetError(
            f"{arch!r} is not a known architecture of GPUs",
            at=f"target {text!r}",
            hint=f"architectures are {', '.join(names)}",
        )
    gpu = _with_facts(GPUS[arch].gpu, options, text)
    return Target(
        kind=kind,
        family="gpu",
        triple=triple,
        cpu=arch,
        cores=gpu.multiprocessors,
        gpu=gpu,
    )


def _here(kind: str) -> str:
    """Return the architecture of this machine's first device, or the usual one without any.

    A device newer than all that are known runs the code of none of them: it is named as it is.
    """
    try:
        found = facts_of(kind).architecture
    except DeviceError:
        found = ""
    return found or GPU_KINDS[kind]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} cannot be read: {error}") from error


def _dashed(names: tuple[str, ...]) -> str:
    return ", ".join(f"-{n}" for n in names)


def _with_facts(gpu: Gpu, options: Mapping[str, str], text: str) -> Gpu:
    facts: dict[str, int] = {}
    for option, fact in OPTIONS.items():
        value = options.get(option)
        if value is None:
            continue
        if not value.isdecimal() or not 1 <= int(value) <= _MOST:
            raise TargetError(
                f"-{option}={value} of target {text!r} is not a number from 1 to {_MOST}",
                hint=f"write -{option}={getattr(gpu, fact)}, or leave it out",
            )
        facts[fact] = int(value)
    return replace(gpu, **facts)
