"""The bearer token: compared in constant time, and guessing is slowed where it comes from.

A right token is never slowed, also from an address that sent wrong ones: behind a tunnel all come
from one address. A wrong one waits a little longer each time before it hears 401.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from doc_rag.middleware.replies import header, peer, refuse

log = logging.getLogger(__name__)

REALM = 'Bearer realm="doc-rag-mcp"'
FREE_FAILURES = 3
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 2.0
FORGET_SECONDS = 60.0
MAX_PEERS = 4_096
MAX_WAITING = 64
"""Wrong tokens that wait at once; beyond that they are answered 429 at once."""


class Failures:
    """Wrong tokens by peer: how many in a row, forgotten after a quiet minute, the oldest peers first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_peers: int = MAX_PEERS) -> None:
        self._clock = clock
        self._max_peers = max_peers
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def add(self, name: str) -> int:
        """Count one more failure of this peer; how many it has now."""
        now = self._clock()
        count, last = self._counts.pop(name, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        self._counts[name] = (count, now)
        while len(self._counts) > self._max_peers:
            self._counts.popitem(last=False)
        return count

    def __len__(self) -> int:
        return len(self._counts)


def delay_seconds(failures: int) -> float:
    """Nothing for the first few (a typing error), then doubling up to two seconds."""
    if failures <= FREE_FAILURES:
        return 0.0
    doublings = min(failures - FREE_FAILURES - 1, 10)
    return float(min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2**doublings))


def presented_token(authorization: str | None) -> bytes | None:
    """The token of `Bearer <token>`, None for anything else."""
    if authorization is None:
        return None
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip().encode("latin-1") if scheme.lower() == "bearer" and token.strip() else None


class BearerAuth:
    """Lets through who knows the token; everybody else hears 401 with `WWW-Authenticate: Bearer`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        failures: Failures | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._app = app
        self._sleep = sleep
        self._token = token.encode()
        self._failures = Failures() if failures is None else failures
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        token = presented_token(header(scope, b"authorization"))
        if token is not None and hmac.compare_digest(token, self._token):
            await self._app(scope, receive, send)
            return
        if token is None:
            await self._unauthorized(scope, receive, send, REALM)
            return
        count = self._failures.add(peer(scope))
        if count in (1, 10, 100) or count % 1000 == 0:
            log.warning("wrong token, %d in a row", count, extra={"peer": peer(scope)})
        delay = delay_seconds(count)
        if delay and self._waiting >= MAX_WAITING:
            await refuse(scope, receive, send, 429, "Too many wrong tokens.", {"Retry-After": "2"})
            return
        self._waiting += 1
        try:
            await self._sleep(delay)
        finally:
            self._waiting -= 1
        await self._unauthorized(scope, receive, send, f'{REALM}, error="invalid_token"')

    @staticmethod
    async def _unauthorized(scope: Scope, receive: Receive, send: Send, challenge: str) -> None:
        error = "Send the server's token as Authorization: Bearer <token>."
        await refuse(scope, receive, send, 401, error, {"WWW-Authenticate": challenge})
