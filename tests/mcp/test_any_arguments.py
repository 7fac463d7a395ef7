"""Whatever arguments a model makes up, each tool answers: a result or a sentence, never a crash or a traceback."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from doc_rag.http_app import build_http_app
from doc_rag.service import KnowledgeBase
from doc_rag.settings import load_settings
from tests.mcp.serving import EIGHT, LEGACY, MODERN, TOKEN
from tests.mcp.test_http import tool_call

texts = st.text(max_size=40) | st.sampled_from(
    [
        "observatory",
        "mirror",
        "null",
        "[1]",
        '{"a":1}',
        "\ud800",
        "\x00",
        "x" * 9_000,
        "../../etc/passwd",
        "%s%n",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "query": texts,
        "top_k": st.integers(),
        "collection": texts | st.none(),
        "all_collections": st.booleans(),
        "source": texts,
        "confirm_large_removal": st.booleans(),
    },
)
names = st.sampled_from(
    ["query", "top_k", "collection", "all_collections", "source", "force_rebuild", "more"]
)
arguments = fitting | st.dictionaries(names, values, max_size=4)


@pytest.fixture(scope="module")
def http(env: dict[str, str]) -> Iterator[TestClient]:
    """The whole HTTP app in this process, so that the bytes on the wire are the test's own."""
    own = load_settings(env)
    with KnowledgeBase(own) as kb, TestClient(build_http_app(kb, own, token=TOKEN)) as client:
        yield client


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(tool=st.sampled_from(EIGHT), era=st.sampled_from([LEGACY, MODERN]), given_arguments=arguments)
def test_every_tool_answers_whatever_it_is_given(
    http: TestClient, caplog: pytest.LogCaptureFixture, tool: str, era: str, given_arguments: dict[str, Any]
) -> None:
    message, headers = tool_call(era, tool, given_arguments)
    headers |= {
        "Authorization": f"Bearer {TOKEN}",
        "Accept": "application/json",
        "Content-Type": "application/json",
    }
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        answer = http.post("/mcp", content=json.dumps(message).encode(), headers=headers)
    assert answer.status_code in (200, 400), answer.text
    assert not caplog.records, caplog.text
    assert "Traceback" not in answer.text
    said = answer.json()
    if "error" in said:
        assert len(said["error"]["message"]) < 1_000
        return
    text = said["result"]["content"][0]["text"]
    assert text.strip()
    assert "went wrong inside" not in text
    assert said["result"].get("isError") or said["result"]["structuredContent"]
    assert len(text) < 30_000
