"""Lines of a PDF to running text: paragraphs, headings, pages. Pure; called in the worker process.

The order of the lines is pypdf's, which is the order they were set in. What is decided here is where a
line ends a paragraph and where it only ends at the margin.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from doc_rag.extract.pdf_lines import LEADERS, Line, clean_pages, drop_running_lines

_HEADING_RATIO = 1.12
"""How much larger than the body a heading is set."""
_MAX_HEADING_CHARS = 150
_MAX_LEVELS = 4
_BULLET = re.compile(
    r"(?:[\u2022\u25aa\u25cf\u25e6\u2023\u2043\u00b7*\u2013\u2014-]|\(?(?:\d{1,3}|[a-z])[.)])\s"
)
_ENDS_SENTENCE = re.compile("[.!?:;\u2026\u3002\uff01\uff1f][\"'\u201d\u2019)\\]]*$")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f]")
_HYPHENATED = re.compile(r"[^\W\d_]+-[^\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of a PDF. `sections` are (start, end, heading path), `page_starts` one offset a page."""

    text: str
    sections: tuple[tuple[int, int, tuple[str, ...]], ...]
    page_starts: tuple[int, ...]
    title: str | None


def build_text(pages: Sequence[Sequence[Line]]) -> PdfText:
    """Put the lines of all pages together; the first heading of the largest size is the title."""
    cleaned = drop_running_lines(clean_pages(pages))
    builder = _Builder(_Setting.of(cleaned))
    for page in cleaned:
        builder.add_page(page)
    return builder.finish()


@dataclass(frozen=True, slots=True)
class _Setting:
    """How the document is set: its body's size and leading in points, its heading sizes, its words."""

    body: float
    leading: float
    heading_sizes: tuple[float, ...]
    words: frozenset[str]

    @classmethod
    def of(cls, pages: Sequence[Sequence[Line]]) -> _Setting:
        sizes: Counter[float] = Counter()
        gaps: Counter[float] = Counter()
        vocabulary: set[str] = set()
        for page in pages:
            for line in page:
                sizes[_half(line.size)] += len(line.text)
                # The last word of a line may be half a word.
                vocabulary.update(word.lower() for word in _WORD.findall(line.text.rsplit(" ", 1)[0]))
                vocabulary.update(word.lower() for word in _HYPHENATED.findall(line.text))
            for above, below in pairwise(page):
                if _half(above.size) == _half(below.size) and 0 < above.y - below.y < 3 * above.size:
                    gaps[_half(above.y - below.y)] += 1
        body = sizes.most_common(1)[0][0] if sizes else 0.0
        leading = gaps.most_common(1)[0][0] if gaps else 1.2 * body
        larger = [line for page in pages for line in page if _half(line.size) >= _HEADING_RATIO * body]
        total = sum(len(page) for page in pages)
        # Where a quarter of all lines is large, size means something else than heading.
        found = {_half(line.size) for line in larger} if body and len(larger) * 4 <= total else set()
        return cls(body, leading, tuple(sorted(found, reverse=True)), frozenset(vocabulary))

    def heading_level(self, line: Line) -> int | None:
        """1 for the largest size; None where the line is no heading."""
        size = _half(line.size)
        if size not in self.heading_sizes or sum(map(str.isalpha, line.text)) < 2 or LEADERS in line.text:
            return None
        return min(self.heading_sizes.index(size) + 1, _MAX_LEVELS)


def _half(size: float) -> float:
    return round(size * 2) / 2


