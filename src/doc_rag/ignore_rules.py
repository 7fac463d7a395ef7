"""Which names `.gitignore` and `.ragignore` files leave out, nested as git nests them. Called by `sources`.

The patterns are `pathspec`'s. Only ignore files in the root and below count: a docs folder that its
own repository ignores is still the folder the user asked for.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ragignore")
"""In this order: a line of `.ragignore` overrides `.gitignore` beside it."""

MAX_IGNORE_FILE_BYTES = 1_048_576
_MAX_STARS = 8
"""Wildcards in one pattern. Each is a nested repetition once it is a regular expression: with a dozen,
one long file name takes minutes."""


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of one folder. `folder` is its name below the root, "" for the root itself."""

    folder: str
    spec: GitIgnoreSpec
    origins: tuple[str, ...]
    """For each pattern of `spec`, the name of the file it was written in."""


def read_ignore_rules(path: str, folder: str) -> tuple[IgnoreRules | None, list[tuple[str, str]]]:
    """Read the ignore files in the folder at `path`.

    Returns the rules (None where there are none) and (file name, what was wrong with it) pairs. A line
    that is no valid pattern is left out and named; the rest of its file holds.
    """
    lines: list[str] = []
    origins: list[str] = []
    problems: list[tuple[str, str]] = []
    for file_name in IGNORE_FILES:
        name = f"{folder}/{file_name}" if folder else file_name
        try:
            text = _read_small_file(os.path.join(path, file_name))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problems.append((name, f"its rules are not applied: {_reason(error)}"))
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            if not _is_usable(line):
                problems.append((name, f"line {number} is not a pattern that can be used; it is left out"))
                continue
            lines.append(line)
            origins.append(name)
    rules = IgnoreRules(folder, GitIgnoreSpec.from_lines(lines), tuple(origins)) if lines else None
    return rules, problems


def ignored_by(stack: Sequence[IgnoreRules], name: str, is_folder: bool) -> str | None:
    """The ignore file that leaves `name` out, or None. `stack` goes from the root down; the deepest rule wins."""
    for rules in reversed(stack):
        below = name[len(rules.folder) + 1 :] if rules.folder else name
        result = rules.spec.check_file(below + "/" if is_folder else below)
        if result.include is not None:
            return rules.origins[result.index or 0] if result.include else None
    return None


def _read_small_file(path: str) -> str:
    # A link could lead out of the root, and a FIFO would never answer: neither is followed or waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(MAX_IGNORE_FILE_BYTES + 1)
    if len(data) > MAX_IGNORE_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_IGNORE_FILE_BYTES:,} bytes")
    # Names are compared in NFC, so patterns are too.
    return unicodedata.normalize("NFC", data.decode("utf-8-sig", errors="replace"))


def _is_usable(line: str) -> bool:
    if len(re.findall(r"\*+", line)) > _MAX_STARS:
        return False
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
