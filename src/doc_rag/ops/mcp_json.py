"""`make gen-mcp-json`: write this server into a `.mcp.json`, beside whatever else is in there.

Two entries: one that starts the server on stdio, with the real paths and the settings in force here, and,
where a token is set, one for the HTTP server. Every other entry keeps its place and its content; a file
that is no JSON object is left alone. The result may hold keys: its mode is 0600.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from doc_rag.errors import DocRagError, SettingsError
from doc_rag.ops.env_file import write_private
from doc_rag.setting_values import Secret
from doc_rag.settings import VARIABLES, Settings, checkout_root, load_settings

DEFAULT_NAME = "doc-rag"
HTTP_ONLY = frozenset(
    {
        "RAG_AUTH_TOKEN",
        "RAG_PORT",
        "RAG_ALLOWED_HOSTS",
        "RAG_ALLOWED_ORIGINS",
        "RAG_TRUSTED_PROXIES",
        "RAG_HTTP_STATEFUL",
        "RAG_REINDEX_DETACHED",
    }
)
"""Settings that mean nothing on stdio: the token above all has no business in that entry."""

Json = dict[str, Any]


class NotOurFile(DocRagError):
    """The file is not what an MCP client reads; repair or move it, nothing was written."""


def settings_env(settings: Settings, environ: Mapping[str, str], *, env_refs: bool) -> dict[str, str]:
    """What the stdio entry hands to the server: every variable that is set here, paths made absolute.

    With `env_refs` a secret is written as a reference that the client fills in from its environment.
    """
    written = dotenv_values(settings.env_file, interpolate=False) if settings.env_file else {}
    env: dict[str, str] = {}
    for variable in VARIABLES:
        raw = environ.get(variable.name) or written.get(variable.name) or ""
        if variable.name in HTTP_ONLY or not raw.strip():
            continue
        value = getattr(settings, variable.field)
        if isinstance(value, Secret):
            env[variable.name] = f"${{{variable.name}}}" if env_refs else value.reveal()
        else:
            env[variable.name] = str(value) if isinstance(value, Path) else raw.strip()
    return env


def stdio_entry(env: Mapping[str, str]) -> Json:
    """How a client starts the server: the interpreter that runs this, from any working directory."""
    root = checkout_root()
    interpreter = Path(sys.executable)
    if root is not None:
        command, arguments = str(interpreter), [str(root / "src" / "server.py")]
    else:
        command, arguments = str(interpreter.with_name("doc-rag")), ["serve"]
    return {
        "type": "stdio",
        "command": command,
        "args": [*arguments, "--transport", "stdio"],
        "env": dict(env),
    }


def http_entry(url: str, token: str) -> Json:
    """How a client reaches the HTTP server."""
    return {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}}


def merge(document: Json, entries: Mapping[str, Json]) -> Json:
    """`document` with our entries set; order, other entries and keys of ours that we do not know are kept.

    Raises:
        NotOurFile: `mcpServers` is there and is no object.
    """
    merged = dict(document)
    servers = merged.get("mcpServers", {})
    if not isinstance(servers, dict):
        raise NotOurFile('its "mcpServers" is no object')
    servers = dict(servers)
    known = {variable.name for variable in VARIABLES}
    for name, entry in entries.items():
        old = servers.get(name)
        old = dict(old) if isinstance(old, dict) else {}
        if "env" in entry and isinstance(old.get("env"), dict):
            kept = {key: value for key, value in old["env"].items() if key not in known}
            entry = {**entry, "env": {**kept, **entry["env"]}}
        other_transport = {"url", "headers"} if "command" in entry else {"command", "args", "env"}
        servers[name] = {key: value for key, value in old.items() if key not in other_transport} | entry
    merged["mcpServers"] = servers
    return merged


def read_document(path: Path) -> tuple[Json, str]:
    """The file's object and its indentation; an empty object where there is no file, or an empty one.

    Raises:
        NotOurFile: it cannot be read, or is not a JSON object.
    """
    if not path.exists():
        return {}, "  "
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = json.loads(text) if text.strip() else {}
    except (OSError, ValueError) as error:
        raise NotOurFile(f"it cannot be read as JSON ({error})") from None
    if not isinstance(document, dict):
        raise NotOurFile("it is JSON, but no object")
    indent = re.search(r"^[ \t]+(?=\")", text, re.MULTILINE)
    return document, indent[0] if indent else "  "


def render(document: Json, indent: str) -> str:
    """The file's text."""
    return json.dumps(document, indent=indent, ensure_ascii=False) + "\n"


def entries_for(
    settings: Settings, environ: Mapping[str, str], options: argparse.Namespace
) -> dict[str, Json]:
    """Our entries by name, the stdio one first."""
    env = settings_env(settings, environ, env_refs=options.env_refs)
    entries = {options.name: stdio_entry(env)}
    if settings.auth_token:
        token = "${RAG_AUTH_TOKEN}" if options.env_refs else settings.auth_token.reveal()
        url = options.url or f"http://127.0.0.1:{settings.port}/mcp"
        entries[f"{options.name}-http"] = http_entry(url, token)
    return entries


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="doc-rag gen-mcp-json", description="Write this server into .mcp.json, other entries kept."
    )
    parser.add_argument(
        "--file", type=Path, help="file to write (default: .mcp.json in the checkout, or here)"
    )
    parser.add_argument("--name", default=DEFAULT_NAME, help=f"name of the entry (default: {DEFAULT_NAME})")
    parser.add_argument("--url", help="address of the HTTP server, such as a tunnel's (default: 127.0.0.1)")
    parser.add_argument(
        "--env-refs", action="store_true", help="write ${VAR} in place of secrets; the client fills them in"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the entries. Exit status 1 where the file is not ours to change, 2 where the settings are wrong."""
    options = _parser().parse_args(argv)
    path = (options.file or (checkout_root() or Path.cwd()) / ".mcp.json").absolute()
    try:
        entries = entries_for(load_settings(), os.environ, options)
        document, indent = read_document(path)
        write_private(path, render(merge(document, entries), indent))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except (NotOurFile, OSError, UnicodeEncodeError) as error:
        print(f"{path} was not changed: {error}.", file=sys.stderr)
        return 1
    print(f"Wrote {' and '.join(entries)} to {path}")
    if f"{options.name}-http" not in entries:
        print("No entry for the HTTP server: RAG_AUTH_TOKEN is not set (make auth-token).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
