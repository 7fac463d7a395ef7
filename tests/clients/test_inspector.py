"""The MCP Inspector's command line, configured by the file that gen-mcp-json writes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients import configured
from tests.clients.packages import Packages
from tests.mcp.serving import EIGHT, TOKEN, HttpServer, whole_env

pytestmark = pytest.mark.clients

SECONDS = 90


@pytest.fixture
def inspect(
    packages: Packages,
    env: dict[str, str],
    server: HttpServer,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Any:
    """Runs the Inspector on an entry of the file; its result is the answer's JSON."""
    if packages.inspector_node is None:
        pytest.skip("the Inspector wants Node 22.19 or newer, which neither this machine nor npm has here")
    configured.generated(tmp_path, env | {"RAG_AUTH_TOKEN": TOKEN, "RAG_PORT": str(server.port)})
    script = packages.folder / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    command = [packages.inspector_node, str(script), "--cli", "--config", str(tmp_path / ".mcp.json")]
    surroundings = whole_env(
        {"HOME": str(tmp_path), "MCP_INSPECTOR_SECRET_STORE": "memory", "RAG_ENV_FILE": os.devnull}
    )

    def run(*arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [*command, *arguments, "--format", "json"],
            env=surroundings,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout)["result"])

    return run


@pytest.mark.parametrize(
    ("entry", "era"), [("doc-rag", "legacy"), ("doc-rag-http", "legacy"), ("doc-rag-http", "modern")]
)
def test_it_lists_the_tools_with_schemas_that_every_client_takes_and_calls_one(
    inspect: Any, entry: str, era: str
) -> None:
    # With --strict it fails where a schema has a part that some clients do not take.
    listed = inspect("--server", entry, "--protocol-era", era, "--method", "tools/list", "--strict")
    assert tuple(tool["name"] for tool in listed["tools"]) == EIGHT
    calling = ("--method", "tools/call", "--tool-name", "query_docs")
    question = ("--tool-arg", "query=how often is the mirror washed", "top_k=1")
    answer = inspect("--server", entry, "--protocol-era", era, *calling, *question)
    (passage,) = answer["structuredContent"]["passages"]
    assert passage["source"] == "guide/telescope.md"
    assert passage["citation"] in answer["content"][0]["text"]
