"""The server that the whole test run uses: databases of one's own, and nothing left when the run is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from doc_rag.store.embedded_processes import postgres_processes
from tests.support.embedded_folder import fetch, wait_until
from tests.support.postgres import create_database, drop_database, test_server

A_KILLED_RUN = """
import os, sys
from tests.support.postgres import test_server
print(test_server(), flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_database_is_made_copied_and_dropped_whoever_is_connected() -> None:
    admin = test_server()
    first = create_database(admin)
    with psycopg.connect(first, autocommit=True) as connection:
        connection.execute("create table kept as select 7 as n")
    copy = create_database(admin, template=first)
    assert copy != first and fetch(copy, "select n from kept") == 7
    connected = psycopg.connect(copy)
    for url in (first, copy):
        drop_database(admin, url)
        drop_database(admin, url)
    with pytest.raises(psycopg.OperationalError):
        connected.execute("select 1")
    connected.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)


def test_a_killed_run_leaves_neither_server_nor_folder() -> None:
    root = Path(__file__).resolve().parents[2]
    environment = {name: value for name, value in os.environ.items() if name != "RAG_TEST_DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-c", A_KILLED_RUN],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == -9
    folder = Path(parse_qs(urlsplit(done.stdout.strip()).query)["host"][0]).parent
    wait_until(lambda: not folder.exists())
    assert postgres_processes(folder) == []
