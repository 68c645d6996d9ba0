# SPDX-License-Identifier: Apache-2.0
"""Which kernels a change alters: names do not count, everything else does."""

from __future__ import annotations

from benchmarks.kernel_texts import compare, texts_of, without_names

NEST = """def kernel(p0: float32[8]):
    for i.outer in parallel(2):
        sum: float32[1] = alloc(local)
        for i.inner in range(4):
            sum[0] = (sum[0] + p0[((i.outer * 4) + i.inner)])"""
RENAMED = NEST.replace("i.outer", "task").replace("i.inner", "i").replace("sum", "total")


def test_loops_and_buffers_are_numbered() -> None:
    assert without_names(NEST) == without_names(RENAMED)
    assert "for v1 in parallel(2)" in without_names(NEST)


def test_only_what_the_loops_do_differs() -> None:
    before = {"a": NEST, "b": NEST, "c": NEST}
    after = {"a": RENAMED, "b": NEST.replace("range(4)", "range(2)"), "d": NEST}
    gone, new, changed, *difference = compare(before, after)
    assert (gone.split()[:2], new.split()[:2]) == (["gone", "c"], ["new", "d"])
    assert changed.startswith("changed  b")
    assert difference[-3:-1] == ["-        for v3 in range(4):", "+        for v3 in range(2):"]
    assert compare(before, dict(before)) == []


def test_the_texts_of_a_network_say_what_runs_in_them() -> None:
    texts = dict(texts_of(["squeezenet"], ["avx512"]))
    first = next(iter(texts))
    assert first.startswith("avx512/squeezenet/")
    assert texts[first].startswith("def kernel(")
