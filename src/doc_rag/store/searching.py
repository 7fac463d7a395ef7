"""Ranked lists of chunk ids by vector or by text in one generation, and the rows behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgvector import Vector as PgVector
from psycopg import sql
from psycopg.rows import dict_row

from doc_rag.records import Generation, Hit, Vector
from doc_rag.store.pool import Connection
from doc_rag.store.queries import on_partition, partition_name, query
from doc_rag.store.schema import MAX_INDEXED_DIMS

MAX_EF_SEARCH = 1_000
"""pgvector's limit on hnsw.ef_search."""
MIN_EF_SEARCH = 100
"""At 100 the recall@10 of 20,000 text embeddings was 0.99 and more; benchmarks/ has the table."""
RESCORED_PER_HIT = 4
"""Half precision moves near-ties: this many times the limit are rescored on the full vector."""

TEXT_BUDGET_CHUNKS = 2_000
"""A text search scores about this many chunks at most, those with the query's rarest terms. Scoring all of them
changed no figure on three labelled sets; benchmarks/ has the table."""

Ranked = list[tuple[str, float]]
"""(chunk id, score), best first."""


def by_vector(connection: Connection, generation: Generation, vector: Vector, limit: int) -> Ranked:
    """The `limit` nearest chunks by cosine similarity, in a transaction of the caller's."""
    if generation.settings.dims > MAX_INDEXED_DIMS:
        parameters = {"vector": PgVector(vector), "limit": limit}
        rows = connection.execute(on_partition("search_vector_exact", generation.id), parameters)
        return [(chunk_id, float(score)) for chunk_id, score in rows]
    # Planned for this limit each time: a generic plan would not know that the limit is small.
    rows = connection.execute(*_indexed_search(connection, generation, vector, limit), prepare=False)
    return [(chunk_id, float(score)) for chunk_id, score in rows]


def explain_vector(connection: Connection, generation: Generation, vector: Vector, limit: int) -> str:
    """The plan of the search that `by_vector` does, for whoever wonders whether it uses the index."""
    statement, parameters = _indexed_search(connection, generation, vector, limit)
    rows = connection.execute(sql.SQL("explain {}").format(statement), parameters)
    return "\n".join(line for (line,) in rows)


def _indexed_search(
    connection: Connection, generation: Generation, vector: Vector, limit: int
) -> tuple[sql.Composed, dict[str, Any]]:
    candidates = limit * RESCORED_PER_HIT
    ef_search = min(max(candidates, MIN_EF_SEARCH), MAX_EF_SEARCH)
    connection.execute(query("search_settings"), {"ef_search": str(ef_search)})
    statement = query("search_vector").format(
        partition=partition_name(generation.id), dims=sql.Literal(generation.settings.dims)
    )
    return statement, {"vector": PgVector(vector), "limit": limit, "candidates": candidates}


def by_text(connection: Connection, generation: Generation, text: str, limit: int) -> Ranked:
    """The `limit` best chunks that hold any term of `text` by BM25; empty where it has only stop words.

    Okapi BM25 as in Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009),
    with a chunk's length in characters, and document frequencies as of the last finished ingest.
    """
    rows = connection.execute(
        on_partition("search_text", generation.id),
        {
            "generation_id": generation.id,
            "language": generation.settings.text_language,
            "query": text,
            "budget": TEXT_BUDGET_CHUNKS,
            "limit": limit,
        },
    )
    return [(chunk_id, float(score)) for chunk_id, score in rows]


def hits(
    connection: Connection, generation: Generation, ids: Sequence[str], vector: Vector | None
) -> dict[str, Hit]:
    """The rows of `ids` by id, unranked (score 0), with the cosine score where there is a query vector."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            on_partition("chunks_by_id", generation.id),
            {"ids": list(ids), "vector": None if vector is None else PgVector(vector)},
        ).fetchall()
    return {
        row["id"]: Hit(
            chunk_id=row["id"],
            collection=generation.collection,
            source=row["source"],
            title=row["title"],
            chunk_index=row["chunk_index"],
            content=row["content"],
            heading_path=tuple(row["heading_path"]),
            char_start=row["char_start"],
            char_end=row["char_end"],
            line_start=row["line_start"],
            line_end=row["line_end"],
            page_start=row["page_start"],
            page_end=row["page_end"],
            score=0.0,
            score_kind="",
            cosine_score=row["cosine_score"],
            also_on=tuple(row["also_on"]),
        )
        for row in rows
    }


def text_between(connection: Connection, generation: Generation, source: str, start: int, end: int) -> str:
    """A document's text from one character offset to another."""
    row = connection.execute(
        query("text_span"),
        {"generation_id": generation.id, "source": source, "start": start, "length": end - start},
    ).fetchone()
    return str(row[0]) if row else ""
