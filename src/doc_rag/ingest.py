"""Carry out a run: make the index of a collection what its folder is, one transaction a document.

At every instant a document is wholly its old version or wholly its new one, and nothing is embedded
inside a transaction. The connection that holds the collection's lock does all the writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice

import psycopg

from doc_rag.ahead import prepare_all, preparing
from doc_rag.embed.base import Embedder, Stopped
from doc_rag.errors import DatabaseUnavailable, EmbeddingError, IngestFailed, Interrupted, MissingKeyError
from doc_rag.generations import difference, known_dimensions, wanted_settings
from doc_rag.plan import plan_removals
from doc_rag.prepare import Prepared, Preparer
from doc_rag.records import (
    Generation,
    GenerationSettings,
    IngestReport,
    Progress,
    Skip,
    Source,
    Walk,
)
from doc_rag.series import Member, find_series
from doc_rag.settings import Settings
from doc_rag.sharing import shared_out
from doc_rag.sources import walk
from doc_rag.store import catalog, documents, embeddings
from doc_rag.store.documents import StoredState
from doc_rag.store.pool import Connection, Database
from doc_rag.store.writing import Writer, writing
from doc_rag.storing import Storing

BEAT_SECONDS = 5.0
TOUCHED_AT_ONCE = 1_000
GO_ON = "What was stored stays; run again to go on from there."

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What a person asked of one run."""

    rebuild: bool = False
    confirm_large_removal: bool = False
    wait_seconds: float = 0.0


@dataclass(slots=True)
class _Tally:
    """Counts of the run under way."""

    new: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    resolved: int = 0
    chunks_stored: int = 0
    texts_embedded: int = 0
    texts_reused: int = 0
    skips: list[Skip] = field(default_factory=list)
    warnings: list[Skip] = field(default_factory=list)
    held: tuple[str, ...] = ()
    interrupted: bool = False


def ingest(
    database: Database,
    settings: Settings,
    embedder: Embedder,
    options: IngestOptions,
    *,
    tokens_used: Callable[[], int],
    on_progress: OnProgress = lambda _: None,
    stopped: Stopped = lambda: False,
) -> IngestReport:
    """Bring `settings.collection` up to date with `settings.docs_dir`.

    `tokens_used` gives the tokens that embedding documents has cost so far, by the provider's count.
    When `stopped()` becomes true the document in hand is finished and the report says interrupted.

    Raises:
        CollectionBusy: another process writes this collection.
        DocRagError: the folder is missing.
        IngestFailed: the provider or the database gave up; carries the report of what was done.
    """
    started = time.monotonic()
    tokens_before = tokens_used()
    run: _Run | None = None

    def report() -> IngestReport:
        assert run is not None
        return run.report(database.describe(), tokens_used() - tokens_before, time.monotonic() - started)

    try:
        with writing(
            database, settings.collection, "ingest", wait_seconds=options.wait_seconds, stopped=stopped
        ) as writer:
            on_progress(Progress("walk", 0, None, f"looking through {settings.docs_dir}"))
            found = walk(
                settings.docs_dir,
                settings.extensions,
                max_file_bytes=settings.max_file_mb * 1_000_000,
                stopped=stopped,
            )
            run = _Run(writer, settings, embedder, options, found, on_progress, stopped)
            run.carry_out()
    except Interrupted:
        if run is None:
            raise
        run.tally.interrupted = True
    except (EmbeddingError, MissingKeyError, DatabaseUnavailable) as error:
        if run is None:
            raise
        raise IngestFailed(f"{error} {GO_ON}", replace(report(), failed=True)) from error
    except psycopg.Error as error:
        reason = f"{database.describe()} refused a statement: {str(error).splitlines()[0]}."
        if run is None:
            raise DatabaseUnavailable(reason) from error
        raise IngestFailed(f"{reason} {GO_ON}", replace(report(), failed=True)) from error
    return report()


