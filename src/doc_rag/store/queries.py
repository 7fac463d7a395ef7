"""Loads `queries.sql`: every statement of the product, by name."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files

from psycopg import sql

HEADER = re.compile(r"^-- ([a-z_]+): (.+)$", re.MULTILINE)
PART = re.compile(r"\{([a-z_]+)\}")


@cache
def _texts() -> dict[str, str]:
    text = files("doc_rag.store").joinpath("queries.sql").read_text(encoding="utf-8")
    parts = HEADER.split(text)
    return {parts[i]: parts[i + 2].strip() for i in range(1, len(parts), 3)}


@cache
def _statement(name: str) -> str:
    """A statement with the texts of the entries that it names put in."""
    return PART.sub(lambda part: _statement(part[1]) if part[1] in _texts() else part[0], _texts()[name])


def query(name: str) -> sql.SQL:
    """The statement called `name`. `{partition}` and the like in it are filled by `sql.SQL.format`."""
    return sql.SQL(_statement(name))


@lru_cache(maxsize=1024)
def on_partition(name: str, generation_id: int) -> bytes:
    """The statement called `name` on one generation's partition, named so that no other is planned."""
    return query(name).format(partition=partition_name(generation_id)).as_bytes(None)


def partition_name(generation_id: int) -> sql.Identifier:
    """`doc_chunks_g<id>`: made of our own integer, never of a collection's name."""
    return sql.Identifier(f"doc_chunks_g{int(generation_id)}")
