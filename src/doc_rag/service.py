"""`KnowledgeBase`: the eight operations, with no MCP and no HTTP in sight. Synchronous and safe between threads."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from doc_rag import freshness
from doc_rag.answering import Answerer
from doc_rag.cache import QueryCache
from doc_rag.embed import make_embedder
from doc_rag.embed.base import Embedder
from doc_rag.errors import CollectionNotFound, DocRagError, DocumentNotFound, UsageError
from doc_rag.estimate import estimate
from doc_rag.generations import difference, known_dimensions, wanted_settings
from doc_rag.ingest import IngestOptions, ingest
from doc_rag.prices import price_usd
from doc_rag.records import (
    CacheStats,
    CollectionSummary,
    DocumentList,
    IngestReport,
    Progress,
    QueryAnswer,
    RemovalReport,
    Staleness,
    Status,
    UsageStats,
)
from doc_rag.render import HOW_TO_WORK, one_line
from doc_rag.setting_values import collection_name_problem
from doc_rag.settings import Settings
from doc_rag.sources import walk
from doc_rag.store import catalog, documents, usage
from doc_rag.store.pool import Database
from doc_rag.store.writing import writing
from doc_rag.usage import UsageRecorder

REMOVE_WAIT_SECONDS = 5.0
"""How long `remove_document` waits for a run that is writing the collection."""
MAX_LISTED = 10_000
MAX_SHOWN_CHARS = 200

OnProgress = Callable[[Progress], None]


def _ignore(_: Progress) -> None:
    pass


class KnowledgeBase:
    """One server's or command's view of the database: its own collection, its caches, its tally."""

    def __init__(self, settings: Settings, *, max_connections: int = 4) -> None:
        self.settings = settings
        self.database = Database(settings, max_connections=max_connections)
        self._cache = QueryCache(settings.cache_max_size, settings.cache_ttl_seconds)
        self._freshness = freshness.FreshnessCache(settings.freshness_cache_ttl_seconds)
        self._usage = UsageRecorder(self.database)
        self._answerer = Answerer(settings, self.database, self._cache, self._usage.record)

    def close(self) -> None:
        """Give back connections and the embedded server. Idempotent."""
        self.database.close()

    def __enter__(self) -> KnowledgeBase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ------------------------------------------------------------------------------

    def query_docs(
        self,
        query: str,
        *,
        top_k: int = 5,
        collection: str | None = None,
        all_collections: bool = False,
        progress: OnProgress | None = None,
    ) -> QueryAnswer:
        """The passages that answer `query`; see `Answerer.answer` for what it raises."""
        self._check_name(collection)
        return self._answerer.answer(
            query,
            top_k=top_k,
            collection=collection,
            all_collections=all_collections,
            on_progress=progress or _ignore,
        )

    def list_documents(
        self,
        *,
        collection: str | None = None,
        all_collections: bool = False,
        limit: int = 200,
        offset: int = 0,
    ) -> DocumentList:
        """A page of the documents, and for the server's own collection how far it is behind the disk.

        Raises:
            UsageError: both `collection` and `all_collections` were given.
            CollectionNotFound: with the names that exist.
        """
        if collection is not None and all_collections:
            raise UsageError("collection and all_collections exclude each other; pass one of them.")
        self._check_name(collection)
        name = None if all_collections else collection or self.settings.collection
        with self.database.snapshot() as connection:
            if name is not None:
                catalog.live_generation(connection, name)
            page, total, skipped = documents.listing(
                connection, name, limit=min(max(limit, 1), MAX_LISTED), offset=max(offset, 0)
            )
            known = {summary.name: summary for summary in catalog.summaries(connection)}
        shown = [name] if name is not None else list(known)
        own = self.settings.collection in shown
        return DocumentList(
            collections=tuple(shown),
            documents=page,
            total=total,
            skipped=skipped,
            staleness=self.staleness() if own else None,
            last_ingest_at={n: known[n].last_ingest_at if n in known else None for n in shown},
        )

    def list_collections(self) -> tuple[CollectionSummary, ...]:
        """A line for every collection, sorted by name."""
        with self.database.snapshot() as connection:
            summaries = catalog.summaries(connection)
        return tuple(self._without_returned(summary) for summary in summaries)

    def _without_returned(self, summary: CollectionSummary) -> CollectionSummary:
        """The summary without pending removals of files that have come back since the last run."""
        if summary.name != self.settings.collection or not summary.pending_removals:
            return summary
        found = self.staleness()
        if found is None:
            return summary
        return replace(summary, pending_removals=min(summary.pending_removals, len(found.removed)))

    def staleness(self) -> Staleness | None:
        """How far the server's own collection is behind its folder; None where the folder cannot be looked at."""
        try:
            return self._freshness.get(self._compare)
        except DocRagError:
            return None

    def _compare(self) -> Staleness:
        found = walk(
            self.settings.docs_dir,
            self.settings.extensions,
            max_file_bytes=self.settings.max_file_mb * 1_000_000,
        )
        with self.database.connection() as connection:
            live = catalog.live_generation(connection, self.settings.collection)
            return freshness.compare(found, documents.stats(connection, live.id))

    # --- writing ------------------------------------------------------------------------------

    def reindex_docs(
        self,
        *,
        force_rebuild: bool = False,
        confirm_large_removal: bool = False,
        wait_seconds: float = 0.0,
        progress: OnProgress | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> IngestReport:
        """Bring the server's own collection up to date with its folder; see `ingest` for what it raises."""
        options = IngestOptions(force_rebuild, confirm_large_removal, wait_seconds)
        embedder = make_embedder(self.settings, self._usage.record)
        try:
            report = ingest(
                self.database,
                self.settings,
                embedder,
                options,
                tokens_used=lambda: self._usage.tokens("embed_document"),
                on_progress=progress or _ignore,
                stopped=stopped or (lambda: False),
            )
        finally:
            self._forget()
        return self._with_cost(report, embedder)

    def estimate(
        self,
        *,
        force_rebuild: bool = False,
        confirm_large_removal: bool = False,
        progress: OnProgress | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> IngestReport:
        """What `reindex_docs` would do and cost, calling no provider and writing nothing."""
        embedder = make_embedder(self.settings, self._usage.record)
        report = estimate(
            self.database,
            self.settings,
            embedder,
            rebuild=force_rebuild,
            confirm_large_removal=confirm_large_removal,
            on_progress=progress or _ignore,
            stopped=stopped or (lambda: False),
        )
        return self._with_cost(report, embedder)

    def _with_cost(self, report: IngestReport, embedder: Embedder) -> IngestReport:
        identity = embedder.identity
        cost = price_usd(identity.provider, identity.model, report.tokens, self.settings.prices_file)
        return replace(report, cost_usd=cost)

    def remove_document(self, source: str, *, collection: str | None = None) -> RemovalReport:
        """Drop one document from the index, wherever its file is.

        Raises:
            DocumentNotFound: with near matches.
            CollectionNotFound, CollectionBusy: as their messages say.
        """
        self._check_name(collection)
        name = collection or self.settings.collection
        with self.database.connection() as connection:
            catalog.live_generation(connection, name)
            root = catalog.docs_root(connection, name)
            known = documents.sources(connection, name)
        if source not in known:
            raise DocumentNotFound(_unknown_document(source, name, known))
        with writing(self.database, name, "remove_document", wait_seconds=REMOVE_WAIT_SECONDS) as writer:
            live = catalog.live_generation(writer.connection, name)
            chunks = documents.delete(writer.connection, live, source)
            building = catalog.generation(writer.connection, name, "building")
            if building:
                documents.delete(writer.connection, building, source)
        self._forget()
        if chunks is None:
            raise DocumentNotFound(_unknown_document(source, name, known))
        return RemovalReport(name, source, chunks, _is_on_disk(root, source))

    def drop_collection(self, name: str, *, really: bool) -> CollectionSummary:
        """Drop a collection with all it has, or with `really` false only say what that is.

        Raises:
            CollectionNotFound, CollectionBusy: as their messages say.
        """
        with self.database.connection() as connection:
            found = {summary.name: summary for summary in catalog.summaries(connection)}
            if name not in found:
                raise CollectionNotFound(catalog.not_found_message(name, list(found)))
        if really:
            with writing(self.database, name, "drop_collection", wait_seconds=REMOVE_WAIT_SECONDS) as writer:
                catalog.retire_collection(writer.connection, writer.collection_id)
                catalog.drop_retired(writer.connection)
            self._forget()
        return found[name]

    def clear_cache(self) -> int:
        """Drop the cached answers and the staleness check; how many answers there were."""
        self._freshness.clear()
        return self._cache.clear()

    def _forget(self) -> None:
        """After a write: nothing that was read before may be served."""
        self._cache.clear()
        self._freshness.clear()

    # --- about itself -------------------------------------------------------------------------

    def cache_stats(self) -> CacheStats:
        return self._cache.stats()

    def usage_stats(self) -> UsageStats:
        """What providers were sent by this database's users, as their answers counted it."""
        with self.database.connection() as connection:
            tally, since = usage.rows(connection)
        return UsageStats(tally, self._cache.stats(), since)

    def _outdated(self) -> tuple[str, ...]:
        """That the settings ask for another index than the one there is, as a sentence; empty where they do not."""
        embedder = make_embedder(self.settings, self._usage.record)
        with self.database.connection() as connection:
            live = catalog.generation(connection, self.settings.collection)
        dims = known_dimensions(embedder, live)
        if live is None or dims is None:
            return ()
        wanted = wanted_settings(self.settings, embedder, dims)
        if wanted == live.settings:
            return ()
        return (f"{difference(live.settings, wanted)}. The next ingest builds a new index beside this one.",)

    def status(self) -> Status:
        """What a person wants to see at a glance; an unreachable database is an error, a missing key a problem."""
        tally = self.usage_stats().rows
        prices = self.settings.prices_file
        return Status(
            database=self.database.describe(),
            collection=self.settings.collection,
            docs_dir=str(self.settings.docs_dir),
            embedder=make_embedder(self.settings, self._usage.record).identity,
            collections=self.list_collections(),
            staleness=self.staleness(),
            usage=tally,
            costs_usd=tuple(price_usd(row.provider, row.model, row.tokens, prices) for row in tally),
            problems=self.readiness() + self._outdated(),
        )

    def readiness(self) -> tuple[str, ...]:
        """What keeps this server from answering, as sentences; empty when it can."""
        problems = []
        try:
            with self.database.connection() as connection:
                connection.execute("select 1")
        except DocRagError as error:
            problems.append(str(error))
        try:
            make_embedder(self.settings, self._usage.record).require_key()
        except DocRagError as error:
            problems.append(str(error))
        return tuple(problems)

    def instructions(self) -> str:
        """What is indexed and how to work, for a model at the start of a session; never fails."""
        try:
            summaries = self.list_collections()
        except DocRagError as error:
            return f"{HOW_TO_WORK}\n\nThe index cannot be read right now: {error}"
        if not summaries:
            return f"{HOW_TO_WORK}\n\nNothing is indexed yet: call reindex_docs() first."
        lines = [_in_words(summary, self.settings.collection) for summary in summaries[:20]]
        if len(summaries) > 20:
            lines.append(f"- and {len(summaries) - 20} more; call list_collections().")
        return f"{HOW_TO_WORK}\n\nIndexed collections:\n" + "\n".join(lines)

    @staticmethod
    def _check_name(collection: str | None) -> None:
        problem = collection_name_problem(collection) if collection is not None else None
        if problem:
            raise UsageError(f"collection {_shown(collection or '')!r}: {problem}.")


def _in_words(summary: CollectionSummary, own: str) -> str:
    when = f", last reindexed {_day(summary.last_ingest_at)}" if summary.last_ingest_at else ""
    mark = " (the default)" if summary.name == own else ""
    return f"- {summary.name}{mark}: {summary.documents} documents, {summary.chunks} chunks{when}"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M %Z}"


def _shown(name: str) -> str:
    """What was asked for, as an error repeats it: a model can pass a whole document by mistake."""
    return name if len(name) <= MAX_SHOWN_CHARS else f"{name[:MAX_SHOWN_CHARS]}..."


def _unknown_document(source: str, collection: str, known: list[str]) -> str:
    near = [one_line(name) for name in difflib.get_close_matches(source, known, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "list_documents() names those that are."
    return f'document "{one_line(_shown(source))}" is not in collection "{collection}"; {hint}'


def _is_on_disk(root: str | None, source: str) -> bool:
    if root is None:
        return False
    if os.path.isfile(root):
        return os.path.basename(root) == source
    return os.path.isfile(os.path.join(root, source))
