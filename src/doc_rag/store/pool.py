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
from psycopg import conninfo, pq
from psycopg.adapt import AdaptersMap
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from doc_rag.errors import DatabaseUnavailable
from doc_rag.settings import Settings
from doc_rag.store import schema
from doc_rag.store.connections import NoAnswer, PatientConnection
from doc_rag.store.embedded import EmbeddedPostgres

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]

CONNECT_TIMEOUT_SECONDS = 5
STATEMENT_TIMEOUT_SECONDS = 30
SILENCE_SECONDS = STATEMENT_TIMEOUT_SECONDS + 5
"""By then the server has stopped a statement, or it is not there any more."""
POOL_QUICK_SECONDS = 1
"""What the pool has not given by then, it is waiting for itself: for a server, or for a connection in use."""
POOL_WAIT_SECONDS = 30
FULL_WAIT_SECONDS = 3
"""For a connection of ours to come back, where the server has none left for us."""
RECONNECT_SECONDS = 1
"""The pool's own attempts end soon: with a longer time they double their pauses, and are late when it is back."""
IDLE_SECONDS = 300
LIFETIME_SECONDS = 3_600
"""Older connections are replaced, so that after a failover nobody stays with the old server for ever."""
CHECK_SECONDS = 5.0
"""How long a connection that lay idle has for its sign of life."""
CLIENT_SETTINGS: dict[str, str | int] = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "application_name": "doc-rag",
    # A peer that was cut off without a word is noticed in a minute, not in two hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""What the address in RAG_DATABASE_URL does not say itself."""


class SnapshotGone(DatabaseUnavailable):
    """What a snapshot was about to read was dropped by a rebuild; read again."""


