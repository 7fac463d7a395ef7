"""Keeps a collection fresh: after a change on disk and a quiet second, an ingest with the usual guards.

Runs in `doc-rag watch`, and in a thread of the server with RAG_WATCH=true. It decides nothing about
documents: it only says when to look, and the ingest looks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from doc_rag.errors import CollectionBusy, DocRagError
from doc_rag.records import IngestReport
from doc_rag.service import KnowledgeBase
from doc_rag.walker import VENDOR_FOLDERS

log = logging.getLogger(__name__)

QUIET_MS = 1_000
"""No change for this long, and what was written is taken for finished."""
LONGEST_WAIT_MS = 30_000
"""A folder that is never quiet is ingested this often all the same."""
RETRY_SECONDS = 15.0
"""Pause before trying again what failed: a busy collection, a database or provider that is away, a missing folder."""
IGNORE_FILES = (".gitignore", ".ragignore")


def watch(
    kb: KnowledgeBase, stopped: threading.Event, on_report: Callable[[IngestReport], None] = lambda _: None
) -> None:
    """Ingest now and after every change of RAG_DOCS_DIR, until `stopped` is set.

    Never raises for what goes wrong with one ingest: that is logged, and tried again after a pause.
    """
    while not stopped.is_set():
        try:
            for _ in _changes(kb.settings.docs_dir, stopped):
                _ingest_until_it_works(kb, stopped, on_report)
        except OSError as error:
            log.warning(
                "%s cannot be watched (%s); trying again", kb.settings.docs_dir, error.strerror or error
            )
            stopped.wait(RETRY_SECONDS)


def _changes(docs: Path, stopped: threading.Event) -> Iterator[None]:
    """Yield once at the start, so that nothing is missed from before, and then once for each burst of changes."""
    from watchfiles import Change
    from watchfiles import watch as changes_of

    # A file is watched through its folder: an editor that saves by renaming would take the watch away.
    folder = docs if docs.is_dir() else docs.parent

    def is_ours(_: Change, path: str) -> bool:
        return concerns(docs, Path(path))

    found = changes_of(
        folder,
        watch_filter=is_ours,
        debounce=LONGEST_WAIT_MS,
        step=QUIET_MS,
        stop_event=stopped,
        # Only with a time-out does it come back at once when nothing has changed yet.
        rust_timeout=QUIET_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        ignore_permission_denied=True,
        recursive=folder == docs,
    )
    first = True
    for changes in found:
        if changes or first:
            first = False
            yield
        if not folder.exists():
            raise FileNotFoundError(f"{folder} is gone")


def concerns(docs: Path, path: Path) -> bool:
    """Whether a change at `path` can matter to the index of `docs`: nothing hidden, nothing in a vendor's folder."""
    if docs.is_file() or path == docs:
        return path == docs
    try:
        parts = path.relative_to(docs).parts
    except ValueError:
        return False
    hidden = any(part.startswith(".") and part not in IGNORE_FILES for part in parts)
    return not hidden and not VENDOR_FOLDERS.intersection(parts[:-1])


def _ingest_until_it_works(
    kb: KnowledgeBase, stopped: threading.Event, on_report: Callable[[IngestReport], None]
) -> None:
    while not stopped.is_set():
        try:
            report = kb.reindex_docs(stopped=stopped.is_set)
        except CollectionBusy as error:
            log.info("%s Trying again in %g s.", error, RETRY_SECONDS)
        except DocRagError as error:
            log.warning("%s Trying again in %g s.", error, RETRY_SECONDS)
        else:
            _log(report)
            on_report(report)
            return
        stopped.wait(RETRY_SECONDS)


def _log(report: IngestReport) -> None:
    if report.new or report.changed or report.removed:
        log.info(
            "%s: %d new, %d changed, %d removed, %d texts embedded",
            report.collection,
            report.new,
            report.changed,
            report.removed,
            report.texts_embedded,
        )
    if report.held_removals:
        log.warning(
            "%s: %d documents are gone from the folder; that many are dropped only when it is confirmed: "
            "doc-rag ingest --confirm-large-removal",
            report.collection,
            len(report.held_removals),
        )
