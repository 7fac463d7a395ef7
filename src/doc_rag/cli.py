"""The `doc-rag` command: sub-commands over the same service as the tools. Exit 0, 1 (the work failed), 2 (bad usage).

A `DocRagError` becomes one line on stderr, never a traceback.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

from doc_rag import __version__
from doc_rag.errors import DocRagError, IngestFailed, SettingsError, UsageError
from doc_rag.settings import Settings, load_settings

FAILED = 1
BAD_USAGE = 2


CARE = {
    "auth-token": ("auth_token", "Write a new RAG_AUTH_TOKEN to .env."),
    "gen-mcp-json": ("mcp_json", "Write this server into .mcp.json, other entries kept."),
    "clear-cache": ("clear_cache", "Empty the running HTTP server's query cache."),
    "doctor": ("doctor", "Check settings, database, key, documents, port and token."),
    "backup": ("backup", "Write the index to a file (dump), or read it into an empty database (restore)."),
}
"""Commands that are modules of `doc_rag.ops`, each with a parser of its own: module and help by name."""


def main(argv: Sequence[str] | None = None) -> int:
    """The console command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in CARE:
        module, _ = CARE[words[0]]
        return int(import_module(f"doc_rag.ops.{module}").main(words[1:]))
    return run(_parser().parse_args(words))


def ingest_main(argv: Sequence[str] | None = None) -> int:
    """`python src/ingest.py`: the `ingest` sub-command by itself."""
    parser = argparse.ArgumentParser(prog="ingest.py", description=INGEST_HELP)
    _add_ingest_arguments(parser)
    return run(parser.parse_args(argv))


def serve_main(argv: Sequence[str] | None = None) -> int:
    """`python src/server.py`: the `serve` sub-command by itself."""
    parser = argparse.ArgumentParser(prog="server.py", description=SERVE_HELP)
    _add_serve_arguments(parser)
    return run(parser.parse_args(argv))


