"""What the settings ask of a generation, and what makes a new one necessary. Pure."""

from __future__ import annotations

from doc_rag.chunk import PIPELINE_VERSION
from doc_rag.embed.base import Embedder
from doc_rag.records import Generation, GenerationSettings
from doc_rag.settings import Settings


def known_dimensions(embedder: Embedder, live: Generation | None) -> int | None:
    """The dimension as the model's table or the collection's last answer tells it, else None."""
    identity = embedder.identity
    if embedder.dimensions is not None or live is None:
        return embedder.dimensions
    recorded = live.settings
    same = (recorded.provider, recorded.endpoint, recorded.model) == (
        identity.provider,
        identity.endpoint,
        identity.model,
    )
    return recorded.dims if same else None


def wanted_settings(settings: Settings, embedder: Embedder, dims: int) -> GenerationSettings:
    """What the settings ask of a generation whose vectors have `dims` components."""
    identity = embedder.identity
    return GenerationSettings(
        provider=identity.provider,
        endpoint=identity.endpoint,
        model=identity.model,
        dims=dims,
        document_prefix=embedder.document_prefix,
        chunk_size_chars=settings.chunk_size,
        chunk_overlap_chars=settings.chunk_overlap,
        pipeline_version=PIPELINE_VERSION,
        text_language=settings.text_language,
    )


def skip_conditions(settings: Settings) -> str:
    """What a skipped file's outcome depends on beside its content."""
    return f"{PIPELINE_VERSION}/{settings.pdf_timeout_seconds:g}s/{settings.pdf_memory_mb}MB"


def difference(old: GenerationSettings, new: GenerationSettings) -> str:
    """Which settings made a new generation necessary, in words."""
    changes = [
        f"{name.replace('_', ' ')} {getattr(old, name)!r} -> {getattr(new, name)!r}"
        for name in GenerationSettings.__dataclass_fields__
        if getattr(old, name) != getattr(new, name)
    ]
    return "settings changed: " + ", ".join(changes)
