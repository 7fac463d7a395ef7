"""Connections to Postgres: where the database is, a pool, and driver errors in words a person can act on.

Every connection is in autocommit mode; a transaction is always an explicit block.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from pgvector.psycopg import register_vector
from psycopg import conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from doc_rag.errors import DatabaseUnavailable
from doc_rag.settings import Settings
from doc_rag.store import schema
from doc_rag.store.embedded import EmbeddedPostgres

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]

CONNECT_TIMEOUT_SECONDS = 5
RECONNECT_SECONDS = 2
STATEMENT_TIMEOUT_SECONDS = 30


class Database:
    """One database for one process: opened on first use, migrated once, pooled, safe between threads."""

    def __init__(self, settings: Settings, *, max_connections: int = 4) -> None:
        self._url = settings.database_url.reveal() if settings.database_url else None
        self._embedded = None if self._url else EmbeddedPostgres(settings.data_dir)
        self._max_connections = max_connections
        self._pool: ConnectionPool[Connection] | None = None
        self._conninfo = ""
        self._lock = threading.Lock()

    def describe(self) -> str:
        """Which database this is, without user or password: for every summary and `status`."""
        if self._embedded:
            return self._embedded.describe()
        parts = conninfo.conninfo_to_dict(self._url or "")
        host = parts.get("host") or "localhost"
        return (
            f"Postgres at {host}:{parts.get('port') or 5432}, database {parts.get('dbname') or 'the default'}"
        )

    def open(self) -> None:
        """Start the embedded server if there is one, connect, and bring the schema up to date. Idempotent.

        Raises:
            DatabaseUnavailable: not reachable, pgvector is missing, or the tables are somebody else's.
            SchemaTooNew: a newer doc-rag-mcp wrote this database.
        """
        with self._lock:
            if self._pool is not None:
                return
            self._conninfo = self._embedded.acquire() if self._embedded else (self._url or "")
            try:
                with self.translated(), self._connect() as connection:
                    schema.migrate(connection)
                self._pool = ConnectionPool(
                    self._conninfo,
                    kwargs={
                        "autocommit": True,
                        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                        "application_name": "doc-rag",
                        "client_encoding": "utf8",
                    },
                    min_size=0,
                    max_size=self._max_connections,
                    configure=_configure,
                    check=ConnectionPool.check_connection,
                    timeout=CONNECT_TIMEOUT_SECONDS,
                    # A longer one would double its pauses, and keep waiting when the server is long back.
                    reconnect_timeout=RECONNECT_SECONDS,
                    max_idle=300,
                    name="doc-rag",
                    open=True,
                )
            except BaseException:
                if self._embedded:
                    self._embedded.release()
                raise

    def close(self) -> None:
        """Give the connections back; the last user of an embedded server stops it. Idempotent."""
        with self._lock:
            if self._pool is None:
                return
            self._pool.close()
            self._pool = None
            if self._embedded:
                self._embedded.release()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A pooled connection for a few statements.

        Raises:
            DatabaseUnavailable: in place of any connection error, also in the block.
        """
        self.open()
        pool = self._pool
        if pool is None:
            raise DatabaseUnavailable("The database was closed while this request was waiting; ask again.")
        with self.translated():
            connection = self._taken(pool)
            try:
                yield connection
            finally:
                pool.putconn(connection)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A pooled connection in a read-only transaction that sees one state of the database throughout."""
        with self.connection() as connection, connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            yield connection

    def connect(self) -> Connection:
        """A connection of the caller's own, outside the pool; whoever asks closes it."""
        self.open()
        with self.translated():
            connection = self._connect()
            _configure(connection)
        return connection

    @contextmanager
    def own_connection(self) -> Iterator[Connection]:
        """A connection outside the pool, for a run that holds a lock as long as it lives.

        Errors in the block stay as they are: the run decides what a lost connection means.
        """
        self.open()
        with self.translated():
            connection = self._connect()
        try:
            _configure(connection, statement_timeout_seconds=0)
            yield connection
        finally:
            connection.close()

    def _taken(self, pool: ConnectionPool[Connection]) -> Connection:
        try:
            return pool.getconn()
        except PoolTimeout:
            # All are in use, or there is no server: a connection of our own tells which, and why.
            self._connect().close()
            return pool.getconn()

    def _connect(self) -> Connection:
        try:
            return self._connected()
        except psycopg.OperationalError:
            if self._embedded is None:
                raise
            self._embedded.acquire()  # a server that was killed is started again
            return self._connected()

    def _connected(self) -> Connection:
        return psycopg.connect(
            self._conninfo,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            application_name="doc-rag",
            client_encoding="utf8",
        )

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn connection errors of the driver into one sentence."""
        try:
            yield
        except (PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseUnavailable(self._explain(error)) from error

    def _explain(self, error: Exception) -> str:
        if isinstance(error, psycopg.errors.QueryCanceled):
            return f"The database took over {STATEMENT_TIMEOUT_SECONDS} s and was stopped; ask for less, or again."
        if isinstance(error, psycopg.errors.DiskFull):
            return f"The disk of the database ({self.describe()}) is full. Free some space and run again."
        where = "RAG_DATABASE_URL" if self._url else "RAG_DATA_DIR"
        reason = _without_secrets(str(error), self._url)
        return (
            f"{self.describe()} could not be reached: {reason} Check that it runs and that {where} is right."
        )


def _configure(connection: Connection, *, statement_timeout_seconds: int = STATEMENT_TIMEOUT_SECONDS) -> None:
    """Vector types, and the settings that a pooler would refuse as start-up options."""
    register_vector(connection)
    connection.execute(f"set statement_timeout = '{int(statement_timeout_seconds)}s'")
    connection.execute("set client_min_messages = 'warning'")


def _without_secrets(message: str, url: str | None) -> str:
    """The driver's message on one line, without the password or the address that holds it."""
    line = " ".join(message.split())
    if url:
        password = urlsplit(url).password
        line = line.replace(url, "RAG_DATABASE_URL")
        if password:
            line = line.replace(password, "***")
    return line if line.endswith((".", "!", "?")) else line + "."
