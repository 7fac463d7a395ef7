"""States that only a run cut off at one point leaves, or another process in one moment: each is survived."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from doc_rag import ahead, prepare, storing
from doc_rag.chunk import chunk_document
from doc_rag.embed.base import Stopped
from doc_rag.errors import DatabaseUnavailable, IngestFailed
from doc_rag.prepare import Prepared
from doc_rag.records import Chunk, EmbeddedBatch, Extracted, ModelIdentity, Progress, Vector
from doc_rag.service import KnowledgeBase
from doc_rag.store import catalog, embeddings
from doc_rag.store.documents import NewDocument
from doc_rag.store.pool import Database
from doc_rag.store.writing import writing
from tests.conftest import MakeSettings
from tests.ingest_safety.corpus import WORDS
from tests.service.conftest import MakeKb, write
from tests.support.corpora import SETTINGS, add_document, make_collection
from tests.support.vectors import clustered


@pytest.fixture
def database(make_settings: MakeSettings) -> Iterator[Database]:
    database = Database(make_settings(), max_connections=8)
    yield database
    database.close()


def _rebuilt(database: Database, name: str) -> None:
    """Retire the collection's generation and make another live."""
    with writing(database, name, "test") as writer:
        new = catalog.begin_generation(writer.connection, name, writer.collection_id, SETTINGS, forced=True)
        catalog.make_live(writer.connection, new.id, writer.collection_id)


def _retired(connection: psycopg.Connection[Any]) -> list[Any]:
    return connection.execute("select id from generations where state = 'retired' order by id").fetchall()


def test_a_partition_detached_half_way_bars_no_other(database: Database) -> None:
    """The reader of one keeps it half detached; those that are retired later, under lower ids, still go."""
    first, second = (make_collection(database, name) for name in ("first", "second"))
    add_document(database, second, "a.md", ["one"])
    with database.connect() as connection, database.connection() as other:
        _rebuilt(database, "second")
        with database.snapshot() as reader:
            reader.execute("select count(*) from doc_chunks")
            catalog.drop_retired(connection)
            assert _retired(other) == [(second.id,)]
            _rebuilt(database, "first")
            catalog.drop_retired(connection)
            assert _retired(other) == [(first.id,), (second.id,)]
        catalog.drop_retired(connection)
        assert _retired(other) == []
        left = other.execute(
            "select count(*) from pg_class where relname ~ '^doc_chunks_g[0-9]+$'"
        ).fetchone()
        assert left == (2,)


def test_processes_that_drop_at_once_are_not_in_each_others_way(database: Database) -> None:
    for i in range(6):
        make_collection(database, f"c{i}")
        _rebuilt(database, f"c{i}")
    failures: list[BaseException] = []

    def drop() -> None:
        with database.connect() as connection:
            try:
                catalog.drop_retired(connection)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the test's failure
                failures.append(error)

    droppers = [threading.Thread(target=drop) for _ in range(4)]
    for dropper in droppers:
        dropper.start()
    for dropper in droppers:
        dropper.join(30)
    assert failures == []
    with database.connection() as connection:
        catalog.drop_retired(connection)
        assert _retired(connection) == []


def test_runs_that_stage_the_same_texts_do_not_wait_for_each_other(database: Database) -> None:
    """Two runs stage and forget the same keys in opposite orders, again and again."""
    keys = [bytes([i]) * 32 for i in range(200)]
    vectors = clustered(len(keys), 8)
    failures: list[BaseException] = []

    def run(step: int) -> None:
        with database.connect() as connection:
            try:
                for _ in range(40):
                    embeddings.stage(connection, dict(zip(keys[::step], vectors[::step], strict=True)))
                    embeddings.unstage(connection, keys[::-step])
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the test's failure
                failures.append(error)

    runs = [threading.Thread(target=run, args=(step,)) for step in (1, -1, 1, -1)]
    for each in runs:
        each.start()
    for each in runs:
        each.join(60)
    assert failures == []


def test_what_another_run_is_staging_is_not_forgotten(database: Database) -> None:
    key, (vector, other) = b"k" * 32, clustered(2, 8)
    with database.connect() as one, database.connect() as two:
        embeddings.stage(one, {key: vector})
        with two.transaction():
            embeddings.stage(two, {key: other})
            embeddings.unstage(one, [key])
        count = one.execute("select count(*) from embeddings_staged").fetchone()
    assert count == (1,)


