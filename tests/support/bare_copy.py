"""Chunks copied straight into a partition: what a test or a benchmark compares an ingest with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from pgvector import Vector as PgVector
from psycopg import sql

from doc_rag.records import Vectors
from doc_rag.store.queries import partition_name

COLUMNS = {
    "id": "text", "generation_id": "int4", "collection": "text", "document_id": "int8", "source": "text",
    "chunk_index": "int4", "content": "text", "context": "text", "embed_key": "bytea", "embedding": "vector",
    "char_start": "int4", "char_end": "int4", "line_start": "int4", "line_end": "int4", "page_start": "int4",
    "page_end": "int4", "heading_path": "text[]", "also_on": "date[]",
}  # fmt: skip
"""Columns of a chunk and their types, in the order of the rows to copy."""


def copy_chunks(
    connection: psycopg.Connection[Any], generation_id: int, rows: Iterable[Sequence[Any]]
) -> None:
    """Copy rows of `COLUMNS` into a generation's partition."""
    statement = sql.SQL("copy {} ({}) from stdin (format binary)").format(
        partition_name(generation_id), sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(list(COLUMNS.values()))
        for row in rows:
            copy.write_row(row)


def fill_partition(
    connection: psycopg.Connection[Any], generation_id: int, collection: str, points: Vectors
) -> None:
    """Bare chunks with these vectors, shape (n, dims), and their HNSW index made after them; ids are row numbers."""
    name = f"doc_chunks_g{int(generation_id)}"
    connection.execute("set maintenance_work_mem = '256MB'")
    row = connection.execute(
        "select indexdef from pg_indexes where indexname = %s", [f"{name}_hnsw"]
    ).fetchone()
    assert row is not None  # every partition of at most 4,000 dimensions has one
    connection.execute(sql.SQL("drop index {}").format(sql.Identifier(f"{name}_hnsw")))
    copy_chunks(
        connection,
        generation_id,
        (
            (f"{i:05}", generation_id, collection, 1, "s", i, f"chunk {i}", "", i.to_bytes(4, "big"),
             PgVector(point), 0, 1, 1, 1, None, None, [], [])
            for i, point in enumerate(points)
        ),
    )  # fmt: skip
    connection.execute(row[0])
    connection.execute(sql.SQL("analyze {}").format(partition_name(generation_id)))
