"""Prepared documents become stored ones: look their texts up, embed what is missing, write each in one transaction.

A unit is what one transaction writes: a document, or all documents of a dated series. Units are
gathered into a window, so that many small documents share a provider's batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import psycopg

from doc_rag.embed.base import Embedder, Stopped
from doc_rag.prepare import Prepared
from doc_rag.records import Generation, Vector
from doc_rag.store import catalog, documents, embeddings
from doc_rag.store.documents import NewChunks, StoredDocument, Version
from doc_rag.store.pool import Connection

WINDOW_TEXTS = 512
"""Chunks gathered from one or more units before they are looked up and embedded together."""
WINDOW_DOCUMENTS = 256

REFUSED = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded, UnicodeEncodeError)
"""What Postgres says of a document that it cannot hold; anything else is no fault of the document's."""

Unit = tuple[Prepared, ...]


@dataclass(slots=True)
class Storing:
    """Stores units into one generation over the connection that holds the write lock."""

    connection: Connection
    generation: Generation
    embedder: Embedder
    stopped: Stopped
    on_stored: Callable[[Prepared], None]
    on_refused: Callable[[Prepared, str], None]
    """Told of a document that Postgres would not take, with its reason; the run goes on."""
    on_long: Callable[[Prepared], None]
    """Told of a document with a text that is longer than the model reads."""
    on_embedded: Callable[[int], None] = lambda _: None
    """Told, at each answer of the provider, how many texts have been embedded so far: a large document takes many."""
    texts_embedded: int = 0
    texts_reused: int = 0
    _window: list[Unit] = field(default_factory=list)
    _texts: int = 0
    _others: list[int] | None = None
    _known: Mapping[str, StoredDocument] = field(default_factory=dict)
    """The documents of the window that are there already."""

    def add(self, unit: Unit) -> None:
        """Store a unit, now or with those that follow. Raises as the embedder does."""
        self._window.append(unit)
        self._texts += sum(len(prepared.chunks) for prepared in unit)
        if self._texts >= WINDOW_TEXTS or len(self._window) >= WINDOW_DOCUMENTS:
            self.flush()

    def flush(self) -> None:
        """Store what is waiting, each unit as soon as its last vector is there."""
        window, self._window, self._texts = self._window, [], 0
        if not window:
            return
        prepared = [each for unit in window for each in unit]
        self._known = documents.stored(self.connection, self.generation, [each.source for each in prepared])
        texts = unique_texts(prepared)
        vectors = embeddings.find(self.connection, texts, self.generation, self._alike())
        missing = [key for key in texts if key not in vectors]
        self.texts_reused += len(texts) - len(missing)
        waiting = self._store_complete(window, vectors)
        if missing:
            self._embed(window, waiting, {key: texts[key] for key in missing}, vectors)
        embeddings.unstage(self.connection, list(texts))

    def _embed(
        self,
        window: Sequence[Unit],
        waiting: list[Unit],
        texts: dict[bytes, str],
        vectors: dict[bytes, Vector],
    ) -> None:
        """Embed `texts` into `vectors`, storing units of `waiting` as they become complete."""
        keys = list(texts)
        with closing(self.embedder.embed_documents(list(texts.values()), self.stopped)) as batches:
            for batch in batches:
                arrived = {keys[i]: vector for i, vector in zip(batch.indexes, batch.vectors, strict=True)}
                embeddings.stage(self.connection, arrived)
                self.texts_embedded += len(arrived)
                vectors.update(arrived)
                self.on_embedded(self.texts_embedded)
                self._note_long(window, {keys[i] for i in batch.long_inputs})
                waiting = self._store_complete(waiting, vectors)

    def _note_long(self, window: Sequence[Unit], keys: set[bytes]) -> None:
        for prepared in (each for unit in window for each in unit):
            if keys.intersection(prepared.embed_keys):
                self.on_long(prepared)

    def _alike(self) -> list[int]:
        if self._others is None:
            self._others = catalog.generations_alike(self.connection, self.generation)
        return self._others

    def _store_complete(self, waiting: Sequence[Unit], vectors: dict[bytes, Vector]) -> list[Unit]:
        """Store the units whose vectors are all there; return the others."""
        complete: list[Unit] = []
        left: list[Unit] = []
        for unit in waiting:
            whole = all(key in vectors for prepared in unit for key in prepared.embed_keys)
            (complete if whole else left).append(unit)
        if complete:
            self._store(complete, vectors)
        return left

    def _store(self, units: Sequence[Unit], vectors: dict[bytes, Vector]) -> None:
        versions = [[_new_version(prepared, vectors) for prepared in unit] for unit in units]
        try:
            documents.replace_each(self.connection, self.generation, versions, self._known)
        except REFUSED:
            # One of them; which, and what was stored before it, shows when they go in one by one.
            for unit, version in zip(units, versions, strict=True):
                self._store_alone(unit, version)
            return
        for unit in units:
            for prepared in unit:
                self.on_stored(prepared)

    def _store_alone(self, unit: Unit, versions: Sequence[Version]) -> None:
        try:
            documents.replace_together(self.connection, self.generation, versions)
        except REFUSED as error:
            for prepared in unit:
                self.on_refused(prepared, f"the database refused it: {' '.join(str(error).split())}")
            return
        for prepared in unit:
            self.on_stored(prepared)


def _new_version(prepared: Prepared, vectors: dict[bytes, Vector]) -> Version:
    assert prepared.document is not None  # only those with a new version are in a unit
    if not prepared.chunks and not prepared.repeats:
        return prepared.document, None
    return prepared.document, NewChunks(
        prepared.chunks,
        prepared.contexts,
        prepared.embed_keys,
        [vectors[key] for key in prepared.embed_keys],
        prepared.also_on,
        prepared.repeats,
    )


def unique_texts(prepared: Sequence[Prepared]) -> dict[bytes, str]:
    """Every text to embed once, by its key."""
    return {key: each.embedded_text(i) for each in prepared for i, key in enumerate(each.embed_keys)}
