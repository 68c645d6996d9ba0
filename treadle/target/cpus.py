# SPDX-License-Identifier: Apache-2.0
"""CPU names and instruction-set features LLVM knows, as far as numeric kernels depend on them.

The tables hold facts about LLVM 22. A feature line reads `name(features it needs)`, a CPU line
`names: features`, where `@name` stands for the features of another CPU. Features that numeric code
never uses (cryptography, transactions, tuning flags) are left out or only accepted by name. The
native runtime loads code of CPUs with 64 bits; for those with 32 there is C source. The generic
RISC-V has what every Linux distribution assumes; names that LLVM only tunes for, and CPUs with
features that the runtime cannot ask for, are left out. Of several CPUs of one line the first is the
one that servers have, or the oldest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

_X86_FEATURES = """
cmov; sse; sse2(sse); sse3(sse2); ssse3(sse3); sse4.1(ssse3); sse4.2(sse4.1); popcnt; lzcnt; bmi;
bmi2; movbe; avx(sse4.2); f16c(avx); fma(avx); fma4(avx); xop(fma4); avx2(avx); gfni(sse2);
avxvnni(avx2); avxvnniint8(avx2); avxvnniint16(avx2); avxneconvert(avx2); avxifma(avx2);
avx512f(f16c fma avx2); avx512cd(avx512f); avx512dq(avx512f); avx512bw(avx512f);
avx512vl(avx512f); avx512ifma(avx512f); avx512vbmi(avx512bw); avx512vbmi2(avx512bw);
avx512vnni(avx512f); avx512bitalg(avx512bw); avx512vpopcntdq(avx512f); avx512bf16(avx512bw);
avx512fp16(avx512bw);
avx10.1(avx512cd avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg
  avx512vpopcntdq avx512bf16 avx512fp16)
"""
_X86_CPUS = """
generic:
athlon64 athlon-fx k8 opteron x86-64: cmov sse2
athlon64-sse3 k8-sse3 nocona opteron-sse3: @x86-64 sse3
core2: @x86-64 ssse3
amdfam10 barcelona: @athlon64-sse3 popcnt lzcnt
atom bonnell: @core2 movbe
penryn: @x86-64 sse4.1
btver1: @amdfam10 ssse3
corei7 nehalem westmere x86-64-v2: @x86-64 sse4.2 popcnt
atom_sse4_2_movbe goldmont goldmont-plus silvermont slm: @corei7 movbe
sandybridge: @corei7 avx
ivybridge: @corei7 f16c
tremont: @atom_sse4_2_movbe gfni
bdver1: @amdfam10 xop
btver2: @amdfam10 bmi movbe f16c
bdver2 bdver3: @bdver1 bmi f16c fma
haswell broadwell skylake x86-64-v3 znver1 znver2 znver3: @btver2 bmi2 fma avx2
alderlake gracemont meteorlake raptorlake: @haswell gfni avxvnni
bdver4: @haswell xop
knl: @haswell avx512cd
knm: @knl avx512vpopcntdq
arrowlake grandridge sierraforest: @alderlake avxvnniint8 avxneconvert avxifma
skylake-avx512 skx x86-64-v4: @knl avx512dq avx512bw avx512vl
arrowlake-s clearwaterforest lunarlake pantherlake wildcatlake: @arrowlake avxvnniint16
cascadelake: @skx avx512vnni
cannonlake: @skx avx512ifma avx512vbmi
cooperlake: @cascadelake avx512bf16
icelake-server icelake-client rocketlake tigerlake: @cannonlake gfni avx512vbmi2 avx512vnni
  avx512bitalg avx512vpopcntdq
