"""`doc-rag` as a person runs it: exit codes, one clear line for each mistake, and no secret anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import ROOT
from tests.providers.servers import VoyageServer
from tests.providers.wire import status
from tests.service.conftest import write

SECRETS = {
    "VOYAGE_API_KEY": "pa-PLANTED-voyage-1f2e3d",
    "OPENAI_API_KEY": "sk-PLANTED-openai-4c5b6a",
    "AZURE_OPENAI_API_KEY": "PLANTED-azure-7d8e9f",
    "RAG_AUTH_TOKEN": "PLANTED-token-0123456789abcdef0123456789",
}
PASSWORD = "PLANTED-password-a1b2c3"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    write(folder, ferry="# Ferry\n\nThe ferry leaves at noon.", bus="The bus leaves at ten.")
    return folder


@pytest.fixture
def voyage() -> Iterator[VoyageServer]:
    with VoyageServer() as server:
        yield server


class Command:
    """Runs `doc-rag` with settings of its own; remembers all that came out."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | environ
        self.output = ""

    def __call__(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "doc_rag.cli", *arguments],
            env=self.environ | environ,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            check=False,
        )
        self.output += done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done


@pytest.fixture
def doc_rag(database_url: str, docs: Path, voyage: VoyageServer) -> Command:
    return Command(
        voyage.environ()
        | {
            "RAG_DATABASE_URL": database_url,
            "RAG_DOCS_DIR": str(docs),
            "RAG_COLLECTION": "test",
            "RAG_ENV_FILE": os.devnull,
            "RAG_EMBED_DIM": "256",
        }
    )


def test_ingest_query_and_status_as_text_and_as_json(doc_rag: Command) -> None:
    first = doc_rag("ingest")
    assert first.returncode == 0, first.stderr
    assert "2 new, 0 changed, 0 removed, 0 unchanged, 0 skipped" in first.stdout
    again = json.loads(doc_rag("ingest", "--json").stdout)
    assert (again["unchanged"], again["texts_embedded"]) == (2, 0)
    asked = doc_rag("query", "When does the ferry leave?", "-k", "1")
    assert "ferry.md" in asked.stdout and "line" in asked.stdout
    answer = json.loads(doc_rag("query", "When does the ferry leave?", "--json").stdout)
    assert answer["passages"][0]["source"] == "ferry.md"
    shown = doc_rag("status")
    assert "test: 2 documents, 2 chunks" in shown.stdout
    assert json.loads(doc_rag("status", "--json").stdout)["collections"][0]["name"] == "test"


def test_a_dry_run_calls_nothing(doc_rag: Command, voyage: VoyageServer) -> None:
    done = doc_rag("ingest", "--dry-run")
    assert done.returncode == 0
    assert "Dry run" in done.stdout
    assert voyage.requests == []


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "words"),
    [
        (("ingest", "--docs", "no/such/folder"), {}, 1, "no/such/folder"),
        (("query", ""), {}, 2, "query is empty"),
        (("query", "x", "--collection", "nope"), {}, 1, '"nope" is not indexed'),
        (("query", "x", "--collection", "a", "--all-collections"), {}, 2, "exclude each other"),
        (("status",), {"RAG_EMBED_PROVIDER": "cohere"}, 2, "RAG_EMBED_PROVIDER=cohere"),
        (("status",), {"RAG_PORT": "0"}, 2, "RAG_PORT=0"),
        (("serve", "--transport", "http"), {"RAG_AUTH_TOKEN": ""}, 2, "RAG_AUTH_TOKEN"),
        (("ingest",), {"VOYAGE_API_KEY": ""}, 1, "VOYAGE_API_KEY"),
        (("ingest",), {"RAG_EMBED_DIM": "300"}, 2, "RAG_EMBED_DIM=300"),
        (
            ("status",),
            {"RAG_DATABASE_URL": f"postgresql://u:{PASSWORD}@127.0.0.1:1/x"},
            1,
            "could not be reached",
        ),
    ],
)
def test_each_mistake_is_one_clear_line(
    doc_rag: Command, arguments: tuple[str, ...], environ: dict[str, str], code: int, words: str
) -> None:
    done = doc_rag(*arguments, **environ)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert PASSWORD not in doc_rag.output


