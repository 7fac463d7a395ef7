"""Embedding providers behind one protocol: `make_embedder` builds one, `embed_key` names a vector.

Importing this package imports neither an SDK nor a tokenizer; each provider's module does so at its
first call.
"""

from __future__ import annotations

import hashlib

from doc_rag.embed.base import Embedder, RecordUsage, Stopped
from doc_rag.errors import SettingsError
from doc_rag.records import GenerationSettings, ModelIdentity
from doc_rag.settings import Settings

__all__ = ["Embedder", "RecordUsage", "Stopped", "embed_key", "make_embedder"]


def embed_key(identity: ModelIdentity, dims: int, input_type: str, text: str) -> bytes:
    """SHA-256 (32 bytes) over all that decides a vector: equal keys may share one.

    `text` is what the model reads, the prefix included; `input_type` is "document" or "query". Every
    field is preceded by its length, so that no two different tuples make the same bytes.
    """
    digest = hashlib.sha256(b"doc-rag embed_key 1\n")
    for field in (identity.provider, identity.endpoint, identity.model, str(dims), input_type, text):
        data = field.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


def make_embedder(
    settings: Settings, record_usage: RecordUsage, *, like: GenerationSettings | None = None
) -> Embedder:
    """The embedder the settings ask for; with `like`, the one that a recorded generation was made with.

    Does no I/O and imports no SDK. A missing key is raised by the first call, or by `require_key()`.

    Raises:
        SettingsError: the settings contradict the provider's models, or do not reach `like`'s endpoint.
    """
    provider = like.provider if like else settings.embed_provider
    if provider == "local":
        return _make_local(settings, record_usage, like)
    raise SettingsError(f"RAG_EMBED_PROVIDER={provider} is not available yet.")


def _make_local(settings: Settings, record_usage: RecordUsage, like: GenerationSettings | None) -> Embedder:
    from doc_rag.embed.local import LocalEmbedder
    from doc_rag.embed.weights import SHIPPED_DIMS, SHIPPED_MODEL

    folder = settings.local_model_dir
    if like:
        if like.model == SHIPPED_MODEL:
            folder = None
        elif folder is None:
            raise SettingsError(
                f"The collection was embedded by the local model {like.model}. "
                "Set RAG_LOCAL_MODEL_DIR to the folder with its weights."
            )
    elif settings.embed_model and (folder or settings.embed_model != SHIPPED_MODEL):
        raise SettingsError(
            f"RAG_EMBED_MODEL={settings.embed_model} cannot be chosen with RAG_EMBED_PROVIDER=local, which uses "
            f"{SHIPPED_MODEL} or the folder in RAG_LOCAL_MODEL_DIR. Unset RAG_EMBED_MODEL."
        )
    if like is None and folder is None and settings.embed_dim not in (None, SHIPPED_DIMS):
        raise SettingsError(
            f"RAG_EMBED_DIM={settings.embed_dim}, but {SHIPPED_MODEL} has {SHIPPED_DIMS} dimensions. "
            "Unset RAG_EMBED_DIM."
        )
    return LocalEmbedder(
        record_usage,
        folder=folder,
        query_prefix=settings.embed_query_prefix or "",
        document_prefix=like.document_prefix if like else settings.embed_document_prefix or "",
        truncate_long=settings.embed_long_input == "truncate",
        expected_model=like.model if like else None,
        expected_dimensions=like.dims if like else settings.embed_dim,
    )
