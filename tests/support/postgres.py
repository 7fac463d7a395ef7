"""One Postgres for the whole test run, and databases in it: what every test that needs SQL starts from.

RAG_TEST_DATABASE_URL names a server (its user may create databases); unset, an embedded one runs in a
folder of its own. A guard process waits for the end of the run, however it comes (`kill -9`, too),
then stops that server and removes the folder. Run as a program, this file is the guard.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

GUARD_SECONDS = 60
"""How long the guard waits for subprocesses of a killed run to let go of the server."""


@functools.cache
def test_server() -> str:
    """The URL of a server in which databases can be made; started once, stopped at exit.

    Skips the calling test, with the reason, where no server can start.
    """
    given = os.environ.get("RAG_TEST_DATABASE_URL")
    return given or _embedded_server()


test_server.__test__ = False  # type: ignore[attr-defined]  # its name is no test's, wherever imported


def create_database(admin_url: str, template: str | None = None, tablespace: str | None = None) -> str:
    """Make a database with a name of its own and return its URL.

    `template` is the URL (or the name) of a database to copy; nobody may be connected to that one.
    `tablespace` is where its tables lie.
    """
    import psycopg
    from psycopg import sql

    name = f"test_{uuid.uuid4().hex[:16]}"
    statement = sql.SQL("create database {}").format(sql.Identifier(name))
    if template:
        source = _database_of(template) if "://" in template else template
        statement += sql.SQL(" template {}").format(sql.Identifier(source))
    if tablespace:
        statement += sql.SQL(" tablespace {}").format(sql.Identifier(tablespace))
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(statement)
    return _with_database(admin_url, name)


def drop_database(admin_url: str, url: str) -> None:
    """Remove a database of `create_database`, whoever is still connected to it."""
    import psycopg
    from psycopg import sql

    statement = sql.SQL("drop database if exists {} with (force)")
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(statement.format(sql.Identifier(_database_of(url))))


def reachable_folder(base: Path | None = None) -> Path:
    """A new empty folder that a service user can enter too (pytest's own `tmp_path` is closed to it)."""
    folder = Path(tempfile.mkdtemp(prefix="doc-rag-test-", dir=base))
    folder.chmod(0o755)
    return folder


def _database_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


def _with_database(url: str, name: str) -> str:
    """The same URL with another database (`urlunsplit` would lose the `//` of an empty host)."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{name}{query}"


def _embedded_server() -> str:
    import psycopg
    import pytest

    from doc_rag.errors import DatabaseUnavailable
    from doc_rag.store.embedded import EmbeddedPostgres

    folder = reachable_folder()
    guard = subprocess.Popen(
        [sys.executable, "-P", __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(_end_guard, guard)
    try:
        url = EmbeddedPostgres(folder).acquire()
    except DatabaseUnavailable as error:
        pytest.skip(f"no Postgres can start here: {error}")
    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):  # nothing here outlives the run
            connection.execute(f"alter system set {name} = off")
        connection.execute("select pg_reload_conf()")
    return url


def _end_guard(guard: subprocess.Popen[bytes]) -> None:
    """Tell the guard that the run is over, and wait until the folder is gone."""
    if guard.stdin:
        guard.stdin.close()
    try:
        guard.wait(GUARD_SECONDS)
    except subprocess.TimeoutExpired:
        print(
            f"the guard of the test server (process {guard.pid}) still waits for its users", file=sys.stderr
        )


def _guard(folder: Path) -> None:
    """Wait for the end of the run (end of file on stdin), stop a server that it left, remove the folder."""
    sys.stdin.buffer.read()
    from doc_rag.store.embedded import EmbeddedPostgres

    server = EmbeddedPostgres(folder)
    deadline = time.monotonic() + GUARD_SECONDS
    while not server.stop_if_unused() and time.monotonic() < deadline:
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
