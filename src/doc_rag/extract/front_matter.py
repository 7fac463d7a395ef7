"""The block of metadata at the top of a text file: YAML between `---` lines, or TOML between `+++` lines.

It becomes title, tags and date; it is never part of what is indexed. Content that only looks like
front matter (prose between two rules) stays in the body.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from doc_rag.extract.decode import clean_line

_MAX_CHARS = 16_384
"""Longest front matter. The YAML parser's time grows with the square of a hostile one."""
_MAX_BRACKETS = 500
_MAX_TAGS = 50
_BLOCKS = (
    re.compile(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL),
    re.compile(r"\+\+\+[ \t]*\n(.*?\n)?\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL),
)
_KEY_LINE = re.compile(r"([A-Za-z_][\w .-]{0,60}):(?:[ \t]+(.*))?")
_NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """`end` is the offset at which the body starts: 0 where there is no front matter."""

    end: int = 0
    title: str | None = None
    document_date: date | None = None
    tags: tuple[str, ...] = ()


def read_front_matter(text: str) -> FrontMatter:
    """Parse the front matter of a clean text."""
    head = text[:_MAX_CHARS]
    for pattern, parse in zip(_BLOCKS, (_parse_yaml, _parse_toml), strict=True):
        match = pattern.match(head)
        fields = parse(match.group(1) or "") if match else None
        if match and fields is not None:
            lowered = {str(key).lower(): value for key, value in fields.items()}
            return FrontMatter(
                match.end(),
                _title(lowered),
                _date(lowered),
                read_tags(lowered.get("tags", lowered.get("keywords"))),
            )
    return FrontMatter()


def _parse_yaml(block: str) -> Mapping[str, object] | None:
    import yaml

    if block.count("[") + block.count("{") > _MAX_BRACKETS:
        return _parse_key_lines(block)
    try:
        # The loader builds plain values only, and aliases are shared, so a bomb stays as small as it is written.
        fields = yaml.safe_load(block)
    except (yaml.YAMLError, RecursionError, ValueError):
        return _parse_key_lines(block)
    if fields is None:
        return _NOTHING
    return fields if isinstance(fields, dict) else None


def _parse_key_lines(block: str) -> Mapping[str, object] | None:
    """What people write is often not quite YAML (`title: Ports: an overview`): take its `key: value` lines."""
    lines = [line for line in block.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if not lines or not _KEY_LINE.fullmatch(lines[0]):
        return None
    pairs = (match.groups() for match in map(_KEY_LINE.fullmatch, lines) if match)
    return {key: (value or "").strip().strip("'\"") for key, value in pairs}


def _parse_toml(block: str) -> Mapping[str, object] | None:
    try:
        return tomllib.loads(block)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None


def _title(fields: Mapping[str, object]) -> str | None:
    value = fields.get("title")
    return clean_line(str(value)) or None if isinstance(value, str | int | float | date) else None


def _date(fields: Mapping[str, object]) -> date | None:
    keys = ("date", "published", "updated", "created", "lastmod")
    return next((found for key in keys if (found := read_date(fields.get(key)))), None)


def read_date(value: object) -> date | None:
    """The day a metadata value names: a date or time, or text with a YYYY-MM-DD in it."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    match = re.search(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)", value[:200]) if isinstance(value, str) else None
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def read_tags(value: object) -> tuple[str, ...]:
    """Tags from a list, or from text parted by commas or semicolons, else by blanks; each once."""
    if isinstance(value, str):
        value = re.split("[,;]", value) if re.search("[,;]", value) else value.split()
    if not isinstance(value, list | tuple):
        return ()
    plain = (str(tag) for tag in value[: 4 * _MAX_TAGS] if isinstance(tag, str | int | float | date))
    return tuple(dict.fromkeys(tag for tag in map(clean_line, plain) if tag))[:_MAX_TAGS]
