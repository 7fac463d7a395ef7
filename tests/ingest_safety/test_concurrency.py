"""Writers at once: no deadlock, nothing lost or doubled, and whoever has to wait is told for whom."""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from doc_rag import service
from doc_rag.embed import make_embedder
from doc_rag.errors import CollectionBusy, DocumentNotFound
from doc_rag.service import KnowledgeBase
from doc_rag.store import catalog
from tests.ingest_safety.corpus import WORDS, Corpus
from tests.ingest_safety.index import Checker, Contents, contents, differences
from tests.ingest_safety.runs import finished, ingest
from tests.mcp.serving import call, refusal, stdio_session
from tests.providers.servers import OpenAIServer
from tests.providers.wire import slow
from tests.support.postgres import create_database, drop_database

ONE, OTHER = "one", "other"
END_SECONDS = 60.0
UNREADABLE = 2
SOAK_SECONDS = 30.0


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(key=None, models={"tiny-embed": 8}) as server:
        yield server


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "docs", 13, notes=60, reports=20, logs=(4,), pdf=False)


class Writers:
    """Runs on one database, and what they leave in it."""

    def __init__(self, server: OpenAIServer, corpus: Corpus, admin_url: str, database_url: str) -> None:
        self._server, self._corpus = server, corpus
        self._admin_url, self._url = admin_url, database_url

    def variables(self, collection: str, url: str | None = None) -> dict[str, str]:
        return self._server.environ() | {
            "RAG_DATABASE_URL": url or self._url,
            "RAG_DOCS_DIR": str(self._corpus.root),
            "RAG_COLLECTION": collection,
            "RAG_EMBED_CONCURRENCY": "2",
            "RAG_ENV_FILE": os.devnull,
        }

    def check(self, *collections: str) -> None:
        """Every collection is whole, and has the rows of an ingest that had the database to itself."""
        settings = self._server.settings(**self.variables(ONE))
        checker = Checker(self._corpus, make_embedder(settings, lambda _: None))
        clean = self._clean()
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                for collection in collections:
                    assert checker.problems(connection, collection) == []
                    assert differences(_live(connection, collection), clean) == []
                staged = connection.execute("select count(*) from embeddings_staged").fetchone()
                assert staged == (0,)
        finally:
            checker.close()

    def _clean(self) -> Contents:
        url = create_database(self._admin_url)
        try:
            code, _, err = finished(self.variables("clean", url))
            assert code == 0, err
            with psycopg.connect(url, autocommit=True) as connection:
                return _live(connection, "clean")
        finally:
            drop_database(self._admin_url, url)


def _live(connection: psycopg.Connection[Any], collection: str) -> Contents:
    return contents(connection, catalog.live_generation(connection, collection))


@pytest.fixture
def writers(server: OpenAIServer, corpus: Corpus, postgres_server: str, database_url: str) -> Writers:
    return Writers(server, corpus, postgres_server, database_url)


def test_a_second_ingest_is_told_who_writes_and_one_that_waits_comes_after(
    writers: Writers, server: OpenAIServer, corpus: Corpus
) -> None:
    server.fail_at_random(slow(0.3), 1.0)
    with ingest(writers.variables(ONE)) as first:
        assert server.wait_for(requests=2)
        code, out, err = finished(writers.variables(ONE))
        assert (code, out) == (1, "")
        who = re.escape(f'"{ONE}" is being written by another process: ingest on {socket.gethostname()}')
        assert re.search(rf"{who} \(process {first.pid}\), since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \w+", err)
        assert "Traceback" not in err
        with ingest(writers.variables(ONE), "--wait") as waiting:
            out, err = first.communicate(timeout=END_SECONDS)
            assert first.returncode == 0, err
            out, err = waiting.communicate(timeout=END_SECONDS)
    assert waiting.returncode == 0, err
    assert f"{len(corpus.names) - UNREADABLE} unchanged" in out
    server.fail_at_random(slow(0.0), 1.0)
    writers.check(ONE)


def test_two_collections_of_the_same_texts_are_written_at_once(
    writers: Writers, server: OpenAIServer, corpus: Corpus
) -> None:
    for arguments in ((), (), ("--rebuild",)):
        corpus.change(0.3)
        with (
            ingest(writers.variables(ONE), "--confirm-large-removal", *arguments) as one,
            ingest(writers.variables(OTHER), "--confirm-large-removal", *arguments) as other,
        ):
            for process in (one, other):
                _, err = process.communicate(timeout=END_SECONDS)
                assert (process.returncode, "Traceback" in err) == (0, False), err
    answered = server.texts_answered
    assert max(answered.values()) <= 4, "once each by both, and once each again by both rebuilds"
    writers.check(ONE, OTHER)


