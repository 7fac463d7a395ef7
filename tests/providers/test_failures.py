"""Every way a provider fails: what is tried again, what is not, what it costs, and what people are told."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from email.utils import formatdate

import pytest

from doc_rag.embed import remote
from doc_rag.errors import DimensionMismatch, EmbeddingRejected, EmbeddingUnavailable, Interrupted
from tests.providers.conftest import SERVERS, Run, start
from tests.providers.servers import AzureServer, OpenAIServer, VoyageServer
from tests.providers.wire import (
    Fault,
    ProviderServer,
    cut,
    empty_data,
    half_body,
    hang,
    html_page,
    not_a_number,
    rate_limited,
    repeated_indexes,
    slow,
    status,
    wrong_dimension,
    zero_vectors,
)

TEXTS = ["a wing", "two jets", "three plates"]


@pytest.fixture
def short_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt lasts 0.3 s instead of minutes."""
    for name in ("ATTEMPT_SECONDS", "SELF_HOSTED_ATTEMPT_SECONDS", "QUERY_ATTEMPT_SECONDS"):
        monkeypatch.setattr(remote, name, 0.3)


def check_all_embedded_once(server: ProviderServer, run: Run) -> None:
    assert len(run.documents(TEXTS)) == 3
    assert server.texts_answered == Counter(TEXTS)


@pytest.mark.parametrize(
    ("fault", "unknown_calls"),
    [
        (rate_limited("0"), 0),
        (rate_limited(), 0),
        (status(408), 0),
        (status(409), 0),
        (status(500), 0),
        (status(503), 0),
        (html_page(502), 1),
        (html_page(200), 1),
        (cut(), 1),
        (half_body(), 1),
    ],
    ids=lambda value: f"{value.name}-{value.status}" if isinstance(value, Fault) else None,
)
def test_what_passes_is_tried_again(any_server: ProviderServer, fault: Fault, unknown_calls: int) -> None:
    any_server.fail_next(fault)
    run = start(any_server)
    vectors = run.documents(TEXTS)
    assert len(vectors) == 3
    assert len(any_server.requests) == 2
    assert any_server.requests[0].body == any_server.requests[1].body
    assert run.unknown_calls == unknown_calls
    assert len(run.usage) == 2, "one event a call"
    assert run.tokens == any_server.requests[1].tokens


@pytest.mark.usefixtures("short_attempts")
def test_a_call_that_hangs_is_given_up_and_made_again(any_server: ProviderServer) -> None:
    any_server.fail_next(hang())
    run = start(any_server)
    check_all_embedded_once(any_server, run)
    assert run.unknown_calls == 1


@pytest.mark.parametrize("kind", SERVERS.values(), ids=SERVERS)
def test_a_server_that_is_not_there_is_unavailable_and_costs_no_call(kind: type[ProviderServer]) -> None:
    with kind() as server:
        pass
    run = start(server, RAG_EMBED_RETRY_SECONDS="0")
    with pytest.raises(EmbeddingUnavailable, match=r"the connection failed \(.*refused"):
        run.documents(TEXTS)
    assert run.usage == []


REFUSALS: list[tuple[type[ProviderServer], Fault, str]] = [
    (VoyageServer, status(401), r"HTTP 401.*VOYAGE_API_KEY"),
    (VoyageServer, status(403), r"HTTP 403.*VOYAGE_API_KEY"),
    (VoyageServer, status(404), r"HTTP 404.*VOYAGE_BASE_URL"),
    (VoyageServer, status(400, "Model x is not supported."), r"Model x is not supported.*RAG_EMBED_MODEL"),
    (OpenAIServer, status(401), r"HTTP 401.*OPENAI_API_KEY"),
    (OpenAIServer, status(403), r"HTTP 403.*OPENAI_API_KEY"),
    (OpenAIServer, html_page(404), r"HTTP 404.*RAG_EMBED_MODEL.*OPENAI_BASE_URL"),
    (OpenAIServer, status(429, "You exceeded your current quota", "insufficient_quota"), r"quota is used up"),
    (OpenAIServer, status(400, "This model does not support specifying dimensions."), r"RAG_EMBED_"),
    (AzureServer, status(401), r"HTTP 401.*AZURE_OPENAI_API_KEY"),
    (
        AzureServer,
        status(404, "no such", "DeploymentNotFound"),
        r"404.*AZURE_OPENAI_EMBED_DEPLOYMENT.*our-emb",
    ),
    (AzureServer, status(400, "Bad api-version"), r"AZURE_OPENAI_API_VERSION \(2024-10-21\)"),
]


