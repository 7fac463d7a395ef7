"""Ingest through the service: incremental, guarded, one transaction a document. Real files, Postgres and vectors."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path

import pytest

from doc_rag.errors import CollectionBusy, CollectionNotFound, DocRagError, DocumentNotFound, Interrupted
from doc_rag.records import IngestReport
from doc_rag.service import KnowledgeBase
from doc_rag.store.writing import writing
from tests.service.conftest import MakeKb, write


def counts(report: IngestReport) -> tuple[int, int, int, int]:
    return report.new, report.changed, report.removed, report.unchanged


def rows(kb: KnowledgeBase, statement: str) -> list[tuple[object, ...]]:
    with kb.database.connection() as connection:
        return connection.execute(statement).fetchall()


SECTIONS = "\n\n".join(
    f"# Part {i}\n\nThe {word} stands in room {i}." for i, word in enumerate(("lathe", "kiln", "loom"))
)


def test_a_second_run_embeds_nothing_and_says_so(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS, b="The ferry leaves at noon.")
    kb = make_kb()
    first = kb.reindex_docs()
    assert (counts(first), first.chunks_stored, first.texts_embedded) == ((2, 0, 0, 0), 4, 4)
    second = kb.reindex_docs()
    assert (counts(second), second.texts_embedded) == ((0, 0, 0, 2), 0)


def test_an_edit_pays_for_the_edited_passage_only_and_keeps_the_other_chunks(
    make_kb: MakeKb, docs: Path
) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    before = set(rows(kb, "select id from doc_chunks"))
    write(docs, a=SECTIONS.replace("loom", "anvil"))
    report = kb.reindex_docs()
    assert (counts(report), report.texts_embedded, report.texts_reused) == ((0, 1, 0, 0), 1, 2)
    assert len(before & set(rows(kb, "select id from doc_chunks"))) == 2


def test_a_renamed_file_and_a_second_collection_cost_nothing(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    (docs / "a.md").rename(docs / "z.md")
    renamed = kb.reindex_docs(confirm_large_removal=True)
    assert (counts(renamed), renamed.texts_embedded) == ((1, 0, 1, 0), 0)
    other = make_kb(RAG_COLLECTION="other").reindex_docs()
    assert (counts(other), other.texts_embedded) == ((1, 0, 0, 0), 0)


def test_equal_texts_of_a_run_are_embedded_once(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a="The ferry leaves at noon.", b="The ferry leaves at noon.")
    report = make_kb().reindex_docs()
    assert (report.chunks_stored, report.texts_embedded) == (2, 1)


def test_a_removed_file_loses_its_chunks_and_text(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS, b="The ferry leaves at noon.", c="Another thing.")
    kb = make_kb()
    kb.reindex_docs()
    (docs / "a.md").unlink()
    assert counts(kb.reindex_docs()) == (0, 0, 1, 2)
    assert rows(kb, "select distinct source from doc_chunks order by 1") == [("b.md",), ("c.md",)]
    assert rows(kb, "select count(*) from document_texts") == [(2,)]


def test_a_large_removal_is_held_marked_and_confirmed(make_kb: MakeKb, docs: Path) -> None:
    write(docs, **{f"d{i}": f"Document number {i}." for i in range(10)})
    kb = make_kb()
    kb.reindex_docs()
    for i in range(5):
        (docs / f"d{i}.md").unlink()
    write(docs, fresh="Something new.")
    held = kb.reindex_docs()
    assert (held.new, held.removed, len(held.held_removals)) == (1, 0, 5)
    assert kb.list_collections()[0].pending_removals == 5
    assert kb.list_collections()[0].documents == 11
    confirmed = kb.reindex_docs(confirm_large_removal=True)
    assert (confirmed.removed, confirmed.held_removals) == (5, ())
    assert kb.list_collections()[0].pending_removals == 0


def test_the_mark_goes_by_itself_when_the_files_come_back(make_kb: MakeKb, docs: Path) -> None:
    write(docs, **{f"d{i}": f"Document number {i}." for i in range(6)})
    kb = make_kb(RAG_FRESHNESS_CACHE_TTL_SECONDS="0")
    kb.reindex_docs()
    docs.rename(docs.parent / "away")
    docs.mkdir()
    assert len(kb.reindex_docs().held_removals) == 6
    docs.rmdir()
    assert kb.list_collections()[0].pending_removals == 6
    (docs.parent / "away").rename(docs)
    assert kb.list_collections()[0].pending_removals == 0, "without a run"
    assert counts(kb.reindex_docs()) == (0, 0, 0, 6)
    assert kb.list_collections()[0].pending_removals == 0


def test_a_missing_folder_is_an_error_and_drops_nothing(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a="One thing.")
    kb = make_kb()
    kb.reindex_docs()
    docs.rename(docs.parent / "away")
    with pytest.raises(DocRagError, match=r"docs.*RAG_DOCS_DIR"):
        kb.reindex_docs()
    assert kb.list_collections()[0].documents == 1


def test_a_file_that_cannot_be_read_is_named_and_the_others_go_in(make_kb: MakeKb, docs: Path) -> None:
    write(docs, good="The ferry leaves at noon.", empty="")
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7 no more of it")
    kb = make_kb()
    report = kb.reindex_docs()
    assert report.new == 1
    assert {skip.source for skip in report.skips} == {"broken.pdf", "empty.md"}
    again = kb.reindex_docs()
    assert again.unchanged == 1
    assert {skip.source for skip in again.skips} == {"broken.pdf", "empty.md"}
    listed = {document.source: document for _, document in kb.list_documents().documents}
    assert listed["broken.pdf"].status == "skipped" and listed["broken.pdf"].reason
    assert kb.staleness() is not None and not kb.staleness().is_stale  # type: ignore[union-attr]


def test_changed_chunk_settings_rebuild_everything_and_the_old_is_dropped(
    make_kb: MakeKb, docs: Path
) -> None:
    write(docs, a="First words. " * 30)
    make_kb().reindex_docs()
    kb = make_kb(RAG_CHUNK_SIZE="200", RAG_CHUNK_OVERLAP="0")
    report = kb.reindex_docs()
    assert report.rebuilt is not None and "chunk size" in report.rebuilt
    summary = kb.list_collections()[0]
    assert (summary.chunk_size_chars, summary.documents, summary.rebuilding) == (200, 1, False)
    assert rows(kb, "select state, count(*) from generations group by state") == [("live", 1)]


def test_a_rebuild_of_the_same_settings_pays_again(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    report = kb.reindex_docs(force_rebuild=True)
    assert (report.rebuilt, report.texts_embedded, report.new) == ("asked for", 3, 1)
    assert rows(kb, "select count(*) from doc_chunks") == [(3,)]


def test_a_rebuild_that_finds_the_folder_empty_keeps_the_live_index(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    (docs / "a.md").unlink()
    report = kb.reindex_docs(force_rebuild=True)
    assert report.held_removals == ("a.md",)
    assert len(kb.query_docs("kiln").passages) > 0


def test_an_interrupted_rebuild_goes_on_and_answers_from_the_old_meanwhile(
    make_kb: MakeKb, docs: Path
) -> None:
    write(docs, **{f"d{i}": f"Document number {i}." for i in range(8)})
    kb = make_kb()
    kb.reindex_docs()
    resolved = 0

    def count(progress: object) -> None:
        nonlocal resolved
        resolved = getattr(progress, "done", 0)

    from doc_rag import storing

    window, storing.WINDOW_DOCUMENTS = storing.WINDOW_DOCUMENTS, 2
    try:
        stopped = kb.reindex_docs(force_rebuild=True, progress=count, stopped=lambda: resolved >= 4)
    finally:
        storing.WINDOW_DOCUMENTS = window
    assert stopped.interrupted
    assert kb.list_collections()[0].rebuild_unfinished
    assert len(kb.query_docs("number 3", top_k=8).passages) == 8
    finished = kb.reindex_docs(force_rebuild=True)
    assert not finished.interrupted
    assert finished.texts_embedded + stopped.texts_embedded == 8
    assert "interrupted" in str(finished.rebuilt)
    assert not kb.list_collections()[0].rebuild_unfinished


def test_a_plain_run_leaves_an_interrupted_rebuild_alone(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    looks = itertools.count()  # the first is for the walk
    assert kb.reindex_docs(force_rebuild=True, stopped=lambda: next(looks) > 0).interrupted
    plain = kb.reindex_docs()
    assert (counts(plain), plain.unfinished_rebuild) == ((0, 0, 0, 1), True)
    summary = kb.list_collections()[0]
    assert (summary.rebuilding, summary.rebuild_unfinished) == (False, True), "nobody is at it"
    with writing(kb.database, "test", "ingest"):
        summary = kb.list_collections()[0]
        assert (summary.rebuilding, summary.rebuild_unfinished) == (True, False)


def test_a_second_writer_is_told_who_the_first_is(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    with (
        writing(kb.database, "test", "ingest"),
        pytest.raises(CollectionBusy, match=f"process {os.getpid()}"),
    ):
        kb.reindex_docs()


def test_a_second_writer_may_wait(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    released = threading.Event()
    holding = threading.Event()

    def hold() -> None:
        with writing(kb.database, "test", "ingest"):
            holding.set()
            released.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(10)
    threading.Timer(0.3, released.set).start()
    assert kb.reindex_docs(wait_seconds=30).new == 1
    holder.join(10)


def test_two_writers_of_two_collections_do_not_meet(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    with writing(kb.database, "elsewhere", "ingest"):
        assert kb.reindex_docs().new == 1


def test_a_dry_run_counts_and_writes_nothing(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS, b=SECTIONS, c="The ferry leaves at noon.")
    kb = make_kb()
    report = kb.estimate()
    assert (report.new, report.chunks_stored, report.texts_embedded, report.dry_run) == (3, 7, 4, True)
    assert report.tokens > 0
    assert kb.list_collections() == ()
    kb.reindex_docs()
    after = kb.estimate()
    assert (counts(after), after.texts_embedded, after.tokens) == ((0, 0, 0, 3), 0, 0)
    assert kb.estimate(force_rebuild=True).texts_embedded == 4


def test_a_dry_run_and_a_walk_can_be_stopped(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS, b=SECTIONS)
    kb = make_kb()
    with pytest.raises(Interrupted, match="documents folder"):
        kb.estimate(stopped=lambda: True)
    counted = 0

    def count(_: object) -> None:
        nonlocal counted
        counted += 1

    with pytest.raises(Interrupted, match="nothing was stored"):
        kb.estimate(progress=count, stopped=lambda: counted > 0)
    assert counted == 1


def test_touching_a_file_is_no_change(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    os.utime(docs / "a.md", ns=(1, 1))
    kb.clear_cache()
    assert kb.staleness() is not None and kb.staleness().changed == ("a.md",)  # type: ignore[union-attr]
    assert counts(kb.reindex_docs()) == (0, 0, 0, 1)
    assert kb.staleness() is not None and not kb.staleness().is_stale  # type: ignore[union-attr]


def test_staleness_is_seen_without_reading(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS, b="Another thing.")
    kb = make_kb(RAG_FRESHNESS_CACHE_TTL_SECONDS="0")
    kb.reindex_docs()
    (docs / "a.md").unlink()
    write(docs, b="Another thing, longer.", c="New.")
    found = kb.staleness()
    assert found is not None
    assert (found.new, found.changed, found.removed) == (("c.md",), ("b.md",), ("a.md",))


def test_a_single_file_is_a_collection_of_one(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS, b="Another thing.")
    kb = make_kb(RAG_DOCS_DIR=str(docs / "a.md"))
    assert kb.reindex_docs().new == 1
    assert rows(kb, "select source from documents") == [("a.md",)]


def test_remove_document_says_whether_the_file_brings_it_back(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS, b="Another thing.", c="A third.")
    kb = make_kb()
    kb.reindex_docs()
    removed = kb.remove_document("a.md")
    assert (removed.chunks, removed.still_on_disk) == (3, True)
    (docs / "b.md").unlink()
    assert kb.remove_document("b.md").still_on_disk is False
    assert rows(kb, "select source from doc_chunks") == [("c.md",)]
    with pytest.raises(DocumentNotFound, match=r"did you mean c\.md"):
        kb.remove_document("c.mdd")
    assert kb.reindex_docs().new == 1


def test_a_lost_revision_is_never_given_out_again(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    seen = kb.list_collections()[0].revision
    # As after a crash that lost this run's last commits, but not its leap, which waited for the disk.
    with kb.database.connection() as connection:
        connection.execute("select setval('revision_seq', %s)", [seen - seen % 1_000_000])
    write(docs, a=SECTIONS.replace("loom", "anvil"))
    kb.reindex_docs()
    assert kb.list_collections()[0].revision > seen


def test_a_collection_can_be_dropped_and_made_again(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a=SECTIONS)
    kb, other = make_kb(), make_kb(RAG_COLLECTION="other")
    kb.reindex_docs()
    other.reindex_docs()
    assert kb.drop_collection("other", really=False).chunks == 3
    assert len(kb.list_collections()) == 2
    assert kb.drop_collection("other", really=True).documents == 1
    assert [summary.name for summary in kb.list_collections()] == ["test"]
    assert rows(kb, "select count(*) from doc_chunks") == [(3,)]
    assert rows(kb, "select count(*) from documents") == [(1,)]
    with pytest.raises(CollectionNotFound, match="indexed collections: test"):
        kb.drop_collection("other", really=True)
    assert other.reindex_docs().new == 1


def test_two_dimensions_live_in_one_database(make_kb: MakeKb, docs: Path) -> None:
    from dataclasses import replace

    from tests.support.corpora import SETTINGS, add_document, make_collection

    write(docs, a=SECTIONS)
    kb = make_kb()
    kb.reindex_docs()
    other = make_collection(kb.database, "other", replace(SETTINGS, dims=3))
    add_document(kb.database, other, "o.md", ["other words"])
    assert [(c.name, c.dims) for c in kb.list_collections()] == [("other", 3), ("test", 384)]
    with pytest.raises(DocRagError, match=r"other: local test-model \(3 dimensions\)"):
        kb.query_docs("kiln", all_collections=True)
    assert len(kb.query_docs("kiln").passages) == 3
    by_text = kb.query_docs("words", collection="other")
    assert by_text.ranking == "text" and len(by_text.passages) == 1, (
        "no such model here: text alone, and said"
    )
    assert by_text.notes
