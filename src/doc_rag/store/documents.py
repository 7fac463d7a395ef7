"""Documents and their chunks. A document is written in one transaction: wholly the old one or wholly the new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate
from typing import Any

from pgvector import Vector as PgVector
from psycopg.rows import class_row

from doc_rag.records import Chunk, DocumentRecord, Generation, Vector, Vectors
from doc_rag.store import repeats
from doc_rag.store.pool import Connection
from doc_rag.store.queries import on_partition, query
from doc_rag.store.repeats import NewRepeat

CHUNKS_A_STATEMENT = 256
"""New chunks in one statement: what bounds its size, some 1.5 MB with 1,536 dimensions."""


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
class StoredDocument:
    """A document that is there. Its `chunks` are (id, other dates) by all in which a new chunk is compared."""

    id: int
    in_series: bool
    """It may repeat chunks of others, and others may repeat its own."""
    chunks: dict[tuple[Any, ...], tuple[str, tuple[date, ...]]]


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
    vectors: Sequence[Vector] | Vectors
    also_on: Sequence[tuple[date, ...]] = ()
    repeats: Sequence[NewRepeat] = ()

    def dates(self, i: int) -> tuple[date, ...]:
        """The other dates of chunk i."""
        return self.also_on[i] if self.also_on else ()


Version = tuple[NewDocument, NewChunks | None]
"""A document as it is to be stored; without chunks where it is skipped."""


def states(connection: Connection, generation_id: int) -> dict[str, StoredState]:
    """Every document of a generation by its source."""
    rows = connection.execute(query("document_states"), {"generation_id": generation_id})
    return {source: StoredState(*rest) for source, *rest in rows}


def unread(stored: Mapping[str, StoredState]) -> set[str]:
    """Those of the documents that could not be read, so that nothing of them is indexed."""
    return {source for source, state in stored.items() if state.status == "skipped"}


def stats(connection: Connection, generation_id: int) -> dict[str, tuple[int, int]]:
    """(mtime_ns, size_bytes) of every document of a generation by its source."""
    rows = connection.execute(query("document_stats"), {"generation_id": generation_id})
    return {source: (mtime_ns, size_bytes) for source, mtime_ns, size_bytes in rows}


def stored(
    connection: Connection, generation: Generation, sources: Sequence[str]
) -> dict[str, StoredDocument]:
    """Those of the documents `sources` that are there, with the chunks that they hold."""
    found: dict[str, StoredDocument] = {}
    for source, document_id, in_series, chunk_id, also_on, *place, heading_path in connection.execute(
        on_partition("documents_stored", generation.id),
        {"generation_id": generation.id, "sources": list(sources)},
    ):
        document = found.setdefault(source, StoredDocument(document_id, in_series, {}))
        if chunk_id is not None:
            document.chunks[(*place, tuple(heading_path))] = (chunk_id, tuple(also_on))
    return found


def replace(
    connection: Connection, generation: Generation, document: NewDocument, new: NewChunks | None
) -> None:
    """Put a document's new version in place of the old, with the collection's next revision, in one transaction.

    A chunk whose text, place and context are as before keeps its row and its id: rewriting it would
    leave dead tuples in the HNSW index for nothing.
    """
    replace_together(connection, generation, [(document, new)])


def replace_together(connection: Connection, generation: Generation, versions: Sequence[Version]) -> None:
    """`replace` several documents that share chunks, in order of date, in one transaction."""
    known = stored(connection, generation, [document.source for document, _ in versions])
    with connection.transaction():
        _replace(connection, generation, versions, known)


def replace_each(
    connection: Connection,
    generation: Generation,
    units: Sequence[Sequence[Version]],
    known: Mapping[str, StoredDocument],
) -> None:
    """`replace_together` each unit, a transaction each, without waiting for the one before: one round trip in all.

    `known` is what `stored` gave for all of them, under the write lock.

    Raises:
        psycopg.Error, UnicodeEncodeError: a unit was refused. Those before it are stored, no others.
    """
    try:
        with connection.pipeline():
            for versions in units:
                # Statements of our own: `connection.transaction()` would wait for each commit.
                connection.execute("begin")
                _replace(connection, generation, versions, known)
                connection.execute("commit")
    except BaseException:
        if not connection.broken:
            connection.rollback()
        raise


def _replace(
    connection: Connection,
    generation: Generation,
    versions: Sequence[Version],
    known: Mapping[str, StoredDocument],
) -> None:
    sources = [document.source for document, _ in versions]
    before = [known[source] for source in sources if source in known]
    shares = any(document.series for document, _ in versions) or any(old.in_series for old in before)
    if shares:
        # First nobody repeats anything: then no chunk changes hands on the way, and its row can stay.
        repeats.release(connection, generation, [old.id for old in before])
        known = stored(connection, generation, sources)
    for document, new in versions:
        _write(connection, generation, document, new, known.get(document.source))
        if new and new.repeats:
            repeats.add(connection, generation, document.source, new.repeats)


def _write(
    connection: Connection,
    generation: Generation,
    document: NewDocument,
    new: NewChunks | None,
    old: StoredDocument | None,
) -> None:
    """Send the statements that store a version: for most it is one, and its answer is not waited for."""
    fresh, stale, redated = _compared(new, old)
    row = {name: getattr(document, name) for name in NewDocument.__dataclass_fields__} | {
        "generation_id": generation.id,
        "collection_id": generation.collection_id,
        "collection": generation.collection,
        "tags": list(document.tags),
        "chunk_count": len(new.chunks) if new else 0,
        "stored_id": old.id if old else None,
        "stale": stale,
    }
    for start in range(0, max(1, len(fresh)), CHUNKS_A_STATEMENT):
        name = "chunks_add" if start else "document_store"
        parameters = row | chunk_rows(new, fresh[start : start + CHUNKS_A_STATEMENT])
        sent = connection.execute(on_partition(name, generation.id), parameters)
        if start:
            sent.fetchone()  # waits, so that no long document is in the connection's buffer as a whole
    for chunk_id, also_on in redated:
        connection.execute(
            on_partition("chunk_also_on", generation.id), {"id": chunk_id, "also_on": list(also_on)}
        )


def _compared(
    new: NewChunks | None, old: StoredDocument | None
) -> tuple[list[int], list[str], list[tuple[str, tuple[date, ...]]]]:
    """Positions of the new chunks that are not stored, ids of the stored that hold no more, and other dates by id."""
    left = dict(old.chunks) if old else {}
    fresh: list[int] = []
    redated: list[tuple[str, tuple[date, ...]]] = []
    for i, chunk in enumerate(new.chunks if new else ()):
        assert new is not None  # else there is nothing to go through
        kept = left.pop(_place(chunk, new.contexts[i], new.embed_keys[i]), None)
        if kept is None:
            fresh.append(i)
        elif kept[1] != new.dates(i):
            redated.append((kept[0], new.dates(i)))
    return fresh, [chunk_id for chunk_id, _ in left.values()], redated


def chunk_rows(new: NewChunks | None, positions: Sequence[int]) -> dict[str, Any]:
    """The chunks at `positions` as the parameters of the entry `chunk_rows` of the statements."""
    chunks = [new.chunks[i] for i in positions] if new else []
    dates = [new.dates(i) for i in positions] if new else []
    headings_to = list(accumulate(len(chunk.heading_path) for chunk in chunks))
    dates_to = list(accumulate(map(len, dates)))
    return {
        "chunk_indexes": [chunk.index for chunk in chunks],
        "contents": [chunk.content for chunk in chunks],
        "contexts": [new.contexts[i] for i in positions] if new else [],
        "embed_keys": [new.embed_keys[i] for i in positions] if new else [],
        "embeddings": [PgVector(new.vectors[i]) for i in positions] if new else [],
        "char_starts": [chunk.char_start for chunk in chunks],
        "char_ends": [chunk.char_end for chunk in chunks],
        "line_starts": [chunk.line_start for chunk in chunks],
        "line_ends": [chunk.line_end for chunk in chunks],
        "page_starts": [chunk.page_start for chunk in chunks],
        "page_ends": [chunk.page_end for chunk in chunks],
        "headings": [heading for chunk in chunks for heading in chunk.heading_path],
        "headings_from": [end - len(c.heading_path) + 1 for c, end in zip(chunks, headings_to, strict=True)],
        "headings_to": headings_to,
        "dates": [day for days in dates for day in days],
        "dates_from": [end - len(days) + 1 for days, end in zip(dates, dates_to, strict=True)],
        "dates_to": dates_to,
    }


def _place(chunk: Chunk, context: str, embed_key: bytes) -> tuple[Any, ...]:
    """What must be equal for a stored row to serve on, in the order of the statement `documents_stored`."""
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


def touch(connection: Connection, touched: Sequence[tuple[int, int, int]]) -> None:
    """Note new time stamps of unchanged content, (document id, mtime_ns, size_bytes) each, so that it is not stale."""
    ids, mtimes_ns, sizes_bytes = (list(column) for column in zip(*touched, strict=True))
    parameters = {"ids": ids, "mtimes_ns": mtimes_ns, "sizes_bytes": sizes_bytes}
    connection.execute(query("documents_touch"), parameters)


def delete(connection: Connection, generation: Generation, source: str) -> int | None:
    """Remove a document, its text and its chunks, in one transaction; the number of chunks, None if absent."""
    parameters = {
        "generation_id": generation.id,
        "collection_id": generation.collection_id,
        "source": source,
    }
    known = connection.execute(query("document_in"), parameters).fetchone()
    if known is None:
        return None
    document_id, in_series = known
    with connection.transaction():
        if in_series:
            repeats.release(connection, generation, [document_id])
        row = connection.execute(on_partition("document_delete", generation.id), parameters).fetchone()
    return int(row[0]) if row else None


def listing(
    connection: Connection, name: str | None, *, limit: int, offset: int
) -> tuple[tuple[tuple[str, DocumentRecord], ...], int, int]:
    """A page of (collection, document), sorted, of one collection or of all; how many in all, and how many skipped."""
    parameters = {"name": name, "limit": limit, "offset": offset}
    with connection.cursor(row_factory=class_row(_Listed)) as cursor:
        rows = cursor.execute(query("documents_list"), parameters).fetchall()
    total, skipped = connection.execute(query("documents_count"), {"name": name}).fetchone() or (0, 0)
    return tuple((row.collection, row.record()) for row in rows), int(total), int(skipped)


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
