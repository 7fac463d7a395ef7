"""Servers as users start them, and clients of both protocol eras to talk to them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "src" / "server.py"
TOKEN = "test-token-0123456789-0123456789-0123456789"
LEGACY, MODERN = "legacy", "auto"
"""How a client is told to begin: with `initialize` (2025-11-25), or with `server/discover` (2026-07-28)."""
REVISIONS = {LEGACY: "2025-11-25", MODERN: "2026-07-28"}
START_SECONDS = 30.0
STOP_SECONDS = 30.0

EIGHT = (
    "query_docs",
    "list_documents",
    "list_collections",
    "reindex_docs",
    "remove_document",
    "cache_stats",
    "usage_stats",
    "clear_cache",
)


@dataclass(frozen=True)
class HttpServer:
    """A running `server.py --transport http` and the file its stderr goes to."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def base(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def stop(self) -> int:
        """SIGTERM; the exit status, in bounded time."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def whole_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: the test's own, and what a process needs at all."""
    return {
        name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ
    } | dict(env)


@contextmanager
def http_server(env: Mapping[str, str], log: Path) -> Iterator[HttpServer]:
    """A server on a free port, ready; ended with the block."""
    port = free_port()
    command = [sys.executable, str(SERVER), "--transport", "http", "--port", str(port)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command, env=whole_env({"RAG_AUTH_TOKEN": TOKEN} | dict(env)), cwd=log.parent, stderr=stderr
        )
    server = HttpServer(process, port, log)
    try:
        wait_until_ready(server)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def http_in_thread(env: Mapping[str, str]) -> Iterator[str]:
    """The same app on a loopback port in a thread of this process, which starts at once; its address."""
    from doc_rag.http_app import build_http_app
    from doc_rag.service import KnowledgeBase
    from doc_rag.settings import load_settings

    settings = load_settings(env)
    with KnowledgeBase(settings) as kb, socket.create_server(("127.0.0.1", 0)) as sock:
        app = build_http_app(kb, settings, token=TOKEN)
        server = uvicorn.Server(
            uvicorn.Config(app, lifespan="on", log_config=None, timeout_graceful_shutdown=5)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join(STOP_SECONDS)
            assert not thread.is_alive()


def wait_until_ready(server: HttpServer) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert server.process.poll() is None, server.log.read_text()
        try:
            if httpx2.get(server.base("/readyz"), timeout=10).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"the server did not become ready: {server.log.read_text()}")


@asynccontextmanager
async def http_session(url: str, era: str = MODERN, **headers: str) -> AsyncIterator[Client]:
    """A client of that era with the token."""
    given = {"Authorization": f"Bearer {TOKEN}"} | headers
    async with (
        httpx2.AsyncClient(headers=given, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        assert client.protocol_version == REVISIONS[era]
        yield client


@asynccontextmanager
async def stdio_session(env: Mapping[str, str], cwd: Path, era: str = MODERN) -> AsyncIterator[Client]:
    """A client of that era that starts the server as its child."""
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(SERVER)], env=whole_env(env), cwd=str(cwd)
    )
    async with Client(parameters, mode=era) as client:
        assert client.protocol_version == REVISIONS[era]
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return dict(result.structured_content)


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call that must be a tool error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)
