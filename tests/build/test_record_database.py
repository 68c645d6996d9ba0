# SPDX-License-Identifier: Apache-2.0
"""Records in a database: the same lines, many writers, clear errors, no credentials in print."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from treadle.build.record_database import RecordDatabase, is_url, shown, shown_within
from treadle.build.records import Record, Records
from treadle.cli.main import main
from treadle.errors import ConfigError, UsageError
from treadle.te.knobs import Config
from treadle.tune.record_store import open_store

RECORDS = [
    Record("k", "t", Config.of({"a": 1}), (2e-3,)),
    Record("k", "t", Config.of({"a": 2}), (1e-3,)),
    Record("k", "t", Config.of({"a": 3}), error="it crashed"),
    Record("k", "t", Config.of({"a": 1}), is_chosen=True),
]

needs_sqlalchemy = pytest.mark.skipif(
    importlib.util.find_spec("sqlalchemy") is None, reason="needs sqlalchemy (extra fleet)"
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'records.db'}"


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("postgresql+psycopg://me:se/c?r:et@host:5432/db", "postgresql+psycopg://me:***@host:5432/db"),
        ("postgresql://me@host/db?password=secret&x=y@z", "postgresql://me@host/db?…"),
        ("postgresql://me:secret@host@x/db", "postgresql://…"),
    ],
)  # fmt: skip
def test_passwords_are_never_shown(url: str, said: str) -> None:
    assert is_url(url)
    assert shown(url) == said
    assert shown_within(f"--output={url}") == f"--output={said}"
    assert shown_within(f"-o{url}") == f"-o{said}"


@pytest.mark.tiny
def test_files_are_no_databases() -> None:
    for place in ("records.jsonl", "a:b//c", Path("sqlite:///x.db")):
        assert not is_url(place)
        assert shown(place) == os.fspath(place)


@pytest.mark.tiny
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="which needs sqlalchemy") as caught:
        Records.read("postgresql://me:secret@host/db")
    assert caught.value.hint == "pip install 'treadle[fleet]'"
    assert "secret" not in str(caught.value)


@needs_sqlalchemy
def test_what_is_appended_is_read_once(url: str) -> None:
    first, second = open_store(url), open_store(url)
    first.append(RECORDS[0])
    assert second.read_new() == [RECORDS[0]]
    second.append(RECORDS[1])
    assert [first.read_new(), first.read_new()] == [RECORDS[:2], []]
    read = [*Records.read(url)]
    assert read == RECORDS[:2]
    assert read[1].at == f"{url}, row 2"


PROGRAM = """
import sys
from treadle.build.record_database import RecordDatabase
database = RecordDatabase.open(sys.argv[1], make=True)
for number in range(40):
    database.append([sys.argv[2].encode()])
"""


@needs_sqlalchemy
def test_no_row_is_lost_of_several_writers(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, url, RECORDS[0].line().decode()]
    writers = [subprocess.Popen(command) for _ in range(2)]
    store, seen = open_store(url), 0
    while any(w.poll() is None for w in writers):
        seen += len(store.read_new())
        time.sleep(0.05)
    assert [w.wait(PATIENCE) for w in writers] == [0, 0]
    assert seen + len(store.read_new()) == 80
    assert [r.line() for r in Records.read(url)] == [RECORDS[0].line()] * 80


@needs_sqlalchemy
def test_a_row_that_is_no_record_is_named(url: str) -> None:
    database = RecordDatabase.open(url, make=True)
    database.append([RECORDS[0].line(), b'{"version": 1}\n'])
    with pytest.raises(ConfigError, match="has no kernel") as caught:
        Records.read(url)
    assert caught.value.at == f"{url}, row 2"


@needs_sqlalchemy
def test_what_is_no_database_of_records_is_said(tmp_path: Path, url: str) -> None:
    path = tmp_path / "records.db"
    with pytest.raises(UsageError, match="no table treadle_records"):
        Records.read(url)
    assert not path.exists()
    path.write_bytes(b"no database " * 100)
    with pytest.raises(UsageError, match="refuses: file is not a database"):
        Records.read(url)
    for wrong in ("sqlite://", "mysql://me:secret@host/db", "nonsense://me:secret@host/db"):
        with pytest.raises(UsageError, match=r"is no (URL of a )?database") as caught:
            Records.read(wrong)
        assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match="refuses: unable to open database file"):
        open_store(f"sqlite:///{tmp_path}/no/such/folder.db")


@needs_sqlalchemy
def test_the_commands_work_on_databases(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    records = Records()
    for record in RECORDS:
        records.add(record)
    records.write(path)
    for added in (4, 0):  # what is there is not added again
        assert main(["records", "merge", str(path), "-o", url]) == 0
        assert f"{added} records to {url}" in capsys.readouterr().out
    assert main(["records", "list", url]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[3:6] == ["2.00", "ms", "yes"]
    assert main(["records", "best", url]) == 0
    assert "a = 1" in capsys.readouterr().out
    assert main(["records", "prune", url, "--keep", "1"]) == 0
    assert "dropped  2 records" in capsys.readouterr().out
    assert [*Records.read(url)] == [RECORDS[1], RECORDS[3]]
    store = open_store(url)
    store.append(RECORDS[0])  # the numbers of removed rows are not given again
    assert [r.at for r in store.read_new()] == [f"{url}, row {n}" for n in (2, 4, 5)]
    assert main(["records", "prune", url, "-o", str(path)]) == 0
    assert len(Records.read(path)) == 3
