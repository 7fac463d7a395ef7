"""A real client of each protocol era, over each transport: it lists exactly eight tools and calls every one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from doc_rag.mcp_server import build_server
from doc_rag.service import KnowledgeBase
from doc_rag.settings import load_settings
from tests.mcp.conftest import DOCUMENTS, environment, write_documents
from tests.mcp.gate import Gate
from tests.mcp.serving import (
    EIGHT,
    LEGACY,
    MODERN,
    HttpServer,
    call,
    http_session,
    refusal,
    stdio_session,
    text_of,
)

Connect = Callable[[], AbstractAsyncContextManager[Client]]

SECONDS = 60


def within(body: Callable[[], Any]) -> None:
    """Run an async test, in bounded time."""

    async def bounded() -> None:
        with anyio.fail_after(SECONDS):
            await body()

    anyio.run(bounded)


@pytest.fixture(
    params=[("stdio", LEGACY), ("stdio", MODERN), ("http", LEGACY), ("http", MODERN)], ids="-".join
)
def connect(request: pytest.FixtureRequest, env: dict[str, str], tmp_path: Path) -> Connect:
    """A session on the shared index, over one transport and in one era."""
    transport, era = request.param
    if transport == "stdio":
        return lambda: stdio_session(env, tmp_path, era)
    server: HttpServer = request.getfixturevalue("server")
    return lambda: http_session(server.url, era)


def test_a_client_lists_exactly_eight_tools_and_calls_every_one(connect: Connect) -> None:
    async def body() -> None:
        async with connect() as client:
            tools = (await client.list_tools()).tools
            assert tuple(tool.name for tool in tools) == EIGHT
            for tool in tools:
                assert tool.title and tool.description and tool.annotations and tool.output_schema
            properties = {tool.name: list(tool.input_schema["properties"]) for tool in tools}
            assert properties == {
                "query_docs": ["query", "top_k", "collection", "all_collections"],
                "list_documents": ["collection", "all_collections"],
                "list_collections": [],
                "reindex_docs": ["force_rebuild", "confirm_large_removal"],
                "remove_document": ["source", "collection"],
                "cache_stats": [],
                "usage_stats": [],
                "clear_cache": [],
            }
            hints = {tool.name: tool.annotations for tool in tools}
            reading = {name for name, hint in hints.items() if hint and hint.read_only_hint}
            assert reading == set(EIGHT) - {"reindex_docs", "remove_document", "clear_cache"}
            destructive = {name for name, hint in hints.items() if hint and hint.destructive_hint}
            assert destructive == {"reindex_docs", "remove_document"}

            assert "query_docs" in (client.instructions or "")
            found = await client.call_tool(
                "query_docs", {"query": "how often is the mirror washed", "top_k": 2}
            )
            assert not found.is_error
            passage = found.structured_content["passages"][0]
            assert passage["source"] == "guide/telescope.md"
            assert passage["citation"].startswith("guide/telescope.md > Telescope > Mirror, line")
            assert passage["content"] in DOCUMENTS["guide/telescope.md"]
            assert found.structured_content["revisions"]["observatory"] > 0
            assert passage["citation"] in text_of(found)
            assert passage["chunk_ids"][0] in text_of(found)

            documents = await call(client, "list_documents")
            assert documents["total"] == len(DOCUMENTS)
            assert documents["documents"][0]["source"] == "broken.txt"
            assert documents["documents"][0]["reason"]
            collections = await call(client, "list_collections")
            (observatory,) = (c for c in collections["collections"] if c["name"] == "observatory")
            assert (observatory["provider"], observatory["dimensions"]) == ("openai", 64)

            heard: list[float] = []

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                heard.append(progress)

            report = await client.call_tool("reindex_docs", {}, progress_callback=on_progress)
            assert report.structured_content["new"] == 0
            assert heard and heard == sorted(set(heard)), "no progress before the result, or not growing"
            assert "not in collection" in await refusal(client, "remove_document", source="guide/telescop.md")
            assert (await call(client, "usage_stats"))["rows"]
            assert (await call(client, "clear_cache"))["dropped"] >= 0
            await call(client, "query_docs", query="washed mirror")
            again = await call(client, "query_docs", query="  washed   mirror ")
            assert again["cached"] is True
            stats = await call(client, "cache_stats")
            assert stats["hits"] >= 1 and stats["size"] >= 1

    within(body)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_the_instructions_name_what_is_indexed(server: HttpServer, era: str) -> None:
    async def body() -> None:
        while True:  # the first client may get the general part while the text is being made
            async with http_session(server.url, era) as client:
                assert client.instructions and "query_docs" in client.instructions
                if "observatory (the default): 3 documents" in client.instructions:
                    return

    within(body)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_query_reports_progress_before_its_result(server: HttpServer, era: str) -> None:
    async def body() -> None:
        heard: list[str | None] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message)

        async with http_session(server.url, era) as client:
            await client.call_tool("clear_cache", {})
            asked = {"query": "where is the log book"}
            result = await client.call_tool("query_docs", asked, progress_callback=on_progress)
            assert not result.is_error
            assert heard, "no progress before the result"

    within(body)


@asynccontextmanager
async def in_process(env: dict[str, str]) -> AsyncIterator[Client]:
    """A client in this process, on a knowledge base of its own."""
    settings = load_settings(env)
    with KnowledgeBase(settings) as kb:
        async with Client(build_server(kb, settings)) as client:
            yield client


def test_a_removed_document_comes_back_with_the_next_reindex(
    shared_database: str, gate: Gate, tmp_path: Path
) -> None:
    docs = write_documents(tmp_path / "docs")
    env = environment(shared_database, docs, gate, "removal")

    async def body() -> None:
        async with in_process(env) as client:
            assert (await call(client, "reindex_docs"))["new"] == 3
            removed = await client.call_tool("remove_document", {"source": "notes.txt"})
            assert removed.structured_content["still_on_disk"] is True
            assert "brings it back" in text_of(removed)
            listed = await client.call_tool("list_documents", {})
            assert "! 1 new, 0 changed, 0 removed -- reindex_docs()" in text_of(listed)
            assert (await call(client, "reindex_docs"))["new"] == 1
            assert "Up to date" in text_of(await client.call_tool("list_documents", {}))

    within(body)


def test_a_large_removal_is_held_and_the_answer_names_the_argument_that_confirms_it(
    shared_database: str, gate: Gate, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for i in range(8):
        (docs / f"{i}.md").write_text(f"# Part {i}\n\nSentence number {i}.\n")
    env = environment(shared_database, docs, gate, "guarded")

    async def body() -> None:
        async with in_process(env) as client:
            assert (await call(client, "reindex_docs"))["new"] == 8
            for i in range(6):
                (docs / f"{i}.md").unlink()
            held = await client.call_tool("reindex_docs", {})
            assert not held.is_error
            assert held.structured_content["held_removals"] == 6
            assert held.structured_content["next_step"] == "reindex_docs(confirm_large_removal=true)"
            assert (await call(client, "list_collections"))["collections"][0]["name"]
            pending = {c["name"]: c for c in (await call(client, "list_collections"))["collections"]}
            assert pending["guarded"]["pending_removals"] == 6
            assert (await call(client, "reindex_docs", confirm_large_removal=True))["removed"] == 6
            assert (await call(client, "list_documents"))["total"] == 2

    within(body)
