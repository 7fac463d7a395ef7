"""OpenAI, and every server that speaks its embeddings API (Ollama, vLLM, ...), over OpenAI's SDK.

The SDK is imported at the first call. Its own retries are off: two layers of them would multiply. Answers are
read raw, so that what a server sends is checked by us alone.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from doc_rag.embed.answers import Answer, parse_embeddings
from doc_rag.embed.api import CONNECT_SECONDS, check_key, host_of, quiet
from doc_rag.embed.failures import CallFailed, from_status, no_answer, said, scrub
from doc_rag.errors import MissingKeyError
from doc_rag.records import ModelIdentity
from doc_rag.setting_values import Secret

if TYPE_CHECKING:
    import openai

PROVIDER = "openai"
HOST = "api.openai.com"
_URL = f"https://{HOST}/v1"


class OpenAIApi:
    """One model at `base_url`, or at OpenAI's own address."""

    def __init__(self, key: Secret | None, base_url: str | None, model: str) -> None:
        self._key = key
        self._base_url = base_url or _URL
        self.identity = ModelIdentity(PROVIDER, host_of("OPENAI_BASE_URL", self._base_url), model)
        self._client: openai.OpenAI | None = None
        self._lock = threading.Lock()

    @property
    def is_self_hosted(self) -> bool:
        return not is_openai_host(self.identity.endpoint)

    def require_key(self) -> None:
        if not self._key and not self.is_self_hosted:
            raise MissingKeyError(
                "OPENAI_API_KEY is not set; OpenAI needs it. Get a key at https://platform.openai.com/api-keys, "
                "set OPENAI_BASE_URL to a server of your own, or RAG_EMBED_PROVIDER=local, which needs none."
            )
        if self._key:
            check_key("OPENAI_API_KEY", self._key)

    def _secret(self) -> str:
        # The SDK refuses to start without a key, and other servers do not look at it.
        return self._key.reveal() if self._key else "unused"

    def _make_client(self) -> openai.OpenAI:
        import openai

        return openai.OpenAI(api_key=self._secret(), base_url=self._base_url, max_retries=0)

    def embed(
        self, texts: Sequence[str], *, input_type: str, dimensions: int | None, timeout_seconds: float
    ) -> Answer:
        self.require_key()
        import openai

        # httpx logs every request's address at INFO, with the password that it may hold.
        quiet("httpx2", "httpx")
        with self._lock:
            if self._client is None:
                self._client = self._make_client()
                # Connections end with this object, and not whenever the collector finds their sockets.
                weakref.finalize(self, self._client.close)
            client = self._client
        try:
            raw = client.embeddings.with_raw_response.create(
                input=list(texts),
                model=self.identity.model,
                # By default the SDK asks for base64, and servers that answer floats all the same are then
                # decoded to a quarter of the dimensions.
                encoding_format="float",
                dimensions=openai.omit if dimensions is None else dimensions,
                timeout=openai.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds)),
            )
        except openai.APIStatusError as error:
            answer = error.response
            failure = from_status(answer.status_code, answer.headers, said(answer.text), [self._secret()])
        except openai.APIConnectionError as error:
            failure = _network_failure(error)
        else:
            return _read(raw.http_response)
        # Raised here, outside the handlers: as its context an SDK error would carry the request and the key.
        raise failure

    def remedy(self, failure: CallFailed) -> str:
        endpoint, model = self.identity.endpoint, self.identity.model
        if failure.status == 401:
            return f"{endpoint} does not accept OPENAI_API_KEY. Set it to a valid key for that address."
        if failure.status == 403:
            return f"The key in OPENAI_API_KEY may not use {model} at {endpoint}."
        if failure.status == 404:
            return (
                f"Check RAG_EMBED_MODEL (the model {model} is not there, or not pulled) and OPENAI_BASE_URL, "
                "which usually ends in /v1."
            )
        if failure.status == 429:
            return "The account's quota is used up: add credit, or set another OPENAI_API_KEY."
        if "model" in failure.reason.lower():
            return f"Check RAG_EMBED_MODEL ({model})."
        if "dimension" in failure.reason.lower():
            return "Unset RAG_EMBED_DIM: the model takes no other dimension than its own."
        return "Trying again would not help."


def _read(response: Any) -> Answer:
    """The answer of a call that succeeded, as far as its status says. Raises CallFailed."""
    try:
        payload = json.loads(response.text)
    except ValueError:
        raise from_status(response.status_code, response.headers, response.text) from None
    if isinstance(payload, dict) and "data" not in payload and "error" in payload:
        # Some gateways report an upstream's failure with status 200.
        raise no_answer(f"an error in place of an answer: {scrub(said(response.text))}")
    return parse_embeddings(payload)


def _network_failure(error: openai.APIConnectionError) -> CallFailed:
    import openai

    cause = error.__cause__
    # httpx's names: ConnectError and ConnectTimeout mean that nothing was sent.
    sent = not type(cause).__name__.startswith("Connect")
    if isinstance(error, openai.APITimeoutError):
        return no_answer("no answer in time", sent=sent)
    return no_answer(f"the connection failed ({scrub(f'{type(cause).__name__}: {cause}')})", sent=sent)


def is_openai_host(endpoint: str) -> bool:
    """Whether `endpoint` is OpenAI's own address, a regional one included."""
    return endpoint == HOST or endpoint.endswith(f".{HOST}")
