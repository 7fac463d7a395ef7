"""Every way of connecting that the README and `make gen-mcp-json` offer starts or reaches a server that answers."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.clients import configured
from tests.clients.configured import as_started, command_line, expanded
from tests.clients.node import NEW, OLD, Kind, Session, calling, listing, session, transcript
from tests.clients.packages import Packages
from tests.mcp.serving import EIGHT, TOKEN, HttpServer, call, whole_env
from tests.mcp.test_tools import within
from tests.test_docs import README, fences

pytestmark = pytest.mark.clients

STEPS = (listing(), calling("query_docs", query="how often is the mirror washed"))


def check(running: Session) -> None:
    """The client lists the eight tools and finds the passage."""
    heard = transcript(running)
    assert tuple(heard.tools()) == EIGHT
    assert heard.content(1)["passages"][0]["source"] == "guide/telescope.md"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that has nothing to do with the checkout, where a client starts the server."""
    folder = tmp_path / "another project"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(env: dict[str, str], server: HttpServer) -> dict[str, str]:
    """The settings of someone whose HTTP server runs, as gen-mcp-json finds them."""
    return env | {"RAG_AUTH_TOKEN": TOKEN, "RAG_PORT": str(server.port)}


@pytest.fixture
def database(env: dict[str, str]) -> dict[str, str]:
    """What an entry without settings needs to find the test's index."""
    return {name: value for name, value in env.items() if name != "RAG_ENV_FILE"}


@pytest.mark.parametrize("kind", [OLD, NEW], ids=str)
def test_the_generated_stdio_entry_starts_a_server_elsewhere(
    packages: Packages, kind: Kind, settings: dict[str, str], elsewhere: Path, said: Path
) -> None:
    entry = configured.generated(elsewhere, settings)["doc-rag"]
    assert entry["type"] == "stdio"
    with session(packages, kind, STEPS, said, stdio=as_started(entry, elsewhere, {})) as running:
        check(running)


def test_the_generated_entries_serve_the_python_client(settings: dict[str, str], elsewhere: Path) -> None:
    entries = configured.generated(elsewhere, settings)
    started = as_started(entries["doc-rag"], elsewhere, {})
    started["env"] = whole_env(started["env"])
    http = entries["doc-rag-http"]

    async def ask(client: Client) -> None:
        assert tuple(tool.name for tool in (await client.list_tools()).tools) == EIGHT
        found = await call(client, "query_docs", query="how often is the mirror washed")
        assert found["passages"][0]["source"] == "guide/telescope.md"

    async def body() -> None:
        async with Client(StdioServerParameters(**started)) as client:
            await ask(client)
        async with (
            httpx2.AsyncClient(headers=http["headers"], timeout=60) as connection,
            Client(streamable_http_client(http["url"], http_client=connection)) as client,
        ):
            await ask(client)

    within(body)


def test_the_generated_http_entry_reaches_the_server(
    packages: Packages, settings: dict[str, str], elsewhere: Path, said: Path
) -> None:
    entry = configured.generated(elsewhere, settings)["doc-rag-http"]
    assert entry["type"] == "http"
    with session(packages, NEW, STEPS, said, http=entry) as running:
        check(running)


def test_with_references_in_place_of_secrets_the_client_fills_them_in(
    packages: Packages, settings: dict[str, str], elsewhere: Path, said: Path
) -> None:
    entries = configured.generated(elsewhere, settings, "--env-refs")
    text = (elsewhere / ".mcp.json").read_text()
    assert TOKEN not in text and settings["OPENAI_API_KEY"] not in text
    stdio, http = (expanded(entries[name], settings) for name in ("doc-rag", "doc-rag-http"))
    with session(packages, OLD, STEPS, said, stdio=as_started(stdio, elsewhere, {})) as running:
        check(running)
    with session(packages, OLD, STEPS, said, http=http) as running:
        check(running)


def test_the_example_file_does_once_its_folders_are_filled_in(
    packages: Packages, database: dict[str, str], server: HttpServer, elsewhere: Path, said: Path
) -> None:
    values = {"VOYAGE_API_KEY": "voyage-key", "RAG_AUTH_TOKEN": TOKEN}
    entries = {
        name: expanded(entry, values)
        for name, entry in configured.example(Path(database["RAG_DOCS_DIR"])).items()
    }
    where = {"RAG_DATABASE_URL": database["RAG_DATABASE_URL"]}
    steps = (listing(), calling("list_collections"))
    with session(
        packages, NEW, steps, said, stdio=as_started(entries["doc-rag"], elsewhere, where)
    ) as running:
        heard = transcript(running)
    assert tuple(heard.tools()) == EIGHT
    assert "observatory" in [found["name"] for found in heard.content(1)["collections"]]
    http = entries["doc-rag-http"]
    assert http["url"] == configured.README_URL
    with session(packages, NEW, STEPS, said, http={**http, "url": server.url}) as running:
        check(running)


def test_the_commands_that_add_a_local_server_name_one_that_starts(
    packages: Packages, database: dict[str, str], elsewhere: Path, said: Path
) -> None:
    claude, codex = (
        configured.stdio_of(command_line(f"{name} mcp add", " -- ")) for name in ("claude", "codex")
    )
    assert claude == codex
    with session(packages, NEW, STEPS, said, stdio=as_started(claude, elsewhere, database)) as running:
        check(running)


@pytest.mark.parametrize(
    "words", [("claude mcp add", "--transport http"), ("gemini mcp add", "--transport http")], ids=" ".join
)
def test_the_commands_that_add_a_running_server_carry_its_address_and_token(
    packages: Packages, words: tuple[str, str], server: HttpServer, said: Path
) -> None:
    http = configured.http_of(command_line(*words), server.url)
    with session(packages, NEW, STEPS, said, http=http) as running:
        check(running)


def test_the_bridge_for_claude_desktop_reaches_a_server_over_http(
    packages: Packages, server: HttpServer, elsewhere: Path, said: Path
) -> None:
    (shown,) = (json.loads(block) for block in fences(README, "json") if "mcp-remote" in block)
    entry = shown["mcpServers"]["doc-rag"]
    yes, bridge, address, *rest = entry["args"]
    assert (entry["command"], yes, bridge) == ("npx", "-y", "mcp-remote")
    assert address == "https://docs.example.com/mcp"
    # What npx would fetch is installed already.
    script = packages.folder / "node_modules" / "mcp-remote" / "dist" / "proxy.js"
    env = {"AUTH_HEADER": entry["env"]["AUTH_HEADER"].replace("YOUR_TOKEN", TOKEN), "HOME": str(elsewhere)}
    started = {"command": packages.node, "args": [str(script), server.url, *rest], "env": env}
    with session(packages, OLD, STEPS, said, stdio=started | {"cwd": str(elsewhere)}) as running:
        check(running)
