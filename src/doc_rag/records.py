"""The plain data that crosses from one stage to the next. No behaviour beyond what a field implies."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Quoted, so that the walk, the PDF worker and a server's start do not wait for numpy.
Vector: TypeAlias = "NDArray[np.float32]"
"""One embedding, shape (dims,)."""

Vectors: TypeAlias = "NDArray[np.float32]"
"""Several embeddings, shape (n, dims), one row per text in the order of the texts."""


# --- sources -> extract -> chunk ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """A file found by the walk, not yet read.

    `name` is the key everywhere: the POSIX path relative to the root, NFC, at most 1,024 bytes of
    UTF-8. `raw_path` is the same path as the file system spells it (`os.fsencode`), which may
    differ in Unicode form or hold bytes that are no UTF-8.
    """

    path: Path
    name: str
    raw_path: bytes
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Skip:
    """A file or folder that was left out, and the reason a person reads."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Walk:
    """What is on disk: the files to index, what was left out, and what could not be looked at.

    `unreadable` holds the names (as `Source.name`) of folders and files that could not be read: what
    is below them is unknown, so nothing below them may be counted as removed.
    """

    root: Path
    sources: tuple[Source, ...]
    skips: tuple[Skip, ...]
    unreadable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A run of text under one heading path: `text[start:end]`. Sections are in order and do not overlap."""

    start: int
    end: int
    heading_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of one document, which every span refers to.

    `text` is Unicode NFC with `\n` line ends, no NUL and no lone surrogate. Text outside every
    section (front matter, say) is kept, so that line numbers stay those of the file, but is not
    indexed. `page_starts[i]` is the offset at which page i+1 starts; empty where there are no pages.
    `format` picks the splitter: "markdown" or "text".
    """

    text: str
    sections: tuple[Section, ...]
    format: str
    title: str | None = None
    document_date: date | None = None
    tags: tuple[str, ...] = ()
    page_starts: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    partial: bool = False
    """Some of the document (pages without text, say) is not in `text`; `warnings` says what."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A slice of a document: `text[char_start:char_end] == content`.

    Lines are 1-based and inclusive. Pages are 1-based and inclusive, None where there are no pages.
    """

    index: int
    content: str
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    heading_path: tuple[str, ...] = ()
    page_start: int | None = None
    page_end: int | None = None


# --- embed ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Which weights make a vector: two vectors are comparable only where all of these are equal.

    `endpoint` is the API's host, empty for `local`; `model` is the model, deployment or weights hash.
    """

    provider: str
    endpoint: str
    model: str


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """One answer of a provider: `vectors[k]` embeds the text at position `indexes[k]` of the request."""

    indexes: tuple[int, ...]
    vectors: Vectors
    long_inputs: tuple[int, ...] = ()
    """Those of `indexes` whose text was over the model's limit: averaged over parts, or cut (RAG_EMBED_LONG_INPUT)."""


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """One provider call: tokens as the API returned them, None where the answer never came whole."""

    provider: str
    model: str
    operation: str
    """"embed_document", "embed_query" or "rerank"."""
    tokens: int | None
    calls: int = 1


# --- store ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """All that decides a generation's chunks and vectors: a change of any of them means a new one."""

    provider: str
    endpoint: str
    model: str
    dims: int
    document_prefix: str
    chunk_size_chars: int
    chunk_overlap_chars: int
    pipeline_version: int
    text_language: str


@dataclass(frozen=True, slots=True)
class Generation:
    """One embedding of a collection, as recorded."""

    id: int
    collection_id: int
    collection: str
    state: str
    settings: GenerationSettings
    forced: bool = False


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document as the store knows it. `status` is "indexed", "partial" or "skipped"."""

    source: str
    status: str
    reason: str | None
    content_hash: bytes
    mtime_ns: int
    size_bytes: int
    title: str | None
    document_date: date | None
    pages: int | None
    chunk_count: int
    indexed_at: datetime


@dataclass(frozen=True, slots=True)
class CollectionSummary:
    """A line of `list_collections`."""

    name: str
    provider: str
    endpoint: str
    model: str
    dims: int
    chunk_size_chars: int
    chunk_overlap_chars: int
    text_language: str
    last_ingest_at: datetime | None
    documents: int
    skipped: int
    chunks: int
    pending_removals: int
    revision: int
    rebuilding: bool
    """A new generation is being built beside the live one at this moment."""
    rebuild_unfinished: bool
    """One was begun and is nobody's work now: the run was stopped or killed."""


