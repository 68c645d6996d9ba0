# SPDX-License-Identifier: Apache-2.0
"""The Target record: what a machine can do, as the numbers schedules and code generators read."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from treadle.target.cpus import architecture_of, has_system, implied_features, is_source_only
from treadle.target.gpu_machine import Gpu
from treadle.target.gpu_rows import gpu_options
from treadle.target.machine import Machine
from treadle.target.machine_options import options_of
from treadle.target.machine_rows import GENERIC, machine_of

Family = Literal["cpu", "gpu"]

_CURRENT: ContextVar[tuple[Target, ...]] = ContextVar("current targets", default=())


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to compile for.

    `kind` names the code generator ("llvm"), `family` the schedules. `features` are LLVM feature
    names that are on. `vector_bits` is the widest SIMD register that is worth using,
    `vector_registers` how many of them there are. `cores` is how many threads the schedule may
    count on (the number at run time may differ). `machine` says what the CPU and its memory are
    built of; the formulas over it are in `treadle.cost`. `gpu` are the facts of a GPU, whose name
    is `cpu` then and whose multiprocessors are the `cores`; `triple` is that of its host.

    In a block `with target:` it is the current one, in this thread: what templates called in the
    block are for.
    """

    kind: str
    family: Family = "cpu"
    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    vector_bits: int = 128
    vector_registers: int = 16
    cores: int = 1
    machine: Machine = GENERIC["x86"].machine
    gpu: Gpu | None = None

    def __hash__(self) -> int:
        """Return a hash of what targets differ in most: it is asked for with every kept estimate.

        That of all fields would walk over all features and facts each time.
        """
        return hash((self.kind, self.triple, self.cpu, self.vector_bits, self.cores))

    @staticmethod
    def current() -> Target | None:
        """Return the target of the innermost block, None outside of all."""
        stack = _CURRENT.get()
        return stack[-1] if stack else None

    def __enter__(self) -> Target:
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])

    @property
    def vector_bytes(self) -> int:
        """The bytes of one vector register."""
        return self.vector_bits // 8

    @property
    def l1_bytes(self) -> int:
        """The bytes of the nearest cache."""
        return self.machine.caches[0].bytes

    @property
    def l2_bytes(self) -> int:
        """The bytes of one core's part of the second level of cache."""
        return self.machine.caches[1].part

    @property
    def l3_bytes(self) -> int:
        """The bytes of the last level of cache, which the cores share."""
        return self.machine.caches[2].bytes

    def lanes(self, dtype_bits: int = 32) -> int:
        """Return how many elements of that many bits fill one vector register."""
        return max(1, self.vector_bits // dtype_bits)

    def has(self, feature: str) -> bool:
        """True when an LLVM feature such as "avx512vnni" is on."""
        return feature in self.features

    @property
    def architecture(self) -> str:
        """The first part of the triple: "x86_64", "aarch64", ..."""
        return self.triple.partition("-")[0]

    @property
    def is_source_only(self) -> bool:
        """True where a model can be written as C source alone: nothing loads its machine code."""
        return is_source_only(self.triple)

    @property
    def has_threads(self) -> bool:
        """False where kernels run on the thread that calls them: there is no system."""
        return has_system(self.triple)

    @property
    def least_masked(self) -> int:
        """Bytes of the least elements that vector loads and stores can mask out; 0: none."""
        if self.architecture not in ("x86_64", "i686", "i386"):
            return 0
        return 1 if self.has("avx512bw") else 4 if self.has("avx512f") or self.has("avx2") else 0

    @property
    def has_memory_operands(self) -> bool:
        """True where arithmetic reads one of its operands from memory: no register need hold it."""
        return self.architecture == "x86_64"

    @property
    def loads_anywhere(self) -> bool:
        """True where vectors are loaded as fast from addresses that are no multiple of theirs."""
        return self.architecture == "aarch64" or (
            self.architecture == "x86_64" and self.has("avx2")
        )

    @property
    def input_alignment(self) -> int:
        """At multiples of how many bytes what kernels only read may begin."""
        return 8 if self.loads_anywhere else 64

    @property
    def required_features(self) -> tuple[str, ...]:
        """The instruction-set features a machine must have to run code for this target."""
        architecture = architecture_of(self.triple)
        if architecture is None:
            return self.features
        return tuple(f for f in self.features if f in architecture.features)

    def feature_string(self) -> str:
        """Return the features as LLVM reads them after the CPU name: "+avx2,-avx512f"."""
        implied = implied_features(self.triple, self.cpu)
        off = sorted(implied.difference(self.features))
        return ",".join([*(f"+{f}" for f in self.features), *(f"-{f}" for f in off)])

    def __str__(self) -> str:
        """Return the text parse_target reads back into this target."""
        if self.gpu is not None:
            return " ".join([self.kind, f"-arch={self.cpu}", *gpu_options(self.cpu, self.gpu)])
        implied = implied_features(self.triple, self.cpu)
        changes = [f"+{f}" for f in self.features if f not in implied]
        changes += [f"-{f}" for f in sorted(implied.difference(self.features))]
        words = [self.kind]
        words += [f"-mtriple={self.triple}"] if self.triple else []
        words += [f"-mcpu={self.cpu}"] if self.cpu else []
        words += [f"-mattr={','.join(changes)}"] if changes else []
        words += options_of(self.machine, machine_of(self.triple, self.cpu))
        return " ".join([*words, f"-num-cores={self.cores}"])
