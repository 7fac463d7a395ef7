"""Connections that one process keeps open: lent to one thread at a time, made anew at once when they are lost.

psycopg_pool makes connections in threads of its own, with pauses between its attempts. Measured with a server that
was killed and came back: every error took 5 s, the first good answer came 5 s late; and behind a server that hung a
request waited for as long as it hung. Here whoever needs a connection makes it and hears at once why there is none,
and nobody waits for a silent server longer than he was told to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from doc_rag.errors import DatabaseUnavailable

CHECK_SECONDS = 5.0
"""How long a connection that lay idle has for its sign of life."""
IDLE_SECONDS = 300.0
"""Connections that nobody needed for so long are closed: every session of a client holds some."""
LIFETIME_SECONDS = 3_600.0
"""Older ones are replaced, so that after a failover nobody stays with the old server for ever."""


class NoAnswer(psycopg.OperationalError):
    """The server keeps the connection open and says nothing: it is paused, or the network lost it."""


class AllInUse(psycopg.OperationalError):
    """No connection was given back in time."""


class PatientConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server says nothing for `patience_seconds` (None: waits for ever)."""

    patience_seconds: float | None = None
    opened_at = 0.0
    rested_at = 0.0

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        patience = self.patience_seconds
        if patience is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_ending(gen, patience), *args, **kwargs)
        except NoAnswer:
            self.pgconn.finish()  # what it would say now would be taken for the answer to something else
            raise

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Another patience for the block."""
        before, self.patience_seconds = self.patience_seconds, seconds
        try:
            yield
        finally:
            self.patience_seconds = before


def _ending(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """`gen` as psycopg drives it (sent what its socket is ready for, ten times a second at least), until `seconds`."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise NoAnswer(f"the server did not answer for {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class Pool:
    """At most `max_size` connections, the most recently used first. Safe between threads.

    `connect` makes one, or raises why it cannot: whoever waits for a connection at that moment hears the same.
    """

    def __init__(self, connect: Callable[[], PatientConnection], max_size: int, wait_seconds: float) -> None:
        self._connect = connect
        self._max_size = max_size
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        self._idle: list[PatientConnection] = []
        self._size = 0
        self._failures = 0
        self._failure: Callable[[], Exception] = psycopg.OperationalError
        self._closed = False
        self._reaper: threading.Timer | None = None

    def take(self) -> PatientConnection:
        """A connection that has just shown that it works. Give it back.

        Raises:
            AllInUse: none was given back in time.
            psycopg.Error: there was none, and none could be made.
        """
        deadline = time.monotonic() + self._wait_seconds
        refused: Exception | None = None
        while True:
            connection = self._idle_or_room(deadline, refused)
            try:
                if connection is not None:
                    if _is_alive(connection):
                        return connection
                    self._lose(connection)
                return self._opened()
            except psycopg.errors.TooManyConnections as error:
                refused = error  # the server is full, but not down: those that we have serve on
                self._leave_room()
            except Exception as error:
                self._leave_room(error)
                raise
            except BaseException:
                self._leave_room()
                raise

    def give_back(self, connection: PatientConnection) -> None:
        """Take a connection back; one that is broken, old, or in the middle of something is closed."""
        if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            _undo(connection)
        usable = (
            connection.pgconn.transaction_status == TransactionStatus.IDLE
            and time.monotonic() - connection.opened_at < LIFETIME_SECONDS
        )
        with self._changed:
            if usable and not self._closed:
                connection.rested_at = time.monotonic()
                self._idle.append(connection)
                self._changed.notify()
                self._watch_idle()
                return
        connection.close()
        self._leave_room()

    def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._size -= len(idle)
            if self._reaper is not None:
                self._reaper.cancel()
            self._changed.notify_all()
        for connection in idle:
            connection.close()

    def _idle_or_room(self, deadline: float, refused: Exception | None) -> PatientConnection | None:
        """An idle connection, or None for room to make one. `refused`: the server would not give another."""
        with self._changed:
            failures = self._failures
            while True:
                if self._closed:
                    raise psycopg.InterfaceError("the database was closed")
                if self._idle:
                    return self._idle.pop()
                if self._failures != failures:
                    raise self._failure()
                if refused is None and self._size < self._max_size:
                    self._size += 1
                    return None
                left = deadline - time.monotonic()
                if refused is not None and (self._size == 0 or left <= 0):
                    raise refused
                if left <= 0:
                    raise AllInUse(
                        f"all {self._max_size} connections were in use for {self._wait_seconds:g} s"
                    )
                self._changed.wait(left)

    def _opened(self) -> PatientConnection:
        connection = self._connect()
        connection.opened_at = time.monotonic()
        return connection

    def _lose(self, connection: PatientConnection) -> None:
        """One is broken: the server has gone, and the others that lay idle with it. Its room stays ours."""
        connection.close()
        with self._changed:
            idle, self._idle = self._idle, []
            self._size -= len(idle)
            self._changed.notify_all()
        for other in idle:
            other.close()

    def _leave_room(self, failure: Exception | None = None) -> None:
        """One connection less. `failure`: and that is why, which those who wait need not find out one by one."""
        with self._changed:
            self._size -= 1
            if failure is not None:
                self._failures += 1
                self._failure = partial(_kind(failure), str(failure))
            self._changed.notify_all()

    # --- with the lock held -------------------------------------------------------------------

    def _watch_idle(self) -> None:
        if self._reaper is None:
            self._reaper = threading.Timer(IDLE_SECONDS, self._close_idle)
            self._reaper.daemon = True
            self._reaper.name = "doc-rag idle connections"
            self._reaper.start()

    def _close_idle(self) -> None:
        with self._changed:
            self._reaper = None
            if self._closed:
                return
            limit = time.monotonic() - IDLE_SECONDS
            old = [connection for connection in self._idle if connection.rested_at <= limit]
            self._idle = [connection for connection in self._idle if connection.rested_at > limit]
            self._size -= len(old)
            if self._idle:
                self._watch_idle()
        for connection in old:
            connection.close()


def _is_alive(connection: PatientConnection) -> bool:
    """Whether it gives a sign of life.

    Raises:
        NoAnswer: it is open and silent.
    """
    try:
        with connection.patient(CHECK_SECONDS):
            connection.execute("")
    except NoAnswer:
        raise
    except psycopg.Error:
        return False
    return True


def _kind(failure: Exception) -> type[Exception]:
    return DatabaseUnavailable if isinstance(failure, DatabaseUnavailable) else psycopg.OperationalError


def _undo(connection: PatientConnection) -> None:
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()
