"""What goes over the wire to each provider, byte for byte where it matters, through the real SDKs."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from doc_rag.embed import make_embedder
from doc_rag.embed.api import host_of
from doc_rag.embed.voyage import VoyageApi
from doc_rag.errors import DimensionMismatch, MissingKeyError, SettingsError
from doc_rag.records import GenerationSettings, ModelIdentity, UsageEvent
from doc_rag.setting_values import Secret
from doc_rag.settings import load_settings
from tests.providers.conftest import start
from tests.providers.servers import AzureServer, OpenAIServer, VoyageServer, bag_of_words
from tests.providers.wire import ProviderServer, reversed_order


def recorded(provider: str, endpoint: str, model: str, dims: int) -> GenerationSettings:
    return GenerationSettings(provider, endpoint, model, dims, "", 800, 100, 1, "english")


def test_voyage_sends_documents_and_queries_as_what_they_are(voyage: VoyageServer) -> None:
    run = start(voyage)
    assert run.embedder.identity == ModelIdentity("voyage", voyage.host, "voyage-4-large")
    assert run.embedder.dimensions == 1024, "known without a call"
    vectors = run.documents(["a wing", "a jet"])
    query = run.embedder.embed_query("wing")
    common = {
        "model": "voyage-4-large",
        "truncation": False,
        "output_dimension": 1024,
        "encoding_format": "base64",
    }
    assert voyage.bodies == [
        {"input": ["a wing", "a jet"], "input_type": "document"} | common,
        {"input": ["wing"], "input_type": "query"} | common,
    ]
    np.testing.assert_allclose(vectors[0], bag_of_words("a wing", 1024), atol=1e-6)
    assert query @ vectors[0] > query @ vectors[1]
    assert run.usage == [
        UsageEvent("voyage", "voyage-4-large", "embed_document", 4),
        UsageEvent("voyage", "voyage-4-large", "embed_query", 1),
    ]


@pytest.mark.parametrize("dims", [256, 512, 2048])
def test_voyage_dimensions_are_selectable(voyage: VoyageServer, dims: int) -> None:
    run = start(voyage, RAG_EMBED_DIM=str(dims))
    assert run.documents(["a wing"]).shape == (1, dims)
    assert voyage.bodies[0]["output_dimension"] == dims


def test_a_voyage_model_of_one_dimension_is_not_asked_for_it(voyage: VoyageServer) -> None:
    run = start(voyage, RAG_EMBED_MODEL="voyage-3-lite")
    assert run.documents(["a wing"]).shape == (1, 512)
    assert "output_dimension" not in voyage.bodies[0] or voyage.bodies[0]["output_dimension"] is None


def test_openai_asks_for_floats_and_its_model_for_its_dimensions(openai: OpenAIServer) -> None:
    run = start(openai, RAG_EMBED_DIM="64")
    vectors = run.documents(["a wing", "a jet"])
    assert openai.bodies == [
        {
            "input": ["a wing", "a jet"],
            "model": "text-embedding-3-small",
            "encoding_format": "float",
            "dimensions": 64,
        }
    ]
    assert openai.requests[0].headers["authorization"] == f"Bearer {openai.key}"
    np.testing.assert_allclose(vectors[1], bag_of_words("a jet", 64), atol=1e-6)


def test_an_own_server_needs_no_key_and_teaches_its_dimension(own_server: OpenAIServer) -> None:
    run = start(own_server)
    assert run.embedder.dimensions is None
    assert run.embedder.resolve_dimensions() == 8
    assert run.embedder.resolve_dimensions() == 8
    assert own_server.bodies == [
        {"input": ["dimensions"], "model": "tiny-embed", "encoding_format": "float"}
    ], "asked once, and without a dimension that it may not take"
    assert own_server.requests[0].headers["authorization"] == "Bearer unused"


def test_a_server_that_sends_base64_unasked_and_no_usage_is_understood(own_server: OpenAIServer) -> None:
    own_server.reports_usage = False
    own_server.always_base64 = True
    run = start(own_server)
    np.testing.assert_allclose(run.documents(["a wing"])[0], bag_of_words("a wing", 8), atol=1e-6)
    assert run.usage == [UsageEvent("openai", "tiny-embed", "embed_document", None)]


def test_azure_calls_the_deployments_own_address(azure: AzureServer) -> None:
    run = start(azure)
    assert run.embedder.identity == ModelIdentity("azure-openai", azure.host, "our-embeddings")
    assert run.documents(["a wing"]).shape == (1, 1536)
    (request,) = azure.requests
    assert request.path == "/openai/deployments/our-embeddings/embeddings"
    assert request.query == "api-version=2024-10-21"
    assert request.headers["api-key"] == azure.key
    assert "authorization" not in request.headers
    assert request.body == {"input": ["a wing"], "model": "our-embeddings", "encoding_format": "float"}


def test_azure_takes_the_long_address_the_portal_shows(azure: AzureServer) -> None:
    long = f"{azure.url}/openai/deployments/our-embeddings/embeddings?api-version=2023-05-15"
    run = start(azure, AZURE_OPENAI_ENDPOINT=long, RAG_EMBED_DIM="16", AZURE_OPENAI_API_VERSION="2024-02-01")
    assert run.documents(["a wing"]).shape == (1, 16)
    assert azure.requests[0].query == "api-version=2024-02-01"
    assert azure.bodies[0]["dimensions"] == 16


def test_prefixes_are_put_before_every_text(any_server: ProviderServer) -> None:
    run = start(any_server, RAG_EMBED_QUERY_PREFIX="query: ", RAG_EMBED_DOCUMENT_PREFIX="passage: ")
    run.documents(["a wing"])
    run.embedder.embed_query("wing")
    assert [body["input"] for body in any_server.bodies] == [["passage: a wing"], ["query: wing"]]
    assert run.embedder.document_prefix == "passage: "


def test_vectors_go_by_their_index_and_not_by_their_place(any_server: ProviderServer) -> None:
    any_server.fail_next(reversed_order())
    vectors = start(any_server).documents(["a wing", "two jets", "three plates"])
    for vector, text in zip(vectors, ["a wing", "two jets", "three plates"], strict=True):
        np.testing.assert_allclose(vector, bag_of_words(text, len(vector)), atol=1e-6)


def test_a_query_with_half_a_surrogate_pair_is_embedded(any_server: ProviderServer) -> None:
    start(any_server).embedder.embed_query("wing \ud83d end")
    assert any_server.bodies[0]["input"] == ["wing ? end"]


def test_no_texts_are_no_call(any_server: ProviderServer) -> None:
    assert list(start(any_server).embedder.embed_documents([])) == []
    assert any_server.requests == []


def test_a_recorded_generation_is_asked_for_as_it_was_made(voyage: VoyageServer) -> None:
    like = recorded("voyage", voyage.host, "voyage-4", 256)
    run = start(voyage, like=like, RAG_EMBED_MODEL="voyage-4-large", RAG_EMBED_DIM="2048")
    assert run.embedder.embed_query("wing").shape == (256,)
    assert (voyage.bodies[0]["model"], voyage.bodies[0]["output_dimension"]) == ("voyage-4", 256)


def test_another_provider_than_the_settings_name_answers_for_its_generation(
    voyage: VoyageServer, own_server: OpenAIServer
) -> None:
    like = recorded("openai", own_server.host, "tiny-embed", 8)
    run = start(voyage, like=like, OPENAI_BASE_URL=own_server.url)
    assert run.embedder.embed_query("wing").shape == (8,)
    assert voyage.requests == []


def test_a_generation_out_of_reach_says_what_to_set(voyage: VoyageServer) -> None:
    with pytest.raises(SettingsError, match=r"at api\.voyageai\.com.*Set VOYAGE_BASE_URL"):
        start(voyage, like=recorded("voyage", "api.voyageai.com", "voyage-4", 1024))
    with pytest.raises(SettingsError, match=r"at elsewhere:1.*Set OPENAI_BASE_URL"):
        start(voyage, like=recorded("openai", "elsewhere:1", "m", 8))
    run = start(voyage, like=recorded("openai", "api.openai.com", "text-embedding-3-small", 1536))
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY is not set"):
        run.embedder.embed_query("wing")
    azure = start(voyage, like=recorded("azure-openai", "x.openai.azure.com", "deployed", 1536))
    with pytest.raises(MissingKeyError, match="AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY are not set"):
        azure.embedder.require_key()
    with pytest.raises(SettingsError, match="no embedding provider cohere"):
        start(voyage, like=recorded("cohere", "", "m", 8))


def test_a_generation_made_with_fewer_dimensions_is_asked_for_them(own_server: OpenAIServer) -> None:
    own_server.takes_dimensions = {"tiny-embed"}
    run = start(own_server, like=recorded("openai", own_server.host, "tiny-embed", 4))
    assert run.embedder.embed_query("wing").shape == (4,)
    assert [body.get("dimensions") for body in own_server.bodies] == [None, 4]
    run.embedder.embed_query("jet")
    assert own_server.bodies[2]["dimensions"] == 4, "it need not be found out again"


def test_a_dimension_that_a_known_model_lacks_is_refused_without_a_call(voyage: VoyageServer) -> None:
    with pytest.raises(SettingsError, match=r"RAG_EMBED_DIM=300.*256, 512, 1024, 2048"):
        start(voyage, RAG_EMBED_DIM="300")
    assert voyage.requests == []


def test_an_own_server_of_another_dimension_than_recorded_is_one_clear_error(
    own_server: OpenAIServer,
) -> None:
    run = start(own_server, RAG_EMBED_DIM="6")
    own_server.ignores_dimensions = True
    with pytest.raises(
        DimensionMismatch, match=r"8 dimensions for tiny-embed, but 6 .*RAG_EMBED_DIM=6.*Set RAG_EMBED_DIM=8"
    ):
        run.documents(["a wing"])
    assert len(own_server.requests) == 1
    assert run.tokens == 2, "it was paid for all the same"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RAG_EMBED_PROVIDER": "voyage"}, "VOYAGE_API_KEY is not set"),
        ({"RAG_EMBED_PROVIDER": "openai"}, "OPENAI_API_KEY is not set"),
        ({"RAG_EMBED_PROVIDER": "azure-openai"}, "AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY and AZURE"),
        ({"RAG_EMBED_PROVIDER": "voyage", "VOYAGE_API_KEY": "pa-“quoted”"}, "no key has"),
        ({"RAG_EMBED_PROVIDER": "openai", "OPENAI_API_KEY": "two words"}, "no key has"),
    ],
)
def test_a_missing_or_mangled_key_is_said_at_the_first_call_and_not_before(
    variables: dict[str, str], expected: str
) -> None:
    usage: list[UsageEvent] = []
    fixed = {"RAG_COLLECTION": "test", "RAG_ENV_FILE": os.devnull}
    embedder = make_embedder(load_settings(fixed | variables), usage.append)
    calls: list[Callable[[], object]] = [
        embedder.require_key,
        lambda: list(embedder.embed_documents(["text"])),
        lambda: embedder.embed_query("text"),
    ]
    if embedder.dimensions is None:
        calls.append(embedder.resolve_dimensions)
    for call in calls:
        with pytest.raises(MissingKeyError, match=expected):
            call()
    assert usage == []


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (None, "api.openai.com"),
        ("https://api.openai.com:443/v1", "api.openai.com"),
        ("http://user:word@Ollama.local:11434/v1", "ollama.local:11434"),
        ("http://[::1]:80/v1", "[::1]"),
        ("http://[::1]:8080/v1", "[::1]:8080"),
    ],
)
def test_an_endpoint_is_the_host_however_its_address_is_written(url: str | None, host: str) -> None:
    assert host_of("OPENAI_BASE_URL", url or "https://api.openai.com/v1") == host


def test_a_port_that_is_none_is_a_settings_error(voyage: VoyageServer) -> None:
    with pytest.raises(SettingsError, match="VOYAGE_BASE_URL has a port that is no number"):
        start(voyage, VOYAGE_BASE_URL="http://localhost:port/v1")


def test_an_atlas_key_goes_to_atlas_and_is_the_same_endpoint() -> None:
    api = VoyageApi(Secret("al-key"), None, "voyage-4")
    assert api.identity.endpoint == "api.voyageai.com", "the models, and so the vectors, are the same"
    assert api.address() == "https://ai.mongodb.com/v1"
    assert VoyageApi(Secret("pa-key"), None, "voyage-4").address() == "https://api.voyageai.com/v1"
    assert VoyageApi(Secret("al-key"), "http://mine/v1", "voyage-4").address() == "http://mine/v1"
