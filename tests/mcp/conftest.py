"""One database, one embedding endpoint and one HTTP server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp.gate import Gate, serving_gate
from tests.mcp.serving import HttpServer, http_server

DOCUMENTS = {
    "guide/telescope.md": "# Telescope\n\n## Mirror\n\nThe primary mirror is washed twice a year with mild soap.\n",
    "guide/dome.md": "# Dome\n\n## Shutter\n\nWhen the shutter stops half-way, the panel shows E-14.\n",
    "notes.txt": "The night assistant keeps the log book beside the kettle.\n",
    "broken.txt": "\x00\x01\x02\x03" * 64,
}


def write_documents(folder: Path) -> Path:
    for name, text in DOCUMENTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def environment(database_url: str, docs: Path, gate: Gate, collection: str) -> dict[str, str]:
    return {
        "RAG_DATABASE_URL": database_url,
        "RAG_DOCS_DIR": str(docs),
        "RAG_COLLECTION": collection,
        "RAG_EMBED_PROVIDER": "openai",
        "RAG_EMBED_MODEL": "test-model",
        "OPENAI_BASE_URL": gate.url,
        "OPENAI_API_KEY": "sk-planted-key-0123456789",
        "RAG_CHUNK_SIZE": "200",
        "RAG_CHUNK_OVERLAP": "20",
        "RAG_ENV_FILE": "/dev/null",
    }


@pytest.fixture(scope="session")
def gate() -> Iterator[Gate]:
    with serving_gate() as made:
        yield made


@pytest.fixture(scope="session")
def shared_database(postgres_server: str, template_url: str) -> Iterator[str]:
    from tests.support.postgres import create_database, drop_database

    url = create_database(postgres_server, template=template_url)
    yield url
    drop_database(postgres_server, url)


@pytest.fixture(scope="session")
def env(shared_database: str, gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The settings of the shared server, whose collection `observatory` is indexed."""
    from doc_rag.service import KnowledgeBase
    from doc_rag.settings import load_settings

    docs = write_documents(tmp_path_factory.mktemp("docs"))
    made = environment(shared_database, docs, gate, "observatory")
    with KnowledgeBase(load_settings(made)) as kb:
        kb.reindex_docs()
    return made


@pytest.fixture(scope="session")
def server(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """The shared HTTP server, JSON logs."""
    log = tmp_path_factory.mktemp("http") / "server.log"
    with http_server(env | {"RAG_LOG_FORMAT": "json"}, log) as running:
        yield running
