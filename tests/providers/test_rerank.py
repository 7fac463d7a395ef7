"""Reranking at Voyage: what is sent, what it costs, and that a search never waits long for it."""

from __future__ import annotations

import time

import pytest

from doc_rag import rerank
from doc_rag.errors import RerankUnavailable, SettingsError
from doc_rag.records import UsageEvent
from doc_rag.rerank import Reranker, make_reranker
from tests.providers.servers import VoyageServer
from tests.providers.wire import (
    Fault,
    cut,
    empty_data,
    half_body,
    hang,
    html_page,
    rate_limited,
    repeated_indexes,
    status,
)

DOCUMENTS = ["heat transfer to a plate", "the jet", "boundary layer heat transfer", "wings", "a plate"]


def reranker(server: VoyageServer, usage: list[UsageEvent], **variables: str) -> Reranker:
    made = make_reranker(server.settings(**({"RAG_RERANK_MODEL": "rerank-2.5"} | variables)), usage.append)
    assert made is not None
    return made


def test_the_best_come_first_and_the_call_is_tallied(voyage: VoyageServer) -> None:
    usage: list[UsageEvent] = []
    ranked = reranker(voyage, usage).rerank("boundary layer heat", DOCUMENTS, 3)
    assert [position for position, _ in ranked] == [2, 0, 1]
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    assert voyage.requests[0].path == "/v1/rerank"
    assert voyage.bodies == [
        {
            "query": "boundary layer heat",
            "documents": DOCUMENTS,
            "model": "rerank-2.5",
            "top_k": 3,
            "truncation": True,
        }
    ]
    assert usage == [UsageEvent("voyage", "rerank-2.5", "rerank", voyage.tokens_answered)]


def test_more_than_there_is_can_be_asked_for_and_nothing_is_no_call(voyage: VoyageServer) -> None:
    usage: list[UsageEvent] = []
    made = reranker(voyage, usage)
    assert len(made.rerank("heat", DOCUMENTS, 100)) == 5
    assert voyage.bodies[0]["top_k"] == 5
    assert made.rerank("heat", [], 5) == []
    assert len(voyage.requests) == 1


@pytest.mark.parametrize(
    "fault", [rate_limited("0"), status(500), cut(), half_body(), html_page(502), html_page(200), empty_data()],
    ids=lambda fault: f"{fault.name}-{fault.status}",
)  # fmt: skip
def test_what_passes_is_tried_again(voyage: VoyageServer, fault: Fault) -> None:
    usage: list[UsageEvent] = []
    voyage.fail_next(fault)
    assert len(reranker(voyage, usage).rerank("heat", DOCUMENTS, 2)) == 2
    assert len(voyage.requests) == len(usage) == 2
    assert sum(event.tokens or 0 for event in usage) == voyage.tokens_answered


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (status(401, "invalid"), "Not reranked by rerank-2.5: Voyage refused it.*VOYAGE_API_KEY"),
        (status(400, "Model rerank-9 is not supported."), "RAG_RERANK_MODEL"),
        (rate_limited("60"), "did not answer within 10 s"),
        (repeated_indexes(), "does not rank the documents"),
    ],
    ids=["401", "400", "429", "bad"],
)
def test_a_failure_is_unavailable_and_says_why(voyage: VoyageServer, fault: Fault, said: str) -> None:
    voyage.fail_next(*[fault] * 5)
    begun = time.monotonic()
    with pytest.raises(RerankUnavailable, match=said):
        reranker(voyage, []).rerank("heat", DOCUMENTS, 2)
    assert time.monotonic() - begun < 5


def test_a_server_that_hangs_costs_a_query_a_few_seconds_only(
    voyage: VoyageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rerank.BUDGET_SECONDS <= 10
    assert rerank.ATTEMPT_SECONDS <= 10
    monkeypatch.setattr(rerank, "BUDGET_SECONDS", 0.6)
    monkeypatch.setattr(rerank, "ATTEMPT_SECONDS", 0.3)
    voyage.fail_next(*[hang()] * 5)
    usage: list[UsageEvent] = []
    begun = time.monotonic()
    with pytest.raises(RerankUnavailable, match="no answer in time"):
        reranker(voyage, usage).rerank("heat", DOCUMENTS, 2)
    assert time.monotonic() - begun < 3
    assert {event.tokens for event in usage} == {None}


def test_without_a_key_it_is_unavailable_and_names_the_key(voyage: VoyageServer) -> None:
    settings = voyage.settings(
        RAG_RERANK_MODEL="rerank-2.5",
        RAG_EMBED_PROVIDER="local",
        VOYAGE_API_KEY="",
        RAG_ALLOW_CROSS_PROVIDER_RERANK="true",
    )
    made = make_reranker(settings, lambda event: None)
    assert made is not None
    with pytest.raises(RerankUnavailable, match="VOYAGE_API_KEY is not set"):
        made.rerank("heat", DOCUMENTS, 2)
    assert voyage.requests == []


def test_chunk_text_goes_to_voyage_only_with_consent_or_where_it_goes_already(voyage: VoyageServer) -> None:
    refused = voyage.settings(RAG_EMBED_PROVIDER="local", RAG_RERANK_MODEL="rerank-2.5")
    with pytest.raises(
        SettingsError,
        match=r"text of the chunks found for it to Voyage.*RAG_ALLOW_CROSS_PROVIDER_RERANK=true",
    ):
        make_reranker(refused, lambda event: None)
    allowed = voyage.settings(
        RAG_EMBED_PROVIDER="local", RAG_RERANK_MODEL="rerank-2.5", RAG_ALLOW_CROSS_PROVIDER_RERANK="true"
    )
    made = make_reranker(allowed, lambda event: None)
    assert made is not None
    assert len(made.rerank("heat", DOCUMENTS, 2)) == 2
    assert make_reranker(voyage.settings(), lambda event: None) is None, "unset means none"
