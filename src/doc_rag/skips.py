"""The account of what a walk leaves out, bounded whatever the folder holds. Called by `walker`."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter

from doc_rag.records import Skip

MAX_SKIPS_PER_KIND = 100
"""Entries of one kind (ignored by one file, hidden, links, ...) reported by name; the rest are counted."""

_MAX_ENDINGS = 50
_MAX_ENDING_CHARS = 12


def nfc_name(raw: bytes) -> str:
    """A raw path as NFC text. Bytes that are no UTF-8 become lone surrogates: never store this unchecked."""
    if raw.isascii():
        return raw.decode("ascii")
    return unicodedata.normalize("NFC", os.fsdecode(raw))


def shown(raw: bytes) -> str:
    """A raw path as text that can be printed and stored; bytes that are no UTF-8 become backslash escapes."""
    return clean(nfc_name(raw))


def clean(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def ending(name: str) -> str:
    """The ending of a file's name in lower case with its dot, "" where there is none."""
    return os.path.splitext(name)[1].lower()


class SkipList:
    """Collects skips. Documents are named each; files of endings that are not indexed are counted."""

    def __init__(self) -> None:
        self._skips: list[Skip] = []
        self._kinds: Counter[str] = Counter()
        self._endings: Counter[str] = Counter()

    def add(self, source: str, reason: str) -> None:
        """A document that was left out, or a folder of them that could not be looked at."""
        self._skips.append(Skip(source, reason))

    def add_bounded(self, source: str, kind: str, reason: str | None = None) -> None:
        """One of possibly very many: named while there are few of its `kind`, then only counted."""
        self._kinds[kind] += 1
        if self._kinds[kind] <= MAX_SKIPS_PER_KIND:
            self._skips.append(Skip(source, reason or kind))

    def count_ending(self, file_name: str) -> None:
        """A file whose ending is not indexed."""
        suffix = clean(ending(file_name))
        printable = suffix.isprintable() and len(suffix) <= _MAX_ENDING_CHARS
        self._endings[f"*{suffix}" if suffix and printable else "*"] += 1

    def finish(self) -> tuple[Skip, ...]:
        """All skips in the order of their names."""
        found = list(self._skips)
        for kind, count in self._kinds.items():
            if count > MAX_SKIPS_PER_KIND:
                found.append(Skip("*", f"{count - MAX_SKIPS_PER_KIND:,} more: {kind}"))
        endings = self._endings.most_common(_MAX_ENDINGS)
        rest = self._endings.total() - sum(count for _, count in endings)
        for pattern, count in [*endings, *([("*", rest)] if rest else [])]:
            files = "1 file" if count == 1 else f"{count:,} files"
            found.append(Skip(pattern, f"{files} with {_which(pattern)} that is not indexed"))
        return tuple(sorted(found, key=lambda skip: (skip.source, skip.reason)))


def _which(pattern: str) -> str:
    return "an ending" if pattern != "*" else "an ending (or none)"