@pytest.mark.parametrize(("kind", "fault", "said"), REFUSALS)
def test_a_refusal_is_said_at_once_with_what_to_do(
    kind: type[ProviderServer], fault: Fault, said: str
) -> None:
    with kind() as server:
        server.fail_next(fault)
        run = start(server)
        with pytest.raises(EmbeddingRejected, match=said):
            run.documents(TEXTS)
        assert len(server.requests) == 1
        assert [event.tokens for event in run.usage] == [0]


def test_the_servers_own_refusals_say_what_to_do() -> None:
    for kind, variables, said in (
        (VoyageServer, {"VOYAGE_API_KEY": "pa-another"}, "HTTP 401.*VOYAGE_API_KEY"),
        (VoyageServer, {"RAG_EMBED_MODEL": "voyage-99"}, "Model voyage-99 is not supported.*RAG_EMBED_MODEL"),
        (OpenAIServer, {"OPENAI_API_KEY": "sk-another"}, "OPENAI_API_KEY"),
        (OpenAIServer, {"RAG_EMBED_MODEL": "gpt-embed"}, "model_not_found.*RAG_EMBED_MODEL"),
        (AzureServer, {"AZURE_OPENAI_API_KEY": "another"}, "AZURE_OPENAI_API_KEY"),
        (AzureServer, {"AZURE_OPENAI_EMBED_DEPLOYMENT": "gone"}, "DeploymentNotFound.*gone: a deployment's"),
    ):
        with kind() as server:
            with pytest.raises(EmbeddingRejected, match=said):
                start(server, None, **variables).embedder.embed_query("wing")
            assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (not_a_number(), "vector of text 0 is not finite"),
        (zero_vectors(), "vector of text 0 is zero"),
        (empty_data(), "0 vectors for 3 texts"),
        (repeated_indexes(), "its indexes do not number the texts"),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else None,
)
def test_an_unusable_answer_is_paid_for_three_times_at_most(
    any_server: ProviderServer, fault: Fault, said: str
) -> None:
    any_server.fail_next(*[fault] * 10)
    run = start(any_server)
    with pytest.raises(EmbeddingRejected, match=said):
        run.documents(TEXTS)
    assert len(any_server.requests) == 3
    assert run.tokens == any_server.tokens_answered > 0


def test_one_unusable_answer_is_only_asked_for_again(any_server: ProviderServer) -> None:
    any_server.fail_next(not_a_number())
    assert len(start(any_server).documents(TEXTS)) == 3


def test_another_dimension_is_an_error_before_anything_is_yielded(voyage: VoyageServer) -> None:
    voyage.fail_next(wrong_dimension(768))
    run = start(voyage)
    with pytest.raises(DimensionMismatch, match=r"768 dimensions .* but 1024 .*RAG_EMBED_DIM"):
        next(run.embedder.embed_documents(TEXTS))
    assert len(voyage.requests) == 1


def test_the_budget_ends_the_trying(any_server: ProviderServer) -> None:
    any_server.fail_next(*[status(500)] * 50)
    run = start(any_server, RAG_EMBED_RETRY_SECONDS="1")
    begun = time.monotonic()
    with pytest.raises(EmbeddingUnavailable, match=r"did not answer within 1 s .*HTTP 500.*RAG_EMBED_RETRY"):
        run.documents(TEXTS)
    assert time.monotonic() - begun < 3
    assert 2 <= len(any_server.requests) <= 10


@pytest.mark.parametrize("as_date", [False, True])
def test_a_wait_beyond_the_budget_is_not_begun(any_server: ProviderServer, as_date: bool) -> None:
    any_server.fail_next(rate_limited(formatdate(time.time() + 300, usegmt=True) if as_date else "300"))
    begun = time.monotonic()
    with pytest.raises(EmbeddingUnavailable, match=r"HTTP 429.*asks to wait (29\d|300) s"):
        start(any_server).documents(TEXTS)
    assert time.monotonic() - begun < 3
    assert len(any_server.requests) == 1


