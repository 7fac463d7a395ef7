"""The commands that the README shows, run as processes against a sample that is indexed once."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.smoke.commands import ROOT, SAMPLE, environment, run, sample_environment
from tests.support.postgres import create_database, drop_database
from tests.test_docs import README, fences

TOKEN = "a-token-of-more-than-thirty-two-characters"
START_SECONDS = 60


@pytest.fixture(scope="module")
def sample(postgres_server: str, template_url: str) -> Iterator[dict[str, str]]:
    """The environment of a user whose database holds the sample."""
    url = create_database(postgres_server, template=template_url)
    env = sample_environment(url)
    done = run(["python", "src/ingest.py"], env)
    assert done.returncode == 0, done.stderr
    yield env
    drop_database(postgres_server, url)


def test_ingest_takes_a_folder_and_a_collection(sample: dict[str, str], tmp_path: Path) -> None:
    command = "python src/ingest.py --docs PATH --collection NAME"
    assert command in README
    (tmp_path / "note.md").write_text("# Bees\n\nThe hive stands behind the shed.\n")
    words = command.replace("PATH", str(tmp_path)).replace("NAME", "garden").split()
    done = run(words, sample)
    assert done.returncode == 0, done.stderr
    assert "1 new" in done.stdout
    asked = run(["doc-rag", "query", "Where is the hive?", "--collection", "garden", "--json"], sample)
    assert json.loads(asked.stdout)["passages"][0]["source"] == "note.md"


def test_a_second_ingest_embeds_nothing(sample: dict[str, str]) -> None:
    done = run(["python", "src/ingest.py", "--json"], sample)
    report = json.loads(done.stdout)
    files = len([path for path in SAMPLE.rglob("*") if path.is_file()])
    assert done.returncode == 0
    assert (report["unchanged"], report["texts_embedded"], report["skips"]) == (files, 0, [])


def test_a_dry_run_says_what_would_be_embedded_and_writes_nothing(sample: dict[str, str]) -> None:
    done = run(["python", "src/ingest.py", "--dry-run", "--collection", "other"], sample)
    assert done.returncode == 0, done.stderr
    assert "chunk" in done.stdout
    asked = run(["doc-rag", "query", "anything", "--collection", "other"], sample)
    assert asked.returncode == 1
    assert 'collection "other" is not indexed; indexed collections: ' in asked.stderr


def test_query_cites_the_file_and_its_lines(sample: dict[str, str]) -> None:
    done = run(["doc-rag", "query", "How many turns of the crank close the upper leaf?", "-k", "1"], sample)
    assert done.returncode == 0, done.stderr
    cited = re.search(r"handbook/closing-and-weather-limits\.md > .*, lines (\d+)-(\d+)", done.stdout)
    assert cited, done.stdout
    text = (SAMPLE / "handbook" / "closing-and-weather-limits.md").read_text(encoding="utf-8")
    assert "210 turns" in "\n".join(text.splitlines()[int(cited[1]) - 1 : int(cited[2])])


def test_status_names_the_database_and_the_collection(sample: dict[str, str]) -> None:
    done = run(["doc-rag", "status"], sample)
    assert done.returncode == 0, done.stderr
    assert "sample" in done.stdout and "database" in done.stdout.lower()
    parsed = json.loads(run(["doc-rag", "status", "--json"], sample).stdout)
    assert "sample" in [collection["name"] for collection in parsed["collections"]]


def test_the_smoke_test_of_the_readme_finds_the_passage(sample: dict[str, str]) -> None:
    [snippet] = fences(README, "python")
    done = run(["python", "-"], sample, cwd=ROOT / "src", stdin=snippet)
    assert done.returncode == 0, done.stderr
    model, *found = done.stdout.splitlines()
    assert model == "all-MiniLM-L6-v2 384"
    assert len(found) == 3
    assert found[0].startswith("handbook/closing-and-weather-limits.md:")


def test_the_example_of_a_citation_is_a_true_one(sample: dict[str, str]) -> None:
    [example] = re.findall(r"A passage is cited as `([^`]+)`", README)
    question = "When is the mirror cool enough, compared with the thermometer on the north wall?"
    done = run(["doc-rag", "query", question], sample)
    assert example in done.stdout


def test_the_server_on_stdio_lists_eight_tools_and_answers(sample: dict[str, str], tmp_path: Path) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(ROOT / "src" / "server.py")], env=sample, cwd=tmp_path
    )

    async def session() -> tuple[int, str]:
        async with Client(parameters) as client:
            listed = await client.list_tools()
            answer = await client.call_tool("query_docs", {"query": "What does a visit cost?"})
            assert answer.structured_content
            return len(listed.tools), str(answer.structured_content["passages"][0]["source"])

    assert anyio.run(session) == (8, "visitors/faq.markdown")


def test_the_server_on_stdio_ends_with_its_client_and_prints_nothing(sample: dict[str, str]) -> None:
    done = run(["python", "src/server.py", "--transport", "stdio"], sample, stdin="")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        "python src/ingest.py",
        "python src/server.py",
        "doc-rag",
        "doc-rag ingest",
        "doc-rag query",
        "doc-rag status",
        "doc-rag watch",
        "doc-rag serve",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    done = run([*command.split(), "--help"], environment())
    assert done.returncode == 0
    assert done.stdout.startswith("usage: ") and len(done.stdout.splitlines()) > 5


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("doc-rag query", 2, "usage:"),
        ("doc-rag ingest --docs /nonexistent", 1, "the documents folder /nonexistent does not exist"),
        ("doc-rag serve --transport http", 2, "RAG_AUTH_TOKEN is not set"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    command: str, status: int, said: str, sample: dict[str, str]
) -> None:
    done = run(command.split(), sample)
    assert done.returncode == status
    assert said in done.stderr and "Traceback" not in done.stderr


# --- over HTTP --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def http_port(sample: dict[str, str]) -> Iterator[int]:
    """The port of a server like the one that `make serve-http` starts."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "src/server.py", "--transport", "http", "--port", str(port)],
        env=sample | {"RAG_AUTH_TOKEN": TOKEN},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_healthy(port, process)
        yield port
    finally:
        process.terminate()
        assert process.wait(START_SECONDS) == 0


