"""Before compose starts, `.env` has what it needs, and nothing that was there is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg import conninfo

from doc_rag.ops import compose_env, env_file

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "t" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path


def values(folder: Path) -> dict[str, str]:
    return env_file.parse((folder / ".env").read_text())


def test_the_database_alone_needs_nothing_and_gets_a_password_and_its_address(folder: Path) -> None:
    assert compose_env.main(["db"]) == 0
    written = values(folder)
    parts = conninfo.conninfo_to_dict(written["RAG_DATABASE_URL"])
    assert parts == {
        "user": "doc_rag",
        "password": written["POSTGRES_PASSWORD"],
        "host": "127.0.0.1",
        "port": "5433",
        "dbname": "doc_rag",
    }
    assert len(written["POSTGRES_PASSWORD"]) >= 32


def test_what_is_there_stays_and_a_second_run_writes_nothing(folder: Path) -> None:
    (folder / ".env").write_text("POSTGRES_PASSWORD='p@ss w$rd\"%#/:'\n")
    assert compose_env.main(["db"]) == 0
    first = (folder / ".env").read_text()
    assert conninfo.conninfo_to_dict(values(folder)["RAG_DATABASE_URL"])["password"] == 'p@ss w$rd"%#/:'
    assert compose_env.main(["db"]) == 0
    assert (folder / ".env").read_text() == first


def test_another_database_in_env_is_kept_and_pointed_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "RAG_DATABASE_URL=postgresql://me:hidden@db.example.com/docs\n"
    (folder / ".env").write_text(line)
    assert compose_env.main(["db"]) == 0
    said = capsys.readouterr()
    assert "names another database" in said.err
    assert "hidden" not in said.out + said.err
    assert (folder / ".env").read_text().startswith(line)


def test_an_address_with_an_old_password_is_pointed_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ".env").write_text(
        f"POSTGRES_PASSWORD=new\nRAG_DATABASE_URL={compose_env.host_url('old', '5433')}\n"
    )
    assert compose_env.main(["db"]) == 0
    assert "another password" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "RAG_AUTH_TOKEN is not set. Run: make auth-token"),
        ("RAG_AUTH_TOKEN=short\n", "RAG_AUTH_TOKEN has 5 characters"),
        (f"RAG_AUTH_TOKEN={TOKEN}\nRAG_DOCS_DIR=docs\n", "Write ./docs"),
        (f"RAG_AUTH_TOKEN={TOKEN}\nRAG_DOCS_DIR=./nowhere\n", "does not exist"),
        (f"RAG_AUTH_TOKEN={TOKEN}\nRAG_DOCS_DIR=./.env\n", "is a file"),
    ],
)
def test_the_server_is_not_started_before_this_is_right(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    (folder / ".env").write_text(text)
    assert compose_env.main(["up"]) == 1
    assert sentence in capsys.readouterr().err
    assert (folder / ".env").read_text() == text


def test_with_a_token_and_documents_the_server_may_start(folder: Path) -> None:
    (folder / ".env").write_text(f"RAG_AUTH_TOKEN={TOKEN}\n")
    assert compose_env.main(["up"]) == 0
    assert set(values(folder)) == {"RAG_AUTH_TOKEN", "POSTGRES_PASSWORD", "RAG_DATABASE_URL"}


OLDER_PYTHONS = [name for name in ("python3.9", "python3.10") if shutil.which(name)]


@pytest.mark.parametrize("module", ["compose_env", "auth_token", "env_file", "healthcheck"])
def test_what_make_up_runs_imports_no_package_and_works_on_an_older_python(module: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    for python in [sys.executable, *OLDER_PYTHONS]:
        # A version manager's stand-in that leads nowhere is no Python.
        if subprocess.run([python, "-c", ""], capture_output=True, check=False, timeout=30).returncode == 0:
            command = [python, "-S", "-c", f"import doc_rag.ops.{module}"]
            subprocess.run(command, env=environ, check=True, timeout=30)