async def _reindex_beside_an_ingest(writers: Writers, server: OpenAIServer, folder: Path) -> None:
    env = writers.variables(ONE)
    async with stdio_session(env, folder) as client:
        with ingest(env) as process:
            assert await anyio.to_thread.run_sync(server.wait_for, 2)
            told = await refusal(client, "reindex_docs")
            assert f"(process {process.pid})" in told
            _, err = await anyio.to_thread.run_sync(process.communicate)
            assert process.returncode == 0, err
        report = await call(client, "reindex_docs")
        assert (report["new"], report["changed"]) == (0, 0)


def test_an_ingest_and_a_servers_reindex_are_not_in_each_others_way(
    writers: Writers, server: OpenAIServer, tmp_path: Path
) -> None:
    server.fail_at_random(slow(0.2), 1.0)
    anyio.run(_reindex_beside_an_ingest, writers, server, tmp_path)
    writers.check(ONE)


def test_a_document_removed_during_an_ingest_waits_for_it_or_says_for_whom(
    writers: Writers, server: OpenAIServer, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = finished(writers.variables(ONE))
    assert code == 0, err
    corpus.change(0.5)
    name = next(name for name in corpus.names if name.startswith("logs/"))
    monkeypatch.setattr(service, "REMOVE_WAIT_SECONDS", 1.0)
    with KnowledgeBase(server.settings(**writers.variables(ONE))) as kb:
        before = len(server.requests)
        server.fail_next(slow(3.0))
        with ingest(writers.variables(ONE), "--confirm-large-removal") as process:
            assert server.wait_for(before + 1)
            with pytest.raises(CollectionBusy, match=rf"ingest .* \(process {process.pid}\)"):
                kb.remove_document(name)
            monkeypatch.setattr(service, "REMOVE_WAIT_SECONDS", END_SECONDS)
            assert kb.remove_document(name).still_on_disk
            _, err = process.communicate(timeout=END_SECONDS)
            assert process.returncode == 0, err
    code, out, err = finished(writers.variables(ONE))
    assert code == 0, err
    assert "1 new" in out, "the file brings it back"
    writers.check(ONE)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_writers_readers_and_removers_all_at_once(
    writers: Writers, server: OpenAIServer, corpus: Corpus
) -> None:
    """Half a minute of ingests, rebuilds, queries and removals: whoever does not succeed was told to wait."""
    code, _, err = finished(writers.variables(ONE))
    assert code == 0, err
    until = time.monotonic() + SOAK_SECONDS
    done: Counter[str] = Counter()

    def write(collection: str, seed: int) -> None:
        chance = random.Random(seed)
        while time.monotonic() < until:
            if collection == ONE and seed == 0:  # one hand alone changes the folder
                corpus.change(0.1)
            variables = writers.variables(collection) | {"RAG_CHUNK_SIZE": chance.choice(["400", "800"])}
            code, _, err = finished(variables, "--confirm-large-removal", *chance.choice([[], ["--rebuild"]]))
            assert code == 0 or "is being written by another process" in err, err
            done["ingest" if code == 0 else "busy"] += 1

    def query(seed: int) -> None:
        chance = random.Random(seed)
        with KnowledgeBase(server.settings(**writers.variables(ONE))) as kb:
            while time.monotonic() < until:
                asked = f"{' '.join(chance.choices(WORDS, k=3))} {chance.random()}"
                assert kb.query_docs(asked, top_k=8).passages
                done["query"] += 1

    def remove(seed: int) -> None:
        chance = random.Random(seed)
        with KnowledgeBase(server.settings(**writers.variables(ONE))) as kb:
            while time.monotonic() < until:
                name = chance.choice([document.source for _, document in kb.list_documents().documents])
                try:
                    kb.remove_document(name)
                    done["removal"] += 1
                except (CollectionBusy, DocumentNotFound) as error:
                    done[type(error).__name__] += 1

    with ThreadPoolExecutor() as pool:
        parts = [pool.submit(write, ONE, seed) for seed in (0, 1)]
        parts += [pool.submit(write, OTHER, 2), pool.submit(remove, 3)]
        parts += [pool.submit(query, seed) for seed in (4, 5)]
        for part in parts:
            part.result()
    print(done)
    for collection in (ONE, OTHER):
        code, _, err = finished(writers.variables(collection), "--confirm-large-removal")
        assert code == 0, err
    writers.check(ONE, OTHER)
    assert min(done[each] for each in ("ingest", "query", "removal")) > 0
