"""What users paste or generate to connect a client, read as the client reads it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients.packages import ROOT
from tests.mcp.serving import TOKEN, whole_env
from tests.test_docs import README, fences

Entry = dict[str, Any]
CHECKOUT = "/path/to/doc-rag-mcp"
README_URL = "http://127.0.0.1:8743/mcp"


def generated(folder: Path, env: Mapping[str, str], *arguments: str) -> dict[str, Entry]:
    """The entries that gen-mcp-json writes into `folder`/.mcp.json for these settings."""
    path = folder / ".mcp.json"
    command = [sys.executable, "-m", "doc_rag.ops.mcp_json", "--file", str(path), *arguments]
    done = subprocess.run(
        command, env=whole_env(env), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    entries: dict[str, Entry] = json.loads(path.read_text())["mcpServers"]
    return entries


def example(docs: Path) -> dict[str, Entry]:
    """The entries of .mcp.json.example, its two folders set to this checkout and to `docs`."""
    text = (ROOT / ".mcp.json.example").read_text().replace("/path/to/your/documents", str(docs))
    entries: dict[str, Entry] = json.loads(in_this_checkout(text))["mcpServers"]
    return entries


def in_this_checkout(text: str) -> str:
    """With this checkout, and the interpreter that the tests run with, in place of the placeholders."""
    interpreter = f"{CHECKOUT}/.venv/bin/python"
    assert interpreter in text and f"{CHECKOUT}/src/server.py" in text
    return text.replace(interpreter, sys.executable).replace(CHECKOUT, str(ROOT))


def expanded(entry: Entry, environ: Mapping[str, str]) -> Entry:
    """The entry with each ${NAME} filled in from the environment, as clients do it."""

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\$\{(\w+)\}", lambda found: environ[found[1]], value)
        if isinstance(value, list):
            return [fill(item) for item in value]
        return {key: fill(item) for key, item in value.items()} if isinstance(value, dict) else value

    filled: Entry = fill(entry)
    return filled


def command_line(program: str, argument: str) -> list[str]:
    """The words of the README's one line that begins with `program` and has `argument` in it."""
    lines = [line for block in fences(README, "sh") for line in block.splitlines()]
    (line,) = (line for line in lines if line.startswith(program) and argument in line)
    return shlex.split(line.replace("$RAG_AUTH_TOKEN", TOKEN))


def stdio_of(words: Sequence[str]) -> Entry:
    """The server command of a `... mcp add NAME -- COMMAND ARGS` line."""
    command, *arguments = words[words.index("--") + 1 :]
    entry = in_this_checkout(json.dumps({"command": command, "args": arguments}))
    return dict(json.loads(entry))


def http_of(words: Sequence[str], url: str) -> Entry:
    """Address and header of a `... mcp add --transport http` line, sent to `url` instead."""
    assert README_URL in words
    name, _, value = words[words.index("--header") + 1].partition(":")
    return {"url": url, "headers": {name: value.strip()}}


def as_started(entry: Entry, cwd: Path, env: Mapping[str, str]) -> Entry:
    """What a client spawns for a stdio entry: its command, arguments and variables, from a folder of its own.

    `env` is the test's database, and keeps a developer's own .env out of it.
    """
    given = {**entry.get("env", {}), **env, "RAG_ENV_FILE": os.devnull}
    return {"command": entry["command"], "args": entry["args"], "env": given, "cwd": str(cwd)}
