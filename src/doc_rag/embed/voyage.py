"""Voyage over its SDK, imported at the first call: embeddings and, for `doc_rag.rerank`, reranking.

Calls the SDK's request layer (`voyageai.Embedding`, `voyageai.Reranking`) and not `voyageai.Client`, which
appends vectors in the order they come and drops their `index`, so that a shuffled answer would pass unseen.
That layer retries nothing by itself and counts no tokens (counting would download a tokenizer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from doc_rag.embed.answers import Answer, parse_embeddings, tokens_of
from doc_rag.embed.api import CONNECT_SECONDS, Rerankings, check_key, host_of, quiet
from doc_rag.embed.failures import CallFailed, from_status, no_answer, said, scrub
from doc_rag.errors import MissingKeyError
from doc_rag.records import ModelIdentity
from doc_rag.setting_values import Secret

PROVIDER = "voyage"
HOST = "api.voyageai.com"
_URL = f"https://{HOST}/v1"
_ATLAS_URL = "https://ai.mongodb.com/v1"
"""Where keys that begin with "al-" (MongoDB Atlas) belong, as the SDK has it. The models are the same."""

MAX_CONNECTIONS = 64
"""Connections kept open: as many as RAG_EMBED_CONCURRENCY allows."""


class VoyageApi:
    """Voyage at `base_url`, or at its own address. `model` is an embedding model or a reranker."""

    def __init__(self, key: Secret | None, base_url: str | None, model: str) -> None:
        self._key = key
        self._base_url = base_url
        self.identity = ModelIdentity(PROVIDER, host_of("VOYAGE_BASE_URL", base_url, HOST), model)

    @property
    def is_self_hosted(self) -> bool:
        return False

    def address(self) -> str:
        """Where calls go: VOYAGE_BASE_URL, else what the key's kind says."""
        is_atlas = self._key is not None and self._key.reveal().startswith("al-")
        return self._base_url or (_ATLAS_URL if is_atlas else _URL)

    def require_key(self) -> None:
        if not self._key:
            raise MissingKeyError(
                "VOYAGE_API_KEY is not set; Voyage needs it. Get a key at https://dash.voyageai.com, or set "
                "RAG_EMBED_PROVIDER=local, which needs none."
            )
        check_key("VOYAGE_API_KEY", self._key)

    def embed(
        self, texts: Sequence[str], *, input_type: str, dimensions: int | None, timeout_seconds: float
    ) -> Answer:
        def call(sdk: Any, connection: dict[str, Any]) -> Any:
            return sdk.Embedding.create(
                input=list(texts),
                model=self.identity.model,
                input_type=input_type,
                # A text over the limit must be refused, never cut unseen.
                truncation=False,
                output_dimension=dimensions,
                encoding_format="base64",
                **connection,
            )

        return parse_embeddings(self._call(call, timeout_seconds))

    def rerank(
        self, query: str, documents: Sequence[str], *, top_k: int, timeout_seconds: float
    ) -> Rerankings:
        """One rerank call. Raises CallFailed."""

        def call(sdk: Any, connection: dict[str, Any]) -> Any:
            return sdk.Reranking.create(
                query=query,
                documents=list(documents),
                model=self.identity.model,
                top_k=top_k,
                truncation=True,
                **connection,
            )

        payload = self._call(call, timeout_seconds)
        try:
            results = tuple((int(row["index"]), float(row["relevance_score"])) for row in payload["data"])
        except (KeyError, TypeError, ValueError):
            raise no_answer("an answer that holds no ranking") from None
        return Rerankings(results, tokens_of(payload))

    def _call(self, call: Callable[[Any, dict[str, Any]], Any], timeout_seconds: float) -> Any:
        self.require_key()
        assert self._key is not None
        key = self._key.reveal()
        # The SDK logs at INFO what the API said about an error, which may repeat the key.
        quiet("voyage")
        import voyageai
        from voyageai.error import VoyageError

        _share_connections(voyageai)
        timeout = (min(CONNECT_SECONDS, timeout_seconds), timeout_seconds)
        connection = {"api_key": key, "base_url": self.address(), "request_timeout": timeout}
        try:
            payload = call(voyageai, connection)
        except VoyageError as error:
            failure = _failure(error, key)
        except (UnicodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            # The SDK trips over answers that are no UTF-8, or JSON of another shape.
            failure = no_answer(f"an answer the SDK cannot read ({type(error).__name__})")
        else:
            if isinstance(payload, Mapping):
                return payload
            failure = no_answer("an answer that is not the API's")
        # Raised here, outside the handlers: as its context an SDK error would carry the request and the key.
        raise failure

    def remedy(self, failure: CallFailed) -> str:
        model = self.identity.model
        if failure.status == 401:
            return (
                "Voyage does not accept VOYAGE_API_KEY. Set it to a valid key from https://dash.voyageai.com."
            )
        if failure.status == 403:
            return "The key in VOYAGE_API_KEY may not use this. Check the key's project, or VOYAGE_BASE_URL."
        if failure.status == 404:
            return f"{self.identity.endpoint} has no such address. Check VOYAGE_BASE_URL (it ends in /v1)."
        if "model" in failure.reason.lower():
            return f"Check the model's name, {model} (RAG_EMBED_MODEL, or RAG_RERANK_MODEL for reranking)."
        return "Trying again would not help."


@lru_cache(maxsize=1)
def _session() -> Any:
    """The process's one HTTP session: threads come and go, and a new TLS handshake for each would cost time."""
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=MAX_CONNECTIONS))
    return session


def _share_connections(sdk: Any) -> None:
    """Hand the SDK our session; by itself it opens one a thread, and closes none when the thread ends."""
    if sdk.requestssession is None:
        sdk.requestssession = _session


def _failure(error: Any, key: str) -> CallFailed:
    from voyageai.error import Timeout

    if error.http_status is None:
        if isinstance(error, Timeout):
            return no_answer("no answer in time", sent="connect timeout" not in str(error).lower())
        return no_answer(
            f"the connection failed ({_network_reason(error)})", sent=not _never_connected(error)
        )
    return from_status(error.http_status, error.headers, said(str(error.http_body or "")), [key])


def _network_reason(error: Exception) -> str:
    """The innermost cause, which is short; the outer ones repeat addresses and objects."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    return scrub(f"{type(inner).__name__}: {inner}")


def _never_connected(error: Exception) -> bool:
    """Whether nothing was sent: requests reports a failed connect as it reports a connection cut later."""
    return "NewConnectionError" in str(error) or "NameResolutionError" in str(error)
