"""The port of the HTTP server."""

from __future__ import annotations

import socket

from doc_rag.listening import listen


def test_connections_send_at_once_what_they_have() -> None:
    with listen("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()) as client:
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert client.recv(1) == b""
