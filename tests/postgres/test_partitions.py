"""Partitions come and go beside open readers, and each answers through its own index."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import psycopg
import pytest

from doc_rag.errors import DocRagError
from doc_rag.store import catalog, schema, searching
from doc_rag.store.pool import Database
from doc_rag.store.writing import writing
from tests.conftest import MakeSettings
from tests.support.bare_copy import fill_partition
from tests.support.corpora import SETTINGS, add_document, make_collection
from tests.support.vectors import clustered

DEADLINE_SECONDS = 5.0


@pytest.fixture
def database(make_settings: MakeSettings) -> Iterator[Database]:
    database = Database(make_settings(), max_connections=8)
    yield database
    database.close()


def test_making_a_collection_waits_for_no_reader_and_makes_none_wait(database: Database) -> None:
    first = make_collection(database, "first")
    add_document(database, first, "a.md", ["one"])
    with database.snapshot() as reader:
        assert reader.execute("select count(*) from doc_chunks").fetchone() == (1,)
        started = time.monotonic()
        second = make_collection(database, "second")
        add_document(database, second, "b.md", ["two"])
        assert time.monotonic() - started < DEADLINE_SECONDS
        assert reader.execute("select count(*) from doc_chunks").fetchone() == (1,)
    with database.connection() as other:
        assert other.execute("select count(*) from doc_chunks").fetchone() == (2,)


def test_dropping_a_generation_lets_new_readers_pass_while_an_old_one_is_open(database: Database) -> None:
    old = make_collection(database, "c")
    add_document(database, old, "a.md", ["one"])
    other = make_collection(database, "other")
    add_document(database, other, "b.md", ["two"])
    with writing(database, "c", "test") as writer:
        new = catalog.begin_generation(writer.connection, "c", writer.collection_id, SETTINGS, forced=True)
        catalog.make_live(writer.connection, new.id, writer.collection_id)
        with database.snapshot() as reader:
            reader.execute("select count(*) from doc_chunks")
            dropping = threading.Thread(target=catalog.drop_retired, args=(writer.connection,))
            dropping.start()
            while dropping.is_alive():
                with database.snapshot() as newcomer:
                    newcomer.execute("set local statement_timeout = '2s'")
                    seen = newcomer.execute("select source from doc_chunks order by 1").fetchall()
                    assert seen in ([("a.md",), ("b.md",)], [("b.md",)])  # the first until the detach begins
                    assert len(searching.by_text(newcomer, other, "two", 5)) == 1
                dropping.join(0.1)
            with database.snapshot() as newcomer:
                assert newcomer.execute("select source from doc_chunks").fetchall() == [("b.md",)]
        catalog.drop_retired(writer.connection)
    with database.connection() as connection:
        assert connection.execute("select to_regclass(%s)", [f"doc_chunks_g{old.id}"]).fetchone() == (None,)
        assert connection.execute("select count(*) from generations").fetchone() == (2,)


def test_a_half_made_partition_is_made_anew(database: Database) -> None:
    with writing(database, "c", "test") as writer:
        connection = writer.connection
        connection.execute("create table doc_chunks_g77 (like doc_chunks)")
        schema.make_partition(connection, 77, 8, "english")
        schema.make_partition(connection, 77, 8, "english")
        columns = connection.execute("select count(*) from doc_chunks_g77").fetchone()
        assert columns == (0,)


def test_a_partition_takes_vectors_of_its_dimension_only_and_no_zero(database: Database) -> None:
    generation = make_collection(database, "c")
    for bad in (np.ones((1, 7), np.float32), np.zeros((1, 8), np.float32)):
        with pytest.raises(psycopg.errors.CheckViolation):
            add_document(database, generation, "a.md", ["one"], bad)
    with database.connection() as connection:
        assert connection.execute("select count(*) from documents").fetchone() == (0,), "all or nothing"


def test_another_text_language_has_its_own_stemming(database: Database) -> None:
    german = make_collection(database, "german", replace(SETTINGS, text_language="german"))
    add_document(database, german, "a.md", ["Die Häuser am Fluss", "The houses"])
    with database.snapshot() as connection:
        assert len(searching.by_text(connection, german, "Haus", 5)) == 1
    with pytest.raises(DocRagError, match="RAG_TEXT_LANGUAGE=klingon"):
        make_collection(database, "other", replace(SETTINGS, text_language="klingon"))


def test_dimensions_beyond_any_index_are_searched_exactly(database: Database) -> None:
    wide = make_collection(database, "wide", replace(SETTINGS, dims=4_096))
    vectors = clustered(20, 4_096, clusters=4)
    add_document(database, wide, "a.md", [f"chunk {i}" for i in range(20)], vectors)
    with database.snapshot() as connection:
        found = searching.by_vector(connection, wide, vectors[3], 10)
    assert len(found) == 10
    assert found[0][1] == pytest.approx(1.0, abs=1e-6)


COLLECTION_CHUNKS = 20_000
DIMS = 384
QUERIES = 50


def test_a_large_collection_is_searched_by_its_index_beside_fifty_others(database: Database) -> None:
    """Recall@10 of 20,000 chunks against an exact scan, and the plan that gives it."""
    settings = replace(SETTINGS, dims=DIMS)
    for i in range(50):
        small = make_collection(database, f"small {i}", settings)
        add_document(database, small, "s.md", ["x"] * 10, clustered(10, DIMS, seed=i + 1))
    large = make_collection(database, "large", settings)
    points = clustered(COLLECTION_CHUNKS + QUERIES, DIMS)
    with database.connection() as connection:
        fill_partition(connection, large.id, "large", points[:COLLECTION_CHUNKS])
    hits = 0
    with database.snapshot() as connection:
        for query in points[COLLECTION_CHUNKS:]:
            found = searching.by_vector(connection, large, query, 10)
            assert len(found) == 10
            exact = np.argsort(-(points[:COLLECTION_CHUNKS] @ query), kind="stable")[:10]
            hits += len({chunk_id for chunk_id, _ in found} & {f"{i:05}" for i in exact})
        plan = searching.explain_vector(connection, large, points[-1], 10)
    recall = hits / (10 * QUERIES)
    print(f"recall@10 = {recall:.3f}")
    assert recall >= 0.98
    assert f"doc_chunks_g{large.id}_hnsw" in plan
    assert "Seq Scan" not in plan


def test_a_small_collection_gives_all_it_has_whatever_else_there_is(database: Database) -> None:
    settings = replace(SETTINGS, dims=DIMS)
    large = make_collection(database, "large", settings)
    small = make_collection(database, "small", settings)
    points = clustered(2_010, DIMS)
    add_document(database, large, "l.md", [f"l {i}" for i in range(2_000)], points[:2_000])
    add_document(database, small, "s.md", [f"s {i}" for i in range(10)], points[2_000:])
    with database.snapshot() as connection:
        assert len(searching.by_vector(connection, small, points[0], 10)) == 10
        assert len(searching.by_vector(connection, large, points[0], 400)) == 400
