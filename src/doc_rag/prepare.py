"""One file from the disk to chunks that are ready to embed, or the reason why there are none.

Runs in threads beside the writer: it reads files and knows what the index held before the run, and
touches no database.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from doc_rag.chunk import chunk_document, context_prefix
from doc_rag.embed import embed_key
from doc_rag.embed.base import Embedder
from doc_rag.errors import DocRagError, ExtractionError
from doc_rag.extract import Extractor
from doc_rag.records import Chunk, GenerationSettings, ModelIdentity, Skip, Source
from doc_rag.sources import date_in_name, read_source
from doc_rag.store.documents import NewDocument, StoredState
from doc_rag.store.repeats import NewRepeat

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What became of one file.

    `document` is None where the index needs no new version: the content is `unchanged` (with the new
    time stamp in `touched` where only that differs), or the file could not be looked at (`skip`), so
    that what the index holds of it stays.
    """

    source: str
    document: NewDocument | None = None
    chunks: Sequence[Chunk] = ()
    contexts: Sequence[str] = ()
    embed_keys: Sequence[bytes] = ()
    unchanged: bool = False
    touched: tuple[int, int, int] | None = None
    """(document id, mtime_ns, size_bytes)."""
    skip: Skip | None = None
    also_on: Sequence[tuple[date, ...]] = ()
    """Of a member of a dated series: the other dates of each chunk that it holds."""
    repeats: Sequence[NewRepeat] = ()
    """Of a member of a dated series: the chunks that an earlier member holds."""
    warnings: tuple[str, ...] = ()

    def embedded_text(self, i: int) -> str:
        """What is given to the embedder for chunk i; it puts the document prefix in front itself."""
        return self.contexts[i] + self.chunks[i].content


@dataclass(frozen=True, slots=True)
class Preparer:
    """Reads, extracts and chunks files for one generation."""

    extractor: Extractor
    embedder: Embedder
    settings: GenerationSettings
    conditions: str
    """What a skip depends on: under other conditions a file that was skipped is tried again."""
    max_file_bytes: int
    states: Mapping[str, StoredState] = field(repr=False)

    def prepare(self, source: Source, series: str | None = None, *, again: bool = False) -> Prepared:
        """One file's outcome; never raises for what is wrong with the file.

        `series` is the key of the dated series that it belongs to. With `again` a file is prepared
        although its content is unchanged.
        """
        try:
            data, mtime_ns, size_bytes = read_source(source, self.max_file_bytes)
        except ExtractionError as error:
            return Prepared(source.name, skip=Skip(source.name, str(error)))
        content_hash = hashlib.sha256(data).digest()
        state = self.states.get(source.name)
        if state and state.content_hash == content_hash and self._still_holds(state, series) and not again:
            touched = None
            if (state.mtime_ns, state.size_bytes) != (mtime_ns, size_bytes):
                touched = (state.id, mtime_ns, size_bytes)
            skip = Skip(source.name, state.skip_reason or "") if state.status == "skipped" else None
            return Prepared(source.name, unchanged=True, touched=touched, skip=skip)
        facts = NewDocument(
            source.name,
            source.raw_path,
            "skipped",
            content_hash,
            mtime_ns,
            size_bytes,
            document_date=date_in_name(source.name),
            series=series,
        )
        return self._extracted(source, data, facts)

    def _skipped(self, facts: NewDocument, reason: str) -> Prepared:
        document = replace(facts, skip_reason=reason, skip_conditions=self.conditions)
        return Prepared(facts.source, document, skip=Skip(facts.source, reason))

    def _still_holds(self, state: StoredState, series: str | None) -> bool:
        if state.status == "skipped" and state.skip_conditions != self.conditions:
            return False
        # Out of a series, or into one: what it shares with the others has to be looked at again.
        return state.series == series

    def _extracted(self, source: Source, data: bytes, facts: NewDocument) -> Prepared:
        try:
            extracted = self.extractor.extract(source.name, data)
            chunks = chunk_document(
                extracted,
                size=self.settings.chunk_size_chars,
                overlap=self.settings.chunk_overlap_chars,
                max_tokens=self.embedder.max_input_tokens,
                count_tokens=self.embedder.count_tokens,
                prefix_for=lambda path: self.settings.document_prefix + context_prefix(extracted.title, path),
            )
            if not chunks:
                raise ExtractionError("has no text in it")
        except DocRagError as error:
            if not isinstance(error, ExtractionError):
                raise  # no fault of this file
            return self._skipped(facts, str(error))
        except Exception as error:
            log.debug("%s could not be taken apart", source.name, exc_info=True)
            return self._skipped(facts, f"could not be taken apart: {type(error).__name__}: {error}"[:300])
        document = replace(
            facts,
            status="partial" if extracted.partial else "indexed",
            skip_reason="; ".join(extracted.warnings) or None,
            text=extracted.text,
            title=extracted.title,
            # A member of a series is of the day in its name, whatever else it says of itself.
            document_date=facts.document_date
            if facts.series
            else extracted.document_date or facts.document_date,
            tags=extracted.tags,
            pages=len(extracted.page_starts) or None,
        )
        contexts = [context_prefix(extracted.title, chunk.heading_path) for chunk in chunks]
        prepared = Prepared(source.name, document, chunks, contexts, warnings=extracted.warnings)
        identity = ModelIdentity(self.settings.provider, self.settings.endpoint, self.settings.model)
        dims, prefix = self.settings.dims, self.settings.document_prefix
        keys = [
            embed_key(identity, dims, "document", prefix + prepared.embedded_text(i))
            for i in range(len(chunks))
        ]
        return replace(prepared, embed_keys=keys)
