"""From a query and its vector to ranked hits, in one snapshot of the database."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from doc_rag.errors import RerankUnavailable
from doc_rag.fusion import fuse
from doc_rag.records import Generation, Hit, Vector
from doc_rag.rerank import Reranker
from doc_rag.store import searching
from doc_rag.store.pool import Connection
from doc_rag.store.searching import Ranked

MAX_TOP_K = 100
RERANK_CANDIDATES_PER_HIT = 4
MAX_RERANK_CANDIDATES = 100
FUSED_CANDIDATES_PER_HIT = 4
MIN_FUSED_CANDIDATES = 100
"""Each side of a hybrid search brings at least this many, so that both can find what the other ranks low."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ranked hits read in one snapshot, before any reranking."""

    hits: tuple[Hit, ...]
    ranking: str


def candidates(
    connection: Connection,
    generations: Sequence[Generation],
    query: str,
    vector: Vector | None,
    *,
    limit: int,
    hybrid: bool,
) -> Candidates:
    """The best `limit` chunks of the generations: by vector, by vector and text fused, or by text alone.

    Hybrid falls back to the vector alone where no term of the query occurs, and everything falls back
    to text where there is no vector.
    """
    depth = max(limit * FUSED_CANDIDATES_PER_HIT, MIN_FUSED_CANDIDATES)
    by_text = _merged(
        (searching.by_text(connection, g, query, depth) for g in generations)
        if hybrid or vector is None
        else (),
        depth,
    )
    if vector is None:
        return Candidates(_text_hits(connection, generations, by_text[:limit]), "text")
    by_vector = _merged(
        (searching.by_vector(connection, g, vector, depth if by_text else limit) for g in generations),
        depth if by_text else limit,
    )
    if not by_text:
        return Candidates(_vector_hits(connection, generations, by_vector, vector), "vector")
    return Candidates(_fused_hits(connection, generations, by_vector, by_text, vector, limit), "hybrid")


def rerank(reranker: Reranker, query: str, found: Candidates, top_k: int) -> tuple[Hit, ...]:
    """The candidates in the reranker's order, best first, at most `top_k`.

    Raises:
        RerankUnavailable: it did not answer, or answered for a document that was not asked about.
    """
    ranked = reranker.rerank(query, [hit.content for hit in found.hits], top_k)
    if any(not 0 <= position < len(found.hits) for position, _ in ranked):
        raise RerankUnavailable("The reranker answered about a document that it was not given.")
    return tuple(
        replace(found.hits[position], score=score, score_kind="rerank", rerank_score=score)
        for position, score in ranked[:top_k]
    )


def _merged(rankings: Iterable[Ranked], limit: int) -> Ranked:
    """Several lists of comparable scores as one, best first."""
    return heapq.nsmallest(
        limit, (pair for ranking in rankings for pair in ranking), key=lambda p: (-p[1], p[0])
    )


def _hits(
    connection: Connection, generations: Sequence[Generation], ids: Sequence[str], vector: Vector | None
) -> dict[str, Hit]:
    found: dict[str, Hit] = {}
    for generation in generations:
        missing = [chunk_id for chunk_id in ids if chunk_id not in found]
        if missing:
            found.update(searching.hits(connection, generation, missing, vector))
    return found


def _vector_hits(
    connection: Connection, generations: Sequence[Generation], ranked: Ranked, vector: Vector
) -> tuple[Hit, ...]:
    rows = _hits(connection, generations, [chunk_id for chunk_id, _ in ranked], vector)
    return tuple(
        replace(rows[chunk_id], score=score, score_kind="cosine", vector_rank=rank)
        for rank, (chunk_id, score) in enumerate(ranked, start=1)
    )


def _text_hits(connection: Connection, generations: Sequence[Generation], ranked: Ranked) -> tuple[Hit, ...]:
    rows = _hits(connection, generations, [chunk_id for chunk_id, _ in ranked], None)
    return tuple(
        replace(rows[chunk_id], score=score, score_kind="text", text_rank=rank)
        for rank, (chunk_id, score) in enumerate(ranked, start=1)
    )


def _fused_hits(
    connection: Connection,
    generations: Sequence[Generation],
    by_vector: Ranked,
    by_text: Ranked,
    vector: Vector,
    limit: int,
) -> tuple[Hit, ...]:
    fused = fuse([[chunk_id for chunk_id, _ in by_vector], [chunk_id for chunk_id, _ in by_text]])[:limit]
    rows = _hits(connection, generations, [f.item for f in fused], vector)
    return tuple(
        replace(
            rows[f.item], score=f.rrf_score, score_kind="rrf", vector_rank=f.ranks[0], text_rank=f.ranks[1]
        )
        for f in fused
    )
