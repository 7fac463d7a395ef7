"""`make auth-token`: a new bearer token for the HTTP server, written into `.env` and shown to nobody.

`.env` is made from `.env.example` where it does not exist. The old token stops working when the server
is started again.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence

from doc_rag.ops import env_file

NAME = "RAG_AUTH_TOKEN"
TOKEN_BYTES = 32
"""256 bits; 43 characters as written. The server asks for 32 characters where it binds a public address."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write a new token. Exit status 1, with the reason on stderr, where `.env` cannot be written."""
    parser = argparse.ArgumentParser(
        prog="doc-rag auth-token", description="Write a new RAG_AUTH_TOKEN to .env."
    )
    parser.add_argument("--print", action="store_true", help="also print the token, on standard output")
    arguments = parser.parse_args(argv)
    path = env_file.default_path(os.environ)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        made = not path.exists()
        replaced = bool(env_file.parse(env_file.read(path)).get(NAME))
        env_file.update(path, {NAME: token})
    except (OSError, UnicodeDecodeError) as error:
        print(f"{path} was not changed: {error}", file=sys.stderr)
        return 1
    source = " (made from .env.example)" if made else ""
    print(f"A new {NAME} is in {path}{source}, readable by you alone.", file=sys.stderr)
    if replaced:
        print(
            "It replaces the old one: start the server again (make up), and give your clients the new one "
            "(make gen-mcp-json).",
            file=sys.stderr,
        )
    if os.environ.get(NAME):
        print(f"Your environment sets {NAME} too, and wins over .env: unset it.", file=sys.stderr)
    if arguments.print:
        print(token)
    return 0


if __name__ == "__main__":
    sys.exit(main())
