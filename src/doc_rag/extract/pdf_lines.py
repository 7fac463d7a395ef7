"""Cleaning the lines that come out of a PDF: characters first, then what is no part of the text. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from doc_rag.extract.decode import clean

_LIGATURES = {
    "\ufb00": "ff",
    "\ufb01": "fi",
    "\ufb02": "fl",
    "\ufb03": "ffi",
    "\ufb04": "ffl",
    "\ufb05": "st",
    "\ufb06": "st",
}
_SYMBOLS = {
    # Symbol fonts put their bullets into the private use area.
    "\uf0b7": "\u2022",
    "\uf0a7": "\u25aa",
    "\uf0d8": "\u2022",
    "\uf0fc": "\u2022",
    "\u00a0": " ",
    "\u2007": " ",
    "\u202f": " ",
}
_SPACED_LIGATURE = re.compile("([\ufb01-\ufb04]) (?=[a-z])")
_WIDE_FORMS = re.compile("[\uff01-\uffee]+")
_ROMAN = re.compile(r"[ivxlc]{1,8}", re.IGNORECASE)
_PAGE_NUMBERS = (
    re.compile(r"^\W*(\d{1,4})(?![\d.,]?\d|\w)"),
    re.compile(r"(?<![\d.,\w])(\d{1,4})\W*$"),
    re.compile(r"\b(?:page|seite|p[a\u00e1]gina|p\.|pg\.?) ?(\d{1,4})\b", re.IGNORECASE),
    re.compile(r"\b(\d{1,4}) ?(?:/|of|von|de|sur) ?\d{1,4}\b"),
)
_GLYPH_NAME = re.compile(r"/(?:[A-Za-z]{0,8}\d{1,5}|uni[0-9A-F]{4})")

_LEADERS = re.compile(r"(?:[ ]?\.){4,}[ ]?")
LEADERS = " \u2026 "
"""What is left of a row of dots that leads to a page number: three hundred of them say no more."""

_ZONE_LINES = 3
"""Running headers and footers are looked for among this many lines at a page's top and bottom."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it was set. `x` and `y` are where it starts, in points from the page's lower left; `size` is
    the font's, in points."""

    text: str
    x: float
    y: float
    size: float


def clean_pages(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Lines with their characters put right, without empty ones."""
    spaced = _has_spaced_ligatures(pages)
    cleaned: list[list[Line]] = []
    for page in pages:
        lines = (replace(line, text=clean_characters(line.text, spaced)) for line in page)
        cleaned.append([line for line in lines if line.text])
    return cleaned


def clean_characters(text: str, spaced_ligatures: bool = False) -> str:
    """Unfold ligatures and width variants, drop controls, run blanks together.

    A soft hyphen stays where it ends the line: it says how the line goes on. Superscripts and the
    like keep their form, which means something.
    """
    if spaced_ligatures:
        text = _SPACED_LIGATURE.sub(r"\1", text)
    if not text.isascii():
        for found, meant in (_LIGATURES | _SYMBOLS).items():
            text = text.replace(found, meant)
        text = _WIDE_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
        text = re.sub("\u00ad(?=.)", "", text.rstrip())
    text = " ".join(clean(text).split())
    return _LEADERS.sub(LEADERS, text).strip() if "...." in text or ". . . ." in text else text


def drop_running_lines(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Drop the headers, footers and page numbers that stand at the edge of most pages.

    Two headers may take turns (left and right pages), so 40% of the pages are enough, and at least
    three. Where nearly everything would go, as in a form that is the same on every page, it all stays.
    """
    long_pages = [page for page in pages if len(page) > _ZONE_LINES]
    counts = Counter(key for page in long_pages for key in {_running_key(line) for line in _edges(page)})
    needed = max(3, 0.4 * len(long_pages))
    running = {key for key, count in counts.items() if count >= needed}
    numbered = _numbered_lines(pages)
    dropped: set[int] = set()
    for page in pages:
        by_height = sorted(page, key=lambda line: -line.y)
        # From the edge inwards, and only as long as every line further out goes too.
        for edge in (by_height[:_ZONE_LINES], by_height[::-1][:_ZONE_LINES]):
            goes = takewhile(lambda line: id(line) in numbered or _running_key(line) in running, edge)
            dropped.update(map(id, goes))
    kept = [[line for line in page if id(line) not in dropped] for page in pages]
    emptied = sum(1 for before, after in zip(pages, kept, strict=True) if before and not after)
    return [list(page) for page in pages] if emptied * 2 > len(pages) else kept


def unreadable_share(text: str) -> float:
    """How much of a text is glyph names, replacement characters and private use: what no reader can use."""
    if not text:
        return 0.0
    names = sum(len(match.group()) for match in _GLYPH_NAME.finditer(text))
    odd = sum(1 for c in text if c == "\ufffd" or "\ue000" <= c <= "\uf8ff")
    return min(1.0, (names + odd) / len(text))


def _has_spaced_ligatures(pages: Sequence[Sequence[Line]]) -> bool:
    """Whether this document sets a blank after each ligature. One alone may be right ("sci-\ufb01 film")."""
    spaced = total = 0
    for page in pages:
        for line in page:
            spaced += len(_SPACED_LIGATURE.findall(line.text))
            total += sum(line.text.count(ligature) for ligature in "\ufb01\ufb02\ufb03\ufb04")
    return spaced >= 2 and spaced >= 0.3 * total


def _edges(page: Sequence[Line], count: int = _ZONE_LINES) -> list[Line]:
    by_height = sorted(page, key=lambda line: -line.y)
    return by_height[:count] + by_height[count:][-count:]


def _running_key(line: Line) -> tuple[str, int]:
    return line.text.casefold(), round(line.size)


def _numbered_lines(pages: Sequence[Sequence[Line]]) -> set[int]:
    """The ids of the outermost lines that hold a number counting along with the pages.

    So a chapter's name is known as a running header though it is on few pages: "Chapter 2: Basics 17".
    Lines larger than the body are headings ("Exercise 3"), whatever they count.
    """
    sizes = sorted(line.size for page in pages for line in page)
    body = sizes[len(sizes) // 2] if sizes else 0.0
    found: list[tuple[tuple[str, int], Line]] = []
    for index, page in enumerate(pages):
        for line in _edges(page, 2) if len(page) > 1 else ():
            if line.size <= body + 0.5:
                found += [((kind, number - index), line) for kind, number in _page_numbers(line.text)]
    counts = Counter(key for key, _ in found)
    needed = {"arabic": max(3, len(pages) // 3), "roman": 3}
    return {id(line) for key, line in found if counts[key] >= needed[key[0]]}


def _page_numbers(text: str) -> set[tuple[str, int]]:
    """What may be the page's number in a line: at its end or beginning, after "page", before "of 9"."""
    if _ROMAN.fullmatch(text):
        return {("roman", _roman_value(text.lower()))}
    return {("arabic", int(match)) for pattern in _PAGE_NUMBERS for match in pattern.findall(text)}


def _roman_value(numeral: str) -> int:
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter] for letter in numeral]
    return sum(-low if low < high else low for low, high in zip(values, [*values[1:], 0], strict=True))
