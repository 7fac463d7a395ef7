"""Markdown to text with the heading path of every part. The text is the file's own: offsets and lines hold.

Headings are `markdown-it-py`'s, so a `#` inside a fence, a list or a quotation is none. A file that
would cost it too much is scanned line by line instead.
"""

from __future__ import annotations

import re
from itertools import pairwise

from doc_rag.extract.decode import clean_line, decode
from doc_rag.extract.front_matter import read_front_matter
from doc_rag.extract.headings import MAX_HEADINGS, Heading, cut_at_headings, first_title
from doc_rag.markdown_parser import MAX_PARSED_CHARS, line_offsets, parse_blocks, words_of_line
from doc_rag.records import Extracted

_FENCE_OR_HEADING = re.compile(r"^ {0,3}(?:(`{3,}|~{3,})([^\n]*)|(#{1,6})(?:[ \t]+([^\n]*))?)$", re.MULTILINE)


def extract_markdown(name: str, data: bytes) -> Extracted:
    """Read one Markdown file. `name` is not used: every extractor is called alike."""
    decoded = decode(data)
    text = decoded.text
    front = read_front_matter(text)
    headings = find_headings(text, front.end)
    sections, warnings = cut_at_headings(text, front.end, headings)
    return Extracted(
        text=text,
        sections=sections,
        format="markdown",
        title=front.title or first_title(headings),
        document_date=front.document_date,
        tags=front.tags,
        warnings=((decoded.warning,) if decoded.warning else ()) + warnings,
    )


def find_headings(text: str, start: int = 0) -> list[Heading]:
    """The headings of `text[start:]` in order; at most one more than MAX_HEADINGS."""
    if len(text) - start > MAX_PARSED_CHARS:
        return _scan_headings(text, start)
    return _parse_headings(text, start)


def _parse_headings(text: str, start: int) -> list[Heading]:
    body = text[start:]
    lines = line_offsets(body)
    headings: list[Heading] = []
    for token, content in pairwise(parse_blocks(body)):
        if token.type != "heading_open" or token.level or token.map is None:
            continue
        words = heading_text(content.content)
        if words:
            first, last = (start + lines[min(line, len(lines) - 1)] for line in token.map)
            headings.append(Heading(first, last, int(token.tag[1]), words))
            if len(headings) > MAX_HEADINGS:
                break
    return headings


def _scan_headings(text: str, start: int) -> list[Heading]:
    headings: list[Heading] = []
    fence = ""
    for match in _FENCE_OR_HEADING.finditer(text, start):
        run, after, hashes, content = match.groups()
        if run and not fence:
            if run[0] == "~" or "`" not in after:
                fence = run
        elif run:
            if run[0] == fence[0] and len(run) >= len(fence) and not after.strip():
                fence = ""
        elif not fence and (
            words := heading_text(re.sub(r"(^|[ \t]+)#+[ \t]*$", "", (content or "")[:2_000]))
        ):
            headings.append(Heading(match.start(), match.end(), len(hashes), words))
            if len(headings) > MAX_HEADINGS:
                break
    return headings


def heading_text(source: str) -> str:
    """A heading as it reads: without emphasis, link targets, code ticks and a trailing {#anchor}."""
    line = clean_line(re.sub(r"[ \t]*\{[#.:][^{}]{0,100}\}[ \t]*$", "", source[:2_000]))
    return clean_line(words_of_line(line))
