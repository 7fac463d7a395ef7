"""Ingest and query over each provider's real SDK, against its wire-true server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag import storing
from doc_rag.embed import retry
from doc_rag.errors import IngestFailed
from doc_rag.records import QueryAnswer
from doc_rag.service import KnowledgeBase
from tests.providers.servers import AzureServer, OpenAIServer, VoyageServer
from tests.providers.wire import ProviderServer, cut, rate_limited
from tests.service.conftest import MakeKb, write

SERVERS = {"voyage": VoyageServer, "openai": OpenAIServer, "azure-openai": AzureServer}
DIMS = "256"


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.02)


@pytest.fixture(params=sorted(SERVERS))
def server(request: pytest.FixtureRequest) -> Iterator[ProviderServer]:
    with SERVERS[request.param]() as running:
        yield running


@pytest.fixture
def openai() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def voyage() -> Iterator[VoyageServer]:
    with VoyageServer() as running:
        yield running


def small(docs: Path, count: int = 12) -> None:
    write(docs, **{f"d{i}": f"# Item {i}\n\nThe widget number {i} is made of brass." for i in range(count)})


def environ_of(server: ProviderServer, **more: str) -> dict[str, str]:
    return server.environ() | {"RAG_EMBED_DIM": DIMS} | more


def stored_texts(kb: KnowledgeBase) -> Counter[str]:
    with kb.database.connection() as connection:
        return Counter(row[0] for row in connection.execute("select context || content from doc_chunks"))


def test_each_text_is_sent_once_and_a_query_is_sent_as_one(
    make_kb: MakeKb, docs: Path, server: ProviderServer
) -> None:
    small(docs)
    kb = make_kb(**environ_of(server))
    report = kb.reindex_docs()
    assert report.new == 12
    assert server.texts_answered == stored_texts(kb)
    assert report.tokens == server.tokens_answered
    answer = kb.query_docs("What is widget number 7 made of?", top_k=3)
    assert "number 7" in answer.passages[0].content
    if isinstance(server, VoyageServer):
        assert [body["input_type"] for body in server.bodies] == ["document", "query"]
    tally = {row.operation: row for row in kb.usage_stats().rows}
    assert tally["embed_document"].tokens == report.tokens
    assert tally["embed_query"].calls == 1


def test_cranfield_goes_in_whole(make_kb: MakeKb, server: ProviderServer, shared: Path) -> None:
    """1,398 documents through each SDK; through OpenAI's with 30 % of calls refused and 5 % cut."""
    if isinstance(server, OpenAIServer):
        server.max_batch_items = 40
        server.fail_at_random(rate_limited(), 0.30)
        server.fail_at_random(cut(), 0.05)
    kb = make_kb(**environ_of(server, RAG_DOCS_DIR=str(shared / "eval" / "cranfield" / "docs")))
    report = kb.reindex_docs()
    assert (report.new, report.skips) == (1_398, ())
    stored = set(stored_texts(kb))
    assert set(server.texts_answered) == stored
    assert report.texts_embedded == len(stored), "each text once in what is stored"
    (row,) = kb.usage_stats().rows
    assert row.tokens == report.tokens == server.tokens_answered
    assert row.unknown_calls == server.cut_short
    assert all(len(body["input"]) <= 2_048 for body in server.bodies)
    answer = kb.query_docs(
        "what similarity laws must be obeyed when constructing aeroelastic models", top_k=5
    )
    assert (answer.ranking, answer.chunk_count) == ("vector", 5)


def test_a_paragraph_of_a_long_document_costs_a_few_texts(
    make_kb: MakeKb, docs: Path, openai: OpenAIServer
) -> None:
    paragraphs = [
        f"Paragraph {i} tells of subject {i * 7}. " + f"It says word{i} many times over. " * 18
        for i in range(300)
    ]
    write(docs, long="# Long\n\n" + "\n\n".join(paragraphs))
    kb = make_kb(**environ_of(openai))
    first = kb.reindex_docs()
    assert first.chunks_stored >= 300
    sent = sum(openai.texts_sent.values())
    write(
        docs,
        long="# Long\n\n" + "\n\n".join(paragraphs).replace("Paragraph 150 tells", "Paragraph 150 speaks"),
    )
    kb.reindex_docs()
    assert 1 <= sum(openai.texts_sent.values()) - sent <= 5
    sent = sum(openai.texts_sent.values())
    (docs / "long.md").rename(docs / "renamed.md")
    kb.reindex_docs(confirm_large_removal=True)
    make_kb(**environ_of(openai, RAG_COLLECTION="second")).reindex_docs()
    assert sum(openai.texts_sent.values()) == sent, "a new name and a second collection cost nothing"
    kb.reindex_docs(force_rebuild=True)
    assert sum(openai.texts_sent.values()) == sent + first.chunks_stored, "a rebuild that is asked for pays"


