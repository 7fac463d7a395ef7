"""What is published about each vendor's embedding models: dimensions, and limits on inputs and batches.

Sources, read 2026-11: docs.voyageai.com/docs/embeddings, developers.openai.com/api/reference (embeddings),
and the limits that the APIs' own error messages state. Models that are not listed work too: their dimension
is learnt from the first answer, and the careful limits below apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from doc_rag.errors import SettingsError

DEFAULT_MODELS = {"voyage": "voyage-4-large", "openai": "text-embedding-3-small"}


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """Limits of one model. A batch holds to both `max_batch_items` and `max_batch_tokens`."""

    name: str
    max_input_tokens: int
    max_batch_tokens: int
    max_batch_items: int
    default_dims: int | None = None
    """Dimensions of an answer when none are asked for; None where they are not known."""
    selectable_dims: Sequence[int] = ()
    """What may be asked for; empty where the model has one dimension, or is not known."""

    @property
    def is_known(self) -> bool:
        return self.default_dims is not None

    def check_dims(self, dims: int | None) -> None:
        """Raise SettingsError where RAG_EMBED_DIM cannot be had from a known model."""
        if dims is None or not self.is_known or dims == self.default_dims or dims in self.selectable_dims:
            return
        if isinstance(self.selectable_dims, range):
            choice = f"{self.selectable_dims.start} to {self.selectable_dims.stop - 1}"
        else:
            choice = ", ".join(map(str, sorted({self.default_dims or 0, *self.selectable_dims})))
        raise SettingsError(
            f"RAG_EMBED_DIM={dims} is not a dimension of {self.name}, which has {choice}. "
            "Choose one of these, or unset RAG_EMBED_DIM."
        )


_VOYAGE_DIMS = (256, 512, 1024, 2048)
_VOYAGE_ITEMS = 1_000
_OPENAI_ITEMS, _OPENAI_INPUT, _OPENAI_BATCH = 2_048, 8_191, 300_000


def _voyage(
    name: str, batch: int, dims: int = 1024, selectable: Sequence[int] = (), context: int = 32_000
) -> EmbeddingModel:
    return EmbeddingModel(name, context, batch, _VOYAGE_ITEMS, dims, selectable)


def _openai(name: str, dims: int, selectable: Sequence[int] = ()) -> EmbeddingModel:
    return EmbeddingModel(name, _OPENAI_INPUT, _OPENAI_BATCH, _OPENAI_ITEMS, dims, selectable)


_MODELS = {
    "voyage": (
        _voyage("voyage-4-large", 120_000, selectable=_VOYAGE_DIMS),
        _voyage("voyage-4", 320_000, selectable=_VOYAGE_DIMS),
        _voyage("voyage-4-lite", 1_000_000, selectable=_VOYAGE_DIMS),
        _voyage("voyage-3-large", 120_000, selectable=_VOYAGE_DIMS),
        _voyage("voyage-3.5", 320_000, selectable=_VOYAGE_DIMS),
        _voyage("voyage-3.5-lite", 1_000_000, selectable=_VOYAGE_DIMS),
        _voyage("voyage-code-3", 120_000, selectable=_VOYAGE_DIMS),
        _voyage("voyage-3", 120_000),
        _voyage("voyage-3-lite", 120_000, dims=512),
        _voyage("voyage-finance-2", 120_000),
        _voyage("voyage-multilingual-2", 120_000),
        _voyage("voyage-law-2", 120_000, context=16_000),
        _voyage("voyage-code-2", 120_000, dims=1536, context=16_000),
        _voyage("voyage-large-2", 120_000, dims=1536, context=16_000),
        _voyage("voyage-large-2-instruct", 120_000, context=16_000),
        _voyage("voyage-2", 320_000, context=4_000),
    ),
    "openai": (
        _openai("text-embedding-3-small", 1536, range(1, 1537)),
        _openai("text-embedding-3-large", 3072, range(1, 3073)),
        _openai("text-embedding-ada-002", 1536),
    ),
}
_BY_NAME = {provider: {model.name: model for model in models} for provider, models in _MODELS.items()}

_UNKNOWN_VOYAGE = EmbeddingModel("", 32_000, 120_000, _VOYAGE_ITEMS)
_UNKNOWN_OPENAI = EmbeddingModel("", _OPENAI_INPUT, _OPENAI_BATCH, _OPENAI_ITEMS)
# Servers that people run themselves: text-embeddings-inference refuses more than 32 inputs unless told
# otherwise, and a batch that a processor works on for minutes would only run into a timeout.
_SELF_HOSTED_ITEMS, _SELF_HOSTED_BATCH = 32, 16_384


def voyage_model(name: str) -> EmbeddingModel:
    return _BY_NAME["voyage"].get(name) or replace(_UNKNOWN_VOYAGE, name=name)


def openai_model(name: str, *, self_hosted: bool = False) -> EmbeddingModel:
    """The model at OpenAI or Azure, or, `self_hosted`, at another server that speaks the same API."""
    model = _BY_NAME["openai"].get(name) or replace(_UNKNOWN_OPENAI, name=name)
    if self_hosted:
        model = replace(model, max_batch_items=_SELF_HOSTED_ITEMS, max_batch_tokens=_SELF_HOSTED_BATCH)
    return model