def _wait_until_healthy(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, f"the server did not answer within {START_SECONDS} s"
            time.sleep(0.1)


def test_the_curl_lines_print_what_the_readme_says(http_port: int) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    [console] = fences(README, "console")
    lines = console.splitlines()
    commands = [line[2:] for line in lines[0::2]]
    assert all(line.startswith("$ curl ") for line in lines[0::2]) and len(commands) == 3
    env = environment(RAG_AUTH_TOKEN=TOKEN, no_proxy="127.0.0.1")
    for command, expected in zip(commands, lines[1::2], strict=True):
        done = run(["sh", "-c", command.replace(":8743", f":{http_port}")], env)
        assert done.stdout.strip() == expected, command


def test_the_readme_takes_the_token_out_of_the_env_file(tmp_path: Path) -> None:
    [line] = [b for b in fences(README, "sh") if "export RAG_AUTH_TOKEN" in b]
    (tmp_path / ".env").write_text(f"# RAG_AUTH_TOKEN=\nRAG_AUTH_TOKEN={TOKEN}\nRAG_PORT=8743\n")
    done = run(["sh", "-c", f'{line}\nprintf %s "$RAG_AUTH_TOKEN"'], environment(), cwd=tmp_path)
    assert done.stdout == TOKEN


def test_the_readme_s_shell_lines_are_shell(tmp_path: Path) -> None:
    for number, block in enumerate(fences(README, "sh")):
        script = tmp_path / f"{number}.sh"
        script.write_text(block)
        assert run(["sh", "-n", str(script)], dict(os.environ)).returncode == 0, block
        for line in block.splitlines():
            assert shlex.split(line, comments=True) is not None