class Database:
    """One database for one process: opened on first use, migrated once, pooled, safe between threads."""

    def __init__(self, settings: Settings, *, max_connections: int = 4) -> None:
        self._url = settings.database_url.reveal() if settings.database_url else None
        self._embedded = None if self._url else EmbeddedPostgres(settings.data_dir)
        self._max_connections = max_connections
        self._pool: ConnectionPool[PatientConnection] | None = None
        self._conninfo = ""
        self._arguments: dict[str, Any] = {"autocommit": True, "client_encoding": "utf8"}
        self._lock = threading.Lock()
        self._lent = 0
        self._lock_of_lent = threading.Lock()
        self._failures = 0
        self._failure = ""

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
        failures = self._failures
        with self._lock:
            if self._pool is not None:
                return
            if self._failures != failures:
                # Somebody has just tried: who waited for him need not find out again, one after another.
                raise DatabaseUnavailable(self._failure)
            try:
                self._open()
            except DatabaseUnavailable as error:
                self._failures += 1
                self._failure = str(error)
                raise

    def _open(self) -> None:
        self._conninfo = self._embedded.acquire() if self._embedded else (self._url or "")
        try:
            with self.translated(), self._connect() as connection:
                schema.migrate(connection)
                register_vector(connection)
                # Every later connection begins with these types: psycopg keeps the classes that
                # register_vector makes for ever, 20 KB a connection.
                self._arguments["context"] = AdaptersMap(connection.adapters)
        except BaseException:
            if self._embedded:
                self._embedded.release()
            raise
        self._pool = ConnectionPool(
            self._whole_conninfo(),
            connection_class=PatientConnection,
            kwargs=self._arguments,
            min_size=0,
            max_size=self._max_connections,
            configure=_configure_pooled,
            check=_check,
            timeout=POOL_QUICK_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            max_idle=IDLE_SECONDS,
            max_lifetime=LIFETIME_SECONDS,
            name="doc-rag",
            open=True,
        )

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
            connection, is_pooled = self._taken(pool)
            self._count(1)
            try:
                yield connection
            finally:
                self._count(-1)
                if is_pooled:
                    pool.putconn(connection)
                else:
                    connection.close()

    def _count(self, change: int) -> None:
        with self._lock_of_lent:
            self._lent += change

    def _taken(self, pool: ConnectionPool[PatientConnection]) -> tuple[PatientConnection, bool]:
        """A connection, and whether it goes back into the pool.

        The pool makes connections in the background, with pauses between its attempts, and keeps to
        itself why it cannot. So where it gives none at once, one of our own tells whether there is a
        server: it is the answer when the server is just back, and the reason when it is not.
        """
        try:
            return pool.getconn(timeout=POOL_QUICK_SECONDS), True
        except PoolTimeout:
            if (
                self._lent < self._max_connections
            ):  # the pool's own size counts those it is still trying to make
                try:
                    return self._own_pooled(), False
                except psycopg.OperationalError as error:
                    if _is_hanging(error) or not self._is_answering():
                        raise
                    try:  # the server is full, but not down: those that we have serve on
                        return pool.getconn(timeout=FULL_WAIT_SECONDS), True
                    except PoolTimeout:
                        raise error from None
            return pool.getconn(timeout=POOL_WAIT_SECONDS), True

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A pooled connection in a read-only transaction that sees one state of the database throughout.

        Raises:
            SnapshotGone: a rebuild dropped the chunks of that state before they were read.
            DatabaseUnavailable: as `connection` does.
        """
        try:
            with self.connection() as connection, connection.transaction():
                connection.execute("set transaction isolation level repeatable read, read only")
                yield connection
        except psycopg.errors.UndefinedTable as error:
            # Rows live as long as the snapshot that sees them, tables do not.
            raise SnapshotGone("The collection was rebuilt in the meantime; ask again.") from error

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
            with self.translated():
                _configure(connection, statement_timeout_seconds=0)
            yield connection
        finally:
            connection.close()

    def _own_pooled(self) -> PatientConnection:
        """A connection set as those of the pool are."""
        connection = self._connect()
        try:
            _configure_pooled(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> PatientConnection:
        try:
            return self._connected()
        except psycopg.OperationalError as error:
            if self._embedded is None or _is_hanging(error) or self._is_answering():
                raise
            self._embedded.acquire()  # a server that was killed is started again
            return self._connected()

    def _is_answering(self) -> bool:
        """Whether a server takes connections, be it none of ours (full, or another password).

        The error of a refused connection does not say: psycopg gives it no SQLSTATE, and its text is in
        the server's language.
        """
        return pq.PGconn.ping(self._whole_conninfo().encode()) == pq.Ping.OK

    def _connected(self) -> PatientConnection:
        return PatientConnection.connect(self._whole_conninfo(), **self._arguments)

    def _whole_conninfo(self) -> str:
        given = conninfo.conninfo_to_dict(self._conninfo)
        missing = {name: value for name, value in CLIENT_SETTINGS.items() if name not in given}
        return conninfo.make_conninfo(self._conninfo, **missing)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn connection errors of the driver into one sentence."""
        try:
            yield
        except (
            psycopg.OperationalError,
            psycopg.InterfaceError,
            psycopg.errors.ReadOnlySqlTransaction,
        ) as error:
            raise DatabaseUnavailable(self._explain(error)) from error

    def _explain(self, error: Exception) -> str:
        if isinstance(error, psycopg.errors.QueryCanceled):
            return f"The database took over {STATEMENT_TIMEOUT_SECONDS} s and was stopped; ask for less, or again."
        if isinstance(error, psycopg.errors.DiskFull):
            return f"The disk of the database ({self.describe()}) is full. Free some space and run again."
        if isinstance(error, PoolTimeout):
            return (
                f"{self.describe()}: all {self._max_connections} connections were in use for {POOL_WAIT_SECONDS} s. "
                "Ask again in a moment."
            )
        if isinstance(error, PoolClosed):
            return "The database was closed while this request was waiting; ask again."
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return (
                f"{self.describe()} takes no writes: a replica, or being failed over. Ask again in a moment."
            )
        where = "RAG_DATABASE_URL" if self._url else "RAG_DATA_DIR"
        reason = _without_secrets(str(error), self._url)
        return (
            f"{self.describe()} could not be reached: {reason} Check that it runs and that {where} is right."
        )


def _configure(connection: Connection, *, statement_timeout_seconds: int = STATEMENT_TIMEOUT_SECONDS) -> None:
    """Vector types, and the settings that a pooler would refuse as start-up options."""
    row = connection.execute(
        "select 'vector'::regtype::oid::int8, set_config('statement_timeout', %s, false),"
        " set_config('client_min_messages', 'warning', false)",
        [f"{int(statement_timeout_seconds)}s"],
    ).fetchone()
    known = connection.adapters.types.get("vector")
    if known is None or row is None or row[0] != known.oid:  # the extension was made anew since
        register_vector(connection)


def _configure_pooled(connection: PatientConnection) -> None:
    with connection.patient(CONNECT_TIMEOUT_SECONDS):
        _configure(connection)
    connection.patience_seconds = SILENCE_SECONDS


def _check(connection: PatientConnection) -> None:
    with connection.patient(CHECK_SECONDS):
        ConnectionPool.check_connection(connection)


def _is_hanging(error: psycopg.OperationalError) -> bool:
    """Whether there is a server that says nothing: neither full nor gone."""
    return isinstance(error, psycopg.errors.ConnectionTimeout | NoAnswer)


def _without_secrets(message: str, url: str | None) -> str:
    """The driver's message on one line, without the password or the address that holds it."""
    line = " ".join(message.split())
    if url:
        password = urlsplit(url).password
        line = line.replace(url, "RAG_DATABASE_URL")
        if password:
            line = line.replace(password, "***")
    return line if line.endswith((".", "!", "?")) else line + "."
