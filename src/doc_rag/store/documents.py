"""Documents and their chunks. A document is written in one transaction: wholly the old one or wholly the new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pgvector import Vector as PgVector
from psycopg.rows import class_row

from doc_rag.records import Chunk, DocumentRecord, Generation, Vectors
from doc_rag.store import repeats
from doc_rag.store.pool import Connection
from doc_rag.store.queries import on_partition, query
from doc_rag.store.repeats import NewRepeat

CHUNK_TYPES = (
    "text", "int4", "text", "int8", "text", "int4", "text", "text", "bytea",
    "vector", "int4", "int4", "int4", "int4", "int4", "int4", "text[]", "date[]",
)  # fmt: skip
ID_HASH_CHARS = 8


@dataclass(frozen=True, slots=True)
class StoredState:
    """What the store knows of a document before a run: enough to tell whether the file has changed."""

    id: int
    status: str
    skip_reason: str | None
    skip_conditions: str | None
    content_hash: bytes
    mtime_ns: int
    size_bytes: int
    series: str | None


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document's row as it is to be stored. `text` is None for a skipped one."""

    source: str
    raw_path: bytes
    status: str
    content_hash: bytes
    mtime_ns: int
    size_bytes: int
    text: str | None = None
    skip_reason: str | None = None
    skip_conditions: str | None = None
    title: str | None = None
    document_date: date | None = None
    tags: tuple[str, ...] = ()
    pages: int | None = None
    series: str | None = None


@dataclass(frozen=True, slots=True)
class NewChunks:
    """The chunks that a document holds, with their vectors: sequences of one length.

    `also_on` may be empty where no chunk held on another date. `repeats` are those of a dated series
    that earlier documents hold.
    """

    chunks: Sequence[Chunk]
    contexts: Sequence[str]
    embed_keys: Sequence[bytes]
    vectors: Vectors
    also_on: Sequence[tuple[date, ...]] = ()
    repeats: Sequence[NewRepeat] = ()

    def dates(self, i: int) -> tuple[date, ...]:
        """The other dates of chunk i."""
        return self.also_on[i] if self.also_on else ()


def states(connection: Connection, generation_id: int) -> dict[str, StoredState]:
    """Every document of a generation by its source."""
    rows = connection.execute(query("document_states"), {"generation_id": generation_id})
    return {source: StoredState(*rest) for source, *rest in rows}


def stats(connection: Connection, generation_id: int) -> dict[str, tuple[int, int]]:
    """(mtime_ns, size_bytes) of every document of a generation by its source."""
    rows = connection.execute(query("document_stats"), {"generation_id": generation_id})
    return {source: (mtime_ns, size_bytes) for source, mtime_ns, size_bytes in rows}


def chunk_id(number: int, content_hash: bytes) -> str:
    """An id that is never given out twice and carries part of its document's hash: a stale one shows."""
    return f"{number:x}-{content_hash.hex()[:ID_HASH_CHARS]}"


def replace(
    connection: Connection, generation: Generation, document: NewDocument, new: NewChunks | None
) -> None:
    """Put a document's new version in place of the old, with the collection's next revision, in one transaction.

    A chunk whose text, place and context are as before keeps its row and its id: rewriting it would
    leave dead tuples in the HNSW index for nothing.
    """
    with connection.transaction():
        _release(connection, generation, document.source)
        row = connection.execute(
            query("document_upsert"), _document_row(generation, document, new)
        ).fetchone()
        assert row is not None  # an upsert with "returning" has one
        document_id = int(row[0])
        if document.text is None:
            connection.execute(query("document_text_delete"), {"document_id": document_id})
        else:
            connection.execute(
                query("document_text_upsert"), {"document_id": document_id, "text": document.text}
            )
        _replace_chunks(connection, generation, document_id, document, new)
        if new:
            repeats.add(connection, generation, document_id, new.repeats)
        if generation.state == "live":
            connection.execute(query("collection_touch"), {"collection_id": generation.collection_id})


def replace_all(
    connection: Connection, generation: Generation, versions: Sequence[tuple[NewDocument, NewChunks | None]]
) -> None:
    """`replace` several documents that share chunks, in order of date, in one transaction."""
    with connection.transaction():
        if len(versions) > 1:
            # First nobody repeats anything: then no chunk changes hands on the way, and its row can stay.
            for document, _ in versions:
                document_id = _document_id(connection, generation, document.source)
                if document_id is not None:
                    repeats.withdraw(connection, generation, document_id)
        for document, new in versions:
            replace(connection, generation, document, new)


def _document_row(generation: Generation, document: NewDocument, new: NewChunks | None) -> dict[str, Any]:
    row = {name: getattr(document, name) for name in NewDocument.__dataclass_fields__ if name != "text"}
    count = len(new.chunks) if new else 0
    return row | {"generation_id": generation.id, "tags": list(document.tags), "chunk_count": count}


def _document_id(connection: Connection, generation: Generation, source: str) -> int | None:
    row = connection.execute(
        query("document_id_of"), {"generation_id": generation.id, "source": source}
    ).fetchone()
    return int(row[0]) if row else None


