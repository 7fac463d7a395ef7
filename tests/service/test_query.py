"""Asking through the service: rankings, clamps, citations, fallbacks, and a cache that is never stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from doc_rag.errors import CollectionNotFound, UsageError
from tests.service.conftest import MakeKb, write

HANDBOOK = """# Handbook

Welcome to the workshop.

## Opening hours

The workshop opens at eight and closes at six.

## Errors

Code ERR_KILN_42 means that the kiln door is open.
"""


@pytest.fixture(autouse=True)
def _handbook(docs: Path) -> None:
    write(docs, handbook=HANDBOOK, ferry="The ferry to the island leaves at noon from pier three.")


def test_a_passage_names_its_file_heading_and_lines(make_kb: MakeKb) -> None:
    kb = make_kb()
    kb.reindex_docs()
    best = kb.query_docs("When does the workshop close?", top_k=1).passages[0]
    assert (best.source, best.heading_path) == ("handbook.md", ("Handbook", "Opening hours"))
    lines = HANDBOOK.splitlines()[best.line_start - 1 : best.line_end]
    assert "The workshop opens at eight and closes at six." in lines
    assert best.content in HANDBOOK
    assert best.score_kind == "cosine" and best.score == best.cosine_score


def test_hybrid_finds_an_exact_code_and_says_where_it_came_from(make_kb: MakeKb) -> None:
    make_kb().reindex_docs()
    answer = make_kb(RAG_HYBRID_SEARCH="true").query_docs("ERR_KILN_42")
    best = answer.passages[0]
    assert answer.ranking == "hybrid"
    assert "ERR_KILN_42" in best.content
    assert (best.score_kind, best.text_rank) == ("rrf", 1)
    assert best.vector_rank is not None and best.cosine_score is not None


def test_hybrid_without_any_known_word_is_vector_search(make_kb: MakeKb) -> None:
    make_kb().reindex_docs()
    answer = make_kb(RAG_HYBRID_SEARCH="true").query_docs("the of and")
    assert answer.ranking == "vector"
    assert answer.passages


@pytest.mark.parametrize(("asked", "used"), [(0, 1), (-1, 1), (10**9, 100), (101, 100)])
def test_top_k_is_clamped_and_said(make_kb: MakeKb, asked: int, used: int) -> None:
    kb = make_kb()
    kb.reindex_docs()
    answer = kb.query_docs("ferry", top_k=asked)
    assert answer.notes == (f"top_k={asked} is outside 1 to 100; {used} was used.",)
    assert answer.chunk_count == min(used, 4)


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\x00"])
def test_an_empty_query_is_refused(make_kb: MakeKb, query: str) -> None:
    with pytest.raises(UsageError, match="query is empty"):
        make_kb().query_docs(query)


def test_an_unknown_collection_names_those_that_exist(make_kb: MakeKb) -> None:
    kb = make_kb()
    with pytest.raises(CollectionNotFound, match="reindex_docs"):
        kb.query_docs("ferry")
    kb.reindex_docs()
    with pytest.raises(CollectionNotFound, match=r'"tset" is not indexed; indexed collections: test'):
        kb.query_docs("ferry", collection="tset")


def test_collection_and_all_collections_exclude_each_other(make_kb: MakeKb) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        make_kb().query_docs("ferry", collection="test", all_collections=True)


@pytest.mark.parametrize("hybrid", ["false", "true"])
def test_all_collections_are_ranked_together(make_kb: MakeKb, docs: Path, hybrid: str) -> None:
    make_kb().reindex_docs()
    other = docs.parent / "other"
    other.mkdir()
    write(other, bus="The bus to the airport leaves every ten minutes.")
    make_kb(RAG_COLLECTION="other 'quoted' \"name\"", RAG_DOCS_DIR=str(other)).reindex_docs()
    answer = make_kb(RAG_HYBRID_SEARCH=hybrid).query_docs("bus to the airport", all_collections=True)
    assert answer.passages[0].collection == "other 'quoted' \"name\""
    assert answer.collections == ("other 'quoted' \"name\"", "test")
    assert set(answer.revisions) == set(answer.collections)
    assert {p.collection for p in answer.passages} == set(answer.collections)


def test_an_answer_comes_from_the_cache_until_anything_is_written(make_kb: MakeKb, docs: Path) -> None:
    kb, other_process = make_kb(), make_kb()
    kb.reindex_docs()
    first = kb.query_docs("When does the ferry leave?")
    again = kb.query_docs("  When does   the ferry leave? ")
    assert (first.cached, again.cached) == (False, True)
    assert again.passages == first.passages
    write(docs, ferry="The ferry to the island leaves at one from pier four.")
    other_process.reindex_docs()
    fresh = kb.query_docs("When does the ferry leave?")
    assert not fresh.cached
    assert "pier four" in fresh.passages[0].content
    assert fresh.revisions["test"] > first.revisions["test"]
    stats = kb.cache_stats()
    assert (stats.hits, stats.misses) == (1, 2)


def test_a_clamped_and_a_plain_query_share_an_entry_but_not_the_note(make_kb: MakeKb) -> None:
    kb = make_kb()
    kb.reindex_docs()
    assert kb.query_docs("ferry", top_k=0).notes
    plain = kb.query_docs("ferry", top_k=1)
    assert plain.cached and plain.notes == ()


def test_a_missing_key_falls_back_to_text_and_says_what_to_set(make_kb: MakeKb) -> None:
    from dataclasses import replace

    from tests.support.corpora import SETTINGS, add_document, make_collection

    kb = make_kb(RAG_EMBED_PROVIDER="voyage")
    voyage = replace(
        SETTINGS, provider="voyage", endpoint="api.voyageai.com", model="voyage-4-large", dims=1024
    )
    add_document(
        kb.database, make_collection(kb.database, "test", voyage), "f.md", ["The ferry leaves at noon."]
    )
    answer = kb.query_docs("ferry")
    assert answer.ranking == "text"
    assert answer.passages[0].score_kind == "text"
    assert "VOYAGE_API_KEY" in answer.notes[0]
    assert not kb.query_docs("ferry").cached, "an answer that is a fallback is not kept"


def test_an_empty_answer_says_why(make_kb: MakeKb) -> None:
    from tests.support.corpora import make_collection

    kb = make_kb()
    make_collection(kb.database, "test")
    answer = kb.query_docs("ferry")
    assert answer.passages == ()
    assert answer.empty_reason


def test_a_long_query_is_cut_and_said(make_kb: MakeKb) -> None:
    kb = make_kb()
    kb.reindex_docs()
    answer = kb.query_docs("ferry " * 5_000)
    assert "cut" in answer.notes[0]
    assert answer.passages[0].source == "ferry.md"


@pytest.mark.parametrize(
    "query", ["'; drop table documents; --", "\ud800 ferry", "& | ! <-> :*", "a' b\\ c", "%s {x}"]
)
def test_a_query_is_data(make_kb: MakeKb, query: str) -> None:
    make_kb().reindex_docs()
    assert make_kb(RAG_HYBRID_SEARCH="true").query_docs(query).passages
