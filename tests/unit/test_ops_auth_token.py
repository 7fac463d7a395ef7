"""A new token is written, and shown to nobody who did not ask for it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from doc_rag.ops import auth_token, env_file


@pytest.fixture
def env_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / ".env"
    monkeypatch.setenv("RAG_ENV_FILE", str(path))
    return path


def test_the_file_is_made_from_the_example_with_a_long_token(
    env_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env_path.with_name(".env.example").write_text("# the token\n# RAG_AUTH_TOKEN=\n# RAG_PORT=8743\n")
    assert auth_token.main([]) == 0
    token = env_file.parse(env_path.read_text())["RAG_AUTH_TOKEN"]
    assert len(token) >= 43
    assert env_path.read_text() == f"# the token\nRAG_AUTH_TOKEN={token}\n# RAG_PORT=8743\n"
    assert stat.S_IMODE(env_path.stat().st_mode) == 0o600
    said = capsys.readouterr()
    assert token not in said.out + said.err


def test_a_second_run_replaces_the_token_in_place_and_says_so(
    env_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env_path.write_text("A=1\nRAG_AUTH_TOKEN=old\nB=2\n")
    assert auth_token.main(["--print"]) == 0
    said = capsys.readouterr()
    token = said.out.strip()
    assert env_path.read_text() == f"A=1\nRAG_AUTH_TOKEN={token}\nB=2\n"
    assert token != "old"
    assert "replaces the old one" in said.err


def test_a_token_in_the_environment_is_pointed_out(
    env_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAG_AUTH_TOKEN", "from the environment")
    assert auth_token.main([]) == 0
    assert "wins over .env" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_one_line_and_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAG_ENV_FILE", str(tmp_path / "nowhere" / ".env"))
    assert auth_token.main([]) == 1
    assert "was not changed" in capsys.readouterr().err
