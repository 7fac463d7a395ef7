"""The pool: what is lost is made anew at once, and nobody waits long for a server that is not there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from doc_rag.errors import DatabaseUnavailable
from doc_rag.settings import load_settings
from doc_rag.store import connections
from doc_rag.store.connections import AllInUse, NoAnswer, PatientConnection, Pool
from doc_rag.store.pool import Database

WAIT_SECONDS = 20.0


class Server:
    """Hands out connections to the suite's Postgres, and counts them; `down` is what it says instead."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.made = 0
        self.down: Exception | None = None
        self.asked = threading.Event()
        self.answer = threading.Event()
        self.answer.set()

    def connect(self) -> PatientConnection:
        self.asked.set()
        assert self.answer.wait(WAIT_SECONDS)
        if self.down is not None:
            raise self.down
        self.made += 1
        return PatientConnection.connect(self.url, autocommit=True)


@pytest.fixture
def server(database_url: str) -> Server:
    return Server(database_url)


@pytest.fixture
def pool(server: Server) -> Iterator[Pool]:
    made = Pool(server.connect, max_size=3, wait_seconds=WAIT_SECONDS)
    yield made
    made.close()


def terminate(connection: PatientConnection, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])


def test_one_connection_serves_one_after_the_other(pool: Pool, server: Server) -> None:
    for _ in range(5):
        pool.give_back(pool.take())
    assert server.made == 1


def test_lost_connections_are_made_anew_at_once(pool: Pool, server: Server) -> None:
    lent = [pool.take() for _ in range(3)]
    for connection in lent:
        pool.give_back(connection)
    for connection in lent:
        terminate(connection, server.url)
    started = time.monotonic()
    fresh = pool.take()
    assert fresh.execute("select 1").fetchone() == (1,)
    assert time.monotonic() - started < 2
    assert server.made == 4
    others = [pool.take(), pool.take()]  # the room of the other two is free again
    for connection in (fresh, *others):
        pool.give_back(connection)


def test_a_connection_left_in_a_transaction_comes_back_clean(pool: Pool, server: Server) -> None:
    connection = pool.take()
    connection.execute("begin")
    with pytest.raises(psycopg.errors.SyntaxError):
        connection.execute("no such statement")
    pool.give_back(connection)
    assert pool.take() is connection
    assert connection.execute("select 1").fetchone() == (1,)
    pool.give_back(connection)
    assert server.made == 1


def test_who_waits_is_given_what_comes_back(pool: Pool) -> None:
    lent = [pool.take() for _ in range(3)]
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(lambda: pool.give_back(pool.take())) for _ in range(8)]
        for connection in lent:
            pool.give_back(connection)
        for future in waiting:
            future.result(WAIT_SECONDS)


def test_all_in_use_for_too_long_is_said(server: Server) -> None:
    pool = Pool(server.connect, max_size=1, wait_seconds=0.1)
    connection = pool.take()
    with pytest.raises(AllInUse, match=r"all 1 connections were in use for 0\.1 s"):
        pool.take()
    pool.give_back(connection)
    pool.close()


def test_who_waits_hears_why_there_is_none_without_trying_in_turn(server: Server) -> None:
    pool = Pool(server.connect, max_size=1, wait_seconds=WAIT_SECONDS)
    server.down = psycopg.OperationalError("connection refused")
    server.answer.clear()
    with ThreadPoolExecutor(6) as threads:
        futures = [threads.submit(pool.take) for _ in range(6)]
        assert server.asked.wait(WAIT_SECONDS)
        deadline = time.monotonic() + WAIT_SECONDS
        while len(pool._changed._waiters) < 5 and time.monotonic() < deadline:  # type: ignore[attr-defined]
            time.sleep(0.01)
        started = time.monotonic()
        server.answer.set()
        for future in futures:
            with pytest.raises(psycopg.OperationalError, match="connection refused"):
                future.result(WAIT_SECONDS)
        assert time.monotonic() - started < 2
    server.down = None
    pool.give_back(pool.take())
    pool.close()


def test_a_full_server_leaves_us_the_connections_we_have(pool: Pool, server: Server) -> None:
    connection = pool.take()
    server.down = psycopg.errors.TooManyConnections("sorry, too many clients already")
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(pool.take)
        assert server.asked.wait(WAIT_SECONDS)
        pool.give_back(connection)
        assert second.result(WAIT_SECONDS) is connection
    pool.give_back(connection)


def test_a_full_server_that_gives_us_none_says_so(pool: Pool, server: Server) -> None:
    server.down = psycopg.errors.TooManyConnections("sorry, too many clients already")
    started = time.monotonic()
    with pytest.raises(psycopg.errors.TooManyConnections):
        pool.take()
    assert time.monotonic() - started < 2


def test_a_silent_server_costs_no_more_than_the_patience(database_url: str) -> None:
    connection = PatientConnection.connect(database_url, autocommit=True)
    connection.patience_seconds = 0.3
    started = time.monotonic()
    with pytest.raises(NoAnswer, match=r"did not answer for 0\.3 s"), connection.transaction():
        connection.execute("select pg_sleep(30)")
    assert time.monotonic() - started < 5
    assert connection.closed


def test_a_server_that_takes_connections_and_says_nothing_is_an_error_in_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        url = f"postgresql://nobody:hidden-word@127.0.0.1:{listener.getsockname()[1]}/x?connect_timeout=2"
        database = Database(load_settings({"RAG_DATABASE_URL": url, "RAG_ENV_FILE": "/dev/null"}))

        def ask() -> str:
            with pytest.raises(DatabaseUnavailable) as caught, database.connection():
                pass
            return str(caught.value)

        started = time.monotonic()
        with ThreadPoolExecutor(16) as threads:
            said = {future.result() for future in [threads.submit(ask) for _ in range(16)]}
        assert time.monotonic() - started < 10  # together, not one after another
    (sentence,) = said
    assert "could not be reached: connection timeout expired" in sentence
    assert "hidden-word" not in sentence


def test_idle_connections_are_closed_after_a_while(
    pool: Pool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.1)
    lent = [pool.take(), pool.take()]
    for connection in lent:
        pool.give_back(connection)
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(connection.closed for connection in lent) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(connection.closed for connection in lent)
    pool.give_back(pool.take())
    assert server.made == 3


def test_an_old_connection_is_not_kept(pool: Pool, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LIFETIME_SECONDS", 0.0)
    first = pool.take()
    pool.give_back(first)
    assert first.closed
    pool.give_back(pool.take())
    assert server.made == 2


def test_after_the_end_nothing_is_lent_and_nothing_stays_open(pool: Pool) -> None:
    idle, lent = pool.take(), pool.take()
    pool.give_back(idle)
    pool.close()
    assert idle.closed
    with pytest.raises(psycopg.InterfaceError, match="closed"):
        pool.take()
    pool.give_back(lent)
    assert lent.closed
