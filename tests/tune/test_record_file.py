# SPDX-License-Identifier: Apache-2.0
"""Files of records: appended to by several at once, cut off, full."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from treadle.build.records import Record, Records
from treadle.cli.main import main
from treadle.errors import ConfigError, UsageError
from treadle.te.knobs import Config
from treadle.tune.record_file import RecordFile

RECORD = Record("k", "t", Config.of({"a": 1}), (1e-3,))


def test_what_is_appended_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    first, second = RecordFile(path), RecordFile(path)
    first.append(RECORD)
    assert first.read_new() == []
    assert second.read_new() == [RECORD]
    second.append(replace(RECORD, error="no", seconds=()))
    assert [r.error for r in first.read_new()] == ["no"]
    assert first.read_new() == []
    first.close()
    second.close()


def test_a_line_that_broke_off_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    first, second = RecordFile(path), RecordFile(path)
    first.append(RECORD)
    with path.open("ab") as dying:
        dying.write(RECORD.line()[:20])
    assert second.read_new() == [RECORD]
    with path.open("ab") as dying:
        dying.write(RECORD.line()[:40])
    first.append(replace(RECORD, seconds=(2.0,)))
    assert [r.seconds for r in second.read_new()] == [(2.0,)]
    assert [r.time for r in Records.read(path).trials("k", "t")] == [1e-3, 2.0]
    first.close()
    second.close()


PROGRAM = """
import sys
from tests.tune.test_record_file import RECORD
from treadle.tune.record_file import RecordFile
file = RecordFile(sys.argv[1])
for _ in range(300):
    file.append(RECORD)
"""


def test_a_bad_line_of_another_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    file = RecordFile(path)
    file.append(RECORD)
    file.read_new()
    with path.open("ab") as other:
        other.write(RECORD.line() + b"{}\n")
    with pytest.raises(ConfigError) as caught:
        file.read_new()
    assert caught.value.at == f"{path}, line 3"
    file.close()


def test_no_line_is_lost_of_several_writers(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [w.wait(PATIENCE) for w in writers] == [0, 0, 0]
    assert path.read_bytes() == RECORD.line() * 900


PRUNING = """
import sys
from treadle.cli.main import main
for _ in range(20):
    assert main(["records", "prune", "--keep", "1000000", sys.argv[1]]) == 0
"""


def test_no_line_is_lost_while_the_file_is_pruned(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(RECORD.line())
    programs = [PROGRAM, PROGRAM, PRUNING]
    running = [subprocess.Popen([sys.executable, "-c", p, str(path)]) for p in programs]
    assert [p.wait(PATIENCE) for p in running] == [0, 0, 0]
    assert path.read_bytes() == RECORD.line() * 601


def test_of_a_file_that_was_replaced_only_what_is_new_is_read(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    file = RecordFile(path)
    fast, slow, new = (replace(RECORD, seconds=(t,)) for t in (1.0, 2.0, 3.0))
    for record in (slow, fast):
        file.append(record)
    assert main(["records", "prune", "--keep", "1", str(path)]) == 0
    with path.open("ab") as other:
        other.write(new.line())
    assert file.read_new() == [new]
    file.append(slow)
    assert [r.seconds for r in Records.read(path).trials("k", "t")] == [(1.0,), (3.0,), (2.0,)]
    file.close()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        file = RecordFile(path)
        file.append(RECORD)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * len(RECORD.line()) - 5,) * 2)
        try:
            file.append(RECORD)
        except UsageError as error:
            os._exit(0 if "cannot be written" in error.problem and error.hint else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert path.read_bytes() == RECORD.line()


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        RecordFile(tmp_path / "no" / "records.jsonl")
    with pytest.raises(UsageError, match="cannot be written: Is a directory"):
        RecordFile(tmp_path)
