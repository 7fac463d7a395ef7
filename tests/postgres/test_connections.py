"""The pool: what is lost is made anew at once, and nobody waits long for a server that is not there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack

import psycopg
import pytest
from pgvector import Vector
from pgvector.psycopg.vector import VectorBinaryDumper

from doc_rag.errors import DatabaseUnavailable
from doc_rag.settings import load_settings
from doc_rag.store import pool
from doc_rag.store.connections import NoAnswer, PatientConnection
from doc_rag.store.pool import Database

WAIT_SECONDS = 20.0


def database_at(url: str, max_connections: int = 3) -> Database:
    settings = load_settings({"RAG_DATABASE_URL": url, "RAG_ENV_FILE": "/dev/null"})
    return Database(settings, max_connections=max_connections)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = database_at(database_url)
    yield made
    made.close()


def test_lost_connections_are_made_anew_at_once(database: Database, database_url: str) -> None:
    with database.connection() as one, database.connection() as two:
        lost = [one.info.backend_pid, two.info.backend_pid]
    with psycopg.connect(database_url, autocommit=True) as other:
        for backend in lost:
            other.execute("select pg_terminate_backend(%s, 5000)", [backend])
    started = time.monotonic()
    with database.connection() as connection:
        assert connection.execute("select 1").fetchone() == (1,)
        assert connection.info.backend_pid not in lost
    assert time.monotonic() - started < 3


def test_a_connection_lost_in_the_block_is_one_sentence_and_the_next_works(
    database: Database, database_url: str
) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match="could not be reached"),
        database.connection() as connection,
    ):
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
        connection.execute("select 1")
    with database.connection() as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_who_waits_is_given_what_comes_back(database: Database) -> None:
    def ask(_: int) -> int:
        with database.connection() as connection:
            row = connection.execute("select pg_sleep(0.02), 1").fetchone()
            assert row is not None
            return int(row[1])

    with ThreadPoolExecutor(24) as threads:
        assert sum(threads.map(ask, range(72))) == 72


def test_all_in_use_for_too_long_is_said(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "POOL_QUICK_SECONDS", 0.1)
    monkeypatch.setattr(pool, "POOL_WAIT_SECONDS", 0.2)
    database = database_at(database_url, max_connections=1)
    with (
        database.connection(),
        pytest.raises(DatabaseUnavailable, match=r"all 1 connections were in use for 0\.2 s"),
        database.connection(),
    ):
        pass
    database.close()


def test_where_no_server_listens_the_error_comes_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started = time.monotonic()
    with (
        pytest.raises(DatabaseUnavailable, match="Connection refused"),
        database_at(f"postgresql://nobody:hidden-word@127.0.0.1:{port}/x").connection(),
    ):
        pass
    assert time.monotonic() - started < 3


def test_a_server_that_takes_connections_and_says_nothing_is_an_error_in_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        database = database_at(
            f"postgresql://nobody:hidden-word@127.0.0.1:{listener.getsockname()[1]}/x?connect_timeout=2"
        )

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


def test_a_silent_server_costs_no_more_than_the_patience(database_url: str) -> None:
    connection = PatientConnection.connect(database_url, autocommit=True)
    connection.patience_seconds = 0.3
    started = time.monotonic()
    with pytest.raises(NoAnswer, match=r"did not answer for 0\.3 s"), connection.transaction():
        connection.execute("select pg_sleep(30)")
    assert time.monotonic() - started < 5
    assert connection.closed


def test_after_the_end_a_request_that_waited_is_told(database: Database) -> None:
    taken, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with database.connection():
            taken.set()
            leave.wait(WAIT_SECONDS)

    with ThreadPoolExecutor(1) as threads:
        holding = threads.submit(hold)
        assert taken.wait(WAIT_SECONDS)
        database.close()
        leave.set()
        holding.result(WAIT_SECONDS)


def test_connections_leave_nothing_behind(database: Database) -> None:
    """psycopg keeps every adapter class it has seen; registering the vector types anew each time makes some."""
    with database.own_connection():
        kept = len(VectorBinaryDumper.__subclasses__())
    for _ in range(5):
        with database.own_connection() as connection:
            assert connection.execute("select '[1,2]'::vector").fetchone() == (Vector([1, 2]),)
    assert len(VectorBinaryDumper.__subclasses__()) == kept


def test_a_pgvector_that_was_made_anew_is_noticed(database: Database, database_url: str) -> None:
    database.open()
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("drop extension vector cascade")
        other.execute("create extension vector")
    with database.own_connection() as connection:
        assert connection.execute("select %s", [Vector([1, 2])]).fetchone() == (Vector([1, 2]),)


def test_a_server_that_comes_later_is_found_by_the_next_request() -> None:
    from tests.soak.trouble import victim

    with victim() as postgres:
        database = database_at(postgres.url)
        postgres.kill()
        with pytest.raises(DatabaseUnavailable, match="could not be reached"), database.connection():
            pass
        postgres.start()
        with database.connection() as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        database.close()


def test_a_full_server_leaves_us_what_we_have_and_then_says_that_it_is_full() -> None:
    from tests.soak.trouble import victim

    with victim() as postgres, ExitStack() as others, ThreadPoolExecutor(1) as threads:
        database = database_at(postgres.url, max_connections=2)
        others.callback(database.close)

        def ask() -> object:
            with database.connection() as connection:
                return connection.execute("select 1").fetchone()

        with database.connection():
            postgres.take_all(others, seconds=0.5)
            asked = threads.submit(ask)
            _, waiting = wait([asked], timeout=1.5)
            assert waiting
        assert asked.result(WAIT_SECONDS) == (1,)
        postgres.fill(others)
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match=r"could not be reached: .*too many clients"):
            ask()
        assert time.monotonic() - started < 10
