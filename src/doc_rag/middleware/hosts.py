"""Which Host and Origin headers are answered.

The attack: a web page that the user has open makes its own name resolve to 127.0.0.1 and then talks to
us as same origin (DNS rebinding). It can do that, but it cannot know the bearer token, and a browser
never adds one by itself; so the token is the guard, and behind a tunnel, where the Host is the tunnel's,
any Host is answered. Naming hosts or origins narrows that to them and to loopback.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from doc_rag.listening import is_loopback
from doc_rag.middleware.replies import header, refuse

log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/readyz")
"""A prober asks by address; they tell nothing."""


def split_host(value: str) -> tuple[str, str | None]:
    """`Docs.Example.com.:8443` -> (`docs.example.com`, `8443`); IPv6 without its brackets."""
    value = value.strip().lower()
    if value.startswith("["):
        name, _, rest = value[1:].partition("]")
        return name, rest.removeprefix(":") or None
    name, _, port = value.partition(":")
    return name.rstrip("."), port or None


def host_allowed(host: str | None, allowed: Sequence[str]) -> bool:
    """A name without a port in `allowed` stands for every port; loopback is always allowed."""
    if not host:
        return False
    name, port = split_host(host)
    if is_loopback(name):
        return True
    return any(name == n and p in (None, port) for n, p in map(split_host, allowed))


def origin_allowed(origin: str | None, allowed: Sequence[str]) -> bool:
    """No Origin (no browser) is allowed, loopback's is, else it must be in `allowed` as written."""
    if origin is None:
        return True
    if origin.lower().rstrip("/") in allowed:
        return True
    try:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and is_loopback(parts.hostname or "")
    except ValueError:
        return False


class HostGuard:
    """421 for a Host, 403 for an Origin that is not answered. `None` answers any."""

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str] | None, origins: Sequence[str] | None) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        if self._hosts is not None and not host_allowed(host := header(scope, b"host"), self._hosts):
            log.warning("refused the Host %r; RAG_ALLOWED_HOSTS does not name it", (host or "")[:100])
            await refuse(scope, receive, send, 421, "This Host is not answered; see RAG_ALLOWED_HOSTS.")
            return
        if self._origins is not None:
            origins = [value.decode("latin-1") for key, value in scope["headers"] if key == b"origin"]
            if len(origins) > 1 or not origin_allowed(origins[0] if origins else None, self._origins):
                log.warning("refused the Origin %r; RAG_ALLOWED_ORIGINS does not name it", origins[0][:100])
                await refuse(
                    scope, receive, send, 403, "This Origin is not answered; see RAG_ALLOWED_ORIGINS."
                )
                return
        await self._app(scope, receive, send)
