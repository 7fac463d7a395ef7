"""A real MCP client over HTTP, one connection a call, as the tests of the running containers use it."""

from __future__ import annotations

import asyncio
import http.client
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

CALL_LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool said, as text and as data, and the progress that came before."""

    text: str
    data: dict[str, Any]
    progress: list[float] = field(default_factory=list)


def _client(url: str, token: str) -> tuple[httpx2.AsyncClient, Client]:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=CALL_LIMIT_SECONDS)
    return http, Client(streamable_http_client(url, http_client=http))


def call(url: str, token: str, tool: str, **arguments: Any) -> Answer:
    """Call a tool and return its answer.

    Raises:
        AssertionError: the tool answered with an error.
    """

    async def talk() -> Answer:
        reports: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reports.append(progress)

        http, client = _client(url, token)
        async with asyncio.timeout(CALL_LIMIT_SECONDS), http, client:
            result: CallToolResult = await client.call_tool(tool, arguments, progress_callback=on_progress)
        text = "\n".join(part.text for part in result.content if isinstance(part, TextContent))
        assert not result.is_error, f"{tool}: {text}"
        return Answer(text, result.structured_content or {}, reports)

    return asyncio.run(talk())


def tool_names(url: str, token: str) -> list[str]:
    """The tools that the server lists, sorted."""

    async def talk() -> list[str]:
        http, client = _client(url, token)
        async with asyncio.timeout(CALL_LIMIT_SECONDS), http, client:
            return sorted(tool.name for tool in (await client.list_tools()).tools)

    return asyncio.run(talk())


def get(
    port: int, path: str, headers: dict[str, str] | None = None, limit_seconds: float = 5.0
) -> tuple[int, str]:
    """Status and body of a plain GET on this machine; (0, reason) where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_seconds)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


def wait_until_ready(port: int, limit_seconds: float = 60.0) -> float:
    """Wait until /readyz says yes; the seconds it took.

    Raises:
        AssertionError: it did not within the limit.
    """
    started = time.monotonic()
    last: tuple[int, str] = (0, "")
    while time.monotonic() - started < limit_seconds:
        last = get(port, "/readyz")
        if last[0] == 200:
            return time.monotonic() - started
        time.sleep(0.1)
    raise AssertionError(f"/readyz on port {port} is not ready after {limit_seconds:g} s: {last}")
