"""Headings of a text, and the sections they cut it into. Pure; shared by every format that has headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from doc_rag.records import Section

MAX_HEADINGS = 50_000
"""With more than these the headings are noise (or an attack on memory): the text becomes one section."""


@dataclass(frozen=True, slots=True)
class Heading:
    """`start` and `end` are the offsets of its lines; `level` is 1 for the outermost."""

    start: int
    end: int
    level: int
    text: str


def first_title(headings: Sequence[Heading]) -> str | None:
    """The text of the first heading of level 1."""
    return next((heading.text for heading in headings if heading.level == 1), None)


def cut_at_headings(
    text: str, start: int, headings: Sequence[Heading]
) -> tuple[tuple[Section, ...], tuple[str, ...]]:
    """The sections of `text[start:]`, and a warning where it has too many headings to be cut at them."""
    if len(headings) > MAX_HEADINGS:
        return (Section(start, len(text)),), (
            f"has more than {MAX_HEADINGS:,} headings; it is indexed without them",
        )
    return tuple(_sections(text, start, headings)), ()


def _sections(text: str, start: int, headings: Sequence[Heading]) -> Iterator[Section]:
    """A section begins with its heading's line. A heading with nothing below it but deeper headings
    starts their section: its words are in the heading path of what follows, and would be a chunk of a
    few words otherwise.
    """
    path: list[Heading] = []
    section_start = start
    body_start = start
    for heading in headings:
        deeper = not path or heading.level > path[-1].level
        if text[body_start : heading.start].strip() or (path and not deeper):
            yield Section(section_start, heading.start, tuple(each.text for each in path))
            section_start = heading.start
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        body_start = heading.end
    if text[section_start:].strip():
        yield Section(section_start, len(text), tuple(each.text for each in path))