@dataclass(slots=True)
class _Builder:
    setting: _Setting
    parts: list[str] = field(default_factory=list)
    length: int = 0
    page_starts: list[int] = field(default_factory=list)
    sections: list[tuple[int, int, tuple[str, ...]]] = field(default_factory=list)
    title: str | None = None
    _path: list[tuple[int, str]] = field(default_factory=list)
    _section_start: int = 0
    _has_body: bool = False
    _last: Line | None = None
    _last_level: int | None = None
    _lines_in_paragraph: int = 0
    _full_line: float = 0.0

    def add_page(self, page: Sequence[Line]) -> None:
        """Add the lines of the next page, which may be none."""
        lengths = sorted(len(line.text) for line in page)
        self._full_line = 0.6 * lengths[len(lengths) * 9 // 10] if lengths else 0.0
        for number, line in enumerate(page):
            self._add_line(line, starts_page=number == 0)
        if not page:
            self.page_starts.append(self.length)

    def finish(self) -> PdfText:
        """The whole text."""
        self._close_section(self.length)
        text = "".join(self.parts)
        return PdfText(
            text, tuple(self.sections), tuple(min(o, len(text)) for o in self.page_starts), self.title
        )

    def _add_line(self, line: Line, starts_page: bool) -> None:
        level = self.setting.heading_level(line)
        glue = self._glue(line, level, starts_page)
        joined = glue is not None and "\n" not in glue
        if glue == "" and self.parts[-1].endswith("-") and not self._keeps_hyphen(line):
            self.parts[-1] = self.parts[-1][:-1]
            self.length -= 1
            # Empty pages in between started behind that hyphen.
            for page in range(len(self.page_starts) - 1, -1, -1):
                if self.page_starts[page] <= self.length:
                    break
                self.page_starts[page] = self.length
        if glue:
            self._append(glue)
        start = self.length
        if starts_page:
            self.page_starts.append(start)
            if not joined:
                self._break_section(start)
        if level and joined and self._path:
            self._path[-1] = (self._path[-1][0], f"{self._path[-1][1]} {line.text}"[:_MAX_HEADING_CHARS])
        elif level:
            self._start_heading(level, line.text[:_MAX_HEADING_CHARS], start)
        else:
            self._has_body = True
        # A soft hyphen at the end has had its say once the next line is looked at.
        self._append(line.text.rstrip("\u00ad"))
        self._lines_in_paragraph = self._lines_in_paragraph + 1 if joined else 1
        self._last, self._last_level = line, level

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def _glue(self, line: Line, level: int | None, starts_page: bool) -> str | None:
        """What stands between the last line and this one: nothing, a blank, a line end or an empty line."""
        last = self._last
        if last is None:
            return None
        if level or self._last_level:
            same = level == self._last_level and not starts_page
            return self._seam(line) if same and 0 <= last.y - line.y < 1.8 * line.size else "\n\n"
        if starts_page or last.y - line.y < -line.size:
            # The next page, or the top of the next column.
            return self._seam(line) if self._goes_on(line) else "\n\n"
        down = last.y - line.y
        if abs(down) < 0.3 * line.size:
            return " "
        if _half(last.size) != _half(line.size) or down > 1.35 * self.setting.leading:
            return "\n" if _BULLET.match(line.text) and _BULLET.match(last.text) else "\n\n"
        if _BULLET.match(line.text) or self._starts_paragraph(line):
            return "\n"
        return self._seam(line)

    def _starts_paragraph(self, line: Line) -> bool:
        """Whether a line right below the last one begins a paragraph: set in, set out, or after a short line."""
        last = self._last
        assert last is not None
        if LEADERS in last.text:
            return True
        shift = line.x - last.x
        if shift > 0.6 * line.size and not _BULLET.match(last.text):
            return True
        if shift < -0.6 * line.size and self._lines_in_paragraph > 1:
            return True
        return len(last.text) < self._full_line and not last.text.endswith(("-", "\u00ad"))

    def _goes_on(self, line: Line) -> bool:
        last = self._last
        assert last is not None
        if (
            _half(last.size) != _half(line.size)
            or _BULLET.match(line.text)
            or _ENDS_SENTENCE.search(last.text)
        ):
            return False
        return line.text[0].islower() or bool(_CJK.match(last.text[-1]) and _CJK.match(line.text))

    def _seam(self, line: Line) -> str:
        last = self._last
        assert last is not None
        if last.text.endswith("\u00ad") or (re.search(r"[^\W\d_]-$", last.text) and line.text[0].isalpha()):
            return ""
        if _CJK.match(last.text[-1]) and _CJK.match(line.text) and not unicodedata.combining(line.text[0]):
            return ""
        return " "

    def _keeps_hyphen(self, line: Line) -> bool:
        """Whether the hyphen at the end of the last line belongs to the word."""
        last = self._last
        assert last is not None
        head = re.search(r"([^\W\d_]+)-$", last.text)
        tail = _WORD.match(line.text)
        if not head or not tail or not head[1][-1].islower() or not tail[0].islower():
            return True
        whole, compound = (head[1] + tail[0]).lower(), f"{head[1]}-{tail[0]}".lower()
        return compound in self.setting.words and whole not in self.setting.words

    def _start_heading(self, level: int, text: str, start: int) -> None:
        deeper = not self._path or level > self._path[-1][0]
        if self._has_body or not deeper:
            self._close_section(start)
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, text))
        if level == 1 and self.title is None and len(self.page_starts) == 1 and "://" not in text:
            self.title = text

    def _break_section(self, start: int) -> None:
        if self._has_body:
            self._close_section(start)

    def _close_section(self, end: int) -> None:
        if end > self._section_start:
            self.sections.append((self._section_start, end, tuple(text for _, text in self._path)))
        self._section_start = end
        self._has_body = False
