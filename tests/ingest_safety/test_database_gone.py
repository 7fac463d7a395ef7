"""The database goes away in the middle of an ingest: one clear error, exit 1, and the next run completes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from doc_rag.embed import make_embedder
from tests.ingest_safety.corpus import Corpus
from tests.ingest_safety.index import Checker
from tests.ingest_safety.runs import finished, ingest, wait_until_gone
from tests.providers.servers import OpenAIServer
from tests.providers.wire import slow

COLLECTION = "gone"
END_SECONDS = 60.0
UNREADABLE = 2
"""Files of the corpus that hold no text."""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(key=None, models={"tiny-embed": 8}) as server:
        server.fail_at_random(slow(0.05), 1.0)
        yield server


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "docs", 9, notes=60, reports=20, logs=(4,), pdf=False)


@pytest.fixture
def variables(server: OpenAIServer, corpus: Corpus, database_url: str) -> dict[str, str]:
    return server.environ() | {
        "RAG_DATABASE_URL": database_url,
        "RAG_DOCS_DIR": str(corpus.root),
        "RAG_COLLECTION": COLLECTION,
        "RAG_EMBED_CONCURRENCY": "1",
    }


def clear_error(out: str, err: str) -> str:
    """The one line that says what happened; a report of what was done comes before it."""
    assert "Traceback" not in err, err
    assert f"{COLLECTION}: " in out
    (line,) = [line for line in err.splitlines() if line.startswith("doc-rag: ")]
    return line


@pytest.mark.parametrize("requests", [1, 3, 8])
def test_a_terminated_connection_ends_the_run_and_the_next_goes_on(
    requests: int,
    server: OpenAIServer,
    corpus: Corpus,
    variables: dict[str, str],
    database_url: str,
) -> None:
    checker = Checker(corpus, make_embedder(server.settings(**variables), lambda _: None))
    try:
        with psycopg.connect(database_url, autocommit=True) as connection:
            with ingest(variables) as process:
                assert server.wait_for(requests)
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and application_name = 'doc-rag'"
                )
                out, err = process.communicate(timeout=END_SECONDS)
            assert process.returncode == 1, err
            line = clear_error(out, err)
            assert "could not be reached" in line
            assert line.endswith("run again to go on from there.")
            wait_until_gone(connection)
            assert checker.problems(connection, COLLECTION) == []
            code, out, err = finished(variables)
            assert (code, "Traceback" in err) == (0, False), err
            assert checker.problems(connection, COLLECTION) == []
            stored = connection.execute("select count(*) from documents where status <> 'skipped'").fetchone()
            assert stored == (len(corpus.names) - UNREADABLE,)
    finally:
        checker.close()


def test_a_database_that_is_dropped_ends_the_run_and_made_again_is_filled_by_the_next(
    server: OpenAIServer, corpus: Corpus, variables: dict[str, str], database_url: str, postgres_server: str
) -> None:
    name = sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]))
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        with ingest(variables) as process:
            assert server.wait_for(requests=3)
            admin.execute(sql.SQL("drop database {} with (force)").format(name))
            out, err = process.communicate(timeout=END_SECONDS)
        assert process.returncode == 1, err
        assert "could not be reached" in clear_error(out, err)
        code, out, err = finished(variables)
        assert (code, out) == (1, "")
        assert "does not exist" in err and "Traceback" not in err
        admin.execute(sql.SQL("create database {}").format(name))
        code, out, err = finished(variables)
        assert code == 0, err
        assert f"{len(corpus.names) - UNREADABLE} new" in out
