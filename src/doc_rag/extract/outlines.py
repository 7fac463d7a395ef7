"""reStructuredText, Org and AsciiDoc: the text as it is written, cut at its headings.

A scanner by lines, not a parser: offsets and line numbers stay those of the file, and what a parser
does not know (a Sphinx directive, an include) is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from doc_rag.extract.decode import clean_line, decode
from doc_rag.extract.front_matter import read_date, read_tags
from doc_rag.extract.headings import MAX_HEADINGS, Heading, cut_at_headings, first_title
from doc_rag.records import Extracted

_Scan = Callable[[str], list[Heading]]

_RST_HEADING = re.compile(
    r"^(?:([!-/:-@[-`{-~])\1*[ \t]*\n)?(?![ \t\n])([^\n]+)\n([!-/:-@[-`{-~])\3*[ \t]*(?:\n|\Z)", re.MULTILINE
)
_ORG_HEADING = re.compile(r"^#\+(BEGIN|END)_(\w+)[^\n]*|^(\*+)[ \t]+([^\n]*)", re.MULTILINE | re.IGNORECASE)
_ORG_KEYWORDS = re.compile(r"(?:TODO|DONE|NEXT|WAITING|HOLD|CANCELLED)[ \t]+|\[#[A-C]\][ \t]+")
_ADOC_HEADING = re.compile(
    r"^(-{4,}|\.{4,}|\+{4,}|/{4,}|`{3,})[^\n]*|^(={1,6}|#{1,6})[ \t]+([^\n]+)", re.MULTILINE
)


def extract_rst(name: str, data: bytes) -> Extracted:
    """A title is a line with a line of one repeated sign below it, and perhaps above."""
    return _extract(data, _scan_rst, None)


def extract_org(name: str, data: bytes) -> Extracted:
    """Headlines begin with stars; `#+TITLE:`, `#+DATE:` and `#+FILETAGS:` are metadata."""
    return _extract(data, _scan_org, r"^#\+(title|date|filetags|keywords):[ \t]*([^\n]*)$")


def extract_asciidoc(name: str, data: bytes) -> Extracted:
    """Section titles begin with equals signs; `:revdate:` and `:keywords:` are metadata."""
    return _extract(data, _scan_asciidoc, r"^:(doctitle|revdate|date|keywords|tags):[ \t]*([^\n]*)$")


def _extract(data: bytes, scan: _Scan, metadata: str | None) -> Extracted:
    decoded = decode(data)
    text = decoded.text
    headings = scan(text)
    sections, warnings = cut_at_headings(text, 0, headings)
    fields: dict[str, str] = {}
    if metadata:
        for key, value in re.findall(metadata, text[:16_384], re.MULTILINE | re.IGNORECASE):
            fields.setdefault(key.lower(), clean_line(value))
    return Extracted(
        text=text,
        sections=sections,
        format="text",
        title=fields.get("title") or fields.get("doctitle") or first_title(headings),
        document_date=read_date(fields.get("date") or fields.get("revdate")),
        tags=read_tags(
            (fields.get("filetags") or fields.get("keywords") or fields.get("tags") or "").replace(":", " ")
        ),
        warnings=((decoded.warning,) if decoded.warning else ()) + warnings,
    )


def _scan_rst(text: str) -> list[Heading]:
    headings: list[Heading] = []
    levels: list[tuple[str, bool]] = []
    position = 0
    while (match := _RST_HEADING.search(text, position)) and len(headings) <= MAX_HEADINGS:
        over, title, under = match.groups()
        lines = match.group().rstrip("\n").split("\n")
        position = match.start() + len(lines[0]) + 1
        long_enough = len(lines[-1].rstrip()) >= len(title.rstrip())
        # A line above counts only where it is like the line below; else it belongs to what is above.
        framed = over == under and len(lines) == 3 and len(lines[0].rstrip()) == len(lines[-1].rstrip())
        start = match.start() if framed or len(lines) == 2 else position
        follows_blank = text[max(0, start - 2) : start] in ("", "\n", "\n\n")
        words = clean_line(re.sub(r"[`*]|:\w+:(?=`)", "", title))
        if not long_enough or not follows_blank or not any(map(str.isalnum, words)):
            continue
        style = (under, framed)
        if style not in levels:
            levels.append(style)
        headings.append(Heading(start, match.end(), levels.index(style) + 1, words))
        position = match.end()
    return headings


def _scan_org(text: str) -> list[Heading]:
    headings: list[Heading] = []
    inside = ""
    for match in _ORG_HEADING.finditer(text):
        edge, block, stars, title = match.groups()
        if edge:
            if not inside and edge.upper() == "BEGIN":
                inside = block.lower()
            elif edge.upper() == "END" and block.lower() == inside:
                inside = ""
        elif not inside:
            words = _ORG_KEYWORDS.sub("", clean_line(title[:2_000]), count=2)
            words = re.sub(r" +:[\w@#%:]+:$", "", words)
            if words:
                headings.append(Heading(match.start(), match.end(), len(stars), words))
                if len(headings) > MAX_HEADINGS:
                    break
    return headings


def _scan_asciidoc(text: str) -> list[Heading]:
    headings: list[Heading] = []
    fence = ""
    for match in _ADOC_HEADING.finditer(text):
        delimiter, signs, title = match.groups()
        if delimiter:
            fence = "" if fence == delimiter else fence or delimiter
        elif not fence and (words := clean_line(title[:2_000])):
            headings.append(Heading(match.start(), match.end(), len(signs), words))
            if len(headings) > MAX_HEADINGS:
                break
    return headings
