"""Watching: changes on disk are ingested after a quiet second, with the usual guards."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_rag.records import IngestReport
from doc_rag.watch import concerns, watch
from tests.service.conftest import MakeKb, write

PATIENCE_SECONDS = 20.0


@pytest.fixture
def reports(make_kb: MakeKb, docs: Path) -> Iterator[queue.Queue[IngestReport]]:
    write(docs, **{f"d{i}": f"Document number {i}." for i in range(6)})
    kb = make_kb()
    found: queue.Queue[IngestReport] = queue.Queue()
    stopped = threading.Event()
    watching = threading.Thread(target=watch, args=(kb, stopped, found.put))
    watching.start()
    yield found
    stopped.set()
    watching.join(PATIENCE_SECONDS)
    assert not watching.is_alive()


def test_changes_are_ingested_by_themselves_and_a_large_removal_is_held(
    reports: queue.Queue[IngestReport], docs: Path
) -> None:
    assert reports.get(timeout=PATIENCE_SECONDS).new == 6, "what was there before counts too"
    write(docs, d0="Document number zero, edited.", fresh="A new one.")
    both = reports.get(timeout=PATIENCE_SECONDS)
    assert (both.new, both.changed) == (1, 1), "a burst of changes is one run"
    for i in range(6):
        (docs / f"d{i}.md").unlink()
    assert len(reports.get(timeout=PATIENCE_SECONDS).held_removals) == 6


def test_hidden_files_vendor_folders_and_other_places_are_nobody_s_concern(docs: Path) -> None:
    (docs / "one.md").touch()
    assert concerns(docs, docs / "a" / "b.md")
    assert concerns(docs, docs / ".ragignore")
    assert not concerns(docs, docs / ".git" / "index")
    assert not concerns(docs, docs / "a" / ".b.md.swp")
    assert not concerns(docs, docs / "node_modules" / "x" / "readme.md")
    assert not concerns(docs, docs.parent / "other.md")
    assert concerns(docs / "one.md", docs / "one.md")
    assert not concerns(docs / "one.md", docs / "two.md")