znver4: @icelake-client avx512bf16
znver5: @znver4 avxvnni
sapphirerapids emeraldrapids: @znver5 avx512fp16
graniterapids graniterapids-d: @emeraldrapids avx10.1
"""
_AARCH64_FEATURES = """
fp-armv8; neon(fp-armv8); lse; rdm(neon); dotprod(neon); fullfp16(fp-armv8);
fp16fml(neon fullfp16); bf16(neon); i8mm(neon); f32mm(sve); f64mm(sve); sve(fullfp16); sve2(sve);
sve2p1(sve2); sme(fullfp16 bf16); sme2(sme); jsconv(fp-armv8); complxnum(neon); v8a(neon);
v8.1a(lse rdm v8a); v8.2a(v8.1a); v8.3a(jsconv complxnum v8.2a); v8.4a(dotprod v8.3a);
v8.5a(v8.4a); v8.6a(bf16 i8mm v8.5a); v8.7a(v8.6a); v8.8a(v8.7a); v8.9a(v8.8a); v9a(sve2 v8.5a);
v9.1a(v8.6a v9a); v9.2a(v8.7a v9.1a); v9.3a(v8.8a v9.2a); v9.4a(sve2p1 v8.9a v9.3a)
"""
_AARCH64_CPUS = """
generic: neon
apple-a7 apple-a8 apple-a9 cortex-a34 cortex-a35 cortex-a53 cortex-a57 cortex-a72 cortex-a73
  cyclone exynos-m3 kryo thunderx thunderxt81 thunderxt83 thunderxt88: @generic v8a
apple-a10 falkor: @apple-a7 rdm
thunderx2t99: @generic v8.1a
apple-a11 carmel: @generic fullfp16 v8.2a
cortex-a55 cortex-a65 cortex-a65ae cortex-a75 cortex-a76 cortex-a76ae cortex-a77 cortex-a78
  cortex-a78ae cortex-a78c cortex-x1 cortex-x1c exynos-m4 exynos-m5 neoverse-e1 neoverse-n1:
  @apple-a11 dotprod
cortex-r82 cortex-r82ae: @generic lse rdm dotprod fp16fml jsconv complxnum
a64fx: @apple-a11 sve complxnum
thunderx3t110: @generic v8.3a
apple-a12 apple-s4 apple-s5: @apple-a11 v8.3a
saphira: @generic v8.4a
tsv110: @cortex-r82 v8.2a
apple-a13 apple-a14 apple-m1 apple-s6 apple-s7 apple-s8: @cortex-r82 v8.4a
ampere1 ampere1a: @apple-a11 v8.6a
neoverse-512tvb neoverse-v1: @apple-a13 bf16 i8mm sve
ampere1b: @apple-a11 v8.7a
apple-a15 apple-a16 apple-a17 apple-m2 apple-m3 apple-s10 apple-s9 oryon-1: @cortex-r82 v8.6a
cobalt-100 cortex-a510 cortex-a710 cortex-a715 cortex-x2 cortex-x3 grace neoverse-n2 neoverse-v2:
  @neoverse-512tvb v9a
apple-a18 apple-a19 apple-m4 apple-m5: @cortex-r82 sme2 v8.7a
ampere1c cortex-a320 cortex-a520 cortex-a520ae cortex-a720 cortex-a720ae cortex-a725 cortex-x4
  cortex-x925 gb10 neoverse-n3 neoverse-v3 neoverse-v3ae olympus: @cortex-r82 v9.2a
fujitsu-monaka: @cortex-r82 v9.3a
c1-nano c1-premium c1-pro c1-ultra: @fujitsu-monaka sme2
"""
_RISCV_FEATURES = """
m; a; zicsr; f(zicsr); d(f); c; zba; zbb; zbs; b(zba zbb zbs); zfhmin(f); zfh(zfhmin); zvl128b;
zve64d(d); v(zvl128b zve64d); zvl256b(zvl128b); zvl512b(zvl256b); zvfhmin(f);
zvfh(zfhmin zvfhmin)
"""
_RISCV_CPUS = """
generic generic-rv64: m a d c
rocket-rv64: zicsr
sifive-s21 sifive-s51 syntacore-scr3-rv64: @rocket-rv64 m a c
andes-ax25 andes-ax45 andes-nx45 sifive-s54 sifive-s76 sifive-u54 sifive-u74 syntacore-scr4-rv64
  syntacore-scr5-rv64: @sifive-s21 d
