"""`.mcp.json` gets our entries, and keeps whatever else is in it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from doc_rag.ops import mcp_json

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "token-of-the-server-" + "x" * 20


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to write; the settings come from a `.env` beside it."""
    (tmp_path / ".env").write_text(
        f"RAG_AUTH_TOKEN={TOKEN}\nRAG_COLLECTION=handbook\nRAG_DOCS_DIR=./manuals\n"
        "VOYAGE_API_KEY=key-of-voyage\nRAG_PORT=9000\n"
    )
    monkeypatch.setenv("RAG_ENV_FILE", str(tmp_path / ".env"))
    return tmp_path / ".mcp.json"


def written(path: Path, *arguments: str) -> dict[str, dict[str, object]]:
    assert mcp_json.main(["--file", str(path), *arguments]) == 0
    servers: dict[str, dict[str, object]] = json.loads(path.read_text())["mcpServers"]
    return servers


def test_both_entries_carry_real_paths_and_the_settings_in_force(path: Path) -> None:
    servers = written(path)
    assert list(servers) == ["doc-rag", "doc-rag-http"]
    stdio = servers["doc-rag"]
    assert stdio["env"] == {
        "RAG_COLLECTION": "handbook",
        "RAG_DOCS_DIR": str(path.parent / "manuals"),
        "VOYAGE_API_KEY": "key-of-voyage",
    }
    assert stdio["args"] == [str(ROOT / "src" / "server.py"), "--transport", "stdio"]
    assert os.access(str(stdio["command"]), os.X_OK)
    assert servers["doc-rag-http"] == {
        "type": "http",
        "url": "http://127.0.0.1:9000/mcp",
        "headers": {"Authorization": f"Bearer {TOKEN}"},
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_env_refs_keep_every_secret_out_of_the_file(path: Path) -> None:
    servers = written(path, "--env-refs")
    assert servers["doc-rag"]["env"] == {
        "RAG_COLLECTION": "handbook",
        "RAG_DOCS_DIR": str(path.parent / "manuals"),
        "VOYAGE_API_KEY": "${VOYAGE_API_KEY}",
    }
    assert servers["doc-rag-http"]["headers"] == {"Authorization": "Bearer ${RAG_AUTH_TOKEN}"}
    assert TOKEN not in path.read_text()
    assert "key-of-voyage" not in path.read_text()


def test_without_a_token_there_is_no_http_entry(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.with_name(".env").write_text("RAG_COLLECTION=handbook\n")
    assert list(written(path)) == ["doc-rag"]
    assert "RAG_AUTH_TOKEN is not set" in capsys.readouterr().out


def test_other_entries_and_keys_keep_their_place_content_and_indentation(path: Path) -> None:
    before = {
        "$schema": "x",
        "mcpServers": {
            "first": {"command": "é", "args": []},
            "doc-rag": {
                "url": "http://old",
                "timeout": 60,
                "env": {"PYTHONUTF8": "1", "RAG_COLLECTION": "old", "RAG_CHUNK_SIZE": "900"},
            },
            "last": {"url": "https://example.com"},
        },
        "inputs": [1, 2.5, None],
    }
    path.write_text(json.dumps(before, indent="\t", ensure_ascii=False))
    written(path)
    text = path.read_text()
    after = json.loads(text)
    assert list(after) == ["$schema", "mcpServers", "inputs"]
    assert list(after["mcpServers"]) == ["first", "doc-rag", "last", "doc-rag-http"]
    for name in ("first", "last"):
        assert after["mcpServers"][name] == before["mcpServers"][name]  # type: ignore[index]
    ours = after["mcpServers"]["doc-rag"]
    assert "url" not in ours
    assert ours["timeout"] == 60
    assert ours["env"]["PYTHONUTF8"] == "1"
    assert ours["env"]["RAG_COLLECTION"] == "handbook"
    assert "RAG_CHUNK_SIZE" not in ours["env"]
    assert '\n\t"mcpServers"' in text
    assert "é" in text


def test_a_second_run_changes_nothing(path: Path) -> None:
    written(path)
    first = path.read_text()
    written(path)
    assert path.read_text() == first


@pytest.mark.parametrize("text", ["not json", "// comment\n{}", "[]", '"text"', '{"mcpServers": []}', "{"])
def test_a_file_that_is_not_ours_to_read_is_left_alone(
    path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path.write_text(text)
    assert mcp_json.main(["--file", str(path)]) == 1
    assert path.read_text() == text
    assert "was not changed" in capsys.readouterr().err


def test_an_empty_file_counts_as_none(path: Path) -> None:
    path.write_text("\n")
    assert "doc-rag" in written(path)


def test_wrong_settings_are_status_2_and_write_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_PORT", "none")
    assert mcp_json.main(["--file", str(path)]) == 2
    assert not path.exists()


def test_name_and_address_can_be_chosen(path: Path) -> None:
    servers = written(path, "--name", "manuals", "--url", "https://tunnel.example/mcp")
    assert list(servers) == ["manuals", "manuals-http"]
    assert servers["manuals-http"]["url"] == "https://tunnel.example/mcp"


def test_the_example_is_json_and_names_files_that_exist() -> None:
    servers = json.loads((ROOT / ".mcp.json.example").read_text())["mcpServers"]
    script = servers["doc-rag"]["args"][0].removeprefix("/path/to/doc-rag-mcp/")
    assert (ROOT / script).is_file()
    assert set(servers) == {"doc-rag", "doc-rag-http"}


@pytest.mark.parametrize("name", [".mcp.json", ".env", "doc-rag.dump"])
def test_files_with_secrets_are_ignored_by_git(name: str) -> None:
    done = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False, timeout=30)
    if done.returncode == 128:
        pytest.skip("this copy of the source is no git checkout")
    assert done.returncode == 0
