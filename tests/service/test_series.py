"""Dated series end to end: a repeated chunk is stored once, and no edit or removal loses anybody's text."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from doc_rag.service import KnowledgeBase
from tests.service.conftest import MakeKb, write

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]
SAME = "The keeper of the lighthouse is Ada."


def day(text: str, keeper: str = SAME) -> str:
    return f"# Log\n\n## Keeper\n\n{keeper}\n\n## Weather\n\n{text}\n"


@pytest.fixture
def log(docs: Path) -> Path:
    for i, each in enumerate(DAYS):
        write(docs, **{f"log-{each}": day(f"Wind force {i}.")})
    return docs


def facts(kb: KnowledgeBase) -> dict[str, list[str]]:
    """Every text that each document has, be it held by itself or by another."""
    with kb.database.connection() as connection:
        rows = connection.execute(
            "select d.source, c.content from documents d join doc_chunks c on c.document_id = d.id"
            " union all select d.source, c.content from documents d join chunk_repeats r on r.document_id = d.id"
            " join doc_chunks c on c.id = r.chunk_id"
        ).fetchall()
        counts = connection.execute(
            "select d.source from documents d left join doc_chunks c on c.document_id = d.id"
            " group by d.id having d.chunk_count <> count(c.id)"
        ).fetchall()
    assert counts == []
    found: dict[str, list[str]] = {}
    for source, content in rows:
        found.setdefault(source, []).append(content.splitlines()[-1])
    return {source: sorted(texts) for source, texts in found.items()}


def expected() -> dict[str, list[str]]:
    return {f"log-{each}.md": sorted([SAME, f"Wind force {i}."]) for i, each in enumerate(DAYS)}


def keeper_chunks(kb: KnowledgeBase) -> list[tuple[str, list[date]]]:
    with kb.database.connection() as connection:
        return connection.execute(
            "select source, also_on from doc_chunks where content like '%keeper of%' order by source"
        ).fetchall()


def days(*numbers: int) -> list[date]:
    return [date(2026, 1, number) for number in numbers]


def test_a_repeated_chunk_is_stored_once_and_names_its_other_dates(make_kb: MakeKb, log: Path) -> None:
    kb = make_kb()
    kb.reindex_docs()
    assert keeper_chunks(kb) == [("log-2026-01-01.md", days(2, 3, 4))]
    assert facts(kb) == expected()
    best = kb.query_docs("Who keeps the lighthouse?", top_k=1).passages[0]
    assert (best.source, list(best.also_on)) == ("log-2026-01-01.md", days(2, 3, 4))
    again = kb.reindex_docs()
    assert (again.unchanged, again.new, again.changed, again.texts_embedded) == (4, 0, 0, 0)
    assert kb.estimate().unchanged == 4


def test_editing_the_holder_hands_its_chunk_on(make_kb: MakeKb, log: Path) -> None:
    kb = make_kb()
    kb.reindex_docs()
    write(log, **{"log-2026-01-01": day("Wind force 0.", "The keeper of the lighthouse is Bob.")})
    report = kb.reindex_docs()
    assert (report.changed, report.unchanged) == (1, 3)
    assert keeper_chunks(kb) == [("log-2026-01-01.md", []), ("log-2026-01-02.md", days(3, 4))]


def test_a_value_that_comes_back_is_stored_anew(make_kb: MakeKb, log: Path) -> None:
    write(log, **{"log-2026-01-02": day("Wind force 1.", "The keeper of the lighthouse is Bob.")})
    kb = make_kb()
    kb.reindex_docs()
    assert keeper_chunks(kb) == [
        ("log-2026-01-01.md", []),
        ("log-2026-01-02.md", []),
        ("log-2026-01-03.md", days(4)),
    ]


@pytest.mark.parametrize("gone", [0, 1, 3])
def test_removing_a_document_leaves_the_others_their_text(make_kb: MakeKb, log: Path, gone: int) -> None:
    kb = make_kb()
    kb.reindex_docs()
    removed = kb.remove_document(f"log-{DAYS[gone]}.md")
    assert removed.chunks == (2 if gone == 0 else 1)
    left = {name: texts for name, texts in expected().items() if name != f"log-{DAYS[gone]}.md"}
    assert facts(kb) == left
    (holder,) = keeper_chunks(kb)
    numbers = [n for n in (1, 2, 3, 4) if n != gone + 1]
    assert holder == (f"log-2026-01-0{numbers[0]}.md", days(*numbers[1:]))


def test_a_series_that_shrinks_below_three_stands_alone_again(make_kb: MakeKb, log: Path) -> None:
    kb = make_kb()
    kb.reindex_docs()
    for each in DAYS[:2]:
        (log / f"log-{each}.md").unlink()
    kb.reindex_docs()
    assert facts(kb) == {name: texts for name, texts in expected().items() if name > "log-2026-01-02.md"}
    assert keeper_chunks(kb) == [("log-2026-01-03.md", []), ("log-2026-01-04.md", [])]


def test_turned_off_every_document_holds_its_own(make_kb: MakeKb, log: Path) -> None:
    make_kb().reindex_docs()
    kb = make_kb(RAG_SERIES_DEDUPE="false")
    assert kb.reindex_docs().unchanged == 4
    assert len(keeper_chunks(kb)) == 4
    assert facts(kb) == expected()


def test_a_held_removal_keeps_the_removed_text_too(make_kb: MakeKb, log: Path) -> None:
    for i in range(5, 10):
        write(log, **{f"log-2026-01-0{i}": day(f"Wind force {i}.")})
    kb = make_kb()
    kb.reindex_docs()
    before = facts(kb)
    for each in [*DAYS, "2026-01-05"]:
        (log / f"log-{each}.md").unlink()
    assert len(kb.reindex_docs().held_removals) == 5
    assert facts(kb) == before
    assert kb.reindex_docs(confirm_large_removal=True).removed == 5
    assert keeper_chunks(kb) == [("log-2026-01-06.md", days(7, 8, 9))]
