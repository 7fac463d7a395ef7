"""`query_docs`: clamp, look in the cache, embed, search, rerank, join.

Where a provider fails it falls back to the next ranking, and the answer says so.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from doc_rag import passages, search
from doc_rag.cache import QueryCache
from doc_rag.embed import make_embedder
from doc_rag.embed.base import Embedder, RecordUsage
from doc_rag.errors import (
    CollectionNotFound,
    DimensionMismatch,
    DocRagError,
    EmbeddingError,
    MissingKeyError,
    RerankUnavailable,
    SettingsError,
    UsageError,
)
from doc_rag.records import Generation, GenerationSettings, Hit, Progress, QueryAnswer, Vector
from doc_rag.rerank import Reranker, make_reranker
from doc_rag.settings import Settings
from doc_rag.store import catalog, searching
from doc_rag.store.pool import Connection, Database, SnapshotGone

MAX_QUERY_CHARS = 8_000
SNAPSHOT_TRIES = 3
"""How often a query starts again because a rebuild with another model was switched to under it."""

OnProgress = Callable[[Progress], None]
Model = tuple[str, str, str, int]
"""Provider, endpoint, model and dimension: vectors of one are comparable."""
Gap = tuple[str, str, int, int]
"""Collection, source, and the characters from and to."""


@dataclass(frozen=True, slots=True)
class Request:
    """A query after clamping. `collection` is None for all of them."""

    query: str
    top_k: int
    collection: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What one snapshot of the database holds for a request."""

    candidates: search.Candidates
    generations: list[Generation]
    revisions: dict[str, int]
    gaps: dict[Gap, str]


class Answerer:
    """Answers queries against one database. Safe between threads."""

    def __init__(
        self, settings: Settings, database: Database, cache: QueryCache, record_usage: RecordUsage
    ) -> None:
        self._settings = settings
        self._database = database
        self._cache = cache
        self._record_usage = record_usage
        self._embedders: dict[GenerationSettings, Embedder] = {}
        self._lock = threading.Lock()

    def answer(
        self,
        query: str,
        *,
        top_k: int,
        collection: str | None,
        all_collections: bool,
        on_progress: OnProgress = lambda _: None,
    ) -> QueryAnswer:
        """The passages that answer `query`.

        Raises:
            UsageError: the query is empty, or both `collection` and `all_collections` were given.
            CollectionNotFound: with the names that exist.
            DatabaseUnavailable, SettingsError: as their messages say.
        """
        request = self._clamped(query, top_k, collection, all_collections)
        key = self._cache_key(request)
        with self._database.connection() as connection:
            revisions = _revisions(connection, request.collection)
        if kept := self._cache.get(key, revisions):
            return replace(kept, cached=True, notes=request.notes + kept.notes)
        reranker = make_reranker(self._settings, self._record_usage)
        on_progress(Progress("embed", 0, None, "embedding the query"))
        answer, is_whole = self._search(request, reranker, on_progress)
        if is_whole:
            self._cache.put(key, answer)
        return replace(answer, notes=request.notes + answer.notes)

    def _clamped(self, query: str, top_k: int, collection: str | None, all_collections: bool) -> Request:
        if collection is not None and all_collections:
            raise UsageError("collection and all_collections exclude each other; pass one of them.")
        text = " ".join(unicodedata.normalize("NFC", query.replace("\x00", " ")).split())
        text = text.encode("utf-8", "replace").decode("utf-8")
        if not text:
            raise UsageError("query is empty; pass the question or the words to look for.")
        notes = []
        if len(text) > MAX_QUERY_CHARS:
            notes.append(f"query was cut from {len(text)} to {MAX_QUERY_CHARS} characters.")
            text = text[:MAX_QUERY_CHARS]
        clamped = min(max(top_k, 1), search.MAX_TOP_K)
        if clamped != top_k:
            notes.append(f"top_k={top_k} is outside 1 to {search.MAX_TOP_K}; {clamped} was used.")
        name = (
            None if all_collections else collection if collection is not None else self._settings.collection
        )
        return Request(text, clamped, name, tuple(notes))

    def _cache_key(self, request: Request) -> Hashable:
        ranking = (self._settings.hybrid_search, self._settings.rerank_model)
        return (request.query, request.top_k, request.collection, ranking)

    def _search(
        self, request: Request, reranker: Reranker | None, on_progress: OnProgress
    ) -> tuple[QueryAnswer, bool]:
        """The answer, and whether it is what the settings ask for (a fallback's answer is not kept)."""
        limit = request.top_k
        if reranker:
            limit = min(request.top_k * search.RERANK_CANDIDATES_PER_HIT, search.MAX_RERANK_CANDIDATES)
        for _ in range(SNAPSHOT_TRIES):
            with self._database.connection() as connection:
                generations = self._generations(connection, request.collection)
            vector, embed_note = self._embed(request.query, generations)
            hybrid = self._settings.hybrid_search and reranker is None
            found = self._read(request, vector, _models(generations), limit, hybrid=hybrid)
            if found is not None:
                break
        else:
            raise DocRagError("The collection was rebuilt several times during the query; ask again.")
        notes = [embed_note] if embed_note else []
        hits, ranking = found.candidates.hits[: request.top_k], found.candidates.ranking
        if reranker and found.candidates.hits:
            try:
                hits = search.rerank(reranker, request.query, found.candidates, request.top_k)
                ranking = "rerank"
            except RerankUnavailable as error:
                found = self._without_reranker(request, vector, found)
                hits, ranking = found.candidates.hits[: request.top_k], found.candidates.ranking
                notes.append(f"{error} The passages are ranked by {ranking} search instead.")
        answer = _rendered(request, found, hits, ranking, on_progress)
        return replace(answer, notes=tuple(notes)), not notes

    def _read(
        self, request: Request, vector: Vector | None, models: set[Model], limit: int, *, hybrid: bool
    ) -> Found | None:
        """All that an answer is made of, from one snapshot; None where a rebuild got in its way."""
        try:
            with self._database.snapshot() as connection:
                generations = self._generations(connection, request.collection)
                if _models(generations) != models:
                    return None
                candidates = search.candidates(
                    connection, generations, request.query, vector, limit=limit, hybrid=hybrid
                )
                revisions = _revisions(connection, request.collection)
                return Found(candidates, generations, revisions, _gaps(connection, generations, candidates))
        except SnapshotGone:
            return None

    def _without_reranker(self, request: Request, vector: Vector | None, found: Found) -> Found:
        """The next ranking: hybrid where that is on, else what the candidates already are."""
        if not self._settings.hybrid_search:
            return found
        again = self._read(request, vector, _models(found.generations), request.top_k, hybrid=True)
        return again or found

    def _generations(self, connection: Connection, collection: str | None) -> list[Generation]:
        if collection is not None:
            return [catalog.live_generation(connection, collection)]
        generations = catalog.live_generations(connection)
        if not generations:
            raise CollectionNotFound("no collection is indexed; run reindex_docs() or make ingest first.")
        if len(_models(generations)) > 1:
            lines = "; ".join(f"{g.collection}: {_model_in_words(g)}" for g in generations)
            raise UsageError(
                "all_collections needs collections of one provider, endpoint, model and dimension, since other "
                f"vectors cannot be compared. They differ: {lines}. Pass collection instead."
            )
        return generations

    def _embed(self, query: str, generations: list[Generation]) -> tuple[Vector | None, str | None]:
        """The query's vector by the model that the chunks were embedded with, or why there is none."""
        try:
            vector = self._embedder(generations[0].settings).embed_query(query)
        except (MissingKeyError, EmbeddingError, SettingsError) as error:
            if isinstance(error, DimensionMismatch):
                raise
            return None, f"{error} Until then the passages are ranked by full text alone."
        return vector, None

    def _embedder(self, like: GenerationSettings) -> Embedder:
        with self._lock:
            if like not in self._embedders:
                self._embedders[like] = make_embedder(self._settings, self._record_usage, like=like)
            return self._embedders[like]


