"""Chunks that the documents of a dated series share: who holds each, and who takes it over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from doc_rag.records import Chunk, Generation
from doc_rag.store.pool import Connection
from doc_rag.store.queries import on_partition


@dataclass(frozen=True, slots=True)
class NewRepeat:
    """Where a document repeats a chunk, and the source and index of the chunk that stands for it."""

    chunk: Chunk
    holder: str
    holder_index: int


def release(connection: Connection, generation: Generation, document_ids: Sequence[int]) -> None:
    """Let go of documents that are about to be written anew or removed, in the caller's transaction.

    They repeat nothing from then on, and their dates are taken off the chunks that they repeated. Chunks
    of theirs that other documents repeat pass to the earliest of those.
    """
    parameters = {"document_ids": list(document_ids)}
    connection.execute(on_partition("repeats_withdraw", generation.id), parameters)
    connection.execute(on_partition("repeats_hand_over", generation.id), parameters)


def add(connection: Connection, generation: Generation, source: str, repeats: Sequence[NewRepeat]) -> None:
    """Note what the document `source` repeats; it and the holders are stored already, in the same transaction."""
    chunks = [repeat.chunk for repeat in repeats]
    connection.execute(
        on_partition("repeats_add", generation.id),
        {
            "generation_id": generation.id,
            "source": source,
            "chunk_indexes": [chunk.index for chunk in chunks],
            "char_starts": [chunk.char_start for chunk in chunks],
            "char_ends": [chunk.char_end for chunk in chunks],
            "line_starts": [chunk.line_start for chunk in chunks],
            "line_ends": [chunk.line_end for chunk in chunks],
            "page_starts": [chunk.page_start for chunk in chunks],
            "page_ends": [chunk.page_end for chunk in chunks],
            "holders": [repeat.holder for repeat in repeats],
            "holder_indexes": [repeat.holder_index for repeat in repeats],
        },
    )
