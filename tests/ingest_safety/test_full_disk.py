"""The disk of the database is full in the middle of an ingest: one clear error, exit 1, and with room again the
next run completes. Needs root and Linux, for a file system that is small."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from doc_rag.embed import make_embedder
from doc_rag.settings import load_settings
from doc_rag.store.pool import Database
from tests.ingest_safety.corpus import Corpus
from tests.ingest_safety.index import Checker
from tests.ingest_safety.runs import finished, wait_until_gone
from tests.providers.servers import OpenAIServer
from tests.support.postgres import create_database, drop_database, reachable_folder

COLLECTION = "full"
ROOMY_MB = 400
LEFT_MB = 2
"""What the documents of the test may take: they need some 6 MB."""
UNREADABLE = 2


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], Path]]:
    """A file system of so many megabytes; called again, it has another size."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small file system")
    folder = reachable_folder()
    mounted = False

    def sized(megabytes: int) -> Path:
        nonlocal mounted
        option = f"size={megabytes}m"
        command = ["mount", "-o", f"remount,{option}", str(folder)]
        if not mounted:
            command = ["mount", "-t", "tmpfs", "-o", f"{option},mode=0755", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
        mounted = True
        return folder

    yield sized
    if mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "docs", 11, notes=100, reports=120, logs=(4,), pdf=False)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(key=None, models={"tiny-embed": 384}) as server:
        yield server


@pytest.fixture
def small_database(postgres_server: str, small_disk: Callable[[int], Path]) -> Iterator[str]:
    """A database whose tables lie on a small disk, which has little room left; its log does not."""
    folder = small_disk(ROOMY_MB)
    name = f"small_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        row = admin.execute("show data_directory").fetchone()
        assert row is not None
        if not Path(row[0]).is_dir():
            pytest.skip("the test server runs on another machine, or in a container")
        owner = Path(row[0]).stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        location = sql.Literal(str(folder))
        admin.execute(sql.SQL("create tablespace {} location {}").format(sql.Identifier(name), location))
        url = create_database(postgres_server, tablespace=name)
        database = Database(load_settings({"RAG_DATABASE_URL": url, "RAG_ENV_FILE": os.devnull}))
        database.open()
        database.close()
        used = os.statvfs(folder).f_blocks - os.statvfs(folder).f_bfree
        small_disk(used * os.statvfs(folder).f_bsize // 1_048_576 + LEFT_MB)
        yield url
        drop_database(postgres_server, url)
        admin.execute(sql.SQL("drop tablespace {}").format(sql.Identifier(name)))


def test_a_full_disk_ends_the_run_and_with_room_again_the_next_completes(
    small_database: str, small_disk: Callable[[int], Path], corpus: Corpus, server: OpenAIServer
) -> None:
    variables = server.environ() | {
        "RAG_DATABASE_URL": small_database,
        "RAG_DOCS_DIR": str(corpus.root),
        "RAG_COLLECTION": COLLECTION,
    }
    checker = Checker(corpus, make_embedder(server.settings(**variables), lambda _: None))
    try:
        code, _, err = finished(variables)
        assert (code, "Traceback" in err) == (1, False), err
        (line,) = [line for line in err.splitlines() if line.startswith("doc-rag: ")]
        assert "is full. Free some space and run again." in line
        with psycopg.connect(small_database, autocommit=True) as connection:
            wait_until_gone(connection)
            assert checker.problems(connection, COLLECTION) == []
            small_disk(ROOMY_MB)
            code, _, err = finished(variables)
            assert (code, "Traceback" in err) == (0, False), err
            assert checker.problems(connection, COLLECTION) == []
            stored = connection.execute("select count(*) from documents where status <> 'skipped'").fetchone()
        assert stored == (len(corpus.names) - UNREADABLE,)
    finally:
        checker.close()


@pytest.mark.soak
def test_a_full_disk_under_the_embedded_server_and_its_log(
    small_disk: Callable[[int], Path], tmp_path: Path, server: OpenAIServer
) -> None:
    """Without room for its log the server gives up, and does not start; with room it recovers by itself."""
    server.models = {"tiny-embed": 1024}
    folder = small_disk(ROOMY_MB)
    corpus = Corpus(tmp_path / "docs", 3, notes=100, reports=300, pdf=False)
    (tmp_path / "one.md").write_text("One document, so that the server is made.")
    variables = server.environ() | {"RAG_DATA_DIR": str(folder / "data"), "RAG_COLLECTION": COLLECTION}
    code, _, err = finished(variables, "--docs", str(tmp_path / "one.md"))
    assert code == 0, err
    used = os.statvfs(folder).f_blocks - os.statvfs(folder).f_bfree
    small_disk(used * os.statvfs(folder).f_bsize // 1_048_576 + 3 * LEFT_MB)
    for _ in range(2):
        code, _, err = finished(variables, "--docs", str(corpus.root))
        assert (code, "Traceback" in err) == (1, False), err
        (line,) = [line for line in err.splitlines() if line.startswith("doc-rag: ")]
        assert "full" in line or "could not be reached" in line
    small_disk(ROOMY_MB)
    code, out, err = finished(variables, "--docs", str(corpus.root), "--confirm-large-removal")
    assert code == 0, err
    new, _, removed, unchanged = map(int, re.findall(r"(\d+) (?:new|changed|removed|unchanged)", out))
    assert (new + unchanged, removed) == (len(corpus.names) - UNREADABLE, 1)
