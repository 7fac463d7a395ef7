"""Dated document series: `name-YYYY-MM-DD` three or more times beside each other. Pure.

A chunk that stays word for word the same under the same heading from one date to the next is held
once, by the first date of that run. A value that changes and comes back starts a new run, since it
is a new fact.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

MIN_MEMBERS = 3
DATED_NAME = re.compile(
    r"(?P<stem>(?:.*/)?[^/]*?)[-_. ]?(?<!\d)(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})(?P<ending>\.[^./]+)"
)


@dataclass(frozen=True, slots=True)
class Member:
    """One document of a series."""

    day: date
    source: str


def find_series(sources: Iterable[str]) -> dict[str, tuple[Member, ...]]:
    """The series among `sources` by their key (folder, stem and ending), members in order of their dates."""
    found: dict[str, list[Member]] = {}
    for source in sources:
        match = DATED_NAME.fullmatch(source)
        day = _date(match["date"]) if match else None
        if match and day:
            found.setdefault(f"{match['stem']}*{match['ending']}", []).append(Member(day, source))
    return {
        key: tuple(sorted(members, key=lambda member: (member.day, member.source)))
        for key, members in found.items()
        if len({member.day for member in members}) >= MIN_MEMBERS
    }


def series_by_source(sources: Iterable[str]) -> dict[str, str]:
    """The key of the series of every source that is in one."""
    return {member.source: key for key, members in find_series(sources).items() for member in members}


@dataclass(frozen=True, slots=True)
class Held:
    """A chunk that its document holds, and the later dates on which it also held."""

    index: int
    also_on: tuple[date, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A chunk that is not stored again: the chunk `holder_index` of document `holder` stands for it."""

    index: int
    holder: int
    holder_index: int


@dataclass(frozen=True, slots=True)
class Share:
    """What one document of a series holds and what it repeats; every chunk is in one of the two."""

    held: tuple[Held, ...]
    repeated: tuple[Repeated, ...]


def share_out(days: Sequence[tuple[date, Sequence[Hashable]]]) -> list[Share]:
    """Share the chunks of a series out, `days` in order of date: the date, and each chunk's (heading, content)."""
    running: dict[Hashable, tuple[int, int]] = {}
    also_on: dict[tuple[int, int], list[date]] = {}
    held: list[list[int]] = []
    repeated: list[list[Repeated]] = []
    for position, (day, chunks) in enumerate(days):
        held.append([])
        repeated.append([])
        following: dict[Hashable, tuple[int, int]] = {}
        for index, chunk in enumerate(chunks):
            holder = running.get(chunk)
            if holder is None:
                held[position].append(index)
                also_on[position, index] = []
                following.setdefault(chunk, (position, index))
            else:
                repeated[position].append(Repeated(index, *holder))
                if not also_on[holder] or also_on[holder][-1] != day:
                    also_on[holder].append(day)
                following[chunk] = holder
        running = following
    return [
        Share(tuple(Held(index, tuple(also_on[position, index])) for index in indexes), tuple(repeats))
        for position, (indexes, repeats) in enumerate(zip(held, repeated, strict=True))
    ]


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