def _release(connection: Connection, generation: Generation, source: str) -> None:
    document_id = _document_id(connection, generation, source)
    if document_id is not None:
        repeats.release(connection, generation, document_id, chunk_id)


def _replace_chunks(
    connection: Connection,
    generation: Generation,
    document_id: int,
    document: NewDocument,
    new: NewChunks | None,
) -> None:
    old = {
        (*place, tuple(heading_path)): (stored_id, tuple(also_on))
        for stored_id, *place, heading_path, also_on in connection.execute(
            on_partition("chunks_of_document", generation.id), {"document_id": document_id}
        )
    }
    fresh: list[int] = []
    for i, chunk in enumerate(new.chunks if new else ()):
        assert new is not None  # else there is nothing to go through
        kept = old.pop(_place(chunk, new.contexts[i], new.embed_keys[i]), None)
        if kept is None:
            fresh.append(i)
        elif kept[1] != new.dates(i):
            connection.execute(
                on_partition("chunk_also_on", generation.id), {"id": kept[0], "also_on": list(new.dates(i))}
            )
    if old:
        ids = [stored_id for stored_id, _ in old.values()]
        connection.execute(on_partition("chunks_delete_ids", generation.id), {"ids": ids})
    if new and fresh:
        _copy_chunks(connection, generation, document_id, document, new, fresh)


def _copy_chunks(
    connection: Connection,
    generation: Generation,
    document_id: int,
    document: NewDocument,
    new: NewChunks,
    positions: Sequence[int],
) -> None:
    numbers = connection.execute(query("chunk_ids_reserve"), {"count": len(positions)}).fetchall()
    with connection.cursor() as cursor, cursor.copy(on_partition("chunks_copy", generation.id)) as copy:
        copy.set_types(CHUNK_TYPES)
        for (number,), i in zip(numbers, positions, strict=True):
            chunk = new.chunks[i]
            copy.write_row(
                (
                    chunk_id(number, document.content_hash),
                    generation.id,
                    generation.collection,
                    document_id,
                    document.source,
                    chunk.index,
                    chunk.content,
                    new.contexts[i],
                    new.embed_keys[i],
                    PgVector(new.vectors[i]),
                    chunk.char_start,
                    chunk.char_end,
                    chunk.line_start,
                    chunk.line_end,
                    chunk.page_start,
                    chunk.page_end,
                    list(chunk.heading_path),
                    list(new.dates(i)),
                )
            )


def _place(chunk: Chunk, context: str, embed_key: bytes) -> tuple[Any, ...]:
    """What must be equal for a stored row to serve on, in the order of the statement `chunks_of_document`."""
    return (
        chunk.index,
        embed_key,
        chunk.content,
        context,
        chunk.char_start,
        chunk.char_end,
        chunk.line_start,
        chunk.line_end,
        chunk.page_start,
        chunk.page_end,
        chunk.heading_path,
    )


def touch(connection: Connection, document_id: int, mtime_ns: int, size_bytes: int) -> None:
    """Note a new time stamp of unchanged content, so that the staleness check has its peace."""
    connection.execute(
        query("document_touch"), {"document_id": document_id, "mtime_ns": mtime_ns, "size_bytes": size_bytes}
    )


def delete(connection: Connection, generation: Generation, source: str) -> int | None:
    """Remove a document, its text and its chunks, in one transaction; the number of chunks, None if absent."""
    with connection.transaction():
        _release(connection, generation, source)
        row = connection.execute(
            query("document_delete"), {"generation_id": generation.id, "source": source}
        ).fetchone()
        if row is None:
            return None
        connection.execute(on_partition("chunks_delete", generation.id), {"document_id": row[0]})
        connection.execute(query("collection_touch"), {"collection_id": generation.collection_id})
        return int(row[1])


def listing(
    connection: Connection, name: str | None, *, limit: int, offset: int
) -> tuple[tuple[tuple[str, DocumentRecord], ...], int]:
    """A page of (collection, document), sorted, of one collection or of all; and how many there are in all."""
    parameters = {"name": name, "limit": limit, "offset": offset}
    with connection.cursor(row_factory=class_row(_Listed)) as cursor:
        rows = cursor.execute(query("documents_list"), parameters).fetchall()
    count = connection.execute(query("documents_count"), {"name": name}).fetchone()
    return tuple((row.collection, row.record()) for row in rows), int(count[0]) if count else 0


def sources(connection: Connection, name: str) -> list[str]:
    """The name of every document of a collection."""
    return [row[0] for row in connection.execute(query("document_sources"), {"name": name})]


@dataclass(frozen=True, slots=True)
class _Listed:
    collection: str
    source: str
    status: str
    reason: str | None
    content_hash: bytes
    mtime_ns: int
    size_bytes: int
    title: str | None
    document_date: date | None
    pages: int | None
    chunk_count: int
    indexed_at: Any

    def record(self) -> DocumentRecord:
        return DocumentRecord(**{name: getattr(self, name) for name in DocumentRecord.__dataclass_fields__})
