"""Wire-true servers of Voyage, OpenAI and Azure OpenAI for tests: real HTTP, for the real SDKs.

    with VoyageServer() as server:
        settings = server.settings(RAG_DOCS_DIR=str(docs))      # provider, key and address are set
        server.fail_next(rate_limited("1"), None, cut())        # befall the next requests, in order
        server.fail_at_random(rate_limited(), 0.3)              # or a share of all, by `seed`
        ...
        assert server.texts_answered == Counter(expected)       # exactly these texts, once
        assert server.bodies[0]["input_type"] == "document"
        assert tally == server.tokens_answered                  # tokens of the answers delivered whole

Each enforces what the vendor does: the key, the model's name, items and tokens of a batch, the length of a
text, dimensions, encodings; it refuses in the vendor's words. A vector is `bag_of_words(text, dims)`, so texts
that share words are near each other, and a person can say which is nearest. A token is a word or a symbol.
Faults are the functions of `tests.providers.wire` that return `Fault`. Limits are attributes: lower them to
see batches halved (`server.max_batch_tokens = 500`). `server.host` is the endpoint of `ModelIdentity`.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from urllib.parse import parse_qs

from tests.providers.wire import Json, ProviderServer, Recorded, Refused

__all__ = ["AzureServer", "OpenAIServer", "VoyageServer", "bag_of_words", "count_tokens"]

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+|[^\w\s]")


def bag_of_words(text: str, dims: int) -> list[float]:
    """Unit vector: each word of `text`, in lower case, adds 1 at component crc32(word) modulo `dims`."""
    vector = [0.0] * dims
    for word in _WORD.findall(text.lower()) or [""]:
        vector[zlib.crc32(word.encode()) % dims] += 1.0
    norm = math.sqrt(sum(x * x for x in vector))
    return [x / norm for x in vector]


def count_tokens(text: str) -> int:
    return len(_TOKEN.findall(text))


def _similarity(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(bag_of_words(one, 4096), bag_of_words(other, 4096), strict=True))


class VoyageServer(ProviderServer):
    """POST /v1/embeddings and /v1/rerank as api.voyageai.com answers them."""

    def __init__(self, *, key: str = "pa-test-voyage-key-7f3a", seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.key = key
        self.models = {"voyage-4-large": 1024, "voyage-4": 1024, "voyage-3-lite": 512}
        self.selectable = {"voyage-4-large": (256, 512, 1024, 2048), "voyage-4": (256, 512, 1024, 2048)}
        self.max_batch_items = 1_000
        self.max_batch_tokens = 120_000
        self.max_input_tokens = 32_000

    def environ(self) -> dict[str, str]:
        return {
            "RAG_EMBED_PROVIDER": "voyage",
            "VOYAGE_API_KEY": self.key,
            "VOYAGE_BASE_URL": self.url,
        }

    def answer(self, request: Recorded) -> Json:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            raise Refused(401, {"detail": "Provided API key is invalid."})
        if request.path == f"{self.path}/embeddings":
            return self._embeddings(request)
        if request.path == f"{self.path}/rerank":
            return self._rerank(request)
        raise Refused(404, {"detail": "Not Found"})

    def _embeddings(self, request: Recorded) -> Json:
        body, texts = request.body, self.texts_of(request)
        model = body.get("model")
        if model not in self.models:
            raise _voyage_400(f"Model {model} is not supported. Supported models are {sorted(self.models)}.")
        if not texts or not all(texts):
            raise _voyage_400("Input cannot contain empty strings or empty lists")
        if len(texts) > self.max_batch_items:
            raise _voyage_400(
                f"The batch size limit is {self.max_batch_items}. Your batch size is {len(texts)}."
            )
        if body.get("input_type") not in (None, "query", "document"):
            raise _voyage_400("Argument 'input_type' must be 'query', 'document' or null.")
        dims = body.get("output_dimension") or self.models[model]
        if dims not in self.selectable.get(model, (self.models[model],)):
            raise _voyage_400(f"Value {dims} provided for output_dimension is not supported by {model}.")
        counts = [count_tokens(text) for text in texts]
        for k, count in enumerate(counts):
            if count > self.max_input_tokens and body.get("truncation") is False:
                raise _voyage_400(
                    f"The example at index {k} in your batch has too many tokens and does not fit into the "
                    f"model's context window of {self.max_input_tokens} tokens. Please lower the number of "
                    "tokens in the listed example(s) or use truncation."
                )
        request_tokens = sum(min(count, self.max_input_tokens) for count in counts)
        if request_tokens > self.max_batch_tokens:
            raise _voyage_400(
                f"Request to model '{model}' failed. The max allowed tokens per submitted batch is "
                f"{self.max_batch_tokens}. Your batch has {request_tokens} tokens after truncation. Please lower "
                "the number of tokens in the batch."
            )
        request.tokens = request_tokens
        return _embeddings(texts, dims) | {"model": model, "usage": {"total_tokens": request_tokens}}

    def _rerank(self, request: Recorded) -> Json:
        body = request.body
        query, documents = body["query"], body["documents"]
        if body.get("model") not in ("rerank-2.5", "rerank-2.5-lite"):
            raise _voyage_400(f"Model {body.get('model')} is not supported.")
        if len(documents) > 1_000:
            raise _voyage_400(f"The number of documents cannot exceed 1000. You have {len(documents)}.")
        scored = sorted(
            ((_similarity(query, document), -k) for k, document in enumerate(documents)), reverse=True
        )
        request.tokens = sum(count_tokens(query) + count_tokens(document) for document in documents)
        return {
            "object": "list",
            "data": [{"index": -k, "relevance_score": score} for score, k in scored[: body.get("top_k")]],
            "model": body["model"],
            "usage": {"total_tokens": request.tokens},
        }

    def encoded(self, request: Recorded, answer: Json) -> Json:
        return answer if request.path.endswith("/rerank") else super().encoded(request, answer)


class OpenAIServer(ProviderServer):
    """POST /v1/embeddings as api.openai.com answers it, or with `key=None` a server that asks for none."""

    def __init__(
        self,
        *,
        key: str | None = "sk-test-openai-key-41c9e5",
        models: dict[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed=seed)
        self.key = key
        self.models = models or {"text-embedding-3-small": 1536, "text-embedding-ada-002": 1536}
        self.takes_dimensions = {"text-embedding-3-small", "text-embedding-3-large"}
        self.max_batch_items = 2_048
        self.max_batch_tokens = 300_000
        self.max_input_tokens = 8_192
        self.reports_usage = True
        self.always_base64 = False
        self.ignores_dimensions = False

    def environ(self) -> dict[str, str]:
        return {
            "RAG_EMBED_PROVIDER": "openai",
            "OPENAI_BASE_URL": self.url,
            "RAG_EMBED_MODEL": next(iter(self.models)),
        } | ({"OPENAI_API_KEY": self.key} if self.key else {})

    def answer(self, request: Recorded) -> Json:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            # The real API repeats the ends of the key that it was given.
            shown = f"{given[:8]}{'*' * 12}{given[-4:]}"
            raise _openai_error(401, f"Incorrect API key provided: {shown}.", "invalid_api_key")
        if request.path != f"{self.path}/embeddings":
            raise _openai_error(404, f"Invalid URL (POST {request.path})", None)
        model = request.body.get("model")
        if model not in self.models:
            raise _openai_error(404, f"The model `{model}` does not exist.", "model_not_found")
        return self._embeddings(request, model)

    def _embeddings(self, request: Recorded, model: str) -> Json:
        body, texts = request.body, self.texts_of(request)
        if not texts or not all(texts):
            raise _openai_error(400, "'$.input' is invalid. Please check the API reference.", None)
        if len(texts) > self.max_batch_items:
            raise _openai_error(
                400,
                f"Invalid 'input': array too long. Expected an array with maximum length {self.max_batch_items}, "
                f"but got an array with length {len(texts)} instead.",
                "array_above_max_length",
            )
        counts = [count_tokens(text) for text in texts]
        if max(counts) > self.max_input_tokens:
            raise _openai_error(
                400,
                f"This model's maximum context length is {self.max_input_tokens} tokens, however you requested "
                f"{max(counts)} tokens ({max(counts)} in your prompt; 0 for the completion). Please reduce your "
                "prompt; or completion length.",
                None,
            )
        if sum(counts) > self.max_batch_tokens:
            raise _openai_error(
                400,
                f"Invalid 'input': maximum request size is {self.max_batch_tokens} tokens per request.",
                "max_tokens_per_request",
            )
        dims = None if self.ignores_dimensions else body.get("dimensions")
        if dims is not None and model not in self.takes_dimensions:
            raise _openai_error(400, "This model does not support specifying dimensions.", None)
        request.tokens = sum(counts)
        usage = {"usage": {"prompt_tokens": request.tokens, "total_tokens": request.tokens}}
        answer = _embeddings(texts, dims or self.models[model]) | {"model": model}
        return answer | usage if self.reports_usage else answer

    def encoded(self, request: Recorded, answer: Json) -> Json:
        if self.always_base64:
            request.body["encoding_format"] = "base64"
        return super().encoded(request, answer)


class AzureServer(OpenAIServer):
    """POST /openai/deployments/NAME/embeddings?api-version=... of an Azure OpenAI resource."""

    path = ""

    def __init__(
        self,
        *,
        key: str = "azure0123456789abcdef0123456789ab",
        deployment: str = "our-embeddings",
        seed: int = 0,
    ) -> None:
        super().__init__(key=key, models={deployment: 1536}, seed=seed)
        self.deployment = deployment
        self.takes_dimensions = {deployment}
        self.api_versions = {"2024-10-21", "2024-02-01"}

    def environ(self) -> dict[str, str]:
        return {
            "RAG_EMBED_PROVIDER": "azure-openai",
            "AZURE_OPENAI_ENDPOINT": self.url,
            "AZURE_OPENAI_API_KEY": self.key or "",
            "AZURE_OPENAI_EMBED_DEPLOYMENT": self.deployment,
        }

    def answer(self, request: Recorded) -> Json:
        if request.headers.get("api-key") != self.key:
            raise _openai_error(
                401,
                "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid "
                "key for an active subscription and use a correct regional API endpoint for your resource.",
                "401",
            )
        version = parse_qs(request.query).get("api-version", [""])[0]
        found = re.fullmatch(r"/openai/deployments/([^/]+)/embeddings", request.path)
        if version not in self.api_versions or not found:
            raise _openai_error(404, "Resource not found", "404")
        if found[1] not in self.models:
            raise _openai_error(
                404,
                "The API deployment for this resource does not exist. If you created the deployment within the "
                "last 5 minutes, please wait a moment and try again.",
                "DeploymentNotFound",
            )
        return self._embeddings(request, found[1])


def _embeddings(texts: Sequence[str], dims: int) -> Json:
    rows = [
        {"object": "embedding", "embedding": bag_of_words(text, dims), "index": k}
        for k, text in enumerate(texts)
    ]
    return {"object": "list", "data": rows}


def _voyage_400(detail: str) -> Refused:
    return Refused(400, {"detail": detail})


def _openai_error(status: int, message: str, code: str | None) -> Refused:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return Refused(status, {"error": error})
