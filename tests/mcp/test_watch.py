"""RAG_WATCH=true: a server that ingests by itself what changes in its folder, and still ends when it is told to."""

from __future__ import annotations

from pathlib import Path

import anyio

from tests.mcp.conftest import environment, write_documents
from tests.mcp.gate import Gate
from tests.mcp.serving import MODERN, http_server, http_session, text_of

SECONDS = 40


def test_a_new_file_is_found_without_a_reindex(database_url: str, gate: Gate, tmp_path: Path) -> None:
    docs = write_documents(tmp_path / "docs")
    env = environment(database_url, docs, gate, "watched") | {"RAG_WATCH": "true"}

    async def asked_until_found(url: str) -> str:
        with anyio.fail_after(SECONDS):
            async with http_session(url, MODERN) as client:
                while True:
                    answer = await client.call_tool("query_docs", {"query": "lighthouse keeper"})
                    if "lighthouse" in text_of(answer):
                        return text_of(answer)
                    await anyio.sleep(0.2)

    with http_server(env, tmp_path / "server.log") as server:
        (docs / "late.md").write_text("The lighthouse keeper is called Ada.", encoding="utf-8")
        assert "late.md" in anyio.run(asked_until_found, server.url)
        assert server.stop() == 0
