# SPDX-License-Identifier: Apache-2.0
"""Which kernels a change alters: names do not count, everything else does."""

from __future__ import annotations

from benchmarks.kernel_texts import compare, nest_of, texts_of, without_names

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


def test_knobs_with_another_value_or_cost_are_said_of_what_differs() -> None:
    before = f"# knob tile: 1 × 30, 900 cycles\n# knob band: 5, 80 cycles\n{NEST}"
    after = before.replace("30, 900", "28, 950").replace("range(4)", "range(2)")
    changed, knob, *difference = compare({"a": before}, {"a": after})
    assert changed.startswith("changed  a")
    assert knob.split(":", 1) == ["         tile", " 1 × 30, 900 cycles -> 1 × 28, 950 cycles"]
    assert not [line for line in difference if "knob" in line]
    assert compare({"a": before}, {"a": before.replace("band: 5", "band: 4")}) == []


def test_kernels_of_a_revision_without_knobs_are_compared_by_their_loops() -> None:
    assert compare({"a": NEST}, {"a": f"# knob tile: 1, 9 cycles\n{NEST}"}) == []
    changed, *_ = compare({"a": NEST}, {"a": f"# knob tile: 1\n{NEST}extra"}, shown=0)
    assert changed.startswith("changed  a")


def test_the_texts_of_a_network_say_what_runs_in_them() -> None:
    texts = dict(texts_of(["squeezenet"], ["avx512"]))
    first = next(iter(texts))
    assert first.startswith("avx512/squeezenet/")
    assert texts[first].startswith("# knob tile: ")
    assert " cycles\n" in texts[first].partition("def ")[0]
    assert nest_of(texts[first]).startswith("def kernel(")
