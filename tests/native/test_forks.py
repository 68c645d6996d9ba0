# SPDX-License-Identifier: Apache-2.0
"""Children forked off while other threads of the parent run models: they run them too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.runtime.artifacts import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PREAMBLE = """
import os, sys, threading
from tests.native import models
from tests.native.forking import Busy, in_children
from treadle.runtime.executor import Executor
"""


def run_script(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code + "\nprint('done')"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("kind", ["static", "dynamic", "loop"])
@pytest.mark.parametrize("threads", [1, 3])
def test_children_run_what_the_parent_is_running(kind: str, threads: int) -> None:
    """The parent's runs take long, so that every fork falls into one; all streams are taken."""
    run_script(f"""
model = models.{kind}({threads})
model.executor.max_streams = 1
def check():
    model.check()
    model.check()
with Busy(model.run_long):
    in_children(check)
model.check()
""")


def test_children_may_fork_and_start_threads_themselves() -> None:
    run_script("""
model = models.dynamic(2)
def check():
    threads = [threading.Thread(target=model.check) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    with Busy(model.run_long, 1):
        in_children(model.check, 2)
with Busy(model.run_long):
    in_children(check, 3)
""")


def test_the_number_of_threads_may_change_while_the_process_forks() -> None:
    run_script("""
model = models.static(2)
def change():
    for count in (1, 4, 2, 3):
        model.executor.num_threads = count
def check():
    model.executor.num_threads = 5
    model.check()
    assert model.executor.num_threads == 5
with Busy(model.check, 2), Busy(change, 1):
    in_children(check)
""")


def test_a_run_that_forks_goes_on_in_parent_and_child() -> None:
    run_script("""
model = models.static(2)
seen, children = [], []
def observe(index, value):
    seen.append(index)
    if index == 0:
        children.append(os.fork())
results = model.executor.watch(model.inputs, observe)
model.compare(results)
assert seen == list(range(model.steps))
model.check()
if children[0] == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
""")


def test_children_close_what_the_parent_is_running() -> None:
    run_script("""
kinds = [models.static(2), models.dynamic(2), models.loop(2)]
def check():
    for model in kinds:
        model.executor.close()
for model in kinds:
    model.executor.max_streams = 1
with Busy(kinds[0].run_long, 1), Busy(kinds[1].run_long, 1), Busy(kinds[2].run_long, 1):
    in_children(check)
""")


def test_children_load_models_while_the_parent_does(tmp_path: object) -> None:
    run_script(f"""
from tests.runtime import artifacts
from pathlib import Path
path = models.large_artifact(Path({str(tmp_path)!r}) / "model.tar")
def load():
    with Executor.open(path) as executor:
        models.check_large(executor)
with Busy(load):
    in_children(load)
""")
