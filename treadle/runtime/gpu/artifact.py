# SPDX-License-Identifier: Apache-2.0
"""Artifacts of models for GPUs, read: see `treadle.build.gpu_artifact`, which writes them."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import ArtifactError, DeviceError, TreadleError
from treadle.runtime import native
from treadle.runtime.array import Device
from treadle.runtime.artifact_file import GPU_MEMBER, ArtifactFile
from treadle.runtime.gpu.code import GpuCode
from treadle.runtime.gpu.devices import GpuDevice, facts_of, opened
from treadle.runtime.gpu.executor import GpuExecutor
from treadle.runtime.gpu.kernel import DeviceKernel
from treadle.runtime.gpu.program import HostKernel
from treadle.runtime.module import LoadedKernel
from treadle.runtime.signature import Signature
from treadle.runtime.weights_file import MappedBytes, mapped_weights

FORMAT = 1


@dataclass(frozen=True, slots=True)
class GpuArtifact:
    """What an artifact holds: `head` is the JSON of mod.gpu."""

    head: Mapping[str, Any]  # Any: JSON, looked into where it is used
    codes: Mapping[str, GpuCode]
    library: bytes
    constants: Mapping[str, np.ndarray]

    @property
    def kind(self) -> str:
        """The kind of devices it is for."""
        return str(self.head["kind"])

    @property
    def signatures(self) -> dict[str, Signature]:
        """What each kernel takes, by name."""
        rows = self.head["kernels"].items()
        return {name: Signature.from_json(name, row) for name, row in rows}


def read_gpu_artifact(file: ArtifactFile, *, verify: bool = False) -> GpuArtifact:
    """Return what an artifact holds; weights are mapped, and compared with their hash if `verify`.

    Raises: ArtifactError where it is damaged.
    """
    try:
        return _read(file, verify)
    except ArtifactError as error:
        raise error.located(file.name) from None
    except (OSError, ValueError, KeyError, TypeError, tarfile.TarError) as error:
        raise ArtifactError(f"the artifact cannot be read: {error!r}", at=file.name) from None


def _read(file: ArtifactFile, verify: bool) -> GpuArtifact:
    with os.fdopen(os.dup(file.descriptor), "rb") as stream:
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            members = {info.name: info for info in archive.getmembers()}
            missing = [
                n for n in (GPU_MEMBER, "mod.so", "mod.params", "mod.json") if n not in members
            ]
            if missing:
                raise ArtifactError(f"the artifact has no {missing[0]}")
            texts = {}
            for name in (GPU_MEMBER, "mod.so", "mod.json"):
                member = archive.extractfile(name)
                texts[name] = b"" if member is None else member.read()
    text, _, code = texts[GPU_MEMBER].partition(b"\n")
    tail, head = json.loads(texts["mod.json"]), json.loads(text)
    if head["format"] != FORMAT:
        raise ArtifactError(
            f"mod.gpu has format {head['format']}, this Treadle reads {FORMAT}",
            hint="compile the model again, or load it with the Treadle that wrote it",
        )
    _compare(text, tail["hashes"][GPU_MEMBER], GPU_MEMBER)
    _compare(code, head["hashes"]["code"], GPU_MEMBER)
    _compare(texts["mod.so"], head["hashes"]["mod.so"], "mod.so")
    params = members["mod.params"]
    begin = params.offset_data
    if verify:
        _check_weights(file, begin, params.size, tail["checksums"]["mod.params"])
    memory = MappedBytes(file.descriptor, begin, begin + params.size)
    constants = _constants(head["plan"], mapped_weights(memory))
    return GpuArtifact(head, _codes(head["sizes"], code), texts["mod.so"], constants)


def _compare(data: bytes, wanted: str, name: str) -> None:
    if hashlib.sha256(data).hexdigest() != wanted:
        raise ArtifactError(f"{name} does not match its hash: the artifact is damaged")


def _check_weights(file: ArtifactFile, begin: int, size: int, wanted: str) -> None:
    sum_, at = native.Hash64(), 0
    while at < size:
        piece = np.frombuffer(os.pread(file.descriptor, min(1 << 20, size - at), begin + at), "u1")
        sum_.add_at(piece.ctypes.data, piece.nbytes)
        at += piece.nbytes or size
    if sum_.hexdigest() != wanted:
        raise ArtifactError("the weights (mod.params) do not match their hash")


def _codes(sizes: Mapping[str, int], code: bytes) -> dict[str, GpuCode]:
    found, at = {}, 0
    for name, size in sizes.items():
        found[name] = GpuCode.from_bytes(code[at : at + size])
        at += size
    return found


def _constants(plan: Mapping[str, Any], raw: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for row in plan["values"]:
        if row["kind"] == "constant":
            name = row["param"]
            if name not in raw:
                raise ArtifactError(f"the weights (mod.params) lack {name!r}")
            found[name] = raw[name].view(dtypes.to_numpy(row["dtype"])).reshape(row["shape"])
    return found


def why_not_loaded(artifact: GpuArtifact) -> TreadleError | None:
    """Return why this machine cannot run an artifact; None where it can."""
    kind, architecture = artifact.kind, artifact.head["architecture"]
    try:
        facts = facts_of(kind)
    except DeviceError as error:
        return DeviceError(
            f"the artifact is made for {kind}: {error.problem}",
            hint="load it on a machine with such a device, or compile the model for the CPU: "
            "--target llvm",
        )
    if kind == "cuda" and facts.architecture != architecture:
        return DeviceError(
            f"the artifact is made for {architecture}, cuda(0) ({facts.name}) is "
            f"{facts.architecture}",
            hint="compile the model again on this machine: --target cuda",
        )
    missing = sorted(set(artifact.head["cpu_features"]) - set(native.cpu_features()))
    if missing:
        return ArtifactError(
            f"kernels of the artifact need CPU features that this machine lacks: "
            f"{', '.join(missing)}",
            hint="compile the model on this machine",
        )
    return None


def executor_of(artifact: GpuArtifact, device: GpuDevice | None = None) -> GpuExecutor:
    """Return what runs an artifact. Raises: DeviceError, ArtifactError where it does not fit."""
    if (error := why_not_loaded(artifact)) is not None:
        raise error
    signatures = artifact.signatures
    outputs = {name: tuple(p.is_output for p in s.params) for name, s in signatures.items()}
    library = native.Library(artifact.library) if artifact.library else None
    hosts = {}
    for name in signatures:
        if name not in artifact.codes:
            if library is None:
                raise ArtifactError(f"the artifact has no code of kernel {name!r}")
            hosts[name] = HostKernel(library.kernel(name), outputs[name])
    return GpuExecutor(
        artifact.head["plan"],
        artifact.constants,
        artifact.codes,
        hosts,
        outputs,
        device or opened(artifact.kind),
        library,
    )


def kernels_of(artifact: GpuArtifact) -> list[LoadedKernel]:
    """Return the kernels of an artifact, each ready to be called and timed alone."""
    library = native.Library(artifact.library) if artifact.library else None
    made: list[LoadedKernel] = []
    for name, signature in artifact.signatures.items():
        if name in artifact.codes:
            made.append(DeviceKernel(signature, artifact.codes[name], Device(artifact.kind)))
        elif library is not None:
            made.append(LoadedKernel(signature, library.kernel(name), library))
    return made
