"""An answer is of one revision, whatever is written while it is being made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doc_rag import search
from doc_rag.errors import RerankUnavailable
from doc_rag.records import QueryAnswer
from doc_rag.service import KnowledgeBase
from tests.service.conftest import MakeKb, write


def text(word: str) -> str:
    """Neighbouring chunks of one section, blank lines between them, every sentence with `word`."""
    paragraph = f"The ferry {word} leaves the island at noon and comes back with the {word} mail. " * 3
    return "# Ferry\n\n" + "\n\n".join(paragraph.strip() for _ in range(8)) + "\n"


SMALL_CHUNKS = {"RAG_CHUNK_SIZE": "300", "RAG_CHUNK_OVERLAP": "0"}


def in_the_middle(
    monkeypatch: pytest.MonkeyPatch, write_meanwhile: Callable[[], object], *, before: bool
) -> None:
    """Let somebody write once, in the middle of the next query: before its search, or right after it."""
    real = search.candidates
    written = False

    def candidates(*args: Any, **kwargs: Any) -> search.Candidates:
        nonlocal written
        found = None if before and not written else real(*args, **kwargs)
        if not written:
            written = True
            write_meanwhile()
        return found or real(*args, **kwargs)

    monkeypatch.setattr(search, "candidates", candidates)


def revision(kb: KnowledgeBase) -> int:
    return kb.list_collections()[0].revision


def is_whole(answer: QueryAnswer, whole: str) -> bool:
    return all(p.content == whole[p.char_start : p.char_end] for p in answer.passages)


def test_a_rebuild_that_drops_what_a_query_is_about_to_read_is_no_error(
    make_kb: MakeKb, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb, other = make_kb(), make_kb()
    write(docs, ferry=text("red"))
    kb.reindex_docs()
    in_the_middle(monkeypatch, lambda: other.reindex_docs(force_rebuild=True), before=True)
    answer = kb.query_docs("the ferry and the mail")
    assert answer.passages
    assert answer.revisions == {"test": revision(other)}


def test_what_lies_between_two_chunks_is_of_the_same_revision(
    make_kb: MakeKb, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb, other = make_kb(**SMALL_CHUNKS), make_kb(**SMALL_CHUNKS)
    write(docs, ferry=text("red"))
    kb.reindex_docs()
    before = revision(kb)

    def shift() -> None:
        write(docs, ferry="# Ferry\n\n" + "x" * 100 + "\n\n" + text("blue"))
        other.reindex_docs()

    in_the_middle(monkeypatch, shift, before=False)
    answer = kb.query_docs("the ferry and the mail", top_k=20)
    assert any(len(p.chunk_ids) > 2 for p in answer.passages), "no chunks were joined: nothing was tested"
    assert answer.revisions == {"test": before}
    assert is_whole(answer, text("red"))


def test_without_its_reranker_an_answer_names_the_revision_it_was_then_read_at(
    make_kb: MakeKb, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = make_kb(
        RAG_HYBRID_SEARCH="true",
        RAG_RERANK_MODEL="rerank-2.5",
        VOYAGE_API_KEY="pa-key",
        RAG_ALLOW_CROSS_PROVIDER_RERANK="true",
    )
    write(docs, ferry=text("red"))
    kb.reindex_docs()

    def away(*_: Any) -> Any:
        write(docs, ferry=text("blue"))
        make_kb().reindex_docs()
        raise RerankUnavailable("The reranker is away.")

    monkeypatch.setattr(search, "rerank", away)
    answer = kb.query_docs("the ferry and the mail")
    assert answer.ranking == "hybrid"
    assert is_whole(answer, text("blue"))
    assert answer.revisions == {"test": revision(kb)}
