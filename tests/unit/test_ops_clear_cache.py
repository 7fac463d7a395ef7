"""Without a server, or without its token, clearing the cache says which in one line."""

from __future__ import annotations

import socket

import pytest

from doc_rag.ops import clear_cache


def test_without_a_token_it_is_wrong_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert clear_cache.main([]) == 2
    assert "RAG_AUTH_TOKEN" in capsys.readouterr().err


def test_a_port_without_a_server_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAG_AUTH_TOKEN", "secret-token")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv("RAG_PORT", str(port))
        assert clear_cache.main([]) == 1
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in said
    assert "Does the server run" in said
    assert "secret-token" not in said