def test_a_query_is_not_tried_as_long_as_an_ingest(any_server: ProviderServer) -> None:
    any_server.fail_next(rate_limited("40"))
    with pytest.raises(EmbeddingUnavailable, match="did not answer within 30 s"):
        start(any_server, RAG_EMBED_RETRY_SECONDS="3600").embedder.embed_query("wing")


def test_a_rate_limit_seen_by_one_batch_holds_back_the_others(
    own_server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(own_server)
    own_server.fail_next(rate_limited("1"), slow(0.6), slow(0.6), slow(0.6))
    own_server.hold_until(4)
    with caplog.at_level(logging.INFO, logger="doc_rag"):
        run.documents([f"text {k}" for k in range(32 * 8)])
    assert own_server.peak == 4, "RAG_EMBED_CONCURRENCY calls at once"
    later = [request.at - own_server.requests[0].at for request in own_server.requests[4:]]
    assert len(later) == 5
    # The four were under way together, and one was limited: nobody begins another for the second asked for.
    assert min(later) >= 1.0
    assert "waiting 1." in caplog.text


def test_concurrency_is_what_the_setting_says(own_server: OpenAIServer) -> None:
    own_server.hold_until(2)
    start(own_server, RAG_EMBED_CONCURRENCY="2").documents([f"text {k}" for k in range(32 * 5)])
    assert own_server.peak == 2


def test_answers_under_way_are_yielded_before_the_error_of_another(own_server: OpenAIServer) -> None:
    own_server.fail_next(status(400, "no"))
    own_server.hold_until(3)
    run = start(own_server)
    seen: list[int] = []
    with pytest.raises(EmbeddingRejected, match="HTTP 400: no"):
        for batch in run.embedder.embed_documents([f"text {k}" for k in range(32 * 3)]):
            seen += batch.indexes
    assert len(seen) == len(set(seen)) == 64
    assert run.tokens == own_server.tokens_answered == 128


def test_a_stop_ends_the_wait_for_a_retry(any_server: ProviderServer) -> None:
    any_server.fail_next(rate_limited("60"))
    run = start(any_server)
    begun = time.monotonic()
    with pytest.raises(Interrupted):
        list(run.embedder.embed_documents(TEXTS, stopped=lambda: len(any_server.requests) > 0))
    assert time.monotonic() - begun < 4
    assert len(any_server.requests) == 1


def test_a_stop_does_not_wait_for_a_call_that_hangs(any_server: ProviderServer) -> None:
    any_server.fail_next(hang())
    run = start(any_server)
    begun = time.monotonic()
    with pytest.raises(Interrupted):
        list(run.embedder.embed_documents(TEXTS, stopped=lambda: len(any_server.requests) > 0))
    assert time.monotonic() - begun < 5


def test_abandoning_the_iterator_ends_its_threads(own_server: OpenAIServer) -> None:
    run = start(own_server)
    batches = run.embedder.embed_documents([f"text {k}" for k in range(32 * 50)])
    next(batches)
    assert not own_server.wait_for(12, timeout_seconds=1), "the workers are never far ahead of who consumes"
    begun = time.monotonic()
    batches.close()
    assert time.monotonic() - begun < 2
    assert not [thread for thread in threading.enumerate() if thread.name == "embed"]
    assert len(own_server.requests) < 12
    assert run.tokens == own_server.tokens_answered


def test_a_stormy_server_gets_each_text_through_once_and_the_tally_is_right(
    own_server: OpenAIServer,
) -> None:
    own_server.fail_at_random(rate_limited("0"), 0.30)
    own_server.fail_at_random(cut(), 0.05)
    own_server.fail_at_random(half_body(), 0.05)
    texts = [f"paragraph {k} of the document" for k in range(1400)]
    run = start(own_server)
    vectors = run.documents(texts)
    assert vectors.shape == (1400, 8)
    faults = Counter(request.fault for request in own_server.requests)
    assert faults["rate_limited"] > 5
    assert own_server.texts_answered == Counter(texts)
    assert run.tokens == own_server.tokens_answered == 1400 * 5
    assert run.unknown_calls == own_server.cut_short == faults["cut"] + faults["half_body"] > 0
