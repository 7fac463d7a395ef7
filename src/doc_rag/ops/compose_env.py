"""What must be in `.env` before compose starts: checked, and written where we can choose it ourselves.

`make db` and `make up` call this first. It writes POSTGRES_PASSWORD where there is none, and
RAG_DATABASE_URL (the same database, as seen from this machine) where there is none, so that `make ingest`
here fills the database that the server in Docker asks. It never changes a value that is there.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from doc_rag.ops import env_file

MIN_TOKEN_CHARS = 32
DEFAULT_PORT = "5433"
USER = DATABASE = "doc_rag"
PASSWORD_BYTES = 24


def host_url(password: str, port: str) -> str:
    """Address of compose's database from this machine; any character may be in the password."""
    return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{port}/{DATABASE}"


def additions(values: Mapping[str, str]) -> dict[str, str]:
    """What to write into `.env`, given what is set there or in the environment."""
    missing: dict[str, str] = {}
    password = values.get("POSTGRES_PASSWORD") or secrets.token_urlsafe(PASSWORD_BYTES)
    if not values.get("POSTGRES_PASSWORD"):
        missing["POSTGRES_PASSWORD"] = password
    if not values.get("RAG_DATABASE_URL"):
        missing["RAG_DATABASE_URL"] = host_url(password, values.get("DOC_RAG_DB_PORT") or DEFAULT_PORT)
    return missing


def token_problem(values: Mapping[str, str]) -> str | None:
    """Why the server would not start with this token, or None."""
    token = values.get("RAG_AUTH_TOKEN") or ""
    if not token:
        return "RAG_AUTH_TOKEN is not set. Run: make auth-token"
    if len(token) < MIN_TOKEN_CHARS:
        return (
            f"RAG_AUTH_TOKEN has {len(token)} characters; the server asks for {MIN_TOKEN_CHARS} or more. "
            "Run: make auth-token"
        )
    return None


def docs_problem(values: Mapping[str, str], folder: Path) -> str | None:
    """Why compose could not mount the documents, or None."""
    named = values.get("RAG_DOCS_DIR") or "./docs"
    if not named.startswith(("/", "./", "../", "~/")):
        return f"RAG_DOCS_DIR={named}: compose takes a bare name for a volume's. Write ./{named}"
    path = folder / Path(named).expanduser()
    if not path.exists():
        return f"RAG_DOCS_DIR={named} does not exist. Make that folder, or name another."
    if not path.is_dir():
        return (
            f"RAG_DOCS_DIR={named} is a file; the server in Docker takes a folder. Name the folder it is in."
        )
    return None


def url_warning(values: Mapping[str, str]) -> str | None:
    """What to tell a user whose RAG_DATABASE_URL is not compose's database with its password, else None."""
    ours = urlsplit(host_url(values["POSTGRES_PASSWORD"], values.get("DOC_RAG_DB_PORT") or DEFAULT_PORT))
    try:
        theirs = urlsplit(values["RAG_DATABASE_URL"])
        place = (theirs.hostname, theirs.port)
    except ValueError:
        return "RAG_DATABASE_URL is no address; commands on this machine will refuse it."
    if theirs.hostname not in ("127.0.0.1", "localhost") or place[1] != ours.port:
        return (
            "RAG_DATABASE_URL names another database: the containers use their own, commands on this "
            "machine (make ingest) use that one. Remove the line, and this command writes the right one."
        )
    if unquote(theirs.password or "") != values["POSTGRES_PASSWORD"]:
        return (
            "RAG_DATABASE_URL holds another password than POSTGRES_PASSWORD. Remove that line, and this "
            "command writes the right one."
        )
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Check and complete `.env` of the working directory. Exit status 1 where something must be done first."""
    parser = argparse.ArgumentParser(prog="python -m doc_rag.ops.compose_env", description=__doc__)
    parser.add_argument("what", choices=("db", "up"), help="db: the database alone; up: the server too")
    arguments = parser.parse_args(argv)
    path = Path.cwd() / ".env"
    try:
        written = env_file.parse(env_file.read_or_example(path))
        values = {**written, **{name: value for name, value in os.environ.items() if value}}
        problems = []
        if arguments.what == "up":
            problems = [p for p in (token_problem(values), docs_problem(values, path.parent)) if p]
        if problems:
            print("\n".join(problems), file=sys.stderr)
            return 1
        missing = additions(values)
        if missing:
            env_file.update(path, missing)
            print(f"Wrote {' and '.join(missing)} to .env")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    warning = url_warning({**values, **missing})
    if warning:
        print(warning, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
