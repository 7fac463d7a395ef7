"""Walking a folder in a test, and looking at what came of it."""

from __future__ import annotations

from pathlib import Path

from doc_rag.records import Walk
from doc_rag.sources import walk

ENDINGS = (".md", ".txt")
BIG = 10_000_000


def names(found: Walk) -> list[str]:
    return [source.name for source in found.sources]


def reasons(found: Walk) -> dict[str, str]:
    return {skip.source: skip.reason for skip in found.skips}


def look(root: Path, endings: tuple[str, ...] = ENDINGS, max_file_bytes: int = BIG) -> Walk:
    return walk(root, endings, max_file_bytes=max_file_bytes)
