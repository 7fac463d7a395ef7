"""`make clear-cache`: ask the running HTTP server to empty its query cache.

The cache lives in that process: only the server itself can empty it, so this is a client like any other.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from doc_rag.errors import DocRagError, SettingsError
from doc_rag.settings import Settings, load_settings

LIMIT_SECONDS = 30.0


class ServerUnreachable(DocRagError):
    """No HTTP server of ours answers at that address; start it with make serve-http or make up."""


def endpoint(settings: Settings) -> str:
    """Address of the server on this machine."""
    return f"http://127.0.0.1:{settings.port}/mcp"


async def clear_cache(url: str, token: str) -> str:
    """Call the `clear_cache` tool at `url`; what it answered.

    Raises:
        ServerUnreachable: nothing answers there, or it refuses the token.
    """
    import httpx2
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import TextContent

    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            asyncio.timeout(LIMIT_SECONDS),
            httpx2.AsyncClient(headers=headers, timeout=LIMIT_SECONDS) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            result = await client.call_tool("clear_cache", {})
    except TimeoutError:
        raise ServerUnreachable(f"{url} did not answer within {LIMIT_SECONDS:g} s") from None
    except ExceptionGroup as group:  # the SDK's task groups wrap whatever went wrong
        reason = _first(group)
        if not isinstance(reason, (httpx2.HTTPError, MCPError, OSError)):
            raise
        raise ServerUnreachable(
            f"{url} gave no answer: {reason}. Does the server run, with the token that is set here?"
        ) from None
    text = "\n".join(part.text for part in result.content if isinstance(part, TextContent))
    if result.is_error:
        raise DocRagError(text)
    return text


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def main(argv: Sequence[str] | None = None) -> int:
    """Print what the server answered. Exit status 1 where it cannot be reached, 2 without a token."""
    argparse.ArgumentParser(prog="doc-rag clear-cache", description=__doc__).parse_args(argv)
    try:
        settings = load_settings()
        if not settings.auth_token:
            raise SettingsError("RAG_AUTH_TOKEN is not set; it is the running server's token.")
        print(asyncio.run(clear_cache(endpoint(settings), settings.auth_token.reveal())))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except DocRagError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
