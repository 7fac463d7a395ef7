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
                _tags(lowered.get("tags", lowered.get("keywords"))),
            )
    return FrontMatter()


def _parse_yaml(block: str) -> Mapping[str, object] | None:
    import yaml

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
    for key in ("date", "published", "updated", "created", "lastmod"):
        value = fields.get(key)
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        if isinstance(value, str) and (match := re.match(r"\s*(\d{4})-(\d\d)-(\d\d)(?!\d)", value)):
            try:
                return date(*map(int, match.groups()))
            except ValueError:
                continue
    return None


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        # The commas of a string part tags; where there are none, blanks do.
        value = value.split(",") if "," in value else value.split()
    if not isinstance(value, list | tuple):
        return ()
    plain = (str(tag) for tag in value[: 4 * _MAX_TAGS] if isinstance(tag, str | int | float | date))
    return tuple(dict.fromkeys(tag for tag in map(clean_line, plain) if tag))[:_MAX_TAGS]
