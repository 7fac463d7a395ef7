"""One provider's calls: tried again, checked, tallied, and their failures turned into errors people can read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from doc_rag.embed.answers import check_vectors
from doc_rag.embed.api import EmbeddingApi
from doc_rag.embed.base import RecordUsage
from doc_rag.embed.failures import CallFailed, Kind
from doc_rag.embed.retry import Gate, GaveUp, RetryPolicy, call_with_retries, gave_up_message
from doc_rag.errors import DimensionMismatch, DocRagError, EmbeddingRejected, EmbeddingUnavailable
from doc_rag.records import UsageEvent, Vectors


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What is known of the dimension before any answer.

    `expected` is None where the first answer decides. `sent` is what the API is asked for, None where the
    parameter is left out. `reason` says where `expected` comes from, for the error.
    """

    expected: int | None
    sent: int | None
    reason: str
    ask_on_mismatch: bool = False
    """Ask for `expected` once an answer has another: a recorded generation on a model that is not known."""


class Calls:
    """Embeds lists of texts that fit one request. Safe for several threads."""

    def __init__(
        self, api: EmbeddingApi, record_usage: RecordUsage, dimensions: Dimensions, concurrency: int
    ) -> None:
        self._api = api
        self._record_usage = record_usage
        self._dimensions = dimensions
        self._learnt = dimensions.expected
        self._sent = dimensions.sent
        self._lock = threading.Lock()
        self._gate = Gate(concurrency)
        self.name = f"{api.identity.provider} ({api.identity.endpoint})"

    @property
    def dimensions(self) -> int | None:
        return self._learnt

    def vectors(
        self,
        texts: Sequence[str],
        input_type: str,
        policy: RetryPolicy,
        ended: threading.Event,
        *,
        estimated_tokens: int | None = None,
    ) -> Vectors:
        """Vectors of `texts` in order, shape (len(texts), dims).

        Documents pass the shared gate; a query does not queue behind them, but reports a rate limit to it.
        With `estimated_tokens`, a batch over the tokens a minute that a rate limit names counts as too large.

        Raises:
            CallFailed (TOO_LARGE only): send fewer texts, or shorter ones.
            EmbeddingError, MissingKeyError: as the protocol has them.
            Abandoned: `ended` was set.
        """
        try:
            return self._vectors(texts, input_type, policy, ended, estimated_tokens)
        except CallFailed as failure:
            if failure.kind is Kind.TOO_LARGE:
                raise
            reason = (
                f"{self.name} refused the request ({failure.reason.rstrip('.')}). {self._api.remedy(failure)}"
            )
            error: DocRagError = EmbeddingRejected(reason)
        except GaveUp as given_up:
            if given_up.last.kind is Kind.BAD_ANSWER:
                error = EmbeddingRejected(
                    f"{self.name} gave {given_up.last.reason} for {self._api.identity.model}, again and again. "
                    "Check the model and the server."
                )
            else:
                error = EmbeddingUnavailable(
                    f"{gave_up_message(self.name, given_up, policy)} Try again later; "
                    "RAG_EMBED_RETRY_SECONDS sets how long an ingest goes on trying."
                )
        raise error

    def _vectors(
        self,
        texts: Sequence[str],
        input_type: str,
        policy: RetryPolicy,
        ended: threading.Event,
        estimated_tokens: int | None,
    ) -> Vectors:
        queued = input_type == "document"

        def attempt(timeout_seconds: float) -> Vectors:
            try:
                return self._attempt(texts, input_type, timeout_seconds)
            except CallFailed as failure:
                limit = failure.tokens_per_minute
                if limit is None or estimated_tokens is None or estimated_tokens <= limit or len(texts) == 1:
                    raise
                # No wait helps a batch that is larger than a whole minute's tokens.
                self._gate.slow_down(policy.wait_seconds(1))
                smaller = CallFailed(Kind.TOO_LARGE, failure.reason, tokens_per_minute=limit)
            raise smaller

        while True:
            sent = self._sent
            vectors = call_with_retries(
                attempt,
                policy,
                name=self.name,
                ended=ended,
                gate=self._gate if queued else None,
                shared=self._gate,
            )
            if self._accept(vectors.shape[1], sent):
                return vectors

    def _accept(self, found: int, sent: int | None) -> bool:
        """Whether `found` dimensions are right; False means ask again, now with `dimensions`.

        The first answer of a model that is not known decides for all that follow.
        """
        with self._lock:
            if self._learnt is None:
                self._learnt = found
            if found == self._learnt:
                return True
            if self._dimensions.ask_on_mismatch and sent is None:
                self._sent = self._learnt
                return False
        raise DimensionMismatch(
            f"{self.name} answered with vectors of {found} dimensions for {self._api.identity.model}, but "
            f"{self._learnt} are expected ({self._dimensions.reason}). Set RAG_EMBED_DIM={found} and ingest again, "
            f"or use a model that has {self._learnt}."
        )

    def _attempt(self, texts: Sequence[str], input_type: str, timeout_seconds: float) -> Vectors:
        operation = f"embed_{input_type}"
        try:
            answer = self._api.embed(
                texts, input_type=input_type, dimensions=self._sent, timeout_seconds=timeout_seconds
            )
            vectors = check_vectors(answer, len(texts))
        except CallFailed as failure:
            if failure.sent:
                self._record(operation, failure.tokens)
            raise
        self._record(operation, answer.tokens)
        return vectors

    def _record(self, operation: str, tokens: int | None) -> None:
        identity = self._api.identity
        self._record_usage(UsageEvent(identity.provider, identity.model, operation, tokens))