def _gaps(
    connection: Connection, generations: list[Generation], candidates: search.Candidates
) -> dict[Gap, str]:
    """The text between candidates that can be joined, read while they are what the documents say."""
    by_name = {generation.collection: generation for generation in generations}
    gaps: dict[Gap, str] = {}

    def text_between(hit: Hit, start: int, end: int) -> str:
        text = searching.text_between(connection, by_name[hit.collection], hit.source, start, end)
        return gaps.setdefault((hit.collection, hit.source, start, end), text)

    passages.join(candidates.hits, text_between)
    return gaps


def _rendered(
    request: Request, found: Found, hits: tuple[Hit, ...], ranking: str, on_progress: OnProgress
) -> QueryAnswer:
    # Whichever of the candidates are left: of two neighbours each, the gap is the same.
    joined = passages.join(hits, lambda hit, start, end: found.gaps[hit.collection, hit.source, start, end])
    for passage in joined:
        on_progress(Progress("passage", passage.rank, len(joined), passage.source))
    names = sorted(generation.collection for generation in found.generations)
    return QueryAnswer(
        query=request.query,
        collections=tuple(names),
        revisions=found.revisions,
        ranking=ranking,
        passages=joined,
        chunk_count=len(hits),
        empty_reason=None if hits else _why_empty(ranking, names),
    )


def _revisions(connection: Connection, collection: str | None) -> dict[str, int]:
    if collection is None:
        return catalog.revisions(connection)
    number = catalog.revision(connection, collection)
    return {} if number is None else {collection: number}


def _model(generation: Generation) -> Model:
    settings = generation.settings
    return settings.provider, settings.endpoint, settings.model, settings.dims


def _models(generations: list[Generation]) -> set[Model]:
    return {_model(generation) for generation in generations}


def _model_in_words(generation: Generation) -> str:
    provider, endpoint, model, dims = _model(generation)
    return f"{provider} {model} ({dims} dimensions{', ' + endpoint if endpoint else ''})"


def _why_empty(ranking: str, names: list[str]) -> str:
    where = ", ".join(names)
    if ranking == "text":
        return f"no chunk in {where} holds any word of the query."
    return f"nothing is indexed in {where}; run reindex_docs() or make ingest."
