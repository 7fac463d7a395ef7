"""The doctor looks at everything, goes on after a fault, and says what to do about each."""

from __future__ import annotations

import http.server
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag.ops import doctor
from doc_rag.service import KnowledgeBase
from doc_rag.settings import load_settings
from tests.conftest import MakeSettings

TOKEN = "t" * 32


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def program() -> Iterator[int]:
    """A web server that is not ours; its port."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, list[tuple[str, str]]]:
    """Topic to (level, text), as printed."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in capsys.readouterr().out.splitlines()[:-1]:
        level, topic, text = line.split(None, 2)
        found.setdefault(topic, []).append((level, text))
    return found


def run(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], *arguments: str) -> int:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return doctor.main(arguments)


def test_with_everything_right_nothing_is_wrong_and_the_key_is_tried_when_asked(
    make_settings: MakeSettings,
    tmp_path: Path,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = make_settings()
    (tmp_path / "docs" / "a.md").write_text("The ferry leaves at noon.")
    with KnowledgeBase(settings) as kb:
        kb.reindex_docs()
    assert settings.database_url is not None
    environ = {
        "RAG_DATABASE_URL": settings.database_url.reveal(),
        "RAG_DOCS_DIR": str(tmp_path / "docs"),
        "RAG_COLLECTION": "test",
        "RAG_EMBED_PROVIDER": "local",
        "RAG_AUTH_TOKEN": TOKEN,
        "RAG_PORT": str(free_port),
    }
    assert run(monkeypatch, environ, "--online") == 0
    found = report(capsys)
    assert {level for lines in found.values() for level, _ in lines} == {"ok"}
    assert "1 files" in found["documents"][0][1]
    assert re.search(r"Postgres \d+.*pgvector 0\.\d+.*schema \d+", found["database"][0][1])
    assert "collection test: 1 documents, 1 chunks" in found["index"][0][1]
    assert re.search(r"answered in \d+ ms: 384 dimensions", found["provider"][0][1])
    assert f"{free_port} is free" in found["port"][0][1]


def test_every_fault_is_named_with_what_to_do_and_none_hides_another(
    tmp_path: Path, program: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {
        "RAG_DATABASE_URL": "postgresql://me:hidden@127.0.0.1:1/docs",
        "RAG_DOCS_DIR": str(tmp_path / "nowhere"),
        "RAG_EMBED_PROVIDER": "voyage",
        "RAG_AUTH_TOKEN": "short",
        "RAG_PORT": str(program),
    }
    assert run(monkeypatch, environ) == 1
    out = capsys.readouterr().out
    assert "hidden" not in out
    wrong = [line.split()[1] for line in out.splitlines() if line.startswith("WRONG")]
    assert wrong == ["documents", "database", "provider", "token", "port"]
    assert out.endswith("5 to set right.\n")
    for advice in (
        "set RAG_DOCS_DIR",
        "RAG_DATABASE_URL is right",
        "VOYAGE_API_KEY",
        "make auth-token",
        "RAG_PORT",
    ):
        assert advice in out


def test_wrong_settings_are_all_listed_with_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, {"RAG_PORT": "x", "RAG_CHUNK_SIZE": "y"}) == 2
    out = capsys.readouterr().out
    assert "RAG_PORT" in out
    assert "RAG_CHUNK_SIZE" in out


def test_an_env_file_that_others_can_read_is_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("RAG_COLLECTION=test\n")
    path.chmod(0o644)
    settings = load_settings({"RAG_ENV_FILE": str(path)})
    assert [f.level for f in doctor.check_settings(settings)] == ["ok", "note"]
    os.chmod(path, 0o600)
    assert [f.level for f in doctor.check_settings(settings)] == ["ok"]


def test_an_empty_folder_of_documents_is_a_fault(make_settings: MakeSettings) -> None:
    (finding,) = doctor.check_documents(make_settings())
    assert (finding.level, "RAG_EXTENSIONS" in finding.text) == ("WRONG", True)
