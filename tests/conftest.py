"""What every test stands on: a clean environment, no network but loopback, and a real Postgres."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doc_rag.settings import Settings, load_settings

PREFIXES = ("RAG_", "VOYAGE_", "OPENAI_", "AZURE_OPENAI_", "POSTGRES_", "PG")
ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

for name in [name for name in os.environ if name.startswith(PREFIXES) and name != "RAG_TEST_DATABASE_URL"]:
    del os.environ[name]
# A shell starts what it puts in the background with SIGINT ignored, and so would be every child of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The developer's own .env is nothing to test with, nor are child processes to read it.
os.environ["RAG_ENV_FILE"] = os.devnull


@pytest.fixture(autouse=True, scope="session")
def _only_loopback() -> Iterator[None]:
    """Refuse every connection that would leave this machine: a test that needs one is wrong."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in (
            "127.0.0.1",
            "::1",
            "localhost",
        ):
            raise AssertionError(f"a test tried to connect to {address[0]}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The admin address of the suite's Postgres; RAG_TEST_DATABASE_URL names another than the embedded one."""
    from tests.support.postgres import test_server

    return test_server()


@pytest.fixture(scope="session")
def template_url(postgres_server: str) -> str:
    """A migrated, empty database that tests clone."""
    from doc_rag.store.pool import Database
    from tests.support.postgres import create_database

    url = create_database(postgres_server)
    database = Database(load_settings({"RAG_DATABASE_URL": url, "RAG_ENV_FILE": os.devnull}))
    database.open()
    database.close()
    return url


@pytest.fixture
def database_url(postgres_server: str, template_url: str) -> Iterator[str]:
    """A database of the test's own, with our schema and nothing in it."""
    from tests.support.postgres import create_database, drop_database

    url = create_database(postgres_server, template=template_url)
    yield url
    drop_database(postgres_server, url)


MakeSettings = Callable[..., Settings]


@pytest.fixture
def make_settings(database_url: str, tmp_path: Path) -> MakeSettings:
    """Settings from keyword arguments named like the variables, on this test's database and an empty docs folder."""

    def make(**values: str) -> Settings:
        docs = tmp_path / "docs"
        docs.mkdir(exist_ok=True)
        environ = {
            "RAG_DATABASE_URL": database_url,
            "RAG_DOCS_DIR": str(docs),
            "RAG_COLLECTION": "test",
            "RAG_EMBED_PROVIDER": "local",
            "RAG_ENV_FILE": os.devnull,
        }
        return load_settings(environ | values)

    return make


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared evaluation sets and awkward files; without it the test is skipped, saying so."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED.name}/ is not beside the checkout: no evaluation sets, no awkward files")
    return SHARED


def pytest_report_header() -> list[str]:
    import mcp_types.version
    import psycopg

    revisions = ", ".join(mcp_types.version.SUPPORTED_PROTOCOL_VERSIONS)
    return [f"psycopg {psycopg.__version__}, MCP revisions {revisions}"]
