# SPDX-License-Identifier: Apache-2.0
"""Lines of records in a table of a database, which many machines append to at the same time.

A database is named by a URL of SQLAlchemy, `sqlite:///records.db` or
`postgresql+psycopg://user@host/name`; extra `fleet`. A row is a number and the line that would
stand in a file, without its end. Writers lock the table, so that rows become visible in the order
of their numbers: whoever has read up to a number has missed none before it. A connection lives as
long as one call, so that processes may be forked in between.

What is shown of a URL is never its password, nor its options.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadle.errors import UsageError

TABLE = "treadle_records"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+_.-]*://")
_PARTS = re.compile(
    r"(?P<scheme>[^:]+)://(?:(?P<user>[^:/@?]*)(?P<secret>:[^@]*)?@)?(?P<rest>[^@?]*)(?P<more>\?.*)?",
    re.DOTALL,
)
_WAIT_SECONDS = 60
"""How long a writer waits for another one."""
_EXTRA = "pip install 'treadle[fleet]'"
_EXAMPLES = "name one as sqlite:///records.db or postgresql+psycopg://user@host/name"
_LOCKS = {
    "sqlite": ("BEGIN IMMEDIATE",),
    "postgresql": ("BEGIN", f"LOCK TABLE {TABLE} IN EXCLUSIVE MODE"),
}
"""How a transaction begins during which no other writer writes."""
_MAKES = {
    "sqlite": ("BEGIN IMMEDIATE",),
    "postgresql": ("BEGIN", "SELECT pg_advisory_xact_lock(7414021)"),
}
"""How one begins that makes the table: any number that all of Treadle's have in common."""

Row = tuple[int, bytes]
"""A row's number, and its line with its end."""


def is_url(where: str | os.PathLike[str]) -> bool:
    """Return whether this names a database and not a file."""
    return isinstance(where, str) and _URL.match(where) is not None


def shown(where: str | os.PathLike[str]) -> str:
    """Return a file or a URL for people: without a password and without options."""
    text = os.fspath(where)
    if not is_url(where):
        return text
    found = _PARTS.fullmatch(text)
    if found is None:
        return f"{text.partition('://')[0]}://…"
    user = found["user"]
    secret = ":***" if found["secret"] else ""
    login = f"{user}{secret}@" if user is not None else ""
    return f"{found['scheme']}://{login}{found['rest']}{'?…' if found['more'] else ''}"


def shown_within(text: str) -> str:
    """Return a word of a command line for people: the URL that it is or ends with as `shown`."""
    found = _URL.search(text)
    return text if found is None else text[: found.start()] + shown(text[found.start() :])


@dataclass(frozen=True, slots=True)
class RecordDatabase:
    """The table of records in a database; `name` is its URL as it may be shown."""

    name: str
    _engine: Any  # of a library that need not be there
    _table: Any
    _secrets: Sequence[str] = ()

    @staticmethod
    def open(url: str, *, make: bool = False) -> RecordDatabase:
        """Return the table that a URL leads to; with `make`, make it where there is none.

        Raises: UsageError where there is none, the database cannot be reached, the URL is none, or
            a package is missing.
        """
        database = _opened(url)
        if make:
            with database._writing(_MAKES) as connection:
                database._table.create(connection, checkfirst=True)
        elif not database._exists():
            raise UsageError(
                f"the database {database.name} has no records: no table {TABLE}",
                hint="`treadle tune -o` and `treadle records merge -o` make it",
            )
        return database

    def rows(self, after: int = 0) -> list[Row]:
        """Return the rows after one, in order.

        Raises: UsageError where they cannot be read.
        """
        table = self._table
        query = table.select().where(table.c.id > after).order_by(table.c.id)
        with self._connected() as connection:
            return [(row.id, f"{row.line}\n".encode()) for row in connection.execute(query)]

    def append(self, lines: Iterable[bytes]) -> None:
        """Write lines at the end, all or none.

        Raises: UsageError where they cannot be written.
        """
        values = [{"line": line.decode().rstrip("\n")} for line in lines]
        if values:
            with self._writing(_LOCKS) as connection:
                connection.execute(self._table.insert(), values)

    def retain(self, keeps: Callable[[Sequence[Row]], Iterable[int]]) -> None:
        """Remove all rows but those whose numbers `keeps` returns of all; nobody writes meanwhile.

        Raises: UsageError where they cannot be read or removed.
        """
        table = self._table
        with self._writing(_LOCKS) as connection:
            found = connection.execute(table.select().order_by(table.c.id))
            rows = [(row.id, f"{row.line}\n".encode()) for row in found]
            kept = set(keeps(rows))
            for number, _ in rows:
                if number not in kept:
                    connection.execute(table.delete().where(table.c.id == number))

    def _exists(self) -> bool:
        import sqlalchemy

        url = self._engine.url
        if url.get_backend_name() == "sqlite" and not Path(url.database).exists():
            return False  # to open it would make it
        with self._connected() as connection:
            return bool(sqlalchemy.inspect(connection).has_table(TABLE))

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Give a connection; what goes wrong with the database is a UsageError."""
        import sqlalchemy.exc

        try:
            with self._engine.connect() as connection:
                yield connection
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise self._refused(error) from None

    @contextmanager
    def _writing(self, begins: dict[str, tuple[str, ...]]) -> Iterator[Any]:
        """Give a connection in a transaction, which is undone where the block fails."""
        with self._connected() as connection:
            for statement in begins[self._engine.dialect.name]:
                connection.exec_driver_sql(statement)
            try:
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    def _refused(self, error: Exception) -> UsageError:
        text = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return UsageError(
            f"the database {self.name} refuses: {text}",
            hint="see that it runs and lets you in; `treadle tune` goes on from the records there",
        )


def _opened(url: str) -> RecordDatabase:
    """Return the table of a URL, which nothing has been asked of yet.

    Raises: UsageError where the URL is none, or a package is missing.
    """
    name = shown(url)
    if importlib.util.find_spec("sqlalchemy") is None:
        raise UsageError(f"{name} is a database, which needs sqlalchemy", hint=_EXTRA)
    import sqlalchemy
    from sqlalchemy.pool import NullPool

    try:
        parsed = sqlalchemy.make_url(url)
        dialect = parsed.get_backend_name()
        is_kept = dialect != "sqlite" or parsed.database not in (None, "", ":memory:")
        if dialect not in _LOCKS or not is_kept:
            raise UsageError(f"{name} is no database that records are kept in", hint=_EXAMPLES)
        arguments = {"timeout": _WAIT_SECONDS} if dialect == "sqlite" else {}
        engine = sqlalchemy.create_engine(
            parsed, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=arguments
        )
    except ModuleNotFoundError as error:
        raise UsageError(f"the driver of {name} is missing: {error.name}", hint=_EXTRA) from None
    except (sqlalchemy.exc.SQLAlchemyError, ValueError):
        raise UsageError(f"{name} is no URL of a database", hint=_EXAMPLES) from None
    number = sqlalchemy.BigInteger().with_variant(sqlalchemy.Integer(), "sqlite")
    table = sqlalchemy.Table(
        TABLE,
        sqlalchemy.MetaData(),
        sqlalchemy.Column("id", number, primary_key=True, autoincrement=True),
        sqlalchemy.Column("line", sqlalchemy.Text, nullable=False),
        sqlite_autoincrement=True,  # the number of a removed row is not given again
    )
    secrets = [str(s) for s in (parsed.password, *parsed.query.values()) if s]
    return RecordDatabase(name, engine, table, secrets)
