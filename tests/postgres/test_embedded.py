"""The embedded server's life: started on demand, shared, stopped by the last, found again after any kill."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from doc_rag.errors import DatabaseUnavailable
from doc_rag.store import embedded
from doc_rag.store.embedded import EmbeddedPostgres
from doc_rag.store.embedded_locks import close_lock_file, open_lock_file, try_lock
from tests.support.embedded_client import Client
from tests.support.embedded_folder import (
    copy_cluster,
    fetch,
    is_running,
    kill_postmaster,
    launcher_for,
    postmaster,
    scratch,
    server_user,
    started_at,
    wait_until,
)

ROUNDS_FROM_NOTHING = 2
ROUNDS = 3


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder with a cluster of its own, stopped."""
    with scratch() as folder:
        yield copy_cluster(folder / "data")


def test_a_first_start_gives_a_database_that_takes_pgvector_and_folds_every_script() -> None:
    with scratch() as folder, EmbeddedPostgres(folder / "new" / "data") as url:
        assert url.startswith("postgresql:///doc_rag?host=")
        with psycopg.connect(url) as connection:
            connection.execute("create extension vector")
            assert connection.execute("select current_database(), current_user").fetchone() == (
                "doc_rag",
                "doc_rag",
            )
        assert fetch(url, "select to_tsvector('simple', 'École') @@ to_tsquery('simple', 'école')") is True
        assert fetch(url, "select current_setting('listen_addresses')") == ""
        assert fetch(url, "show server_encoding") == "UTF8"


def test_a_warm_start_is_quick_and_joining_quicker(data_dir: Path) -> None:
    begin = time.monotonic()
    with EmbeddedPostgres(data_dir) as url:
        warm = time.monotonic()
        with EmbeddedPostgres(data_dir) as other:
            joined = time.monotonic()
            assert started_at(other) == started_at(url)
        connecting = time.monotonic()
        psycopg.connect(url).close()
        connected = time.monotonic()
    print(
        f"\nwarm start {warm - begin:.3f} s, join {1000 * (joined - warm):.1f} ms, "
        f"connect {1000 * (connected - connecting):.1f} ms"
    )
    assert warm - begin < 10
    assert joined - warm < 2


def test_objects_of_one_process_share_a_server_and_the_last_stops_it(data_dir: Path) -> None:
    first, second = EmbeddedPostgres(data_dir), EmbeddedPostgres(data_dir)
    assert started_at(first.acquire()) == started_at(second.acquire())
    first.release()
    first.release()
    assert started_at(second.acquire()), "releasing twice must not count twice"
    second.release()
    assert not is_running(data_dir)
    assert fetch(first.acquire(), "select 1") == 1, "a released one can be acquired again"
    first.release()


def test_processes_share_a_server_and_the_last_stops_it(data_dir: Path) -> None:
    with Client(data_dir) as one, Client(data_dir) as two:
        one.send("acquire")
        two.send("acquire")
        assert started_at(one.answer()) == started_at(two.answer())
        one.ask("release")
        assert is_running(data_dir)
        two.ask("release")
        assert not is_running(data_dir)


def test_a_process_that_exits_without_releasing_stops_it_at_exit(data_dir: Path) -> None:
    with Client(data_dir) as client:
        client.ask("acquire")
        assert client.process.stdin
        client.process.stdin.close()
        assert client.process.wait(20) == 0
        assert not is_running(data_dir)


def test_two_processes_starting_at_once_from_nothing_share_one_cluster() -> None:
    with scratch() as folder, Client(folder / "0") as one, Client(folder / "0") as two:
        for round_ in range(ROUNDS_FROM_NOTHING):
            if round_:
                subprocess.run(["rm", "-rf", str(folder / "0")], check=True)
            one.send("acquire")
            two.send("acquire")
            assert started_at(one.answer()) == started_at(two.answer())
            one.send("release")
            two.send("release")
            assert one.answer() is None and two.answer() is None
            assert not is_running(folder)
            names = {path.name for path in (folder / "0").iterdir()}
            assert {"pg18", "pg18.start", "pg18.users", "pg18.server"} <= names
            assert not [name for name in names if name.startswith("pg18.new-")]


