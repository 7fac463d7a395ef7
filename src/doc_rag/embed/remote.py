"""The embedder of every provider behind HTTP: batches in threads, halved or split where they are too large.

A provider contributes one call (`doc_rag.embed.api.EmbeddingApi`); whatever is true of all of them is here
and in `doc_rag.embed.calls`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence

import numpy as np

from doc_rag.embed.api import EmbeddingApi
from doc_rag.embed.base import RecordUsage, Stopped
from doc_rag.embed.batches import Batches
from doc_rag.embed.calls import Calls, Dimensions
from doc_rag.embed.failures import CallFailed
from doc_rag.embed.models import EmbeddingModel
from doc_rag.embed.pool import Pool
from doc_rag.embed.retry import RetryPolicy
from doc_rag.embed.tokens import cut_to_tokens, estimate_tokens, split_evenly
from doc_rag.errors import EmbeddingRejected
from doc_rag.records import EmbeddedBatch, ModelIdentity, Vector, Vectors

log = logging.getLogger(__name__)

QUERY_BUDGET_SECONDS = 30.0
ATTEMPT_SECONDS = 60.0
QUERY_ATTEMPT_SECONDS = 10.0
SELF_HOSTED_ATTEMPT_SECONDS = 300.0
"""A batch on a server without a graphics card takes minutes; giving up on it would only send it again."""
SHORTEST_PART_CHARS = 32
SMALLEST_SHARE = 32
"""Texts below which a batch is not divided among the threads: each call has its price in time and rate limits."""
PROBE = "dimensions"

Emit = Callable[[EmbeddedBatch], None]
_never = threading.Event()


class RemoteEmbedder:
    """Embeds through one `EmbeddingApi`. Safe for several threads; construction does no I/O."""

    def __init__(
        self,
        api: EmbeddingApi,
        model: EmbeddingModel,
        record_usage: RecordUsage,
        dimensions: Dimensions,
        *,
        query_prefix: str = "",
        document_prefix: str = "",
        truncate_long: bool = False,
        concurrency: int = 4,
        retry_seconds: float = 120.0,
    ) -> None:
        self._api = api
        self._model = model
        self._calls = Calls(api, record_usage, dimensions, concurrency)
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._truncate_long = truncate_long
        self._concurrency = concurrency
        self._probing = threading.Lock()
        slow = api.is_self_hosted
        self._document_policy = RetryPolicy(
            retry_seconds, SELF_HOSTED_ATTEMPT_SECONDS if slow else ATTEMPT_SECONDS
        )
        self._query_policy = RetryPolicy(
            min(QUERY_BUDGET_SECONDS, retry_seconds), QUERY_BUDGET_SECONDS if slow else QUERY_ATTEMPT_SECONDS
        )

    @property
    def identity(self) -> ModelIdentity:
        return self._api.identity

    @property
    def dimensions(self) -> int | None:
        return self._calls.dimensions

    @property
    def document_prefix(self) -> str:
        return self._document_prefix

    @property
    def max_input_tokens(self) -> int:
        return self._model.max_input_tokens

    def require_key(self) -> None:
        self._api.require_key()

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    def resolve_dimensions(self) -> int:
        with self._probing:
            if self._calls.dimensions is None:
                self._calls.vectors([PROBE], "document", self._query_policy, _never)
        assert self._calls.dimensions is not None
        return self._calls.dimensions

    def embed_documents(
        self, texts: Sequence[str], stopped: Stopped = lambda: False
    ) -> Generator[EmbeddedBatch, None, None]:
        self._api.require_key()
        prefix_tokens = estimate_tokens(self._document_prefix)
        tokens = [estimate_tokens(text) + prefix_tokens for text in texts]
        # No fuller than it takes to keep all threads busy: the answers come sooner, and a lost one costs less.
        share = max(SMALLEST_SHARE, -(-len(texts) // self._concurrency))
        batches = Batches(tokens, min(self._model.max_batch_items, share), self._model.max_batch_tokens)

        def work(batch: tuple[int, ...], ended: threading.Event, emit: Emit) -> None:
            todo = [batch]
            while todo:
                part = todo.pop()
                try:
                    vectors = self._calls.vectors(
                        [self._document_prefix + texts[k] for k in part],
                        "document",
                        self._document_policy,
                        ended,
                        estimated_tokens=sum(tokens[k] for k in part),
                    )
                except CallFailed as refused:
                    if len(part) > 1:
                        todo += _smaller(part, tokens, refused, batches)[::-1]
                        continue
                else:
                    emit(EmbeddedBatch(part, vectors))
                    continue
                emit(self._embed_long_document(part[0], texts[part[0]], ended))

        pool = Pool(batches.take, work, min(self._concurrency, batches.count()))
        return pool.results(stopped)

    def embed_query(self, text: str) -> Vector:
        self._api.require_key()
        # A query written by a model may hold half a surrogate pair, which no API takes.
        text = text.encode("utf-8", "replace").decode("utf-8")
        try:
            vector: Vector = self._calls.vectors(
                [self._query_prefix + text], "query", self._query_policy, _never
            )[0]
        except CallFailed:
            vector = self._embed_long(self._query_prefix, text, "query", self._query_policy, _never)
        return vector

    def _embed_long_document(self, index: int, text: str, ended: threading.Event) -> EmbeddedBatch:
        vector = self._embed_long(self._document_prefix, text, "document", self._document_policy, ended)
        log.warning(
            "The text at position %d (%d characters) is longer than %s reads and was %s.",
            index,
            len(text),
            self.identity.model,
            "cut" if self._truncate_long else "embedded in parts",
        )
        return EmbeddedBatch((index,), vector[None], (index,))

    def _embed_long(
        self, prefix: str, text: str, input_type: str, policy: RetryPolicy, ended: threading.Event
    ) -> Vector:
        """The vector of a text that the provider refused as too long, of unit length.

        Its parts' vectors are averaged, weighted by the parts' length, and normalised again (OpenAI
        cookbook, "Embedding texts that are longer than the model's maximum context length"); or it is
        cut until it is accepted (RAG_EMBED_LONG_INPUT=truncate).
        """
        room = max(1, self._model.max_input_tokens - estimate_tokens(prefix))
        if self._truncate_long:
            todo = [min(cut_to_tokens(text, room), text[: len(text) * 3 // 4], key=len)]
        else:
            todo = split_evenly(text, max(2, -(-estimate_tokens(text) // room)))[::-1]
        total: Vectors | None = None
        while todo:
            part = todo.pop()
            if not part.strip():
                continue
            try:
                vector = self._calls.vectors([prefix + part], input_type, policy, ended)[0]
            except CallFailed as refused:
                if len(part) <= SHORTEST_PART_CHARS:
                    raise EmbeddingRejected(
                        f"{self._calls.name} refuses even {len(part)} characters as too long ({refused.reason})."
                    ) from None
                todo += [part[: len(part) * 3 // 4]] if self._truncate_long else split_evenly(part, 2)[::-1]
                continue
            weighted = vector * np.float32(estimate_tokens(part))
            total = weighted if total is None else total + weighted
        if total is None or not np.linalg.norm(total):
            raise EmbeddingRejected(
                f"{self._calls.name} gave no vector for a text of {len(text)} characters."
            )
        unit: Vector = (total / np.linalg.norm(total)).astype(np.float32)
        return unit


def _smaller(
    part: tuple[int, ...], tokens: Sequence[int], refused: CallFailed, batches: Batches
) -> list[tuple[int, ...]]:
    """`part` in smaller pieces, in order; the batches to come are made as small as the refusal suggests.

    Halves, where the provider does not say what it would take. A refusal over one text of the batch says
    nothing about the others, so that it makes no later batch smaller.
    """
    limit = refused.tokens_per_minute
    size = sum(tokens[k] for k in part)
    if limit is not None:
        batches.limit(tokens=limit)
        pieces = Batches([tokens[k] for k in part], len(part), limit)
        return [tuple(part[k] for k in piece) for piece in iter(pieces.take, None)]
    if refused.is_about_batch and "token" in refused.reason.lower():
        batches.limit(tokens=size // 2)
    elif refused.is_about_batch:
        batches.limit(items=len(part) // 2)
    half = len(part) // 2
    return [part[:half], part[half:]]