def test_a_run_that_gives_up_keeps_what_it_has_and_the_next_goes_on(
    make_kb: MakeKb, docs: Path, openai: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(docs, 60)
    monkeypatch.setattr(storing, "WINDOW_DOCUMENTS", 10)
    kb = make_kb(**environ_of(openai, RAG_EMBED_RETRY_SECONDS="0.3", RAG_EMBED_CONCURRENCY="1"))
    openai.fail_next(None, None, *[rate_limited() for _ in range(500)])
    with pytest.raises(IngestFailed) as caught:
        kb.reindex_docs()
    done = caught.value.report
    assert done.texts_embedded == 20
    assert kb.list_collections()[0].documents == done.new
    openai.heal()
    finished = kb.reindex_docs()
    assert finished.texts_embedded == 60 - done.texts_embedded
    assert kb.list_collections()[0].documents == 60


def test_queries_are_answered_all_through_a_change_of_model(
    make_kb: MakeKb, docs: Path, openai: OpenAIServer, voyage: VoyageServer
) -> None:
    small(docs, 40)
    before = openai.environ() | {"RAG_EMBED_DIM": DIMS}
    make_kb(**before).reindex_docs()
    after = before | voyage.environ() | {"RAG_EMBED_DIM": "512", "RAG_CACHE_MAX_SIZE": "0"}
    after["RAG_EMBED_MODEL"] = "voyage-4-large"
    voyage.max_batch_items = 10
    kb, asking = make_kb(**after), make_kb(**after)
    answers: list[QueryAnswer] = []
    finished = threading.Event()

    def ask() -> None:
        while True:
            last = finished.is_set()
            answers.append(asking.query_docs("widget number 7", top_k=3))
            if last:
                return

    loop = threading.Thread(target=ask)
    loop.start()
    try:
        stopped = kb.reindex_docs(stopped=lambda: sum(voyage.texts_answered.values()) >= 20)
        assert stopped.interrupted
        report = kb.reindex_docs()
    finally:
        finished.set()
        loop.join(30)
    assert "voyage" in str(report.rebuilt)
    paid = voyage.texts_answered
    del paid["widget number 7"]
    assert (len(paid), set(paid.values())) == (40, {1}), "nothing is paid twice"
    assert kb.list_collections()[0].model == "voyage-4-large"
    assert all(answer.ranking == "vector" and not answer.notes for answer in answers)
    assert all("number 7" in answer.passages[0].content for answer in answers)
    assert len({answer.revisions["test"] for answer in answers}) >= 2


def test_rerank_orders_the_candidates_and_falls_back_where_it_fails(
    make_kb: MakeKb, docs: Path, voyage: VoyageServer
) -> None:
    small(docs, 30)
    kb = make_kb(**environ_of(voyage, RAG_RERANK_MODEL="rerank-2.5", RAG_CACHE_MAX_SIZE="0"))
    kb.reindex_docs()
    answer = kb.query_docs("widget number 7", top_k=3)
    body = voyage.bodies[-1]
    assert (answer.ranking, answer.passages[0].score_kind) == ("rerank", "rerank")
    assert (len(body["documents"]), body["top_k"], body["model"]) == (12, 3, "rerank-2.5")
    assert [p.rerank_score for p in answer.passages] == sorted(
        (p.rerank_score or 0 for p in answer.passages), reverse=True
    )
    assert {row.operation for row in kb.usage_stats().rows} >= {"rerank"}
    kb.query_docs("widget", top_k=100)
    assert len(voyage.bodies[-1]["documents"]) == 30
    voyage.fail_next(None, *[rate_limited() for _ in range(200)])
    fallen = kb.query_docs("widget number 7", top_k=3)
    assert fallen.ranking == "vector"
    assert "ranked by vector search instead" in fallen.notes[0]
    assert len(fallen.passages) == 3