def test_starting_and_stopping_at_once_never_leaves_a_user_without_server(data_dir: Path) -> None:
    with Client(data_dir) as one, Client(data_dir) as two:
        for _ in range(ROUNDS):
            for client in (one, two):
                client.send("acquire")
            one.send("release")
            url = two.answer()
            assert one.answer() == url
            assert one.answer() is None
            assert started_at(url), "the one still acquired has a server"
            two.ask("release")
            assert not is_running(data_dir)


def test_after_a_kill_of_a_client_the_next_last_user_stops_the_server(data_dir: Path) -> None:
    with Client(data_dir) as killed:
        since = started_at(killed.ask("acquire"))
        killed.kill()
    assert is_running(data_dir), "nobody was there to stop it"
    server = EmbeddedPostgres(data_dir)
    assert started_at(server.acquire()) == since, "the server is found again, not started anew"
    server.release()
    assert not is_running(data_dir)


def test_a_server_without_users_can_be_stopped_and_one_with_users_not(data_dir: Path) -> None:
    with Client(data_dir) as client:
        client.ask("acquire")
        assert EmbeddedPostgres(data_dir).stop_if_unused() is False
        client.kill()
    assert EmbeddedPostgres(data_dir).stop_if_unused() is True
    assert not is_running(data_dir)


