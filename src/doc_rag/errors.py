"""Every error a person or a model is meant to read.

Each carries one sentence that names what was found, where it came from and what to do. The edges
(`cli`, `mcp_server`, `http_app`) turn them into one line; nothing below the edges prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doc_rag.records import IngestReport


class DocRagError(Exception):
    """Something went wrong that the message explains; the command exits 1."""


class SettingsError(DocRagError):
    """One or more settings are wrong; fix each variable named in the message. The command exits 2."""

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else problems
        super().__init__("\n".join(self.problems))


class UsageError(DocRagError):
    """The arguments of a command or tool do not fit together. The command exits 2."""


class MissingKeyError(DocRagError):
    """The provider needs a key that is not set; the message names the variable."""


class DatabaseUnavailable(DocRagError):
    """Postgres could not be reached, or lacks pgvector; the message says which and what to do."""


class SchemaTooNew(DocRagError):
    """The database was written by a newer doc-rag-mcp; upgrade this installation."""


class CollectionNotFound(DocRagError):
    """No such collection is indexed; the message lists those that are."""


class CollectionBusy(DocRagError):
    """Another process is writing this collection; the message says which and since when."""


class DocumentNotFound(DocRagError):
    """No such document is in the collection; the message lists near matches."""


class ExtractionError(DocRagError):
    """This one file cannot be read as text. The message is the reason shown beside its name; the run goes on."""


class EmbeddingError(DocRagError):
    """Base of what an embedding provider can do to a run."""


class EmbeddingRejected(EmbeddingError):
    """The provider refused the request (bad key, unknown model, bad input); retrying cannot help."""


class EmbeddingUnavailable(EmbeddingError):
    """The provider was unreachable or rate limiting until the retry budget ran out; run again later."""


class DimensionMismatch(EmbeddingError):
    """The provider answered with vectors of another dimension than was configured or recorded."""


class RerankUnavailable(DocRagError):
    """The reranker did not answer; the search falls back to its next ranking and says so."""


class Interrupted(DocRagError):
    """The run was asked to stop; every document finished so far is stored."""


class IngestFailed(DocRagError):
    """A run had to give up; what it had stored stays, and the next run goes on from there."""

    def __init__(self, message: str, report: IngestReport) -> None:
        super().__init__(message)
        self.report = report
        """What was done until then."""
