"""Batches within the published limits, batches that are refused all the same, and texts too long for the model."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from doc_rag.embed.tokens import estimate_tokens
from doc_rag.errors import EmbeddingRejected
from tests.providers.conftest import start
from tests.providers.servers import AzureServer, OpenAIServer, VoyageServer, bag_of_words
from tests.providers.wire import ProviderServer, rate_limited

SENTENCE = "the lift coefficient of a delta wing rises with its angle of attack until the vortex breaks down"
WORDS = SENTENCE.split()


def prose(words: int, seed: int = 0) -> str:
    return " ".join(WORDS[(seed + k) % len(WORDS)] for k in range(words))


def refused(server: ProviderServer) -> int:
    return sum(request.status == 400 for request in server.requests)


def test_a_batch_holds_to_the_published_items_and_tokens(voyage: VoyageServer) -> None:
    run = start(voyage, RAG_EMBED_DIM="256", RAG_EMBED_CONCURRENCY="1")
    few_long = [prose(2_000, k) for k in range(150)]
    many_short = [f"{k}" for k in range(1_500)]
    run.documents(few_long + many_short)
    assert refused(voyage) == 0
    assert max(len(body["input"]) for body in voyage.bodies) == 1_000
    assert max(request.tokens for request in voyage.requests) > 60_000, "the batches are not needlessly small"
    assert voyage.texts_answered == Counter(few_long + many_short)


def test_what_fits_one_batch_is_shared_among_the_threads_all_the_same(voyage: VoyageServer) -> None:
    texts = [f"text {k}" for k in range(200)]
    start(voyage, RAG_EMBED_DIM="256").documents(texts)
    assert [len(body["input"]) for body in voyage.bodies] == [50] * 4
    start(voyage, RAG_EMBED_DIM="256").documents(texts[:40])
    assert sorted(len(body["input"]) for body in voyage.bodies[4:]) == [8, 32], "but not into crumbs"


def test_azure_gets_openais_batches_and_an_own_server_small_ones(
    azure: AzureServer, own_server: OpenAIServer
) -> None:
    texts = [f"{k}" for k in range(2_100)]
    azure.models = {azure.deployment: 8}
    start(azure, RAG_EMBED_CONCURRENCY="1").documents(texts)
    assert [len(body["input"]) for body in azure.bodies] == [2_048, 52]
    start(own_server, RAG_EMBED_CONCURRENCY="1").documents(texts[:70])
    assert [len(body["input"]) for body in own_server.bodies] == [32, 32, 6]


@pytest.mark.parametrize("limit", ["max_batch_tokens", "max_batch_items"])
def test_a_batch_refused_as_too_large_is_halved_until_it_is_taken(
    any_server: ProviderServer, limit: str
) -> None:
    any_server.__setattr__(limit, 300 if limit == "max_batch_tokens" else 20)
    texts = [f"{prose(10)} {k}" for k in range(300)]
    run = start(any_server, RAG_EMBED_CONCURRENCY="1", RAG_EMBED_DIM="256")
    run.documents(texts)
    assert any_server.texts_answered == Counter(texts)
    assert refused(any_server) > 0
    assert run.tokens == any_server.tokens_answered


@pytest.mark.parametrize(("limit", "value"), [("max_batch_items", 10), ("max_batch_tokens", 120)])
def test_the_batches_after_a_refused_one_are_smaller(
    own_server: OpenAIServer, limit: str, value: int
) -> None:
    own_server.__setattr__(limit, value)
    texts = [f"{prose(10)} {k}" for k in range(320)]
    start(own_server, RAG_EMBED_CONCURRENCY="1").documents(texts)
    assert own_server.texts_answered == Counter(texts)
    assert 0 < refused(own_server) <= 4, "the ten batches of 32 are not each halved anew"


def test_a_batch_beyond_the_tokens_of_a_minute_is_made_smaller_and_not_only_later(
    voyage: VoyageServer,
) -> None:
    message = "You have not yet added your payment method and have reduced rate limits of 3 RPM and 10K TPM."
    voyage.fail_next(rate_limited("0", message))
    texts = [f"{prose(200)} {k}" for k in range(100)]
    start(voyage, RAG_EMBED_CONCURRENCY="1", RAG_EMBED_DIM="256").documents(texts)
    sizes = [sum(estimate_tokens(text) for text in body["input"]) for body in voyage.bodies]
    assert sizes[0] > 20_000
    assert voyage.texts_answered == Counter(texts)
    assert all(request.tokens <= 10_000 for request in voyage.requests if request.status == 200)


def expected_average(server: ProviderServer, dims: int) -> np.ndarray[Any, Any]:
    """The method by hand: the accepted parts' vectors, weighted by length, normalised."""
    parts = [request.body["input"][0] for request in server.requests if request.status == 200]
    total = np.sum([np.array(bag_of_words(part, dims)) * estimate_tokens(part) for part in parts], axis=0)
    return np.asarray(total / np.linalg.norm(total))


