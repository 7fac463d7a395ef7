"""Change one variable of a `.env` file in place: comments, order and every other line stay as they are.

The file is replaced atomically and readable by its owner alone, since it holds keys. Reading is as
`settings` reads it (python-dotenv without interpolation); here by the standard library, so that
`make up` needs no virtual environment.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ASSIGNMENT = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=~-]*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Assignment:
    """`name=value` at lines [first, last) of the file; a quoted value may span several."""

    name: str
    value: str
    first: int
    last: int


def _closing_quote(text: str, quote: str) -> int:
    """Index of the quote that ends `text` (which begins behind the opening one), -1 where there is none."""
    position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 2
        elif text[position] == quote:
            return position
        else:
            position += 1
    return -1


def _unquote(text: str, quote: str) -> str:
    """The value inside quotes, its escapes resolved as python-dotenv does."""
    if quote == "'":
        return re.sub(r"\\([\\'])", r"\1", text)
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


def assignments(lines: Sequence[str]) -> Iterator[Assignment]:
    """Every active assignment, in the file's order. A later one of the same name wins."""
    number = 0
    while number < len(lines):
        first, found = number, _ASSIGNMENT.match(lines[number])
        number += 1
        if not found:
            continue
        name, rest = found[1], found[2]
        if rest[:1] not in ("'", '"'):
            yield Assignment(name, re.split(r"\s+#", rest)[0].strip(), first, number)
            continue
        end = _closing_quote(rest[1:], rest[0])
        following = number
        while end < 0 and following < len(lines):
            rest += lines[following]
            following += 1
            end = _closing_quote(rest[1:], rest[0])
        if end >= 0:
            number = following
            yield Assignment(name, _unquote(rest[1 : end + 1], rest[0]), first, number)


def parse(text: str) -> dict[str, str]:
    """All variables of a `.env` text."""
    return {found.name: found.value for found in assignments(text.splitlines(keepends=True))}


def quote(value: str) -> str:
    """`value` as it must be written so that python-dotenv and both Compose versions read it literally.

    Raises:
        ValueError: it holds a single quote or a line break, which they read differently.
    """
    if _PLAIN.fullmatch(value):
        return value
    if any(character in value for character in "'\r\n\0\\"):
        raise ValueError("a value with a single quote, a backslash or a line break cannot be written to .env")
    return f"'{value}'"


def set_value(text: str, name: str, value: str) -> str:
    """`text` with `name` set to `value`.

    Replaces the last assignment (the one in force), else a commented-out `# NAME=` line, else appends.
    Every other byte stays.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    line = f"{name}={quote(value)}{newline}"
    found = [a for a in assignments(lines) if a.name == name]
    if found:
        return "".join([*lines[: found[-1].first], line, *lines[found[-1].last :]])
    comment = re.compile(rf"[ \t]*#[ \t]*{re.escape(name)}[ \t]*=")
    for number, old in enumerate(lines):
        if comment.match(old):
            return "".join([*lines[:number], line, *lines[number + 1 :]])
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += newline
    return "".join([*lines, line])


def write_private(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, mode 0600, through a symlink to its target, owner kept."""
    target = path.resolve()
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists() and hasattr(os, "geteuid") and os.geteuid() == 0:
            status = target.stat()
            os.chown(temporary, status.st_uid, status.st_gid)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def checkout_root() -> Path | None:
    """The source checkout this file runs from (the rule of `settings.checkout_root`), else None."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "src" / "doc_rag").is_dir() else None


def default_path(environ: Mapping[str, str]) -> Path:
    """The `.env` to change: RAG_ENV_FILE, else the checkout's, else the working directory's."""
    if environ.get("RAG_ENV_FILE"):
        return Path(environ["RAG_ENV_FILE"]).expanduser().absolute()
    return (checkout_root() or Path.cwd()) / ".env"


def read(path: Path) -> str:
    """The file's text, its line ends kept; empty where there is no file."""
    if not path.exists():
        return ""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return file.read()


def read_or_example(path: Path) -> str:
    """The file's text, or that of `.env.example` beside it where the file does not exist yet."""
    return read(path) if path.exists() else read(path.with_name(".env.example"))


def update(path: Path, values: Mapping[str, str]) -> None:
    """Set each variable in the file, which is made from `.env.example` where it does not exist."""
    text = read_or_example(path)
    for name, value in values.items():
        text = set_value(text, name, value)
    write_private(path, text)


def main(argv: Sequence[str] | None = None) -> int:
    """`env_file NAME` reads a value from standard input (never from the command line, which others see)."""
    names = list(sys.argv[1:] if argv is None else argv)
    if len(names) != 1 or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", names[0]):
        print("usage: python -m doc_rag.ops.env_file NAME < value", file=sys.stderr)
        return 2
    path = default_path(os.environ)
    try:
        update(path, {names[0]: sys.stdin.read().rstrip("\n")})
    except (OSError, ValueError) as error:
        print(f"{path} was not changed: {error}", file=sys.stderr)
        return 1
    print(f"{names[0]} was written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
