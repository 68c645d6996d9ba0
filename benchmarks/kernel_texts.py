# SPDX-License-Identifier: Apache-2.0
"""The loop nest of every kernel of the benchmark networks, and which of them a change alters.

    python -m benchmarks.kernel_texts write FILE [--target T ...] [name ...]
    python -m benchmarks.kernel_texts compare BEFORE AFTER [--texts N]

`scripts/check --kernels` runs both: a refactoring alters none. Kernels are matched by target,
network and the nodes of the model that run in them, not by the content of the graph that they were
made from, and compared without regard to the names of buffers and loops. Of one that differs it is
said which knobs have another value or cost, in cycles as the schedule's model predicts them.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks import networks
from treadle.build.compile import kernels_of
from treadle.build.kernel import Kernel
from treadle.files import replacing
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.nodes import Function
from treadle.optimize.pipeline import optimize
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.knobs import Knob, value_text

CACHES = "-caches=48K,1M,32M -num-cores=2"
TARGETS = {
    "avx512": f"llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 {CACHES}",
    "avx2": f"llvm -mtriple=x86_64-linux-gnu -mcpu=haswell {CACHES}",
    "neon": f"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 {CACHES}",
}
"""Written targets: the texts are the same on every machine."""

NAMES = (
    "resnet50", "mobilenet_v2", "squeezenet", "shufflenet", "efficientnet_b0", "densenet121",
    "inception_v2", "unet_small", "bert_base", "gpt2", "vit_base", "llama_like", "wavenet_like",
)  # fmt: skip
"""The networks that are looked at where none is named: every template has kernels among them."""

Texts = dict[str, str]
"""By `target/network/nodes`: the knobs of a kernel as comments, and its loop nest."""

KNOB = "# knob "
"""What a line of a knob begins with: its name, value and predicted cycles follow."""


def texts_of(names: Iterable[str], targets: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the loop nest of every kernel of the networks, for each target."""
    for name in names:
        module = import_onnx(networks.build(name)).module
        for label in targets:
            target = parse_target(TARGETS[label])
            taken: Counter[str] = Counter()
            for kernel in _kernels(module.main, target):
                key = f"{label}/{name}/{'+'.join(dict.fromkeys(kernel.origins))}"
                taken[key] += 1
                yield (key if taken[key] == 1 else f"{key} #{taken[key]}"), _text(kernel)


def _kernels(main: Function, target: Target) -> Iterator[Kernel]:
    kernels, _ = kernels_of(optimize(main, target), target)
    for kernel in kernels:
        yield kernel
        kernel.release()


def _text(kernel: Kernel) -> str:
    """Return the knobs and the loop nest, without the symbol, which is a hash of the graph."""
    nest = re.sub(re.escape(kernel.name), "kernel", kernel.loop_text())
    return "".join(f"{KNOB}{_knob_text(knob)}\n" for knob in kernel.knobs) + nest


def _knob_text(knob: Knob) -> str:
    cost = "" if knob.cost is None else f", {knob.cost:.0f} cycles"
    return f"{knob.name}: {value_text(knob.value)}{cost}"


def write(path: Path, names: Iterable[str], targets: Sequence[str]) -> None:
    """Write the texts as JSON, in one step."""
    with replacing(path) as file:
        file.write(json.dumps(dict(texts_of(names, targets)), indent=0).encode())


_DECLARED = re.compile(r"(?:for ([\w.]+) in )|(?:([\w.]+): \w+\[)")
_WORD = re.compile(r"[A-Za-z_][\w.]*")


def without_names(text: str) -> str:
    """Return a loop nest with its loops and buffers numbered in the order they are declared.

    before: for oc.outer in range(4):      after: for v1 in range(4):
    """
    names: dict[str, str] = {}
    for loop, buffer in _DECLARED.findall(text):
        names.setdefault(loop or buffer, f"v{len(names)}")
    return _WORD.sub(lambda word: names.get(word[0], word[0]), text)


def nest_of(text: str) -> str:
    """Return a kernel's text without the lines of its knobs."""
    return "".join(line for line in text.splitlines(True) if not line.startswith(KNOB))


def digest(text: str) -> str:
    """Return a short hash of a loop nest, whatever its loops and buffers are called."""
    return hashlib.sha256(without_names(nest_of(text)).encode()).hexdigest()[:12]


def _knobs(text: str) -> dict[str, str]:
    lines = (line.removeprefix(KNOB) for line in text.splitlines() if line.startswith(KNOB))
    return dict(line.split(": ", 1) for line in lines)


def changed_knobs(before: str, after: str) -> list[str]:
    """Return a line for every knob of a kernel whose value or predicted cycles are others."""
    old, new = _knobs(before), _knobs(after)
    names = [*old, *(n for n in new if n not in old)] if old else []
    return [
        f"         {name}: {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def compare(before: Texts, after: Texts, shown: int = 1) -> list[str]:
    """Return a line for every kernel that differs, and the first `shown` differences as text."""
    lines = [f"gone     {key}" for key in before if key not in after]
    lines += [f"new      {key}  {digest(after[key])}" for key in after if key not in before]
    kept = [key for key in before if key in after]
    changed = [key for key in kept if digest(before[key]) != digest(after[key])]
    for count, key in enumerate(changed):
        lines.append(f"changed  {key}  {digest(before[key])} -> {digest(after[key])}")
        lines += changed_knobs(before[key], after[key])
        if count < shown:
            old, new = (without_names(nest_of(t[key])).splitlines() for t in (before, after))
            lines += difflib.unified_diff(old, new, "before", "after", lineterm="", n=2)
    return lines


def main() -> None:
    """Write the texts of this checkout, or compare two files of them; exit 1 where they differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel_texts")
    verbs = parser.add_subparsers(dest="verb", required=True)
    writer = verbs.add_parser("write", help="write every kernel's loop nest to a file")
    writer.add_argument("file", type=Path)
    writer.add_argument("names", nargs="*", metavar="name", help=f"networks; {', '.join(NAMES)}")
    writer.add_argument("--target", action="append", choices=list(TARGETS), help="default: all")
    comparer = verbs.add_parser("compare", help="say which kernels differ")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    comparer.add_argument("--texts", type=int, default=1, help="differences shown (default 1)")
    arguments = parser.parse_args()
    if arguments.verb == "write":
        if unknown := [n for n in arguments.names if n not in networks.BUILDERS]:
            parser.error(f"unknown network {', '.join(unknown)}")
        write(arguments.file, arguments.names or NAMES, arguments.target or list(TARGETS))
        return
    before, after = (json.loads(f.read_text()) for f in (arguments.before, arguments.after))
    lines = compare(before, after, arguments.texts)
    print("\n".join([*lines, f"{len(after)} kernels, {_altered(lines)} differ"]))
    sys.exit(1 if lines else 0)


def _altered(lines: Iterable[str]) -> int:
    return sum(line.startswith(("gone ", "new ", "changed ")) for line in lines)


if __name__ == "__main__":
    main()
