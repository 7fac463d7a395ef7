"""The packages of these tests, and the database, embedding endpoint and HTTP server of tests/mcp/."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.packages import NoNode, Packages, installed
from tests.mcp.conftest import env, environment, gate, server, shared_database, write_documents
from tests.mcp.gate import Gate
from tests.mcp.serving import SERVER, whole_env

__all__ = ["env", "gate", "server", "shared_database"]  # fixtures


@pytest.fixture(scope="session")
def packages() -> Packages:
    """The npm packages; without them the test is skipped, saying what is missing."""
    try:
        return installed()
    except NoNode as reason:
        pytest.skip(str(reason))


@pytest.fixture
def fresh_env(shared_database: str, gate: Gate, tmp_path: Path) -> dict[str, str]:
    """The settings of a server whose collection is the test's own, and not indexed yet."""
    docs = write_documents(tmp_path / "docs")
    for name, text in ((path, path.read_text()) for path in docs.rglob("*.md")):
        # Words of this test alone, else vectors of another test are used again and nothing is embedded.
        name.write_text(f"{text}\nNote {uuid.uuid4().hex}.\n")
    return environment(shared_database, docs, gate, f"fresh {uuid.uuid4().hex[:8]}")


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Path]:
    """Where a client's stderr goes (and that of a server that it starts)."""
    yield tmp_path / "client.log"


def spawning(env: dict[str, str], cwd: Path) -> dict[str, Any]:
    """What starts the server over stdio, as a client's configuration has it."""
    return {"command": sys.executable, "args": [str(SERVER)], "env": whole_env(env), "cwd": str(cwd)}