def run(arguments: argparse.Namespace) -> int:
    """Carry out a parsed command, and turn every foreseen error into one line and an exit code."""
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        code = command(arguments)
        sys.stdout.flush()  # here, where a full disk is still one line
        return code
    except (SettingsError, UsageError) as error:
        print(f"doc-rag: {error}", file=sys.stderr)
        return BAD_USAGE
    except DocRagError as error:
        print(f"doc-rag: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # Whoever read our output has gone (head, less): nothing is left to say, nor anybody to say it to.
        sys.stderr.close()
        return FAILED
    except OSError as error:
        print(f"doc-rag: {error.strerror or error}.", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("doc-rag: interrupted.", file=sys.stderr)
        return FAILED


INGEST_HELP = "Bring the index of a collection up to date with a folder or a file."
SERVE_HELP = "Serve the eight tools to MCP clients, over stdio or over HTTP with a bearer token."
DROP_HELP = "Drop a whole collection from the index; its files are not touched."
WATCH_HELP = "Ingest now and after every change of the folder, until stopped."
QUERY_HELP = "Ask the index, and print the passages with their citations."
STATUS_HELP = "Say which database is in use, what is indexed, and what was sent to providers."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="doc-rag", description="A folder of documents as a searchable knowledge base over MCP."
    )
    parser.add_argument("--version", action="version", version=f"doc-rag {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_ingest_arguments(commands.add_parser("ingest", help=INGEST_HELP, description=INGEST_HELP))
    _add_watch_arguments(commands.add_parser("watch", help=WATCH_HELP, description=WATCH_HELP))
    _add_query_arguments(commands.add_parser("query", help=QUERY_HELP, description=QUERY_HELP))
    _add_status_arguments(commands.add_parser("status", help=STATUS_HELP, description=STATUS_HELP))
    _add_drop_arguments(commands.add_parser("drop-collection", help=DROP_HELP, description=DROP_HELP))
    _add_serve_arguments(commands.add_parser("serve", help=SERVE_HELP, description=SERVE_HELP))
    for name, (_, purpose) in CARE.items():
        commands.add_parser(name, help=purpose, add_help=False)
    return parser


def _add_ingest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--docs", metavar="PATH", help="folder or file to index (default: RAG_DOCS_DIR)")
    parser.add_argument("--collection", metavar="NAME", help="collection to write (default: RAG_COLLECTION)")
    parser.add_argument(
        "--rebuild", action="store_true", help="embed everything again, beside the live index"
    )
    parser.add_argument(
        "--confirm-large-removal",
        action="store_true",
        help="drop documents that are gone even if they are half of the collection or more",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be embedded; call no provider, write nothing"
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for another run on this collection instead of giving up"
    )
    parser.add_argument(
        "--no-series-dedupe",
        action="store_true",
        help="store what repeats in name-YYYY-MM-DD files each time (default: RAG_SERIES_DEDUPE)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(command=_ingest)


def _add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--docs", metavar="PATH", help="folder or file to watch (default: RAG_DOCS_DIR)")
    parser.add_argument("--collection", metavar="NAME", help="collection to write (default: RAG_COLLECTION)")
    parser.set_defaults(command=_watch)


def _add_query_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", help="the question, in quotes")
    parser.add_argument(
        "-k", "--top-k", type=int, default=5, metavar="N", help="chunks to find, 1 to 100 (5)"
    )
    parser.add_argument("--collection", metavar="NAME", help="collection to ask (default: RAG_COLLECTION)")
    parser.add_argument("--all-collections", action="store_true", help="ask every collection")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(command=_query)


def _add_status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(command=_status)


def _add_drop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the collection, as doc-rag status names it")
    parser.add_argument(
        "--yes", action="store_true", help="do it; without this it is only said what would go"
    )
    parser.set_defaults(command=_drop)


def _add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--transport", choices=("stdio", "http"), default="stdio", help="(default: stdio)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="N", help="port to listen on (default: RAG_PORT)")
    parser.set_defaults(command=_serve)


# --- the commands ---------------------------------------------------------------------------------


def _settings(overrides: dict[str, str | None]) -> Settings:
    """The settings with what the command line says, and their warnings on stderr.

    Raises:
        UsageError: an option was given without a value; the environment's would be a surprise.
    """
    for name, value in overrides.items():
        if value is not None and not value.strip():
            raise UsageError(f"an option was given an empty value, which {name} cannot be.")
    settings = load_settings(overrides={name: value for name, value in overrides.items() if value})
    _set_up_logging(settings)
    for warning in settings.warnings:
        print(f"doc-rag: {warning}", file=sys.stderr)
    return settings


def _set_up_logging(settings: Settings) -> None:
    from doc_rag.logs import set_up_logging

    set_up_logging(settings)


def _ingest(arguments: argparse.Namespace) -> int:
    from doc_rag.progress_bar import showing_progress
    from doc_rag.render import render_ingest_report
    from doc_rag.service import KnowledgeBase

    settings = _settings(
        {
            "RAG_DOCS_DIR": arguments.docs,
            "RAG_COLLECTION": arguments.collection,
            "RAG_SERIES_DEDUPE": "false" if arguments.no_series_dedupe else None,
        }
    )
    failure: IngestFailed | None = None
    with KnowledgeBase(settings) as kb, showing_progress(sys.stderr) as progress, _stopping() as stopped:
        try:
            if arguments.dry_run:
                report = kb.estimate(
                    force_rebuild=arguments.rebuild,
                    confirm_large_removal=arguments.confirm_large_removal,
                    progress=progress,
                    stopped=stopped.is_set,
                )
            else:
                report = kb.reindex_docs(
                    force_rebuild=arguments.rebuild,
                    confirm_large_removal=arguments.confirm_large_removal,
                    wait_seconds=float("inf") if arguments.wait else 0.0,
                    progress=progress,
                    stopped=stopped.is_set,
                )
        except IngestFailed as error:
            failure, report = error, error.report
    print(_as_json(report) if arguments.json else render_ingest_report(report))
    if failure:
        raise failure
    return FAILED if report.held_removals or report.interrupted else 0


def _watch(arguments: argparse.Namespace) -> int:
    from doc_rag.render import render_ingest_report
    from doc_rag.service import KnowledgeBase
    from doc_rag.watch import watch

    settings = _settings({"RAG_DOCS_DIR": arguments.docs, "RAG_COLLECTION": arguments.collection})
    with KnowledgeBase(settings) as kb, _stopping() as stopped:
        kb.database.open()  # a wrong address is the user's to mend now, not something to try again for ever
        watch(kb, stopped, lambda report: print(render_ingest_report(report), flush=True))
    return 0


def _query(arguments: argparse.Namespace) -> int:
    from doc_rag.render import render_answer
    from doc_rag.service import KnowledgeBase

    settings = _settings({})
    with KnowledgeBase(settings) as kb:
        answer = kb.query_docs(
            arguments.query,
            top_k=arguments.top_k,
            collection=arguments.collection,
            all_collections=arguments.all_collections,
        )
    print(_as_json(answer) if arguments.json else render_answer(answer))
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from doc_rag.render import render_status
    from doc_rag.service import KnowledgeBase

    settings = _settings({})
    with KnowledgeBase(settings) as kb:
        status = kb.status()
    print(_as_json(status) if arguments.json else render_status(status))
    return 0


def _drop(arguments: argparse.Namespace) -> int:
    from doc_rag.service import KnowledgeBase

    with KnowledgeBase(_settings({})) as kb:
        summary = kb.drop_collection(arguments.name, really=arguments.yes)
    what = f"{summary.name}: {summary.documents} documents, {summary.chunks} chunks"
    if arguments.yes:
        print(f"Dropped {what}.")
        return 0
    print(f"Would drop {what}. Run it again with --yes.")
    return FAILED


def _serve(arguments: argparse.Namespace) -> int:
    settings = _settings({"RAG_PORT": arguments.port})
    from doc_rag.serve import run_http, run_stdio

    if arguments.transport == "stdio":
        if sys.stdin.isatty():
            print("doc-rag: waiting for an MCP client on standard input; Ctrl-C ends it.", file=sys.stderr)
        return run_stdio(settings)
    return run_http(settings, arguments.host, settings.port)


def _as_json(record: object) -> str:
    from doc_rag.jsonable import to_jsonable

    return json.dumps(to_jsonable(record), ensure_ascii=False, indent=2)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets, so that a run ends at a document; the second ends at once."""
    asked = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def ask(number: int, _: FrameType | None) -> None:
        # First of all, since the second may already be on its way. It takes the process as `kill -9` would,
        # which no document minds: an exception would have to wait for a PDF that is being read.
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        asked.set()
        logging.getLogger(__name__).warning("stopping at the next safe point; once more to stop at once")

    for number in signals:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
