"""Puts a text together from the parts of a format that is no text itself (HTML, DOCX), as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from doc_rag.errors import ExtractionError
from doc_rag.extract.decode import clean, clean_line
from doc_rag.extract.headings import Heading, cut_at_headings, first_title
from doc_rag.records import Extracted

MAX_TEXT_CHARS = 50_000_000
"""More text than this is no document but a bomb."""


class TextWriter:
    """Collects blocks, knowing which of them are headings: a paragraph that begins with # is none."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._headings: list[Heading] = []

    def paragraph(self, text: str) -> None:
        """Running text; line breaks in it stay, other white space is run together."""
        self._block("\n".join(line for part in text.split("\n") if (line := " ".join(part.split()))))

    def heading(self, level: int, text: str) -> None:
        words = clean_line(text)
        if words:
            start = self._block("#" * min(max(level, 1), 6) + " " + words)
            self._headings.append(Heading(start, self._length, level, words))

    def item(self, depth: int, text: str, mark: str = "-") -> None:
        """An item of a list, set in by its depth (0 for the outermost list)."""
        words = " ".join(text.split())
        if words:
            self._block(
                f"{'  ' * min(depth, 20)}{mark} {words}", gap="\n" if self._last_is_item() else "\n\n"
            )

    def code(self, text: str) -> None:
        body = clean(text).strip("\n")
        if body.strip():
            fence = "```"
            while fence in body:
                fence += "`"
            self._block(f"{fence}\n{body}\n{fence}")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """A table; its first row is its header."""
        lines = [
            "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
            for row in rows
        ]
        if len(lines) > 1:
            lines.insert(1, "|" + "---|" * len(rows[0]))
        self._block("\n".join(lines))

    def finish(self, *, title: str | None = None, **fields: object) -> Extracted:
        """The document. Its first heading of level 1 is its title, else `title`; `fields` are `Extracted`'s others."""
        text = "".join(self._parts)
        sections, warnings = cut_at_headings(text, 0, self._headings)
        named = first_title(self._headings) or title
        return Extracted(text, sections, "markdown", title=named, warnings=warnings, **fields)  # type: ignore[arg-type]

    def _block(self, text: str, gap: str = "\n\n") -> int:
        """Add a block and return its offset. Blocks are clean one by one, so that offsets hold."""
        block = clean(text)
        if not block.strip():
            return self._length
        if self._parts:
            self._parts.append(gap)
            self._length += len(gap)
        start = self._length
        self._parts.append(block)
        self._length += len(block)
        if self._length > MAX_TEXT_CHARS:
            raise ExtractionError(f"holds more than {MAX_TEXT_CHARS:,} characters of text; split it")
        return start

    def _last_is_item(self) -> bool:
        return bool(self._parts) and re.match(r" *(?:-|\d+\.) ", self._parts[-1]) is not None