def test_a_text_over_the_models_limit_is_split_and_averaged_by_length(
    any_server: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    any_server.__setattr__("max_input_tokens", 60)
    long = prose(150)
    run = start(any_server)
    with caplog.at_level(logging.WARNING):
        (vector,) = run.documents([long])
    accepted = [request.body["input"][0] for request in any_server.requests if request.status == 200]
    assert len(accepted) >= 3
    assert "".join(accepted) == long, "nothing is lost"
    np.testing.assert_allclose(vector, expected_average(any_server, len(vector)), atol=1e-5)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    assert run.long_inputs == [0]
    assert re.search(
        r"position 0 \(\d+ characters\) is longer than .* reads and was embedded in parts", caplog.text
    )


def test_only_the_long_one_of_a_batch_is_split(any_server: ProviderServer) -> None:
    any_server.__setattr__("max_input_tokens", 60)
    texts = [f"{prose(20)} {k}" for k in range(16)]
    texts[11] = prose(150)
    run = start(any_server)
    vectors = run.documents(texts)
    assert run.long_inputs == [11]
    answered = any_server.texts_answered
    assert all(answered[text] == 1 for k, text in enumerate(texts) if k != 11)
    np.testing.assert_allclose(vectors[3], bag_of_words(texts[3], vectors.shape[1]), atol=1e-6)


def test_a_long_text_can_be_cut_instead(any_server: ProviderServer, caplog: pytest.LogCaptureFixture) -> None:
    any_server.__setattr__("max_input_tokens", 60)
    long = prose(150)
    run = start(any_server, RAG_EMBED_LONG_INPUT="truncate")
    with caplog.at_level(logging.WARNING):
        (vector,) = run.documents([long])
    (accepted,) = (request.body["input"][0] for request in any_server.requests if request.status == 200)
    assert long.startswith(accepted)
    assert len(accepted) > 120
    np.testing.assert_allclose(vector, bag_of_words(accepted, len(vector)), atol=1e-6)
    assert run.long_inputs == [0]
    assert "was cut" in caplog.text


def test_each_part_of_a_long_text_has_the_prefix(any_server: ProviderServer) -> None:
    any_server.__setattr__("max_input_tokens", 60)
    start(any_server, RAG_EMBED_DOCUMENT_PREFIX="passage: ").documents([prose(150)])
    assert all(text.startswith("passage: ") for text in any_server.texts_sent)


def test_a_long_query_is_embedded_too(any_server: ProviderServer) -> None:
    any_server.__setattr__("max_input_tokens", 60)
    vector = start(any_server).embedder.embed_query(prose(100))
    np.testing.assert_allclose(vector, expected_average(any_server, len(vector)), atol=1e-5)


def test_a_server_that_takes_nothing_is_not_asked_for_ever(any_server: ProviderServer) -> None:
    any_server.__setattr__("max_input_tokens", 0)
    with pytest.raises(EmbeddingRejected, match="refuses even"):
        start(any_server).documents([prose(40)])
    assert len(any_server.requests) < 12
