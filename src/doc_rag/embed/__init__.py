"""Embedding providers behind one protocol: `make_embedder` builds one, `embed_key` names a vector.

Importing this package imports neither an SDK nor a tokenizer; each provider's module does so at its
first call.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from doc_rag.embed.base import Embedder, RecordUsage, Stopped
from doc_rag.errors import SettingsError
from doc_rag.records import GenerationSettings, ModelIdentity
from doc_rag.settings import Settings

if TYPE_CHECKING:
    from doc_rag.embed.api import EmbeddingApi
    from doc_rag.embed.models import EmbeddingModel

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
    make = {"local": _make_local, "voyage": _make_voyage, "openai": _make_openai, "azure-openai": _make_azure}
    if provider not in make:
        raise SettingsError(
            f"This version has no embedding provider {provider}, which the collection was made with."
        )
    return make[provider](settings, record_usage, like)


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


def _make_voyage(settings: Settings, record_usage: RecordUsage, like: GenerationSettings | None) -> Embedder:
    from doc_rag.embed.models import DEFAULT_MODELS, voyage_model
    from doc_rag.embed.voyage import VoyageApi

    name = like.model if like else settings.embed_model or DEFAULT_MODELS["voyage"]
    api = VoyageApi(settings.voyage_api_key, settings.voyage_base_url, name)
    return _make_remote(api, voyage_model(name), settings, record_usage, like, "VOYAGE_BASE_URL")


def _make_openai(settings: Settings, record_usage: RecordUsage, like: GenerationSettings | None) -> Embedder:
    from doc_rag.embed.models import DEFAULT_MODELS, openai_model
    from doc_rag.embed.openai import OpenAIApi

    name = like.model if like else settings.embed_model or DEFAULT_MODELS["openai"]
    api = OpenAIApi(settings.openai_api_key, settings.openai_base_url, name)
    model = openai_model(name, self_hosted=api.is_self_hosted)
    return _make_remote(api, model, settings, record_usage, like, "OPENAI_BASE_URL")


def _make_azure(settings: Settings, record_usage: RecordUsage, like: GenerationSettings | None) -> Embedder:
    from doc_rag.embed.azure import AzureOpenAIApi
    from doc_rag.embed.models import openai_model

    deployment = like.model if like else settings.azure_openai_embed_deployment
    api = AzureOpenAIApi(
        settings.azure_openai_api_key,
        settings.azure_openai_endpoint,
        deployment,
        settings.azure_openai_api_version,
    )
    # A deployment's name says nothing of its model; RAG_EMBED_MODEL may, for the deployment that is set.
    is_set = deployment == settings.azure_openai_embed_deployment
    model = openai_model((settings.embed_model if is_set else None) or "")
    return _make_remote(api, model, settings, record_usage, like, "AZURE_OPENAI_ENDPOINT")


def _make_remote(
    api: EmbeddingApi,
    model: EmbeddingModel,
    settings: Settings,
    record_usage: RecordUsage,
    like: GenerationSettings | None,
    endpoint_variable: str,
) -> Embedder:
    from doc_rag.embed.calls import Dimensions
    from doc_rag.embed.remote import RemoteEmbedder

    endpoint = api.identity.endpoint
    if like and endpoint and endpoint != like.endpoint:
        raise SettingsError(
            f"The collection was embedded by {like.provider} at {like.endpoint}, and the settings point at "
            f"{endpoint}. Set {endpoint_variable} to the former, or ingest again."
        )
    if like is None:
        model.check_dims(settings.embed_dim)
    asked = like.dims if like else settings.embed_dim
    takes_dims = bool(model.selectable_dims) if model.is_known else settings.embed_dim is not None
    expected = asked or model.default_dims
    reason = (
        "the collection was embedded with them"
        if like
        else f"RAG_EMBED_DIM={asked}"
        if asked
        else "the model is known for them"
        if expected
        else "its first answer had them"
    )
    return RemoteEmbedder(
        api,
        model,
        record_usage,
        Dimensions(
            expected=expected,
            sent=expected if takes_dims else None,
            reason=reason,
            ask_on_mismatch=like is not None and not model.is_known,
        ),
        query_prefix=settings.embed_query_prefix or "",
        document_prefix=like.document_prefix if like else settings.embed_document_prefix or "",
        truncate_long=settings.embed_long_input == "truncate",
        concurrency=settings.embed_concurrency,
        retry_seconds=settings.embed_retry_seconds,
    )