def test_bad_usage_is_exit_2(doc_rag: Command) -> None:
    assert doc_rag("nonsense").returncode == 2
    assert doc_rag("query").returncode == 2
    assert doc_rag("serve", "--transport", "pigeon").returncode == 2


def test_the_commands_of_care_are_listed_and_have_help_of_their_own(doc_rag: Command) -> None:
    listed = doc_rag("--help").stdout
    for name in ("auth-token", "gen-mcp-json", "clear-cache", "doctor", "backup"):
        assert f"    {name}" in listed
        assert f"usage: doc-rag {name}" in doc_rag(name, "--help").stdout
    checked = doc_rag("doctor")
    assert "pgvector" in checked.stdout


def test_a_held_removal_is_exit_1_and_says_how_to_confirm(doc_rag: Command, docs: Path) -> None:
    doc_rag("ingest")
    for path in docs.iterdir():
        path.unlink()
    held = doc_rag("ingest")
    assert held.returncode == 1
    assert "confirm_large_removal" in held.stdout or "--confirm-large-removal" in held.stdout
    assert doc_rag("ingest", "--confirm-large-removal").returncode == 0


def test_planted_secrets_come_out_nowhere(doc_rag: Command, voyage: VoyageServer, database_url: str) -> None:
    doc_rag.environ |= SECRETS | {"RAG_LOG_FORMAT": "json"}
    voyage.key = SECRETS["VOYAGE_API_KEY"]
    parts = urlsplit(database_url)
    with_password = f"postgresql://u:{PASSWORD}@127.0.0.1:1{parts.path}"
    assert doc_rag("ingest").returncode == 0
    doc_rag("query", "ferry", "--json")
    doc_rag("status")
    doc_rag("status", RAG_DATABASE_URL=with_password)
    doc_rag("status", RAG_DATABASE_URL=with_password + "?sslmode=nonsense")
    voyage.key = "another"
    doc_rag("ingest", "--rebuild")
    doc_rag("query", "bus")
    voyage.fail_next(*[status(500, f"echo {SECRETS['VOYAGE_API_KEY']}")] * 50)
    doc_rag("ingest", "--rebuild", RAG_EMBED_RETRY_SECONDS="0.2")
    for provider in ("openai", "azure-openai"):
        doc_rag(
            "ingest",
            RAG_EMBED_PROVIDER=provider,
            OPENAI_BASE_URL="http://127.0.0.1:1/v1",
            AZURE_OPENAI_ENDPOINT="http://127.0.0.1:1",
            AZURE_OPENAI_EMBED_DEPLOYMENT="d",
            RAG_EMBED_RETRY_SECONDS="0.2",
        )
    assert [secret for secret in (*SECRETS.values(), PASSWORD) if secret in doc_rag.output] == []


def test_an_interrupt_ends_at_a_document_and_reports(
    doc_rag: Command, docs: Path, voyage: VoyageServer
) -> None:
    write(docs, **{f"d{i}": f"# Item {i}\n\nThing number {i}." for i in range(300)})
    voyage.hold_until(3)  # a second answer waits, so the signal finds the run under way
    run = subprocess.Popen(
        [sys.executable, "-m", "doc_rag.cli", "ingest"],
        env=doc_rag.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert voyage.wait_for(1, 30)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=40)
    assert run.returncode == 1, err
    assert "Stopped before the end" in out
    assert "Traceback" not in err
    voyage.hold_until(0)
    finished = json.loads(doc_rag("ingest", "--json").stdout)
    assert finished["new"] + finished["unchanged"] == 302
