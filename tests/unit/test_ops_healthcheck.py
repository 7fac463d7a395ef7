"""The container's health check says yes to a 200 of /healthz and to nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from doc_rag.ops import healthcheck


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that answers /healthz with `status` and anything else with 404; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "verdict"), [(200, 0), (503, 1), (404, 1), (401, 1)])
def test_the_status_decides(monkeypatch: pytest.MonkeyPatch, status: int, verdict: int) -> None:
    with answering(status) as port:
        monkeypatch.setenv("RAG_PORT", str(port))
        assert healthcheck.main([]) == verdict


def test_a_port_that_nobody_listens_on_is_unhealthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAG_PORT", str(taken.getsockname()[1]))
        assert healthcheck.main([]) == 1
    assert "does not answer" in capsys.readouterr().err


def test_a_server_that_accepts_and_says_nothing_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healthcheck, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("RAG_PORT", str(silent.getsockname()[1]))
        assert healthcheck.main([]) == 1