class _Run:
    """One run under the collection's lock."""

    def __init__(
        self,
        writer: Writer,
        settings: Settings,
        embedder: Embedder,
        options: IngestOptions,
        found: Walk,
        on_progress: OnProgress,
        stopped: Stopped,
    ) -> None:
        self.writer = writer
        self.settings = settings
        self.embedder = embedder
        self.options = options
        self.found = found
        self.on_progress = on_progress
        self.stopped = stopped
        self.tally = _Tally(skips=list(found.skips))
        self.rebuilt: str | None = None
        self.unfinished_rebuild = False
        self.last_beat = 0.0
        self.touched: list[tuple[int, int, int]] = []

    @property
    def connection(self) -> Connection:
        return self.writer.connection

    def carry_out(self) -> None:
        """The whole run: choose a generation, store what is new, drop what is gone, switch if it is a rebuild."""
        live = catalog.generation(self.connection, self.settings.collection)
        dims = known_dimensions(self.embedder, live) or self.embedder.resolve_dimensions()
        wanted = wanted_settings(self.settings, self.embedder, dims)
        target = self._target(live, wanted)
        states = documents.states(self.connection, target.id)
        indexed = (
            states if target.state == "live" or live is None else documents.states(self.connection, live.id)
        )
        removals = plan_removals(
            indexed,
            [source.name for source in self.found.sources],
            self.found.unreadable,
            guard_share=self.settings.removal_guard,
            confirmed=self.options.confirm_large_removal,
            unread=documents.unread(indexed),
        )
        self.tally.held = removals.held
        self._store_all(target, states)
        if target.state == "live":
            for name in removals.drop:
                self._check_stopped()
                documents.delete(self.connection, target, name)
            self.tally.removed = len(removals.drop)
        else:
            self._finish_rebuild(target, states, indexed, removals.drop)
        self._finish(target)

    def _target(self, live: Generation | None, wanted: GenerationSettings) -> Generation:
        """The generation to write: the live one, or one that is built beside it."""
        collection, collection_id = self.settings.collection, self.writer.collection_id
        building = catalog.generation(self.connection, collection, "building")
        if live and live.settings == wanted and not self.options.rebuild:
            if building and not building.forced:
                catalog.retire_building(self.connection, collection_id)
            self.unfinished_rebuild = bool(building and building.forced)
            return live
        if live:
            self.rebuilt = "asked for" if live.settings == wanted else difference(live.settings, wanted)
            if building and building.settings == wanted and building.forced >= self.options.rebuild:
                self.rebuilt += "; going on with the rebuild that was interrupted"
                return building
        with self.connection.transaction():
            if building:
                catalog.retire_building(self.connection, collection_id)
            made = catalog.begin_generation(
                self.connection, collection, collection_id, wanted, forced=bool(live) and self.options.rebuild
            )
            if live:
                return made
            catalog.make_live(self.connection, made.id, collection_id)
            return replace(made, state="live")

    def _store_all(self, target: Generation, states: dict[str, StoredState]) -> None:
        storing = Storing(
            self.connection,
            target,
            self.embedder,
            self.stopped,
            lambda prepared: self._stored(prepared, states),
            self._refused,
            self._long,
            self._embedded,
        )
        series = find_series(s.name for s in self.found.sources) if self.settings.series_dedupe else {}
        in_series = {member.source for members in series.values() for member in members}
        alone = [source for source in self.found.sources if source.name not in in_series]
        try:
            with preparing(self.settings, self.embedder, target, states) as preparer:
                self._store_each(storing, preparer, alone)
                self._store_series(storing, preparer, series)
            storing.flush()
            self._touch()
        finally:
            self.tally.texts_embedded = storing.texts_embedded
            self.tally.texts_reused = storing.texts_reused

    def _store_each(self, storing: Storing, preparer: Preparer, sources: Sequence[Source]) -> None:
        with closing(prepare_all(preparer.prepare, sources)) as outcomes:
            for outcome in outcomes:
                self._check_stopped()
                if self._needs_storing(outcome):
                    storing.add((outcome,))

    def _store_series(
        self, storing: Storing, preparer: Preparer, series: Mapping[str, Sequence[Member]]
    ) -> None:
        """Each dated series as one unit, wholly anew where any of its documents changed, came or went."""
        sources = {source.name: source for source in self.found.sources}
        keys = {member.source: key for key, members in series.items() for member in members}
        stored: dict[str, set[str]] = {}
        for name, state in preparer.states.items():
            stored.setdefault(state.series or "", set()).add(name)
        files = [sources[name] for name in keys]
        with closing(prepare_all(lambda file: preparer.prepare(file, keys[file.name]), files)) as outcomes:
            for key, members in series.items():
                self._check_stopped()
                prepared = list(islice(outcomes, len(members)))
                gone = stored.get(key, set()) - {member.source for member in members}
                if gone or any(outcome.document for outcome in prepared):
                    prepared = [
                        preparer.prepare(sources[outcome.source], key, again=True)
                        if outcome.unchanged
                        else outcome
                        for outcome in prepared
                    ]
                changed = [outcome for outcome in prepared if self._needs_storing(outcome)]
                if changed:
                    storing.add(shared_out(changed))

    def _needs_storing(self, outcome: Prepared) -> bool:
        """Count a file's outcome; True where it has a new version to store."""
        if outcome.skip:
            self.tally.skips.append(outcome.skip)
        self.tally.warnings += [Skip(outcome.source, warning) for warning in outcome.warnings]
        if outcome.document is not None:
            return True
        if outcome.touched:
            self.touched.append(outcome.touched)
            if len(self.touched) >= TOUCHED_AT_ONCE:
                self._touch()
        if outcome.unchanged and not outcome.skip:
            self.tally.unchanged += 1
        self._resolved(outcome.source)
        return False

    def _touch(self) -> None:
        touched, self.touched = self.touched, []
        if touched:
            documents.touch(self.connection, touched)

    def _stored(self, prepared: Prepared, states: Mapping[str, StoredState]) -> None:
        """Count a document that is stored."""
        assert prepared.document is not None  # else it would not have been stored
        self.tally.chunks_stored += len(prepared.chunks)
        state = states.get(prepared.source)
        if prepared.document.status != "skipped":
            if state is None:
                self.tally.new += 1
            elif state.content_hash == prepared.document.content_hash and state.status != "skipped":
                self.tally.unchanged += 1  # only its share of a dated series is another
            else:
                self.tally.changed += 1
        self._resolved(prepared.source)

    def _refused(self, prepared: Prepared, reason: str) -> None:
        self.tally.skips.append(Skip(prepared.source, reason))
        self._resolved(prepared.source)

    def _long(self, prepared: Prepared) -> None:
        how = "cut" if self.settings.embed_long_input == "truncate" else "embedded in parts and averaged"
        reason = f"has a passage that is longer than the model reads; it was {how} (RAG_EMBED_LONG_INPUT)"
        self.tally.warnings.append(Skip(prepared.source, reason))

    def _finish_rebuild(
        self,
        target: Generation,
        states: Mapping[str, StoredState],
        indexed: Mapping[str, StoredState],
        dropped: Sequence[str],
    ) -> None:
        """Switch to the new generation, unless it lacks a document that is live and not known to be gone."""
        on_disk = {source.name for source in self.found.sources}
        for name in states.keys() - on_disk:
            documents.delete(self.connection, target, name)
        anew = documents.states(self.connection, target.id).keys()
        live = {name for name, state in indexed.items() if state.status != "skipped"}
        lost = live - anew - set(dropped)
        if lost:
            self.rebuilt = (
                f"{self.rebuilt}; the old index stays in use, because {len(lost)} of its documents "
                f"({min(lost)} for one) could not be read anew and are not known to be gone"
            )
            return
        catalog.refresh_statistics(self.connection, target.id)
        catalog.make_live(self.connection, target.id, self.writer.collection_id)
        self.tally.removed = len(dropped)

    def _finish(self, target: Generation) -> None:
        changed = self.tally.new or self.tally.changed or self.tally.removed
        if target.state == "live" and (changed or catalog.is_miscounted(self.connection, target.id)):
            catalog.refresh_statistics(self.connection, target.id)
        catalog.finish_run(
            self.connection,
            self.writer.collection_id,
            docs_root=str(self.found.root),
            pending_removals=len(self.tally.held),
        )
        catalog.drop_retired(self.connection)
        embeddings.expire(self.connection)

    def _embedded(self, texts: int) -> None:
        """Progress between two documents, which are far apart where one has thousands of chunks."""
        chunks = max(texts, self.tally.chunks_stored)
        self.on_progress(Progress("embed", self.tally.resolved, len(self.found.sources), "", chunks))
        self._beat()

    def _resolved(self, source: str) -> None:
        self.tally.resolved += 1
        total = len(self.found.sources)
        self.on_progress(Progress("index", self.tally.resolved, total, source, self.tally.chunks_stored))
        self._beat()

    def _beat(self) -> None:
        if time.monotonic() - self.last_beat >= BEAT_SECONDS:
            self.last_beat = time.monotonic()
            self.writer.beat(self.tally.resolved, len(self.found.sources))

    def _check_stopped(self) -> None:
        if self.stopped():
            raise Interrupted("The run was asked to stop.")

    def report(self, database: str, tokens: int, seconds: float) -> IngestReport:
        tally = self.tally
        return IngestReport(
            collection=self.settings.collection,
            database=database,
            new=tally.new,
            changed=tally.changed,
            removed=tally.removed,
            unchanged=tally.unchanged,
            skips=tuple(tally.skips),
            warnings=tuple(tally.warnings),
            chunks_stored=tally.chunks_stored,
            texts_embedded=tally.texts_embedded,
            texts_reused=tally.texts_reused,
            tokens=tokens,
            held_removals=tally.held,
            rebuilt=self.rebuilt,
            unfinished_rebuild=self.unfinished_rebuild,
            interrupted=tally.interrupted,
            seconds=seconds,
        )
