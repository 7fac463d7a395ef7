"""Chunks that the documents of a dated series share: who holds each, and who takes it over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psycopg.rows import dict_row

from doc_rag.records import Chunk, Generation
from doc_rag.store.pool import Connection
from doc_rag.store.queries import on_partition, query

IdFor = Callable[[int, bytes], str]
"""Makes a chunk's id from a number and its document's hash."""


@dataclass(frozen=True, slots=True)
class NewRepeat:
    """Where a document repeats a chunk, and the source and index of the chunk that stands for it."""

    chunk: Chunk
    holder: str
    holder_index: int


def withdraw(connection: Connection, generation: Generation, document_id: int) -> None:
    """Forget what a document repeats, and take its date off the chunks that stood for it."""
    parameters = {"document_id": document_id}
    connection.execute(on_partition("repeats_withdraw", generation.id), parameters)
    connection.execute(query("repeats_clear"), parameters)


def release(connection: Connection, generation: Generation, document_id: int, id_for: IdFor) -> None:
    """Let go of a document that is about to be edited or removed, in the caller's transaction.

    Chunks that later documents repeat pass to the earliest of them; the document's own date is taken
    off the chunks that it repeats.
    """
    withdraw(connection, generation, document_id)
    with connection.cursor(row_factory=dict_row) as cursor:
        heirs = cursor.execute(
            on_partition("repeats_heirs", generation.id), {"document_id": document_id}
        ).fetchall()
    for heir in heirs:
        (number,) = connection.execute(query("chunk_ids_reserve"), {"count": 1}).fetchall()[0]
        heir["new_id"] = id_for(number, heir["content_hash"])
        connection.execute(on_partition("repeats_hand_over", generation.id), heir)
        connection.execute(query("repeats_follow"), heir)
        connection.execute(query("repeats_count"), heir)


def add(
    connection: Connection, generation: Generation, document_id: int, repeats: Sequence[NewRepeat]
) -> None:
    """Note what a document repeats; the holders are stored already, in the same transaction."""
    for repeat in repeats:
        chunk = repeat.chunk
        connection.execute(
            on_partition("repeat_insert", generation.id),
            {
                "document_id": document_id,
                "generation_id": generation.id,
                "chunk_index": chunk.index,
                "char_start": chunk.char_start,
                "char_end": chunk.char_end,
                "line_start": chunk.line_start,
                "line_end": chunk.line_end,
                "page_start": chunk.page_start,
                "page_end": chunk.page_end,
                "holder": repeat.holder,
                "holder_index": repeat.holder_index,
            },
        )