mips-p8700 sifive-p550: @andes-ax25 zba zbb
andes-ax45mpv: @sifive-s21 v
veyron-v1 xiangshan-nanhu: @andes-ax25 zba zbb zbs
sifive-p450: @andes-ax25 b zfhmin
syntacore-scr7: @sifive-s21 zba zbb zbs v
sifive-p470 sifive-p670: @sifive-p450 v
sifive-x280: @mips-p8700 zfh v zvl512b zvfh
xiangshan-kunminghu: @sifive-p470 zfh zvfh
spacemit-x60: @xiangshan-kunminghu zvl256b
"""
_ARM32_FEATURES = "neon"
_ARM32_CPUS = """
generic cortex-m0 cortex-m0plus cortex-m3 cortex-m4 cortex-m7 cortex-m23 cortex-m33 cortex-m55
  cortex-m85 cortex-r5:
cortex-a5 cortex-a7 cortex-a8 cortex-a9 cortex-a15 cortex-a17 cortex-a32: neon
"""
_RISCV32_FEATURES = "m; a; c; zicsr; f(zicsr); d(f); zba; zbb; zbs; b(zba zbb zbs)"
_RISCV32_CPUS = """
generic generic-rv32: m a c
sifive-e31: zicsr m a c
sifive-e76: zicsr m a f c
"""

_OTHER_FEATURES: Mapping[str, str] = {
    "x86": "64bit adx aes amx-bf16 amx-fp16 amx-int8 amx-tile cx16 fsgsbase mmx pclmul sha sse4a "
    "vaes vpclmulqdq x87 xsave prefer-128-bit prefer-256-bit",
    "aarch64": "aes crc crypto outline-atomics sha2 sha3 sm4",
    "riscv": "64bit e i relax zfa zicond zicsr zifencei zvl1024b",
    "arm": "",
    "riscv32": "",
}


_META = frozenset({"avx10.1"})
"""Names that stand for other features and for nothing else (with v8a, v8.1a, ...)."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family of CPUs: `features` maps each feature to those it needs, `cpus` to those it has.

    `told` maps a CPU to these and to the names that stand for some of them and that it reports.
    """

    name: str
    features: Mapping[str, tuple[str, ...]]
    others: frozenset[str]
    cpus: Mapping[str, frozenset[str]]
    told: Mapping[str, frozenset[str]]

    def closure(self, features: Iterable[str]) -> frozenset[str]:
        """Return features with all they need."""
        found: set[str] = set()
        waiting = list(features)
        while waiting:
            feature = waiting.pop()
            if feature not in found:
                found.add(feature)
                waiting.extend(self.features.get(feature, ()))
        return frozenset(f for f in found if not _is_meta(f))

    def without(self, features: Iterable[str], off: Iterable[str]) -> frozenset[str]:
        """Return features without those in `off` and without all that need one of them."""
        gone = set(off)
        return frozenset(f for f in features if gone.isdisjoint({f, *self.closure((f,))}))

    def cpu_with(self, name: str, features: Iterable[str]) -> str:
        """Return the CPU of that name, or the least of its maker that has what it never had.

        A virtual machine on x86 may show another CPU's number while its instructions are those of
        the processor below, whose units and caches the code will meet.
        """
        shown = {f for f in features if f in self.features}
        shown |= self.closure(shown)
        maker = _maker(name)
        if self.name != "x86" or not maker or shown <= self.told.get(name, shown):
            return name
        others = [cpu for cpu, has in self.told.items() if shown <= has and _maker(cpu) == maker]
        return min(others, key=lambda cpu: len(self.told[cpu]), default=name)


def _maker(cpu: str) -> str:
    """Return who makes a CPU of x86; "" for a name that is no CPU's."""
    if re.match("generic|x86-64", cpu):
        return ""
    is_amd = re.match("amdfam|athlon|barcelona|bdver|btver|k8|opteron|znver", cpu)
    return "amd" if is_amd else "intel"


