"""What every embedding provider offers. `make_embedder` (in `doc_rag.embed`) builds one from the settings."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from doc_rag.records import EmbeddedBatch, ModelIdentity, UsageEvent, Vector

RecordUsage = Callable[[UsageEvent], None]
"""Called once per provider call, also for calls before a failure; may be called from several threads."""

Stopped = Callable[[], bool]
"""True once the run has been asked to stop; looked at between calls and while waiting to retry."""


class Embedder(Protocol):
    """Turns texts into vectors of one model. Safe to use from several threads at once."""

    @property
    def identity(self) -> ModelIdentity:
        """Which weights answer: recorded with a generation, part of every `embed_key`."""

    @property
    def dimensions(self) -> int | None:
        """Components of a vector; None for a model that is not in the table and has not answered yet."""

    @property
    def document_prefix(self) -> str:
        """What `embed_documents` itself puts before each text; part of a generation's settings and of `embed_key`."""

    @property
    def max_input_tokens(self) -> int:
        """Longest text the model reads, in its tokens."""

    def require_key(self) -> None:
        """Raise `MissingKeyError`, naming the variable to set, where the provider's key is not set. No I/O."""

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` without the prefix: exact for `local`, a safe estimate for the rest; no network."""

    def resolve_dimensions(self) -> int:
        """`dimensions`, asking the provider with one tiny text where they are not known yet.

        Raises:
            EmbeddingError, MissingKeyError: as for `embed_documents`.
        """

    def embed_documents(
        self, texts: Sequence[str], stopped: Stopped = lambda: False
    ) -> Generator[EmbeddedBatch, None, None]:
        """Embed chunk texts for storage, yielding each provider answer as it arrives, in any order.

        `texts` come without the prefix; every index of `texts` is yielded exactly once. Splits into
        batches within the provider's limits on items and tokens, several at once, and retries what
        can be retried for up to RAG_EMBED_RETRY_SECONDS. Before an error is raised, the answers that
        were under way are yielded, so that nothing paid for is lost. Vectors have `dimensions`
        components, are finite and not zero.

        Raises:
            MissingKeyError: the provider's key is not set.
            EmbeddingRejected: the provider refused (bad key, unknown model); retrying cannot help.
            EmbeddingUnavailable: unreachable or rate limiting until the retry budget ran out.
            DimensionMismatch: the answer has another dimension than configured.
            Interrupted: `stopped()` became true.
        """

    def embed_query(self, text: str) -> Vector:
        """Embed one query, the query prefix put before it, shape (dimensions,). Raises as `embed_documents` does.

        Retries for 30 seconds at most: somebody waits for the answer.
        """
