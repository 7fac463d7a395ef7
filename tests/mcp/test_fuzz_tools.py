"""Whatever a model passes to a tool, it gets an answer or a sentence, through a real client and on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED

from tests.mcp.fuzzing import (
    NUMBERS,
    SLOW_SECONDS,
    TEXTS,
    VALUES,
    assert_fit_to_be_seen,
    fuzz,
    fuzzed_server,
    json_bytes,
    plain_client,
)
from tests.mcp.gate import Gate
from tests.mcp.serving import EIGHT, LEGACY, MODERN, TOKEN, HttpServer, http_session, text_of
from tests.support.postgres import create_database, drop_database

pytestmark = pytest.mark.filterwarnings(
    "ignore:Generating overly large repr"
)  # of an example with a long text

Arguments = Mapping[str, Any]

FLAGS = st.one_of(st.booleans(), VALUES)
NAMES = st.one_of(st.none(), st.sampled_from(["fuzz", "other"]), TEXTS, VALUES)
SOURCES = st.one_of(st.sampled_from(["guide/dome.md", "notes.txt"]), TEXTS, VALUES)
EXTRA = st.dictionaries(st.text(max_size=12), VALUES, max_size=2)


def arguments_of(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the known arguments with fitting and unfitting values, and now and then unknown ones."""
    named = st.fixed_dictionaries({}, optional=known)
    return st.one_of(named, named, st.builds(lambda one, other: one | other, EXTRA, named))


ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "query_docs": arguments_of(
        query=st.one_of(TEXTS, TEXTS, VALUES),
        top_k=st.one_of(NUMBERS, VALUES),
        collection=NAMES,
        all_collections=FLAGS,
    ),
    "list_documents": arguments_of(collection=NAMES, all_collections=FLAGS),
    "list_collections": arguments_of(),
    "reindex_docs": arguments_of(force_rebuild=FLAGS, confirm_large_removal=FLAGS),
    "remove_document": arguments_of(source=SOURCES, collection=NAMES),
    "cache_stats": arguments_of(),
    "usage_stats": arguments_of(),
    "clear_cache": arguments_of(),
}
CALLS = st.sampled_from(EIGHT).flatmap(lambda tool: ARGUMENTS[tool].map(lambda arguments: (tool, arguments)))


class Asker:
    """Calls tools through real clients of both eras, kept open in a thread of their own."""

    def __init__(
        self, portal: BlockingPortal, clients: Mapping[str, Client], http: httpx2.Client, server: HttpServer
    ) -> None:
        self._portal = portal
        self.http = http
        self._clients = clients
        self.server = server

    def ask(self, era: str, tool: str, arguments: Arguments) -> Any:
        """The result. Raises MCPError where the protocol refuses the call."""

        async def bounded() -> Any:
            with anyio.fail_after(SLOW_SECONDS):
                return await self._clients[era].call_tool(tool, dict(arguments))

        return self._portal.call(bounded)


@pytest.fixture(scope="module")
def asker(
    postgres_server: str, template_url: str, gate: Gate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asker]:
    url = create_database(postgres_server, template=template_url)
    folder: Path = tmp_path_factory.mktemp("fuzz")
    with ExitStack() as stack:
        stack.callback(drop_database, postgres_server, url)
        server = stack.enter_context(fuzzed_server(url, gate, folder))
        portal = stack.enter_context(start_blocking_portal())
        clients = {
            era: stack.enter_context(portal.wrap_async_context_manager(http_session(server.url, era)))
            for era in (LEGACY, MODERN)
        }
        made = Asker(portal, clients, stack.enter_context(plain_client()), server)
        made.ask(LEGACY, "reindex_docs", {})
        yield made


@fuzz
@given(CALLS, st.sampled_from([LEGACY, MODERN]))
def test_a_client_gets_an_answer_or_a_sentence(
    asker: Asker, tool_call: tuple[str, Arguments], era: str
) -> None:
    tool, arguments = tool_call
    if not is_plain(arguments):
        return  # our own client cannot write that; the next test sends it
    try:
        result = asker.ask(era, tool, arguments)
    except MCPError as error:
        assert error.code != CONNECTION_CLOSED
        assert_fit_to_be_seen(str(error))
        return
    assert_fit_to_be_seen(text_of(result))
    assert result.is_error or result.structured_content is not None


def is_plain(arguments: Arguments) -> bool:
    """Whether it is JSON by the book, in UTF-8."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True


@fuzz
@given(CALLS)
def test_arguments_that_no_client_of_ours_would_write_are_answered_too(
    asker: Asker, tool_call: tuple[str, Arguments]
) -> None:
    """Lone surrogates, NaN and infinity, which JSON libraries of other languages do send."""
    tool, arguments = tool_call
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = json_bytes(message | {"params": {"name": tool, "arguments": arguments}})
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "MCP-Protocol-Version": "2025-11-25",
    }
    answer = asker.http.post(asker.server.url, content=body, headers=headers)
    assert answer.status_code in (200, 400, 413), answer.text[:500]
    assert_fit_to_be_seen(answer.text)
    if answer.status_code == 200:
        assert set(answer.json()) & {"result", "error"}


@pytest.mark.parametrize("tool", EIGHT)
def test_half_a_megabyte_in_every_argument(asker: Asker, tool: str) -> None:
    names = ("query", "top_k", "collection", "all_collections", "source", "force_rebuild", "unknown")
    result = asker.ask(MODERN, tool, dict.fromkeys(names, "y" * 500_000))
    assert_fit_to_be_seen(text_of(result))
    if tool in ("query_docs", "list_documents", "reindex_docs", "remove_document"):
        assert result.is_error
        assert len(text_of(result)) < 4_000


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_more_than_fits_into_a_request_is_said_and_the_session_goes_on(asker: Asker, era: str) -> None:
    with pytest.raises(MCPError, match="at most 4,194,304 bytes"):
        asker.ask(era, "query_docs", {"query": "z" * 20_000_000})
    assert asker.ask(era, "cache_stats", {}).structured_content
