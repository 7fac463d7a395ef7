"""One writer a collection: an advisory lock held by the connection that does all the writes, and its job row."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from doc_rag.errors import CollectionBusy, Interrupted
from doc_rag.store import catalog
from doc_rag.store.pool import Connection, Database
from doc_rag.store.queries import query

log = logging.getLogger(__name__)

LEAP_LOCK = 0x6C656170
"""Key ("leap") of the lock under which revisions leap, one run after the other."""
POLL_SECONDS = 0.2
SESSION = {
    # A crash of the server may take the last half second of commits with it, none of them in part, and the
    # next run stores those documents again. A disk that confirms each would hold up every document.
    "synchronous_commit": "off",
    # While a provider is slow this session is idle; ending it would end the run.
    "idle_session_timeout": "0",
    # The lock of a machine that is gone without a word is free after two minutes, not after two hours.
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "6",
}
"""Settings of the session that writes."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The connection that holds a collection's write lock; a lost connection is a lost lock, and ends the run."""

    connection: Connection
    collection: str
    collection_id: int
    job_id: int

    def beat(self, done: int, total: int | None) -> None:
        """Note in the job how far the run has come: documents done, and in all."""
        self.connection.execute(query("job_beat"), {"job_id": self.job_id, "done": done, "total": total})


@contextmanager
def writing(
    database: Database,
    collection: str,
    kind: str,
    *,
    wait_seconds: float = 0.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Writer]:
    """Hold the collection's write lock for a block.

    Raises:
        CollectionBusy: another process holds it and did not let go within `wait_seconds`.
        DatabaseUnavailable: in place of any connection error, also in the block. The lock went with the
            connection, and so did the transaction in hand.
    """
    with database.translated(), database.own_connection() as connection:
        collection_id = catalog.ensure_collection(connection, collection)
        deadline = time.monotonic() + wait_seconds
        while not _try_lock(connection, collection_id):
            if stopped() or time.monotonic() >= deadline:
                raise CollectionBusy(_who_holds(connection, collection, collection_id))
            time.sleep(POLL_SECONDS)
        _leap(connection)
        connection.execute(
            "select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as s(name, value)",
            [list(SESSION), list(SESSION.values())],
        )
        connection.execute(query("jobs_lost"), {"collection_id": collection_id})
        row = connection.execute(
            query("job_start"),
            {"collection_id": collection_id, "kind": kind, "host": socket.gethostname(), "pid": os.getpid()},
        ).fetchone()
        assert row is not None  # an insert with "returning" has one
        writer = Writer(connection, collection, collection_id, int(row[0]))
        try:
            yield writer
        except BaseException as error:
            _note_failure(writer, error)
            raise
        _finish(writer, "done", None)
        # A closed connection lets go of it a moment later, in which nobody would know why it is held.
        _unlock(writer)


def _leap(connection: Connection) -> None:
    """Begin this run's revisions far above any that a lost run may have given out.

    A revision that was seen, lost with a crash and given out again for other text would make a cached
    answer stale. This commit waits for the disk, so the next run leaps from here at least.
    """
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", [LEAP_LOCK])
        connection.execute(query("revision_leap"))


def _try_lock(connection: Connection, collection_id: int) -> bool:
    row = connection.execute(
        "select pg_try_advisory_lock(%s, %s)", [catalog.WRITE_LOCK_CLASS, collection_id]
    ).fetchone()
    return bool(row and row[0])


def _unlock(writer: Writer) -> None:
    writer.connection.execute(
        "select pg_advisory_unlock(%s, %s)", [catalog.WRITE_LOCK_CLASS, writer.collection_id]
    )


def _note_failure(writer: Writer, error: BaseException) -> None:
    """Note in the job how it ended. Where that fails too, the next writer finds it lost."""
    if writer.connection.broken:
        return
    try:
        _finish(writer, "interrupted" if isinstance(error, Interrupted) else "failed", type(error).__name__)
        _unlock(writer)
    except psycopg.Error as noted:
        log.debug("the end of job %d could not be noted: %s", writer.job_id, noted)


def _finish(writer: Writer, state: str, error: str | None) -> None:
    # This commit is waited for as the server is set to, and with it all those before.
    writer.connection.execute("reset synchronous_commit")
    writer.connection.execute(query("job_finish"), {"job_id": writer.job_id, "state": state, "error": error})


def _who_holds(connection: Connection, collection: str, collection_id: int) -> str:
    row = connection.execute(query("job_running"), {"collection_id": collection_id}).fetchone()
    if row is None:
        return f'collection "{collection}" is being written by another process; try again in a moment.'
    kind, host, pid, started_at, done, total = row
    progress = f", {done} of {total} documents done" if total else ""
    return (
        f'collection "{collection}" is being written by another process: {kind} on {host} (process {pid}), '
        f"since {started_at:%Y-%m-%d %H:%M:%S %Z}{progress}. Wait for it to finish, then try again."
    )