def test_after_a_kill_of_the_server_acquire_starts_it_again_with_its_data(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url, Client(data_dir) as client:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table kept as select 7 as n")
            kill_postmaster(data_dir)
        assert client.ask("query", url=client.ask("acquire"), sql="select n from kept") == "7"
        client.ask("release")


def test_a_holder_goes_on_after_a_kill_by_acquiring_again(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    before = started_at(server.acquire())
    kill_postmaster(data_dir)
    assert started_at(server.acquire()) != before
    server.release()
    assert not is_running(data_dir)


def test_a_child_that_outlives_a_killed_server_is_ended(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "SILENT_SECONDS", 0.3)
    server = EmbeddedPostgres(data_dir)
    connection = psycopg.connect(server.acquire(), autocommit=True)
    busy = connection.info.backend_pid
    # A loop that never waits: the backend does not notice that its postmaster is gone.
    connection.pgconn.send_query(b"do $$ begin loop end loop; end $$")
    running = "select count(*) > 0 from pg_stat_activity where state = 'active' and query like 'do $$%'"
    wait_until(lambda: fetch(server.acquire(), running))
    kill_postmaster(data_dir)
    os.kill(busy, 0)
    assert fetch(server.acquire(), "select 1") == 1
    connection.close()
    server.release()
    assert not is_running(data_dir)


def test_a_reused_process_id_neither_fools_us_nor_blocks_the_start(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    server.acquire()
    pid_file = data_dir / "pg18" / "postmaster.pid"
    kill_postmaster(data_dir)
    wait_until(lambda: not is_running(data_dir))
    account = server_user(data_dir)
    stranger = subprocess.Popen(
        ["sleep", "60"], user=account.uid if account else None, group=account.gid if account else None
    )
    try:
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        with launcher_for(data_dir) as by_hand, pytest.raises(DatabaseUnavailable, match="already exists"):
            by_hand.start(data_dir / "pg18")  # Postgres itself takes the stranger for its postmaster
        assert fetch(server.acquire(), "select 1") == 1
        server.release()
        assert stranger.poll() is None, "the stranger was not signalled"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_started_by_hand_is_left_alone_and_named(data_dir: Path) -> None:
    with launcher_for(data_dir) as by_hand:
        by_hand.start(data_dir / "pg18")
        socket = data_dir / "pg18" / ".s.PGSQL.5432"
        socket.rename(data_dir / "elsewhere")  # as if it had been started with another socket folder
        pid = postmaster(data_dir)
        with pytest.raises(DatabaseUnavailable, match=rf"process {pid}\) uses .*RAG_DATABASE_URL"):
            EmbeddedPostgres(data_dir).acquire()
        assert postmaster(data_dir) == pid and is_running(data_dir)
        by_hand.stop(data_dir / "pg18")
        wait_until(lambda: not is_running(data_dir))


@pytest.mark.parametrize("moment", ["pg18.new-*", "pg18/PG_VERSION"])
def test_a_kill_in_the_middle_of_a_first_start_leaves_nothing_half_made(moment: str) -> None:
    with scratch() as folder:
        data_dir = folder / "data"
        with Client(data_dir) as client:
            client.send("acquire")
            wait_until(lambda: any(data_dir.glob(moment)))
            client.kill()
        with EmbeddedPostgres(data_dir) as url:
            assert fetch(url, "select 1") == 1
            assert not list(data_dir.glob("pg18.new-*"))


def test_ctrl_c_at_the_client_that_started_it_does_not_reach_the_server(data_dir: Path) -> None:
    with Client(data_dir) as client, EmbeddedPostgres(data_dir) as held:
        assert started_at(client.ask("acquire")) == started_at(held)
    with Client(data_dir) as starter:
        since = started_at(starter.ask("acquire"))
        with EmbeddedPostgres(data_dir) as url:
            os.killpg(starter.pid, signal.SIGINT)
            assert starter.process.wait(20) == 130
            assert started_at(url) == since


def test_the_server_keeps_neither_output_nor_locks_nor_environment_of_its_starter(data_dir: Path) -> None:
    with Client(data_dir, env={"VOYAGE_API_KEY": "a-secret"}) as client:
        client.ask("acquire")
        client.kill()
        assert client.process.stdout and client.process.stdout.read() == b"", (
            "end of file: nobody has it open"
        )
    fd = open_lock_file(data_dir / "pg18.users")
    assert try_lock(fd), "the killed client's lock is free"
    close_lock_file(fd)
    environment = Path("/proc", str(postmaster(data_dir)), "environ")
    if environment.exists():
        assert b"a-secret" not in environment.read_bytes()
    EmbeddedPostgres(data_dir).stop_if_unused()


def test_a_forked_child_is_no_user_and_closes_no_file_of_its_own(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    server.acquire()
    child = os.fork()
    if child == 0:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]  # some get the parent's numbers
        server.release()
        os._exit(0 if all(_is_open(fd) for fd in opened) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert EmbeddedPostgres(data_dir).stop_if_unused() is False, "the parent is still a user"
    server.release()
    assert not is_running(data_dir)


def test_a_forked_child_that_outlives_a_killed_client_holds_nothing(data_dir: Path) -> None:
    with Client(data_dir) as client:
        client.ask("acquire")
        child = client.ask("fork")
        client.kill()
        os.kill(child, 0)
        assert EmbeddedPostgres(data_dir).stop_if_unused() is True
        os.kill(child, signal.SIGKILL)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_settings_of_another_postgres_in_the_environment_do_not_matter(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"PGHOST": "10.0.0.1", "PGHOSTADDR": "10.0.0.1", "PGPORT": "1", "PGUSER": "x", "PGDATABASE": "x"}
    for name, value in (other | {"PGOPTIONS": "-c search_path=x", "PGCLIENTENCODING": "LATIN1"}).items():
        monkeypatch.setenv(name, value)
    with EmbeddedPostgres(data_dir) as url:
        assert fetch(url, "select concat_ws(' ', current_user, current_database(), current_schema())") == (
            "doc_rag doc_rag public"
        )
        assert fetch(url, "show client_encoding") == "UTF8"
