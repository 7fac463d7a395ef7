"""What a setting's text becomes: one parser for each kind of value, and the type that hides a secret.

A parser takes the text and where it was written; for text that will not do it raises a ValueError that
reads on from the variable's name ("must be a whole number").
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MAX_COLLECTION_CHARS = 200
DEFAULT_EXTENSIONS = (".pdf", ".md", ".markdown", ".txt")
MORE_EXTENSIONS = (
    ".rst",
    ".html",
    ".htm",
    ".docx",
    ".csv",
    ".json",
    ".yaml",
    ".yml",
    ".ipynb",
    ".org",
    ".adoc",
)


class Secret:
    """A value that never shows itself in a repr, a log line or an error; `reveal()` hands it out."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret('**********')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class Context:
    """Where a value was written: what to call that place, and what its relative paths are relative to."""

    origin: str
    folder: Path


Parser = Callable[[str, Context], Any]


def text(value: str, _: Context) -> str:
    return value


def secret(value: str, _: Context) -> Secret:
    return Secret(value)


def path(value: str, context: Context) -> Path:
    return (context.folder / Path(value).expanduser()).absolute()


def integer(low: int, high: int) -> Parser:
    def parse(value: str, _: Context) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"must be between {low} and {high}")
        return number

    return parse


def number(low: float, high: float) -> Parser:
    def parse(value: str, _: Context) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError("must be a number") from None
        if not low <= number <= high:
            raise ValueError(f"must be between {low:g} and {high:g}")
        return number

    return parse


def choice(*names: str) -> Parser:
    def parse(value: str, _: Context) -> str:
        if value.lower() not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value.lower()

    return parse


def flag(value: str, _: Context) -> bool:
    if value.lower() in ("true", "1", "yes", "on"):
        return True
    if value.lower() in ("false", "0", "no", "off"):
        return False
    raise ValueError("must be true or false")


def url(*schemes: str) -> Parser:
    def parse(value: str, _: Context) -> str:
        parts = urlsplit(value)
        if parts.scheme not in schemes or not parts.netloc:
            raise ValueError(f"must be an address beginning with {' or '.join(s + '://' for s in schemes)}")
        return value.rstrip("/")

    return parse


def database_url(value: str, _: Context) -> Secret:
    if not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("must begin with postgresql:// (user:password@host:port/database)")
    # What a password spoils when it is not encoded would show up as a host or a database, also in messages.
    parts = urlsplit(value)
    if (
        "@" in parts.path + parts.query
        or parts.fragment
        or any(c.isspace() for c in value)
        or "@" in (parts.netloc.rpartition("@")[0])
    ):
        raise ValueError(
            "has a character in its user or password that must be percent-encoded: blank is %20, # is %23, "
            "/ is %2F, : is %3A, ? is %3F, @ is %40"
        )
    hosts_and_ports = parts.netloc.rpartition("@")[2]  # several of them, for a server that fails over
    if any(not part.isdigit() for part in re.findall(r":([^,:\]]+)(?=,|$)", hosts_and_ports)):
        raise ValueError("has a port that is no number; or encode the : / ? # @ of its password")
    return Secret(value)


def collection(value: str, _: Context) -> str:
    problem = collection_name_problem(value)
    if problem:
        raise ValueError(f"cannot name a collection: {problem}")
    return value


def names(value: str, _: Context) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def hosts(value: str, context: Context) -> tuple[str, ...]:
    given = names(value, context)
    for name in given:
        if "/" in name or "*" in name or any(c.isspace() for c in name):
            raise ValueError(f"has {name}, which is no host; write docs.example.com or docs.example.com:8443")
    return tuple(name.lower() for name in given)


def origins(value: str, context: Context) -> tuple[str, ...]:
    given = names(value, context)
    for name in given:
        parts = urlsplit(name)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
            raise ValueError(f"has {name}, which is no origin; write https://app.example.com")
    return tuple(name.lower() for name in given)


def networks(value: str, context: Context) -> tuple[str, ...]:
    given = names(value, context)
    for name in given:
        try:
            ipaddress.ip_network(name, strict=False)
        except ValueError:
            raise ValueError(f"has {name}, which is no address; write 10.0.0.7 or 172.16.0.0/12") from None
    return given


def extensions(value: str, _: Context) -> tuple[str, ...]:
    known = DEFAULT_EXTENSIONS + MORE_EXTENSIONS
    if value.strip().lower() == "all":
        return known
    names = tuple(dict.fromkeys("." + n.strip().lower().lstrip(".") for n in value.split(",") if n.strip()))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"has {', '.join(unknown)}, which cannot be read; known are {' '.join(known)}, or all"
        )
    return names


def language(value: str, _: Context) -> str:
    if not re.fullmatch(r"[a-z_]{1,63}", value):
        raise ValueError("must be a Postgres text search configuration such as english, german or simple")
    return value


def collection_name_problem(name: str) -> str | None:
    """Why `name` cannot name a collection, or None. The rule: 1 to 200 printable characters, not only blanks."""
    if not name.strip():
        return "a collection's name must have at least one character that is no blank"
    if len(name) > MAX_COLLECTION_CHARS:
        return f"a collection's name has at most {MAX_COLLECTION_CHARS} characters; this one has {len(name)}"
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in name):
        return "a collection's name must not hold control characters"
    return None