def _is_meta(feature: str) -> bool:
    return feature in _META or (feature[:2] in ("v8", "v9") and feature.endswith("a"))


_TABLES = {
    "x86": (_X86_FEATURES, _X86_CPUS),
    "aarch64": (_AARCH64_FEATURES, _AARCH64_CPUS),
    "riscv": (_RISCV_FEATURES, _RISCV_CPUS),
    "arm": (_ARM32_FEATURES, _ARM32_CPUS),
    "riscv32": (_RISCV32_FEATURES, _RISCV32_CPUS),
}

_TRIPLES = {
    "x86_64": "x86", "amd64": "x86", "aarch64": "aarch64", "arm64": "aarch64", "riscv64": "riscv",
}  # fmt: skip
_ARM32 = re.compile(r"(arm|thumb)(v[4-8][\w.]*)?")
_SYSTEM = re.compile(r"linux|android|bsd|darwin|ios|windows|fuchsia")
_BARE = re.compile(r"(\w+-)?(none|unknown)(-\w*(eabi|elf)\w*)?|elf|(none-)?eabi(hf)?")


def architecture_names() -> tuple[str, ...]:
    """Return the first parts of the triples whose machine code the native runtime loads."""
    return tuple(_TRIPLES)


def architecture_of(triple: str) -> Architecture | None:
    """Return the architecture of a triple, None when it is not known here."""
    first = triple.partition("-")[0]
    name = _TRIPLES.get(first, _of_32_bits(first))
    return None if name is None else _architecture(name)


def _of_32_bits(first: str) -> str | None:
    if first == "riscv32":
        return first
    return "arm" if _ARM32.fullmatch(first) else None


def has_32_bits(triple: str) -> bool:
    """True for machines whose registers and addresses have 32 bits."""
    return _of_32_bits(triple.partition("-")[0]) is not None


def is_source_only(triple: str) -> bool:
    """True for machines that a model reaches as C source alone.

    The native runtime loads no machine code there: they have 32 bits, or no system.
    """
    return has_32_bits(triple) or _BARE.fullmatch(triple.partition("-")[2]) is not None


def has_system(triple: str) -> bool:
    """False for machines without an operating system that gives programs threads and stacks.

    Those of 32 bits have one only where the triple names it.
    """
    return not is_source_only(triple) or _SYSTEM.search(triple.partition("-")[2]) is not None


@cache
def _architecture(name: str) -> Architecture:
    feature_text, cpu_text = _TABLES[name]
    features: dict[str, tuple[str, ...]] = {}
    for item in feature_text.replace("\n", " ").split(";"):
        feature, _, needs = item.strip().rstrip(")").partition("(")
        features[feature] = tuple(needs.split())
    others = frozenset(_OTHER_FEATURES[name].split())
    result = Architecture(name, features, others, {}, {})
    told: dict[str, frozenset[str]] = {}
    for line in cpu_text.replace("\n  ", " ").strip().splitlines():
        names, _, has = line.partition(":")
        on: set[str] = set()
        for word in has.split():
            on |= told[word[1:]] if word.startswith("@") else {word, *result.closure((word,))}
        told.update(dict.fromkeys(names.split(), frozenset(on)))
    cpus = {cpu: frozenset(f for f in on if not _is_meta(f)) for cpu, on in told.items()}
    return Architecture(name, features, others, cpus, told)


def implied_features(triple: str, cpu: str) -> frozenset[str]:
    """Return the features a CPU has by its name (none for an unknown one)."""
    architecture = architecture_of(triple)
    return frozenset() if architecture is None else architecture.cpus.get(cpu, frozenset())
