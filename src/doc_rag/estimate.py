"""A dry run: what an ingest would embed, counted from the files and the index. Calls no provider, writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from doc_rag.ahead import prepare_all, preparing
from doc_rag.embed.base import Embedder, Stopped
from doc_rag.errors import Interrupted
from doc_rag.generations import difference, known_dimensions, wanted_settings
from doc_rag.plan import plan_removals
from doc_rag.prepare import Prepared
from doc_rag.records import Generation, GenerationSettings, IngestReport, Progress, Skip, Source
from doc_rag.series import series_by_source
from doc_rag.settings import Settings
from doc_rag.sources import walk
from doc_rag.store import catalog, documents, embeddings
from doc_rag.store.documents import StoredState, unread
from doc_rag.store.pool import Database
from doc_rag.storing import WINDOW_TEXTS, unique_texts

UNKNOWN_DIMS = 1
"""Stands for a dimension that only an answer would tell. No stored key has it, so every text counts as new."""
NO_GENERATION = 0
"""The id of a generation that does not exist yet."""


@dataclass(slots=True)
class _Count:
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    chunks: int = 0
    texts: int = 0
    reused: int = 0
    tokens: int = 0
    skips: list[Skip] = field(default_factory=list)
    warnings: list[Skip] = field(default_factory=list)


def estimate(
    database: Database,
    settings: Settings,
    embedder: Embedder,
    *,
    rebuild: bool = False,
    confirm_large_removal: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    stopped: Stopped = lambda: False,
) -> IngestReport:
    """The report that an ingest with these settings would give, with tokens estimated.

    Raises:
        DocRagError: the folder is missing, or the database cannot be reached.
        Interrupted: `stopped()` became true; half a count is of no use.
    """
    started = time.monotonic()
    found = walk(
        settings.docs_dir,
        settings.extensions,
        max_file_bytes=settings.max_file_mb * 1_000_000,
        stopped=stopped,
    )
    with database.connection() as connection:
        live = catalog.generation(connection, settings.collection)
        dims = known_dimensions(embedder, live) or UNKNOWN_DIMS
        wanted = wanted_settings(settings, embedder, dims)
        building = catalog.generation(connection, settings.collection, "building")
        target = _target(live, building, wanted, rebuild=rebuild)
        states = documents.states(connection, target.id)
        indexed = documents.states(connection, live.id) if live else {}
    count = _Count(skips=list(found.skips))
    seen: set[bytes] = set()
    done = 0
    with preparing(settings, embedder, target, states) as preparer:
        window: list[Prepared] = []
        series = series_by_source(s.name for s in found.sources) if settings.series_dedupe else {}

        def prepared(source: Source) -> Prepared:
            return preparer.prepare(source, series.get(source.name))

        for outcome in prepare_all(prepared, found.sources):
            if stopped():
                raise Interrupted("Stopped before everything was counted; nothing was stored or sent.")
            done += 1
            on_progress(Progress("count", done, len(found.sources), outcome.source))
            _count_outcome(count, outcome, states)
            window.append(outcome)
            if sum(len(prepared.chunks) for prepared in window) >= WINDOW_TEXTS:
                _count_window(count, window, seen, database, embedder, target)
                window = []
        _count_window(count, window, seen, database, embedder, target)
    removals = plan_removals(
        indexed,
        [source.name for source in found.sources],
        found.unreadable,
        guard_share=settings.removal_guard,
        confirmed=confirm_large_removal,
        unread=unread(indexed),
    )
    return IngestReport(
        collection=settings.collection,
        database=database.describe(),
        new=count.new,
        changed=count.changed,
        removed=len(removals.drop),
        unchanged=count.unchanged,
        skips=tuple(count.skips),
        warnings=tuple(count.warnings),
        chunks_stored=count.chunks,
        texts_embedded=count.texts,
        texts_reused=count.reused,
        tokens=count.tokens,
        held_removals=removals.held,
        rebuilt=_why_rebuilt(live, wanted, rebuild=rebuild),
        dry_run=True,
        seconds=time.monotonic() - started,
    )


def _target(
    live: Generation | None, building: Generation | None, wanted: GenerationSettings, *, rebuild: bool
) -> Generation:
    """The generation that an ingest would write, as `ingest` chooses it."""
    if live and live.settings == wanted and not rebuild:
        return live
    if building and building.settings == wanted and building.forced >= rebuild:
        return building
    collection_id = live.collection_id if live else NO_GENERATION
    return Generation(NO_GENERATION, collection_id, "", "building", wanted, forced=rebuild)


def _why_rebuilt(live: Generation | None, wanted: GenerationSettings, *, rebuild: bool) -> str | None:
    if live is None:
        return None
    if live.settings != wanted:
        return difference(live.settings, wanted)
    return "asked for" if rebuild else None


def _count_outcome(count: _Count, outcome: Prepared, states: dict[str, StoredState]) -> None:
    if outcome.skip:
        count.skips.append(outcome.skip)
    elif outcome.unchanged:
        count.unchanged += 1
    elif outcome.source in states:
        count.changed += 1
    else:
        count.new += 1
    count.warnings += [Skip(outcome.source, warning) for warning in outcome.warnings]
    count.chunks += len(outcome.chunks)


def _count_window(
    count: _Count,
    window: list[Prepared],
    seen: set[bytes],
    database: Database,
    embedder: Embedder,
    target: Generation,
) -> None:
    """Count the texts of a window that no vector is stored or staged for, each once in the run."""
    texts = {k: t for k, t in unique_texts(window).items() if k not in seen}
    seen.update(texts)
    stored: set[bytes] = set()
    if texts and not (target.forced and target.id == NO_GENERATION):
        with database.connection() as connection:
            others = catalog.generations_alike(connection, target)
            stored = set(embeddings.find(connection, texts, target, others))
    missing = [text for key, text in texts.items() if key not in stored]
    count.reused += len(stored)
    count.texts += len(missing)
    count.tokens += sum(embedder.count_tokens(text) for text in missing)