def test_totals_that_a_cut_off_run_left_behind_are_counted_by_the_next(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a="The ferry leaves at noon.", b="The lathe stands in the shed.")
    kb = make_kb()
    kb.reindex_docs()
    with kb.database.connection() as connection:
        connection.execute("update generations set chunk_count = 0, char_total = 0")
        connection.execute("delete from term_stats")
    assert kb.reindex_docs().unchanged == 2
    with kb.database.connection() as connection:
        assert connection.execute("select chunk_count, char_total > 0 from generations").fetchall() == [
            (2, True)
        ]
        assert connection.execute("select count(*) > 0 from term_stats").fetchone() == (True,)


def test_a_rebuild_that_misses_a_live_document_is_not_switched_to(
    make_kb: MakeKb,
    docs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that goes between the walk and its reading is not known to be removed: the next run sees."""
    for i, word in enumerate(WORDS):
        write(docs, **{f"{i:02}": f"About the {word}."})
    make_kb().reindex_docs()
    monkeypatch.setattr(storing, "WINDOW_DOCUMENTS", 1)
    monkeypatch.setattr(ahead, "AHEAD_FILES", 1)
    monkeypatch.setattr(ahead, "BATCH_FILES", 1)
    last = docs / f"{len(WORDS) - 1:02}.md"
    kb = make_kb(RAG_CHUNK_SIZE="400")
    report = kb.reindex_docs(progress=_once("index", last.unlink))
    assert f"the old index stays in use, because 1 of its documents ({last.name}" in str(report.rebuilt)
    assert _documents(kb) == (len(WORDS), 800)
    assert kb.reindex_docs().removed == 1
    assert _documents(kb) == (len(WORDS) - 1, 400)


def _once(stage: str, act: Callable[[], None]) -> Callable[[Progress], None]:
    done: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        if progress.stage == stage and not done:
            done.append(progress)
            act()

    return on_progress


def _documents(kb: KnowledgeBase) -> tuple[int, int]:
    (summary,) = kb.list_collections()
    return summary.documents, summary.chunk_size_chars


def test_of_two_members_of_one_day_either_may_go(make_kb: MakeKb, docs: Path) -> None:
    """The day stays among a shared chunk's dates for as long as one of them has it."""
    text = "# Log\n\n## Keeper\n\nThe keeper is Ada.\n"
    for name in ("log-2026-01-01", "log-2026-01-02", "log_2026-01-02", "log-2026-01-03"):
        write(docs, **{name: text})
    kb = make_kb()
    kb.reindex_docs()
    assert _other_days(kb) == [2, 3]
    kb.remove_document("log_2026-01-02.md")
    assert _other_days(kb) == [2, 3]
    kb.remove_document("log-2026-01-02.md")
    assert _other_days(kb) == [3]


def _other_days(kb: KnowledgeBase) -> list[int]:
    with kb.database.connection() as connection:
        (days,) = connection.execute("select also_on from doc_chunks").fetchall()
    return [day.day for day in days[0]]


def test_a_date_behind_more_digits_makes_no_series(make_kb: MakeKb, docs: Path) -> None:
    for day in (1, 2, 3):
        write(docs, **{f"part12026-01-0{day}": f"About the {WORDS[day]}."})
    assert make_kb().reindex_docs().new == 3


def test_a_file_from_beyond_the_year_2262_is_indexed_and_not_stale(make_kb: MakeKb, docs: Path) -> None:
    write(docs, a="The ferry leaves at noon.")
    kb = make_kb(RAG_FRESHNESS_CACHE_TTL_SECONDS="0")
    kb.reindex_docs()
    try:
        os.utime(docs / "a.md", ns=(0, 2**63 + 10**9))
    except OverflowError:
        pytest.skip("this file system knows no such year")
    if (docs / "a.md").stat().st_mtime_ns < 2**63:
        pytest.skip("this file system knows no such year")
    assert kb.reindex_docs().unchanged == 1
    staleness = kb.staleness()
    assert staleness is not None and not staleness.is_stale


@pytest.mark.parametrize(
    ("pages", "title", "reason"),
    [(2**40, None, "out of range"), (None, "a\0b", "NUL"), (None, "a\ud800b", "surrogates not allowed")],
)
def test_a_document_that_postgres_refuses_costs_itself_and_none_of_its_window(
    database: Database, pages: int | None, title: str | None, reason: str
) -> None:
    generation = make_collection(database, "c")
    stored: list[str] = []
    refused: list[str] = []
    with writing(database, "c", "test") as writer:
        window = storing.Storing(
            writer.connection,
            generation,
            _OneVector(),
            lambda: False,
            lambda prepared: stored.append(prepared.source),
            lambda prepared, reason: refused.append(f"{prepared.source}: {reason}"),
            lambda prepared: None,
        )
        for i in range(6):
            window.add((_prepared(f"{i}.md", *((pages, title) if i == 3 else (1, "Title"))),))
        window.flush()
        written = writer.connection.execute("select source from doc_chunks order by 1").fetchall()
    assert [name for (name,) in written] == ["0.md", "1.md", "2.md", "4.md", "5.md"]
    assert sorted(stored) == ["0.md", "1.md", "2.md", "4.md", "5.md"]
    assert [each.split(":")[0] for each in refused] == ["3.md"]
    assert reason in refused[0]


def _prepared(name: str, pages: int | None, title: str | None) -> Prepared:
    """A document of one chunk, as it comes from the disk."""
    text = f"The text of {name}."
    digest = hashlib.sha256(name.encode()).digest()
    document = NewDocument(name, name.encode(), "indexed", digest, 1, 1, text=text, pages=pages, title=title)
    return Prepared(name, document, [Chunk(0, text, 0, len(text), 1, 1)], [""], [digest])


class _OneVector:
    """Every text has the same vector, of as many dimensions as the collections of these tests."""

    identity = ModelIdentity("local", "", "test-model")
    dimensions = SETTINGS.dims
    document_prefix = ""
    max_input_tokens = 100

    def require_key(self) -> None:
        """There is none."""

    def count_tokens(self, text: str) -> int:
        return len(text)

    def resolve_dimensions(self) -> int:
        return self.dimensions

    def embed_documents(
        self, texts: Sequence[str], stopped: Stopped = lambda: False
    ) -> Generator[EmbeddedBatch, None, None]:
        yield EmbeddedBatch(tuple(range(len(texts))), np.ones((len(texts), self.dimensions), np.float32))

    def embed_query(self, text: str) -> Vector:
        return np.ones(self.dimensions, np.float32)


def test_a_file_that_a_parser_stumbles_over_costs_itself_alone(
    make_kb: MakeKb, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a parser raises. The real ones are fuzzed; here one is made to."""
    write(docs, a="The ferry leaves at noon.", b="The lathe stands in the shed.")

    def stumbling(extracted: Extracted, **options: Any) -> list[Chunk]:
        if "lathe" in extracted.text:
            raise IndexError("list index out of range")
        return chunk_document(extracted, **options)

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "chunk_document", stumbling)
        report = make_kb().reindex_docs()
    assert report.new == 1
    (skip,) = report.skips
    assert (skip.source, skip.reason) == (
        "b.md",
        "could not be taken apart: IndexError: list index out of range",
    )


def test_a_locked_table_is_said_to_be_locked(make_kb: MakeKb, docs: Path, database: Database) -> None:
    write(docs, a="The ferry leaves at noon.")
    with database.connection() as connection, connection.transaction():
        connection.execute("lock table doc_chunks in share update exclusive mode")
        with pytest.raises(IngestFailed, match="Another session keeps the table doc_chunks locked"):
            make_kb().reindex_docs()
    assert make_kb().reindex_docs().new == 1


def test_a_statement_that_is_refused_is_one_sentence(make_kb: MakeKb, docs: Path, database: Database) -> None:
    write(docs, a="The ferry leaves at noon.")
    with database.connection() as connection:
        connection.execute("alter table documents add constraint none check (false)")
    with pytest.raises(IngestFailed, match=r"refused a statement: .*check constraint .*run again") as error:
        make_kb().reindex_docs()
    assert error.value.report.failed
    with database.connection() as connection:
        connection.execute("alter table collections add constraint none check (false) not valid")
    with pytest.raises(DatabaseUnavailable, match=r"refused a statement: .*violates check constraint"):
        make_kb(RAG_COLLECTION="another").reindex_docs()
