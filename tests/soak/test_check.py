"""The check of the load runs itself: it finds what is stale, mixed or made up."""

from __future__ import annotations

from typing import Any

from benchmarks.load_corpus import problems_of, text_of

HISTORY = {7: ("main", {"a.md": 1}), 9: ("main", {"a.md": 2, "b.md": 1}), 8: ("spare", {"a.md": 5})}


def answer(
    revision: int, version: int, *, source: str = "a.md", start: int = 3, end: int = 60
) -> dict[str, Any]:
    passage = {
        "collection": "main",
        "source": source,
        "content": text_of(source, version)[start:end],
        "char_start": start,
        "char_end": end,
    }
    return {"revisions": {"main": revision}, "passages": [passage]}


def problems(content: dict[str, Any], before: dict[str, int]) -> str:
    return "; ".join(problems_of("query_docs", content, before, HISTORY))


def test_an_answer_of_the_revision_it_claims_is_good() -> None:
    assert problems(answer(9, 2), {"main": 9}) == ""
    assert problems(answer(7, 1), {"main": 7}) == ""


def test_an_older_revision_than_was_committed_is_found() -> None:
    assert "9 was committed when it was asked" in problems(answer(7, 1), {"main": 9})


def test_another_version_than_the_revision_held_is_found() -> None:
    assert "is at version 2, the passage is of version [1]" in problems(answer(9, 1), {"main": 9})


def test_a_document_that_the_revision_did_not_hold_is_found() -> None:
    assert "b.md is not in that revision" in problems(answer(7, 1, source="b.md"), {"main": 7})


def test_a_revision_that_was_never_committed_is_found() -> None:
    assert "never committed" in problems(answer(10, 2), {"main": 9})
    assert "never committed" in problems(answer(8, 5), {"main": 7})


def test_words_that_are_not_the_documents_are_found() -> None:
    wrong = answer(9, 2)
    wrong["passages"][0]["content"] = wrong["passages"][0]["content"][:-1] + "#"
    assert "not what version 2 says" in problems(wrong, {"main": 9})


def test_an_old_list_of_collections_is_found() -> None:
    listed = {"collections": [{"name": "main", "revision": 7}]}
    assert problems_of("list_collections", listed, {"main": 7}, HISTORY) == []
    assert problems_of("list_collections", listed, {"main": 9}, HISTORY)