# --- search ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that a search returned, with every score it was given.

    `score` is the one it was ranked by, named by `score_kind`: "cosine", "rrf", "rerank" or "text".
    Ranks are 1-based; None where that ranking did not return the chunk.
    """

    chunk_id: str
    collection: str
    source: str
    title: str | None
    chunk_index: int
    content: str
    heading_path: tuple[str, ...]
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    score: float
    score_kind: str
    cosine_score: float | None = None
    vector_rank: int | None = None
    text_rank: int | None = None
    rerank_score: float | None = None
    also_on: tuple[date, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """One or more neighbouring hits of one document, joined, with the overlap removed by position.

    `content` is the document's text from `char_start` to `char_end`; scores are the best hit's.
    """

    rank: int
    chunk_ids: tuple[str, ...]
    collection: str
    source: str
    title: str | None
    content: str
    heading_path: tuple[str, ...]
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    score: float
    score_kind: str
    cosine_score: float | None
    vector_rank: int | None
    text_rank: int | None
    rerank_score: float | None
    also_on: tuple[date, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What `query_docs` found. `notes` says what was clamped, fell back or was cut; `empty_reason` why nothing."""

    query: str
    collections: tuple[str, ...]
    revisions: dict[str, int]
    ranking: str
    """"vector", "hybrid", "rerank" or "text"."""
    passages: tuple[Passage, ...]
    chunk_count: int
    notes: tuple[str, ...] = ()
    empty_reason: str | None = None
    cached: bool = False


# --- reports --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Staleness:
    """How far the index is behind the disk, by `stat()` alone."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def is_stale(self) -> bool:
        return bool(self.new or self.changed or self.removed)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did. Counts are documents unless they say otherwise; texts are what was sent to be embedded."""

    collection: str
    database: str
    new: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    skips: tuple[Skip, ...] = ()
    warnings: tuple[Skip, ...] = ()
    chunks_stored: int = 0
    texts_embedded: int = 0
    texts_reused: int = 0
    tokens: int = 0
    """As the provider counted them; an estimate in a dry run."""
    cost_usd: float | None = None
    """None where the price is unknown."""
    held_removals: tuple[str, ...] = ()
    rebuilt: str | None = None
    """Why every document was embedded again, None where it was not."""
    dry_run: bool = False
    interrupted: bool = False
    failed: bool = False
    """A provider or the database gave up before the end."""
    unfinished_rebuild: bool = False
    """A rebuild that was asked for before is not finished, and this run was none that goes on with it."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come. `total` is None until the walk is done."""

    stage: str
    done: int
    total: int | None
    message: str = ""
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The query cache since the process started. `hit_rate` is between 0 and 1."""

    hits: int
    misses: int
    size: int
    max_size: int
    ttl_seconds: float

    @property
    def hit_rate(self) -> float:
        looked_up = self.hits + self.misses
        return self.hits / looked_up if looked_up else 0.0


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The tally of one (provider, model, operation). `unknown_calls` got no whole answer, so no token count."""

    provider: str
    model: str
    operation: str
    calls: int
    tokens: int
    unknown_calls: int = 0


@dataclass(frozen=True, slots=True)
class UsageStats:
    """The local tally: what this database's users sent to providers, not what a provider billed."""

    rows: tuple[UsageRow, ...]
    cache: CacheStats
    since: date | None


@dataclass(frozen=True, slots=True)
class Status:
    """What `doc-rag status` says: the database in use, what is indexed, how fresh it is, what was used."""

    database: str
    collection: str
    docs_dir: str
    embedder: ModelIdentity
    collections: tuple[CollectionSummary, ...]
    staleness: Staleness | None
    usage: tuple[UsageRow, ...]
    costs_usd: tuple[float | None, ...]
    """The price of each row of `usage`, None where it is unknown."""
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """What `remove_document` did. A file still on disk comes back with the next reindex."""

    collection: str
    source: str
    chunks: int
    still_on_disk: bool


@dataclass(frozen=True, slots=True)
class DocumentList:
    """A page of `list_documents`."""

    collections: tuple[str, ...]
    documents: tuple[tuple[str, DocumentRecord], ...]
    """Pairs of collection and document."""
    total: int
    staleness: Staleness | None = None
    last_ingest_at: dict[str, datetime | None] = field(default_factory=dict)
    skipped: int = 0
    """How many of `total` could not be read."""
