"""`make demo`: index the sample in docs/ and ask it two questions through a real MCP client on stdio.

Needs no key, no Docker and no network: an embedded Postgres in a folder of its own and the local model,
both gone at the end. Exit status 1, with one sentence, where a step fails. Knows nothing of the answers.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from doc_rag.errors import DocRagError
from doc_rag.settings import VARIABLES, checkout_root

QUESTIONS = (
    "The dome shutter stopped half-way and the panel shows E-14. What should I do?",
    "How often is the primary mirror washed, and what with?",
)
TOP_K = 3
COLUMNS = 78


class DemoFailed(DocRagError):
    """A step did not work; the message says which."""


def main() -> int:
    """Run the demo; the exit status."""
    signal.signal(signal.SIGTERM, _end)
    try:
        root = checkout_root()
        if root is None or not (root / "docs").is_dir():
            raise DemoFailed("The demo needs a checkout of doc-rag-mcp with its docs/ folder.")
        with _environment(root / "docs") as environ:
            _show(root, environ)
    except DocRagError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted.", file=sys.stderr)
        return 1
    return 0


def _end(number: int, _: FrameType | None) -> None:
    """SIGTERM ends the demo by way of its clean-up."""
    sys.exit(128 + number)


def _show(root: Path, environ: dict[str, str]) -> None:
    print("doc-rag-mcp, without a key and without Docker. Nothing leaves this machine.\n")
    print("1. Index docs/, the papers of a made-up observatory: doc-rag ingest", flush=True)
    print(textwrap.indent(_ingest(environ), "   "))
    print("2. Ask through an MCP client, as an agent would: python src/server.py", flush=True)
    for question, answer in _ask(root, environ):
        print(f"\n{_wrapped('Question: ' + question, '   ')}\n")
        _print_passages(answer["passages"])
    print(_next_steps(root))


@contextmanager
def _environment(docs: Path) -> Iterator[dict[str, str]]:
    """Settings for the demo's processes: a database and a data folder of their own, whatever `.env` says.

    The database runs as long as the block: ingest and server share it, and it is stopped at the end.
    """
    from doc_rag.store.embedded import EmbeddedPostgres

    folder = Path(tempfile.mkdtemp(prefix="doc-rag-demo-"))
    folder.chmod(0o711)  # as root, the user that Postgres runs as has to get to what is below
    data = folder / "data"
    names = {variable.name for variable in VARIABLES}
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    try:
        with EmbeddedPostgres(data):
            yield inherited | {
                "RAG_ENV_FILE": os.devnull,
                "RAG_DATA_DIR": str(data),
                "RAG_DOCS_DIR": str(docs),
                "RAG_COLLECTION": "demo",
                "RAG_EMBED_PROVIDER": "local",
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ingest(environ: Mapping[str, str]) -> str:
    """Index the folder with the command that users run; its report."""
    command = [sys.executable, "-m", "doc_rag.cli", "ingest"]
    done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it did not say why"]
        raise DemoFailed(f"doc-rag ingest ended with status {done.returncode}. {said[-1]}")
    return done.stdout


def _ask(root: Path, environ: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Each question with the structured answer of `query_docs`, in one session."""
    import anyio
    from mcp import Client, MCPError, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable, args=[str(root / "src" / "server.py")], env=environ, cwd=root
    )

    async def session() -> list[Any]:
        async with Client(server) as client:
            return [
                await client.call_tool("query_docs", {"query": question, "top_k": TOP_K})
                for question in QUESTIONS
            ]

    results: list[Any] = []
    try:
        results = anyio.run(session)
    except* (MCPError, OSError) as errors:
        raise DemoFailed(f"The MCP server did not answer: {_first(errors)}") from errors
    for result in results:
        if result.is_error or not result.structured_content:
            said = " ".join(getattr(block, "text", "") for block in result.content)
            raise DemoFailed(f"query_docs did not answer: {said}")
    return [
        (question, result.structured_content) for question, result in zip(QUESTIONS, results, strict=True)
    ]


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    """The first error that is none of the groups that task groups make."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _print_passages(passages: list[dict[str, Any]]) -> None:
    """The best passage whole, the others by their citations."""
    if not passages:
        raise DemoFailed("query_docs found no passage in the sample.")
    for passage in passages:
        score = f"{passage['score_kind']} {passage['score']:.2f}"
        print(_wrapped(f"[{passage['rank']}] docs/{passage['citation']} ({score})", "   ", "       "))
        if passage["rank"] == 1:
            lines = str(passage["content"]).splitlines()
            print("\n".join(_wrapped(line, "   | ") if line.strip() else "   |" for line in lines) + "\n")


def _wrapped(text: str, indent: str, following: str | None = None) -> str:
    return textwrap.fill(
        text, COLUMNS, initial_indent=indent, subsequent_indent=indent if following is None else following
    )


def _next_steps(root: Path) -> str:
    return f"""
That was a throw-away index. For your own documents:

   install -m 600 .env.example .env     then set in it
      RAG_DOCS_DIR              your folder
      RAG_COLLECTION            a name for it
      RAG_EMBED_PROVIDER        local (no key), or voyage, openai, azure-openai
   make ingest                  index it; run it again whenever files change
   make gen-mcp-json            write .mcp.json for your MCP client; or
   claude mcp add doc-rag -- \\
      {sys.executable} {root / "src" / "server.py"}

README.md has the rest: providers, Docker, HTTP, the eight tools."""


if __name__ == "__main__":
    sys.exit(main())
