"""Put search results in order by a cross-encoder at Voyage, with the user's consent where that is news.

The first ranking is made of vectors; this one reads the query and each candidate together. It costs a call a
query, so it is tried for a few seconds only: without it the search has its next ranking to fall back to.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from doc_rag.embed.base import RecordUsage
from doc_rag.embed.failures import CallFailed, Kind
from doc_rag.embed.retry import GaveUp, RetryPolicy, call_with_retries, gave_up_message
from doc_rag.errors import MissingKeyError, RerankUnavailable, SettingsError
from doc_rag.records import UsageEvent
from doc_rag.settings import Settings

if TYPE_CHECKING:
    from doc_rag.embed.api import Rerankings
    from doc_rag.embed.voyage import VoyageApi

PROVIDER = "voyage"
BUDGET_SECONDS = 10.0
ATTEMPT_SECONDS = 5.0
_never = threading.Event()


class Reranker(Protocol):
    """Scores documents against a query, each pair read together."""

    model: str

    def rerank(self, query: str, documents: Sequence[str], top_k: int) -> list[tuple[int, float]]:
        """The best `top_k` of `documents` as (position, relevance score), best first.

        Raises:
            RerankUnavailable: the reranker refused, or did not answer within 10 seconds; the message says why.
        """


def make_reranker(settings: Settings, record_usage: RecordUsage) -> Reranker | None:
    """The reranker of RAG_RERANK_MODEL, None where it is unset. Does no I/O and imports no SDK.

    Raises:
        SettingsError: another provider embeds, and nobody has agreed that chunk text goes to Voyage.
    """
    if settings.rerank_model is None:
        return None
    if settings.embed_provider != PROVIDER and not settings.allow_cross_provider_rerank:
        raise SettingsError(
            f"RAG_RERANK_MODEL={settings.rerank_model} would send each query and the text of the chunks found for it "
            f"to Voyage, while RAG_EMBED_PROVIDER={settings.embed_provider} embeds. Set "
            "RAG_ALLOW_CROSS_PROVIDER_RERANK=true to allow that, or unset RAG_RERANK_MODEL."
        )
    from doc_rag.embed.voyage import VoyageApi

    api = VoyageApi(settings.voyage_api_key, settings.voyage_base_url, settings.rerank_model)
    return VoyageReranker(api, record_usage)


class VoyageReranker:
    """Voyage's rerank endpoint. Safe for several threads."""

    def __init__(self, api: VoyageApi, record_usage: RecordUsage) -> None:
        self._api = api
        self._record_usage = record_usage
        self.model = api.identity.model

    def rerank(self, query: str, documents: Sequence[str], top_k: int) -> list[tuple[int, float]]:
        if not documents:
            return []
        name = f"the reranker {self.model}"

        def attempt(timeout_seconds: float) -> list[tuple[int, float]]:
            return self._attempt(query, documents, min(top_k, len(documents)), timeout_seconds)

        policy = RetryPolicy(BUDGET_SECONDS, ATTEMPT_SECONDS)
        try:
            self._api.require_key()
            return call_with_retries(attempt, policy, name=name, ended=_never)
        except MissingKeyError as missing:
            why = str(missing)
        except CallFailed as failure:
            why = f"Voyage refused it ({failure.reason.rstrip('.')}). {self._api.remedy(failure)}"
        except GaveUp as given_up:
            why = gave_up_message("Voyage", given_up, policy)
        raise RerankUnavailable(f"Not reranked by {self.model}: {why}")

    def _attempt(
        self, query: str, documents: Sequence[str], top_k: int, timeout_seconds: float
    ) -> list[tuple[int, float]]:
        try:
            answer = self._api.rerank(query, documents, top_k=top_k, timeout_seconds=timeout_seconds)
            ranked = _checked(answer, len(documents), top_k)
        except CallFailed as failure:
            if failure.sent:
                self._record(failure.tokens)
            raise
        self._record(answer.tokens)
        return ranked

    def _record(self, tokens: int | None) -> None:
        self._record_usage(UsageEvent(PROVIDER, self.model, "rerank", tokens))


def _checked(answer: Rerankings, count: int, top_k: int) -> list[tuple[int, float]]:
    """The answer in order. Raises CallFailed where it names no `top_k` different documents of `count`."""
    positions = [position for position, _ in answer.results]
    if (
        len(set(positions)) != top_k
        or len(positions) != top_k
        or not all(0 <= position < count for position in positions)
        or not all(score == score for _, score in answer.results)
    ):
        raise CallFailed(
            Kind.BAD_ANSWER, "an unusable answer: it does not rank the documents", tokens=answer.tokens
        )
    return sorted(answer.results, key=lambda result: -result[1])
