"""Where the HTTP server may listen: decided, and the port taken, before anything heavy is imported.

No token, no start; and no address that others can reach with a short one.
"""

from __future__ import annotations

import ipaddress
import socket

from doc_rag.errors import DocRagError, SettingsError
from doc_rag.settings import MIN_TOKEN_CHARS, Settings


def is_loopback(name: str) -> bool:
    """True for localhost and every loopback address."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_may_listen(settings: Settings, host: str) -> str:
    """The token to serve with.

    Raises:
        SettingsError: there is none, or `host` can be reached from elsewhere and it is too short for that.
    """
    token = settings.auth_token.reveal() if settings.auth_token else ""
    if not token:
        raise SettingsError(
            "RAG_AUTH_TOKEN is not set, and the HTTP server does not start without: whoever reaches it can read "
            "the documents. make auth-token writes one into .env."
        )
    if not is_loopback(host.strip("[]").lower()) and len(token) < MIN_TOKEN_CHARS:
        raise SettingsError(
            f"RAG_AUTH_TOKEN has {len(token)} characters; listening on {host}, which others can reach, needs "
            f"{MIN_TOKEN_CHARS} or more. make auth-token writes one into .env."
        )
    return token


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        DocRagError: the address cannot be had, with what to do.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        sock = socket.create_server(address[:2], family=family, backlog=2_048)
        # asyncio does this by itself only for sockets that it opens: an answer in two writes would wait
        # 40 ms for the client's acknowledgement of the first. Connections inherit it.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    except (OSError, UnicodeError) as error:
        raise DocRagError(
            f"cannot listen on {host}:{port}: {error}. Choose another with --host, --port or RAG_PORT."
        ) from None
